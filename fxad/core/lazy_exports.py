"""What a package shows of its files, each imported when something of it is first asked for.

`fxad.numpy` has 400 names in 30 files, and a program uses a few of them. A type checker sees imports; a test holds what
it sees and what is found here together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def later(
    package: str, homes: Mapping[str, str], modules: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `homes` says which names are in which file, `modules` are its own files
    that are names themselves; `map=map_` shows under another name.

    Rule: a name may be that of the file it is in, but not of another file of the package.
    """
    home = {
        shown: (file, name or shown)
        for file, names in homes.items()
        for shown, _, name in [entry.partition("=") for entry in names.split()]
    }
    parts = frozenset(modules.split())
    if any([file == f"{package}.{shown}" for shown, (file, _) in home.items()]):
        sys.modules[package].__class__ = _Package

    def find(name: str) -> object:
        if name in parts:
            return import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        file, there = home[name]
        found = getattr(import_module(file), there)
        setattr(sys.modules[package], name, found)  # asked for once
        return found

    def listed() -> list[str]:
        # not its files, which Python sets in a package when they are imported
        there = {n for n, v in vars(sys.modules[package]).items() if not isinstance(v, ModuleType)}
        return sorted({*(there - _TOOLS), *parts, *home})

    return find, listed


class _Package(ModuleType):
    """A package with functions that are called as their files are: Python, having imported a file, sets its name in the
    package, and would hide the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"):
            super().__setattr__(name, value)


_TOOLS = frozenset({"TYPE_CHECKING", "Final", "later"})
