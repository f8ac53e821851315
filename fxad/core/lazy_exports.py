"""Lazy exports of a package: a file is imported when one of its names is first used.

`fxad.numpy` has 400 names in 30 files, and a program uses a few of them. The stub of a package, `__init__.pyi`, states
each name and its file once, for type checkers and for `lazy_loader`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from lazy_loader import attach_stub

from fxad.support.absent import absent


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package whose `__init__.py` is `file`.

    A name may equal that of its own file, but not that of another file of the package. A stub cannot rename, and it
    names files of its own package only: a file with `import ... as ...` does both.
    """
    load, list_names, names = attach_stub(package, file)
    known = frozenset(names)
    explain, _ = explained_errors(package)
    return lambda name: load(name) if name in known else explain(name), list_names, names


def explained_errors(module: str) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module with `__all__`. The error for a missing name says what to write
    instead."""

    def explain(name: str) -> NoReturn:
        raise AttributeError(absent(module, name), name=name, obj=sys.modules[module])

    return explain, lambda: sys.modules[module].__all__
