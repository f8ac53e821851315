"""Programs with operands as text, and back.

A comment line after the program has each operand: its type, and its elements, or the compressed bytes of many. The text
is a program for `fxad.text.parse` too, which skips comments.

    main @f(%arg0: f32[2]) -> (f32[2]) {
      %0: f32[2] = sin %arg0
      return %0
    }
    # operand 0: f32[2] = 1.0, 2.0

A line of an array that the program closes over begins with `# closed over`; `# no arguments` says that the values of
the arguments are not known.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from fxad.core import printing, scalar_text
from fxad.diagnosis.reduce.candidate import Candidate
from fxad.errors import ArgumentError, FileFormatError, described, shown
from fxad.ir import Aval, Eqn, Jaxpr, NDArray, distinct_jaxprs, source_text
from fxad.text import OwnPrimitives, parse
from fxad.tracing.program import Program

LinesByOperation: TypeAlias = Mapping[str, tuple[str, ...]]

_MOST: Final = 64  # greatest number of elements that are written out
_OPERAND: Final = re.compile(r"# (operand|closed over) (\d+): (\S+) =(.*)")
_UNKNOWN: Final = "# no arguments"
_REMEDY: Final = "give the whole text, as it was printed"


def with_operands(c: Candidate, lines: LinesByOperation | None = None) -> str:
    """Return a program and its operands as text, with the user's lines as comments. `lines` are those of the program
    that was reduced: an equation shows no other.

    Law: `read_candidate(with_operands(c))` has the same program and the same bits.
    """
    operands = [
        f"# {'closed over' if k < c.n_bound else 'operand'} {k}: {_typed(x)}"
        for k, x in enumerate(c.values)
        if x is not None
    ]
    if c.args is None:
        operands.append(_UNKNOWN)
    text = printing.program(distinct_jaxprs(c.jaxpr), partial(line_of, lines or {}))
    return text + "".join([f"{line}\n" for line in operands])


def lines_by_operation(jaxpr: Jaxpr) -> LinesByOperation:
    """Return the user's lines in a program and its bodies, by the name of the primitive."""
    found: dict[str, dict[str, None]] = {}
    for body in distinct_jaxprs(jaxpr):
        for eqn in body.eqns:
            found.setdefault(eqn.prim.name, {})[source_text(eqn.source)] = None
    return {name: tuple([line for line in lines if line]) for name, lines in found.items()}


def line_of(lines: LinesByOperation, eqn: Eqn) -> str:
    """Return the user's line of an equation.

    Equal programs are one object, with the lines of the first. So a smaller program may have lines of another function
    that was traced before. They are not shown; if the whole program has this operation at one line only, that is it.
    """
    own = source_text(eqn.source)
    if not own or not lines or any([own in of for of in lines.values()]):
        return own
    known = lines.get(eqn.prim.name, ())
    return known[0] if len(known) == 1 else ""


def _typed(x: NDArray) -> str:
    return f"{Aval(x.shape, x.dtype)} = {_elements(x)}"


def _elements(x: NDArray) -> str:
    data = np.ascontiguousarray(x).tobytes()  # programs are little-endian, as every machine that jaxlib has builds for
    size = x.dtype.itemsize
    each = [data[k : k + size] for k in range(0, len(data), size)] if x.size <= _MOST else []
    if x.size > _MOST and data == data[:size] * x.size:
        each = [data[:size]]
    if x.size and not each:
        return f"bytes {base64.b85encode(zlib.compress(data, 9)).decode()}"
    return ", ".join([scalar_text.show(bits, x.dtype) for bits in each])


def read_reduced(text: str, primitives: OwnPrimitives = ()) -> tuple[Program[..., Any], tuple[NDArray, ...] | None]:
    """Return the program of a text that a reduction has printed, and its arguments; None if the text has none.

    Raises: as `read_candidate`.
    """
    c = read_candidate(text, primitives)
    return c.program(), c.args


def read_candidate(text: str, primitives: OwnPrimitives = ()) -> Candidate:
    """Return the program of a text, and its operands: None for those that the text does not have.

    Raises: ParseError for a text that is no program; FileFormatError for operands that are damaged; ArgumentError.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"reproduce: {described(text)} is not a text: {shown(text)}", remedy=_REMEDY)
    jaxpr = parse(text, primitives)
    values: list[NDArray | None] = [None] * len(jaxpr.ins)
    bound = 0
    for line in text.splitlines():
        match = _OPERAND.fullmatch(line.strip())
        if match is None:
            continue
        kind, k, type_text, elements = match[1], int(match[2]), match[3], match[4].strip()
        if k >= len(values) or (not jaxpr.ins[k].aval.symbolic and str(jaxpr.ins[k].aval) != type_text):
            raise FileFormatError(
                f"reproduce: the text has operand {k} of type {type_text}, the program takes"
                f" {', '.join(map(str, jaxpr.in_avals)) or 'nothing'}",
                remedy=_REMEDY,
            )
        values[k] = _read(k, type_text, elements)
        bound = max(bound, k + 1) if kind == "closed over" else bound
    known = _UNKNOWN not in [line.strip() for line in text.splitlines()]
    missing = [k for k, x in enumerate(values) if x is None]
    if known and missing:
        raise FileFormatError(f"reproduce: the text has no operand {missing[0]}", remedy=_REMEDY)
    return Candidate(jaxpr, tuple(values), bound, known)


def _read(k: int, type_text: str, elements: str) -> NDArray:
    """Return an operand. Its type is read as that of a program without equations."""
    aval = parse(f"main @f(%a: {type_text}) -> () {{\n return\n}}\n").in_avals[0]
    data = _bytes(aval, elements)
    if data is None or len(data) != aval.nbytes:
        raise FileFormatError(
            f"reproduce: operand {k} of type {type_text} has elements that cannot be read: {shown(elements)}",
            remedy=_REMEDY,
        )
    return np.frombuffer(data, aval.dtype).reshape(aval.shape)


def _bytes(aval: Aval, elements: str) -> bytes | None:
    if elements.startswith("bytes "):
        try:
            stream = zlib.decompressobj()
            return stream.decompress(base64.b85decode(elements[6:]), aval.nbytes + 1)
        except (ValueError, zlib.error):
            return None
    parts = re.findall(r"complex\([^)]*\)|[^, ]+", elements)
    read: Sequence[bytes | None] = [_element(part, aval) for part in parts]
    known = [bits for bits in read if bits is not None]
    if len(known) != len(read):
        return None
    return known[0] * aval.size if len(known) == 1 else b"".join(known)


def _element(text: str, aval: Aval) -> bytes | None:
    if not text.startswith("complex("):
        return scalar_text.read(text, aval.dtype)
    halves = [scalar_text.read(part.strip(), np.zeros((), aval.dtype).real.dtype) for part in text[8:-1].split(",")]
    known = [bits for bits in halves if bits is not None]
    return b"".join(known) if len(known) == len(halves) == 2 else None
