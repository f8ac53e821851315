"""Programs in files: `save` and `load`.

A file holds the program as text, the trees of its arguments and results, its names, and the arrays that it closes
over. It holds no code of the user's and no pickle: reading one runs nothing, except that classes of its trees are put
together by what they were registered with, and, where the user says `trusted`, that their modules are imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from fxad import tree
from fxad.errors import ArgumentError, FileFormatError, ParseError, described
from fxad.execution.executable import Executable
from fxad.ir import Aval, Jaxpr, NDArray, Primitive, distinct
from fxad.primitives.host import HostCall
from fxad.storage.sections import AGAIN, Section, broken, read, write
from fxad.storage.tree_structure import Json, describe, rebuild
from fxad.text import PRIMITIVES, parse, to_text
from fxad.tracing.array import Array, asarray
from fxad.tracing.program import Program
from fxad.tracing.tracer import Tracer

P = ParamSpec("P")
R = TypeVar("R")

VERSION: Final = 1
_ARRAY: Final = "array"


def save(program: Program[P, R] | Executable[P, R], path: str | os.PathLike[str]) -> None:
    """Write a program to a file, whole or not at all; of an executable, its program: what XLA made is the cache's.

    Law:    `load(path) == program`, but for the arrays it closes over, which are others with the same bits.
    Raises: ArgumentError for what is no program, for one that closes over tracers or calls Python functions, and for
            trees that no file can hold; OSError.
    """
    given = program.program if isinstance(program, Executable) else program
    if not isinstance(given, Program):
        raise ArgumentError(
            f"save: {described(program)} is not a program: {program!r:.60}",
            remedy="trace the function first: save(trace(f, *examples), path)",
        )
    for body in distinct(given.jaxpr):
        for eqn in body.eqns:
            if isinstance(eqn.prim, HostCall):
                raise ArgumentError(
                    f"save: {given.name} calls the Python function {eqn.prim.label}, which a file cannot hold",
                    remedy="save the parts around it",
                ).located(equation=str(eqn))
    values = [_value(given, b) for b in given.bound]
    head: dict[str, Json] = {
        "name": given.name,
        "names": list(given.names),
        "arguments": describe(given.in_tree),
        "results": describe(given.out_tree),
        "digest": given.jaxpr.digest,
        "arrays": [_kind(b) for b in given.bound],
    }
    text = to_text(given.jaxpr)
    arrays = [Section(_ARRAY, np.ascontiguousarray(v).tobytes()) for v in values]
    lines = ",\n".join([f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()])
    sections = [Section("program", f"{{\n{lines}\n}}".encode()), Section("text", text.encode()), *arrays]
    write(os.path.abspath(os.fspath(path)), VERSION, sections)


def _value(program: Program[..., Any], bound: Any) -> NDArray:
    if isinstance(bound, Tracer):
        raise ArgumentError(
            f"save: {program.name} closes over {bound!r} of an enclosing trace",
            remedy="a file holds values: save the program of the whole function",
        )
    value = bound if isinstance(bound, Array) else asarray(bound)
    return np.asarray(value)


def _kind(bound: object) -> str:
    return "numpy" if isinstance(bound, np.ndarray) else "fxad"


def load(
    path: str | os.PathLike[str],
    *,
    trusted: bool = False,
    primitives: Mapping[str, type[Primitive]] = PRIMITIVES,
) -> Program[..., Any]:
    """The program of a file; it can be called, transformed and lowered like any other.

    Classes of its trees must be registered, in modules that are imported; `trusted` imports the modules that the file
    names, which runs them. `primitives` are those its text may use, for primitives of one's own.

    Law:    `load(path) == program`, but for the arrays it closes over; `load(path).jaxpr is program.jaxpr`.
    Raises: FileFormatError for a file that is damaged, of a later version, or not what it should be, with the place;
            OSError.
    Cost:   linear in the file.
    """
    where = os.path.abspath(os.fspath(path))
    version, sections = read(where, VERSION)
    return _READERS[version](where, sections, trusted, primitives)


def _read_1(
    path: str, sections: Sequence[Section], trusted: bool, primitives: Mapping[str, type[Primitive]]
) -> Program[..., Any]:
    names = [s.name for s in sections]
    if names[:2] != ["program", "text"] or names[2:] != [_ARRAY] * len(names[2:]):
        raise FileFormatError(f"load: {path} is damaged: its sections are {', '.join(names) or 'none'}", remedy=AGAIN)
    head, jaxpr = _head(path, sections[0]), _program(path, sections[1], primitives)
    if jaxpr.digest != head["digest"]:
        broken(path, sections[1].start, "the text is that of another program than its digest names")
    kinds, stored = head["arrays"], sections[2:]
    if len(kinds) != len(stored) or len(kinds) > len(jaxpr.ins):
        broken(path, sections[0].start, f"{len(kinds)} arrays are named, there are {len(stored)}")
    bound = tuple([_array(path, s, a, k) for s, a, k in zip(stored, jaxpr.in_avals, kinds, strict=False)])
    ins, outs = (rebuild(head[part], f"{path}: {part}", trusted) for part in ("arguments", "results"))
    if ins.num_leaves != len(jaxpr.ins) - len(bound) or outs.num_leaves != len(jaxpr.outs) or not _of_call(ins):
        broken(path, sections[0].start, "the trees do not fit the program")
    return Program(jaxpr, ins, outs, bound, tuple(map(str, head["names"])), str(head["name"]))


_READERS: Final = MappingProxyType({1: _read_1})
_HEAD: Final = MappingProxyType({"name": str, "names": list, "digest": str, "arrays": list})


def _head(path: str, section: Section) -> dict[str, Any]:
    try:
        head = json.loads(section.content)
    except (ValueError, RecursionError) as e:
        broken(path, section.start, f"section {section.name} is not JSON: {e}")
    if not isinstance(head, dict) or {"arguments", "results"} - head.keys():
        broken(path, section.start, f"section {section.name} does not describe a program")
    for name, kind in _HEAD.items():
        if not isinstance(head.get(name), kind):
            broken(path, section.start, f"section {section.name}: {name} is {head.get(name)!r:.60}")
    return head


def _program(path: str, section: Section, primitives: Mapping[str, type[Primitive]]) -> Jaxpr:
    try:
        return parse(section.content.decode(), primitives)
    except ParseError as e:
        raise FileFormatError(
            f"load: {path}: {e.message.removeprefix('parse: ')}", equation=e.equation, remedy=e.remedy
        ) from None
    except UnicodeDecodeError as e:
        broken(path, section.start + e.start, "the text is not UTF-8")


def _array(path: str, section: Section, aval: Aval, kind: object) -> object:
    if len(section.content) != aval.nbytes:
        broken(path, section.start, f"an array {aval} has {aval.nbytes} bytes, here are {len(section.content)}")
    value = np.frombuffer(section.content, aval.dtype).reshape(aval.shape)
    return value.copy() if kind == "numpy" else asarray(value)


def _of_call(structure: tree.Structure) -> bool:
    """Whether a structure is that of positional arguments and keywords."""
    return structure.type is tuple and [c.type for c in structure.children()] == [tuple, dict]
