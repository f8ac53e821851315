"""The imports and the code with which a test in a file calls a predicate."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Hashable, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Final, NamedTuple

from fxad.diagnosis.reduce.child import ChildPredicate
from fxad.errors import ArgumentError, shown
from fxad.ir import Jaxpr, all_prims
from fxad.storage.encoding import find_host_call
from fxad.text import PRIMITIVES

_REMEDY: Final = "define it with `def` at the top of a module, and read nothing but modules, functions and plain values"


def code_of(fails: Callable[..., Hashable], jaxpr: Jaxpr) -> TestCode:
    """Return the parts of a test that calls a predicate with a program.

    Raises: ArgumentError for a predicate, or a primitive from outside fxad, that a file cannot name, and for a program
            that calls Python functions.
    """
    host_call = find_host_call(jaxpr)
    if host_call is not None:
        raise ArgumentError(
            f"as_test: the program calls the Python function {host_call[1]}, which a file cannot hold",
            remedy="write a test that traces the program, and calls `fails`",
        )
    code = _Code()
    expression = code.expression(fails)
    kinds = dict.fromkeys([type(prim) for prim in all_prims(jaxpr)])
    own = [code.expression(kind) for kind in kinds if PRIMITIVES.get(kind.name) is not kind]
    imports = sorted({"from fxad.diagnosis.reduce import read_reduced", *code.imports})
    return TestCode(imports, "\n\n\n".join(reversed(code.definitions.values())), expression, own)


class TestCode(NamedTuple):
    """The parts of a test: imports, definitions, the expression for the predicate, those for primitives from outside
    fxad."""

    imports: list[str]
    definitions: str
    fails: str
    primitives: list[str]


class _Code:
    """The imports and the definitions of a test file."""

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.definitions: dict[str, str] = {}

    def expression(self, value: object, name: str = "") -> str:
        """Return the expression for a value that a predicate is or reads; `name` is its global name there."""
        if isinstance(value, ChildPredicate):
            self.imports["from fxad.testing import in_child"] = None
            limits = f"seconds={value.seconds!r}" + (f", memory={value.memory!r}" if value.memory else "")
            return f"in_child({self.expression(value.fails)}, {limits})"
        if isinstance(value, functools.partial):
            self.imports["import functools"] = None
            parts = [value.func, *value.args]
            named = [f"{k}={self.expression(v)}" for k, v in value.keywords.items()]
            return f"functools.partial({', '.join([*map(self.expression, parts), *named])})"
        if isinstance(value, ModuleType):
            alias = name or value.__name__.rpartition(".")[2]
            self.imports[f"import {value.__name__} as {alias}"] = None
            return alias
        text = _plain_text(value)
        if text is not None:
            if name:
                self.definitions[name] = f"{name} = {text}"
            return name or text
        own, module = getattr(value, "__qualname__", ""), getattr(value, "__module__", None)
        if module is None and name:
            raise _refused(value, f"it reads {name}, which is {shown(value)}")
        if "<" in own or not own:
            raise _refused(value, "it has no name in a module")
        top, *rest = own.split(".")
        if _importable(module, own, value):
            alias = name or top
            self.imports[f"from {module} import {top}" + (f" as {alias}" if alias != top else "")] = None
            return ".".join([alias, *rest])
        if isinstance(value, FunctionType) and not rest:
            self._copy(value)
            return top
        raise _refused(value, f"module {module} cannot be imported by a test")

    def _copy(self, fn: FunctionType) -> None:
        """Add the source of a function with its decorators, and what both read."""
        if fn.__name__ in self.definitions:
            return
        own = inspect.unwrap(fn)
        if not isinstance(own, FunctionType) or own.__closure__:
            raise _refused(fn, "it reads variables of the function around it")
        source, definition = _definition(fn)
        self.definitions[fn.__name__] = source
        for name in sorted(_globals_of(own.__code__) | _read_at_definition(definition)):
            if name in own.__globals__ and name != fn.__name__:
                self.expression(own.__globals__[name], name)


def _globals_of(code: CodeType) -> set[str]:
    """Return the names of globals and builtins that a function reads, with those of the functions in it."""
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*[_globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)])


def _definition(fn: FunctionType) -> tuple[str, ast.FunctionDef]:
    """Return the source of a function, as a text and parsed."""
    try:
        source = textwrap.dedent(inspect.getsource(fn)).rstrip()
        definition = ast.parse(source).body[0]
        # Python 3.13 gives the source of `python -c` for a function that `exec` made
        if isinstance(definition, ast.FunctionDef) and definition.name == inspect.unwrap(fn).__name__:
            return source, definition
    except (OSError, TypeError, SyntaxError):
        pass
    raise _refused(fn, f"its module {fn.__module__} has no source")


def _read_at_definition(function: ast.FunctionDef) -> set[str]:
    """Return the names that the decorators and the defaults of a function read."""
    read = [*function.decorator_list, *function.args.defaults, *function.args.kw_defaults]
    return {n.id for part in read if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}


def _importable(module: str | None, qualname: str, value: object) -> bool:
    """Return True if another process can import a value by its module and name."""
    loaded = sys.modules.get(module or "")
    if module == "__main__" or loaded is None or getattr(loaded, "__spec__", None) is None:
        return False
    found: object = loaded
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is value


def _plain_text(value: object) -> str | None:
    """Return the expression of a plain value; None for another one, whose `repr` may be no expression, as of an Enum or
    a number of NumPy."""
    if isinstance(value, tuple | list | dict) and type(value) in (tuple, list, dict):
        parts: Sequence[object] = [x for item in value.items() for x in item] if isinstance(value, dict) else value
        texts = [text for x in parts if (text := _plain_text(x)) is not None]
        if len(texts) < len(parts):
            return None
        if isinstance(value, dict):
            return f"{{{', '.join([f'{k}: {v}' for k, v in zip(texts[::2], texts[1::2], strict=True)])}}}"
        return f"({''.join([f'{t}, ' for t in texts])})" if isinstance(value, tuple) else f"[{', '.join(texts)}]"
    if type(value) is float and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value) if value is None or type(value) in (bool, int, float, str, bytes) else None


def _refused(value: object, why: str) -> ArgumentError:
    return ArgumentError(f"as_test: a file cannot name {shown(value)}: {why}", remedy=_REMEDY)
