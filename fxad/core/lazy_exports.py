"""Lazy exports of a package: a file is imported when one of its names is first used.

`fxad.numpy` has 400 names in 30 files, and a program uses a few of them. A type checker reads ordinary imports; a test
compares these with the lazy exports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType

from fxad.support.absent import absent


def lazy_exports(
    package: str, exports: Mapping[str, str], modules: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. `exports` maps a file to the names that it exports; `map=map_`
    exports `map_` as `map`. `modules` are submodules that are exported themselves.

    Rule: a name may equal that of its own file, but not that of another file of the package.
    """
    locations = {  # the file of each exported name, and its name there
        name: (file, defined or name)
        for file, names in exports.items()
        for name, _, defined in [entry.partition("=") for entry in names.split()]
    }
    submodules = frozenset(modules.split())
    if any([file == f"{package}.{name}" for name, (file, _) in locations.items()]):
        sys.modules[package].__class__ = _Package

    def find(name: str) -> object:
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name not in locations:
            raise AttributeError(absent(package, name), name=name, obj=sys.modules[package])
        file, defined = locations[name]
        value = getattr(import_module(file), defined)
        setattr(sys.modules[package], name, value)  # later lookups do not call `find`
        return value

    def list_names() -> list[str]:
        # without the submodules, which Python sets as attributes of a package when they are imported
        present = {n for n, v in vars(sys.modules[package]).items() if not isinstance(v, ModuleType)}
        return sorted({*(present - _NOT_EXPORTED), *submodules, *locations})

    return find, list_names


class _Package(ModuleType):
    """A package that exports functions with the names of their files. Python sets an imported submodule as an attribute
    of its package, which would hide the function; this class ignores that assignment."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        return import_module, (self.__name__,)  # as cloudpickle does it for modules


_NOT_EXPORTED = frozenset({"TYPE_CHECKING", "Final", "lazy_exports"})
