"""Lazy exports of a package: a file is imported when one of its names is first used.

`fxad.numpy` has 400 names in 30 files, and a program uses a few of them. The stub of a package, `__init__.pyi`, states
each name and its file once, for type checkers and for `lazy_loader`.
"""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Callable
from typing import NoReturn

from lazy_loader import attach

from fxad.support.absent import absent


def lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    A name may equal that of its own file, but not that of another file of the package. A stub cannot rename, and it
    names files of its own package only: a file with `import ... as ...` does both.
    """
    load, list_names, names = attach(package, *_stated_names(package))
    known = frozenset(names)
    explain, _ = explained_errors(package)
    return lambda name: load(name) if name in known else explain(name), list_names, names


def _stated_names(package: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the files that the stub of a package exports, and the names that it exports of other files.

    `lazy_loader.attach_stub` reads the stub as a file; this also reads it in an archive.
    """
    stub = pkgutil.get_data(package, "__init__.pyi")
    if stub is None:
        raise ImportError(f"{package}: its loader has no data, and __init__.pyi states what it exports")
    files: list[str] = []
    names: dict[str, list[str]] = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            exported = [alias.name for alias in node.names]
            if node.module is None:
                files += exported
            else:
                names.setdefault(node.module, []).extend(exported)
    return files, names


def explained_errors(module: str) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module with `__all__`. The error for a missing name says what to write
    instead."""

    def explain(name: str) -> NoReturn:
        raise AttributeError(absent(module, name), name=name, obj=sys.modules[module])

    return explain, lambda: sys.modules[module].__all__
