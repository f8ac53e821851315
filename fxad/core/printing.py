"""Prints a program as text. `fxad.text` parses it.

    fn @norm(%arg0: f32[3]) -> (f32[]) {
      %0: f32[3] = mul %arg0, %arg0
      %1: f32[] = reduce_sum[axes=(0,)] %0
      return %1
    }

    main @loss(%arg0: f32[3]) -> (f32[]) {
      %0: f32[3] = mul %arg0, 2.0:f32[3]
      %1: f32[] = call[body=@norm] %0
      return %1
    }

One equation a line. Every distinct body is printed once, before its first use. Literals and parameters are exact, so
the text determines the program. The digest of a program is the hash of a text without the user's names, in which
bodies are named by their digests.

`ir` imports this module, so that a program can print itself. This module imports `ir` for types only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from fxad import dtypes
from fxad.core.atoms import Aval, Lit
from fxad.core.declaration import Record
from fxad.core.sizes.size import Size
from fxad.errors import DTypeError, TypecheckError

if TYPE_CHECKING:
    from fxad.ir import Eqn, Jaxpr, Param, Primitive, Var

Labels: TypeAlias = Mapping[object, str]  # bodies -> their labels in a text
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def program(functions: Sequence[Jaxpr], note: Callable[[Eqn], str] | None = None, name: str = "") -> str:
    """Return the text of `functions[-1]`, after its bodies. `note` returns a comment for an equation, or an empty
    string. `name` is that of the last function; by default its own, which may be that of an equal function."""
    names: Labels = labels(functions, name)
    texts = []
    for jaxpr in functions:
        keyword = "main" if jaxpr is functions[-1] else "fn"
        texts.append(function_text(jaxpr, f"{keyword} {names[jaxpr]}", names, note))
    return "\n".join(texts)


def labels(functions: Sequence[Jaxpr], last: str = "") -> dict[object, str]:
    """Return a label for each function: `@name`, `@"<lambda>"`; `@name#1`, `@name#2`, ... when several have one
    name. `last` names the last one."""
    seen: dict[str, int] = {}
    out: dict[object, str] = {}
    for jaxpr in functions:
        name = last if last and jaxpr is functions[-1] else jaxpr.name
        label = f"@{name if _PLAIN.fullmatch(name) else json.dumps(name)}"
        k = seen[label] = seen.get(label, -1) + 1
        out[jaxpr] = f"{label}#{k}" if k else label
    return out


def function_text(jaxpr: Jaxpr, head: str, names: Labels, note: Callable[[Eqn], str] | None = None) -> str:
    """Return one function; its bodies by their labels."""
    lines = [f"{head}({_bindings(jaxpr.ins)}) -> ({', '.join([str(a.aval) for a in jaxpr.outs])}) {{"]
    operations: dict[Primitive, str] = {}  # programs repeat operations: each is printed once
    for eqn in jaxpr.eqns:
        operation_text = operations.get(eqn.prim)
        if operation_text is None:
            operation_text = operations[eqn.prim] = operation(eqn.prim, names)
        comment = " ".join(note(eqn).split()) if note else ""
        lines.append(f"  {_line(eqn, operation_text)}{'  # ' if comment else ''}{comment}")
    lines.append(f"  return {', '.join(map(str, jaxpr.outs))}".rstrip())
    return "\n".join([*lines, "}\n"])


def equation(eqn: Eqn, names: Labels) -> str:
    """Return one equation: `%0: f32[3] = mul %arg0, 2.0:f32[3]`."""
    return _line(eqn, operation(eqn.prim, names))


def _line(eqn: Eqn, operation_text: str) -> str:
    return f"{_bindings(eqn.outs) or '()'} = {operation_text} {', '.join(map(str, eqn.ins))}".rstrip()


def operation(prim: Primitive, names: Labels) -> str:
    """Return a primitive with its parameters: `reduce_sum[axes=(0,)]`. All are printed, also defaults, but for a text
    that is not given: a reader need not know the class."""
    values = []
    for f in fields(prim):
        if f.default == "" and getattr(prim, f.name) == "":  # a text that is not given
            continue
        try:
            values.append(f"{f.name}={parameter(getattr(prim, f.name), names)}")
        except (TypecheckError, DTypeError) as e:
            raise TypecheckError(f"{prim.name}: parameter {f.name}: {e.message}") from None
    return f"{prim.name}[{', '.join(values)}]" if values else prim.name


def parameter(value: Param, names: Labels) -> str:
    """Return a parameter: `3`, `true`, `"text"`, `none`, `f32`, `f32[3]`, `2.0:f32[]`, `{2*n}`, `@body`, `(0, 1)`,
    `rule(size=2)`. A record, which has many fields, is printed without those that have their defaults."""
    match value:
        case None:
            return "none"
        case Size():
            return f"{{{value.text}}}"
        case bool():
            return "true" if value else "false"
        case int():
            # str() of a large int is slow, and may raise
            return str(value) if abs(value) < 1 << 64 else hex(value)
        case str():
            return json.dumps(value)
        case np.dtype():
            return dtypes.short(dtypes.as_dtype(value))
        case tuple():
            inner = ", ".join([parameter(v, names) for v in value])
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case Record():
            non_default = [f.name for f in fields(value) if getattr(value, f.name) != f.default]
            inner = ", ".join([f"{name}={parameter(getattr(value, name), names)}" for name in non_default])
            return f"{value.name}({inner})"
        case Aval() | Lit():
            return str(value)
        case _:
            if value in names:  # a program
                return names[value]
    raise TypecheckError(f"{value!r} is not a value that a program can hold")


def _bindings(values: Sequence[Var]) -> str:
    return ", ".join([f"{v}: {v.aval}" for v in values])
