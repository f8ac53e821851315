"""Decodes the sections that `load` and `load_exported` read to a program.

The bytes may come from anybody, so nothing in them is trusted: the text is parsed and typechecked, the description must
fit the program, and jaxlib gets only modules that fxad lowers from the parsed program.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np

from fxad import dtypes
from fxad.core.trees import parts as tree_parts, tree
from fxad.errors import FileFormatError, ParseError, shown
from fxad.ir import Aval, Jaxpr, Source
from fxad.storage.encoding import ARRAY, find_host_call
from fxad.storage.file_format import SAVE_AGAIN, FileSection, raise_damaged
from fxad.storage.tree_structure import structure_from_json
from fxad.text import Vocabulary, parse
from fxad.tracing.array import asarray
from fxad.tracing.program import Program


def decode(
    what: str,
    sections: Sequence[FileSection],
    trusted: bool,
    primitives: Vocabulary,
    sources: Iterable[Source] = (),
) -> tuple[Program[..., Any], dict[str, Any]]:
    """Return the program of sections, and its description. `what` names the operation and the bytes, for messages.
    `sources` are the user's lines of the equations, in the order of the text.

    Raises: FileFormatError if the sections do not describe a program, or contradict each other.
    """
    names = [s.name for s in sections]
    if names[:2] != ["program", "text"] or names[2:] != [ARRAY] * len(names[2:]):
        raise_other_sections(what, sections)
    description, jaxpr = _read_description(what, sections[0]), _parse_program(what, sections[1], primitives, sources)
    at = sections[0].start
    if jaxpr.digest != description["digest"]:
        raise_damaged(what, sections[1].start, "the text is that of another program than its digest names")
    host_call = find_host_call(jaxpr)
    if host_call is not None:
        raise_damaged(
            what,
            sections[1].start,
            f"the text calls {shown(host_call[1])}, a Python function of some process",
        )
    kinds, array_sections = description["arrays"], sections[2:]
    if len(kinds) != len(array_sections) or len(kinds) > len(jaxpr.ins):
        raise_damaged(what, at, f"{len(kinds)} arrays are named, there are {len(array_sections)}")
    bound = tuple([_read_array(what, s, a, k) for s, a, k in zip(array_sections, jaxpr.in_avals, kinds, strict=False)])
    ins, outs = (
        structure_from_json(description[part], f"{what}: {part}", trusted) for part in ("arguments", "results")
    )
    if ins.num_leaves != len(jaxpr.ins) - len(bound) or outs.num_leaves != len(jaxpr.outs) or not _is_call_tree(ins):
        raise_damaged(what, at, "the trees do not fit the program")
    return Program(jaxpr, ins, outs, bound, tuple(description["names"]), description["name"]), description


def raise_other_sections(what: str, sections: Sequence[FileSection]) -> NoReturn:
    """Raise FileFormatError for a file with other sections than those of a program."""
    names = ", ".join([s.name for s in sections])[:_MAX_SHOWN] or "none"
    raise FileFormatError(f"{what} is damaged: its sections are {names}", remedy=SAVE_AGAIN)


_MAX_SHOWN: Final = 120
_FIELDS: Final = MappingProxyType({"name": str, "names": list, "digest": str, "arrays": list})
_KINDS: Final = ("numpy", "fxad")


def _read_description(what: str, section: FileSection) -> dict[str, Any]:
    try:
        description = json.loads(section.content, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as e:
        raise_damaged(what, section.start, f"section {section.name} is not JSON: {e}")
    if not isinstance(description, dict) or {"arguments", "results"} - description.keys():
        raise_damaged(what, section.start, f"section {section.name} does not describe a program")
    for name, kind in _FIELDS.items():
        if not isinstance(description.get(name), kind):
            raise_damaged(what, section.start, f"section {section.name}: {name} is {shown(description.get(name))}")
    for name in description["names"]:
        if not isinstance(name, str):
            raise_damaged(what, section.start, f"section {section.name}: names has {shown(name)}")
    for kind in description["arrays"]:
        if kind not in _KINDS:
            raise_damaged(what, section.start, f"section {section.name}: arrays has {shown(kind)}")
    return description


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    items = dict(pairs)
    if len(items) != len(pairs):
        raise ValueError("a key stands in it twice")
    return items


def _parse_program(what: str, section: FileSection, primitives: Vocabulary, sources: Iterable[Source]) -> Jaxpr:
    try:
        return parse(section.content.decode(), primitives, sources=sources)
    except ParseError as e:
        raise FileFormatError(
            f"{what}: {e.message.removeprefix('parse: ')}", equation=e.equation, remedy=e.remedy
        ) from None
    except UnicodeDecodeError as e:
        raise_damaged(what, section.start + e.start, "the text is not UTF-8")


def _read_array(what: str, section: FileSection, aval: Aval, kind: str) -> object:
    if len(section.content) != aval.nbytes:
        raise_damaged(what, section.start, f"an array {aval} has {aval.nbytes} bytes, here are {len(section.content)}")
    if aval.dtype == dtypes.bool_ and section.content.strip(b"\0\1"):
        raise_damaged(what, section.start, f"an array {aval} has bytes that are neither 0 nor 1")
    try:
        value = np.frombuffer(section.content, aval.dtype).reshape(aval.shape)
        return value.copy() if kind == "numpy" else asarray(value)
    except ValueError as e:
        raise_damaged(what, section.start, f"an array {aval} cannot be made: {e}")


def _is_call_tree(structure: tree.Structure) -> bool:
    """Return True if a structure is that of positional arguments and keywords."""
    if structure.type is not tuple or [c.type for c in structure.children()] != [tuple, dict]:
        return False
    return all([isinstance(key, str) for key in tree_parts.outermost_node(structure.children()[1]).keys])
