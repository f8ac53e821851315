"""Encodes a program as the sections that `save` and `export` write.

The sections are a description in JSON, the program as text, and the bytes of the arrays that it closes over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import numpy as np

from fxad.core import printing
from fxad.errors import ArgumentError
from fxad.ir import Eqn, Jaxpr, NDArray, distinct_jaxprs
from fxad.primitives.host_call import HostCall
from fxad.storage.file_format import FileSection
from fxad.storage.tree_structure import Json, structure_to_json
from fxad.tracing.array import Array, asarray
from fxad.tracing.program import Program
from fxad.tracing.tracer import Tracer

ARRAY: Final = "array"


def encode(what: str, program: Program[..., object], more: Mapping[str, Json]) -> list[FileSection]:
    """Return the sections of a program. `more` are additional entries of the description.

    Raises: ArgumentError for a program that closes over tracers or calls Python functions, and for trees that a file
            cannot hold.
    """
    check_no_host_call(what, program)
    values = [_bound_value(what, program, b) for b in program.bound]
    arrays = [FileSection(ARRAY, np.ascontiguousarray(v).tobytes()) for v in values]
    return [*encode_without_arrays(what, program, more), *arrays]


def encode_without_arrays(what: str, program: Program[..., object], more: Mapping[str, Json]) -> list[FileSection]:
    """Return the first two sections of `encode`: the description, and the text.

    Raises: ArgumentError for trees that a file cannot hold.
    """
    description: dict[str, Json] = {
        "name": program.name,
        "names": list(program.names),
        "arguments": structure_to_json(program.in_tree, what),
        "results": structure_to_json(program.out_tree, what),
        "digest": program.jaxpr.digest,
        "arrays": [_array_kind(b) for b in program.bound],
        **more,
    }
    items = ",\n".join([f" {json.dumps(key)}: {json.dumps(value)}" for key, value in description.items()])
    text = FileSection("text", printing.program(distinct_jaxprs(program.jaxpr)).encode())
    return [FileSection("program", f"{{\n{items}\n}}".encode()), text]


def check_no_host_call(what: str, program: Program[..., object]) -> None:
    """Raise ArgumentError for a program that calls Python functions."""
    host_call = find_host_call(program.jaxpr)
    if host_call is not None:
        eqn, function = host_call
        raise ArgumentError(
            f"{what}: {program.name} calls the Python function {function}, which a file cannot hold",
            remedy="save the parts around it",
        ).located(equation=str(eqn))


def find_host_call(jaxpr: Jaxpr) -> tuple[Eqn, str] | None:
    """Return an equation that calls a Python function, and the name of the function; None if there is none."""
    for body in distinct_jaxprs(jaxpr):
        for eqn in body.eqns:
            if isinstance(eqn.prim, HostCall):
                return eqn, eqn.prim.label
    return None


def _bound_value(what: str, program: Program[..., object], bound: object) -> NDArray:
    if isinstance(bound, Tracer):
        raise ArgumentError(
            f"{what}: {program.name} closes over {bound!r} of an enclosing trace",
            remedy=f"a file holds values: {what} the program of the whole function",
        )
    value = bound if isinstance(bound, Array) else asarray(bound)
    return np.asarray(value)


def _array_kind(bound: object) -> str:
    return "numpy" if isinstance(bound, np.ndarray) else "fxad"
