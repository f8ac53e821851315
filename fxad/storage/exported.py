"""Programs for other processes and other versions: what `Lowered.export` writes, and `fx.load_exported` reads.

What is exported is StableHLO in its portable form, with the trees, names and types of the call and the arrays that the
program closes over. It is no program of fxad's any more: it runs, and is not transformed (`save` keeps a program).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from fxad import lowering, runtime
from fxad.core.atomic_file import checksum
from fxad.errors import ArgumentError, FileFormatError, ParameterError, described
from fxad.ir import Aval
from fxad.lower import first_line, lower_jaxpr
from fxad.lowering.nesting import check_nesting
from fxad.storage.tree_structure import Json, describe
from fxad.tracing.program import Program
from fxad.tracing.tracer import Tracer
from fxad.tree import Structure

FORMAT: Final = 1
_MAGIC: Final = b"fxad exported program\n"
_SUM: Final = len(checksum([b""]))
_PLATFORMS: Final = ("cpu", "cuda")
ALIASES: Final = MappingProxyType({"gpu": "cuda"})


def export(
    program: Program[..., Any],
    *,
    donate: tuple[int, ...] = (),
    platforms: str | Sequence[str] | None = None,
    version: str | None = None,
) -> bytes:
    """A program as bytes, to run elsewhere with `load_exported`. Operands in `donate` are given up by its calls.

    `platforms` are those it may run on: all that have what it calls, without. `version` is of StableHLO: one that
    jaxlibs of the last twelve weeks read, without. Names and lines of the user's are in it.

    Raises: ArgumentError for a program that calls the host or closes over tracers; ParameterError for a platform that
            it cannot run on, or a version that this jaxlib does not write; CompileError for bodies nested too deeply.
    """
    check_nesting(program.jaxpr, "export")  # nobody can ask the artifact
    module = lower_jaxpr(program.jaxpr)
    if module.host:
        what, remedy = module.host[0][0].refusal
        raise ArgumentError(f"export: {program.name} calls {what}", remedy=remedy)
    version = lowering.portable.usual_version() if version is None else version
    lowering.portable.check_version(version)
    source = module.source(donate)
    names = sorted(runtime.called(source))
    chosen = _platforms(program.name, names, platforms)
    artifact = lowering.portable.serialized(source, version)
    arrays = [_bits(program, b) for b in program.bound]
    head: dict[str, Json] = {
        "format": FORMAT,
        "stablehlo": version,
        "platforms": list(chosen),
        "calls": list(names),
        "name": program.name,
        "names": list(program.names),
        "where": first_line(program.jaxpr),
        "digest": program.jaxpr.digest,
        "arguments": _described(program.in_tree),
        "results": _described(program.out_tree),
        "donate": list(donate),
        "operands": [_typed(a) for a in program.jaxpr.in_avals],
        "gives": [_typed(a) for a in program.out_avals],
        "sizes": [len(artifact), *[len(a) for a in arrays]],
    }
    parts = [_MAGIC, json.dumps(head, sort_keys=True).encode() + b"\n", artifact, *arrays]
    return b"".join([*parts, checksum(parts)])


def _platforms(name: str, calls: Sequence[str], asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """The platforms that a program is exported for, each once."""
    allowed = _PLATFORMS[:1] if calls else _PLATFORMS
    if asked is None:
        return allowed
    remedy = f"export for {', '.join(allowed)}"
    if not isinstance(asked, str | Sequence):
        raise ParameterError(f"export: platforms is {described(asked)}, not a name or several", remedy=remedy)
    given = (asked,) if isinstance(asked, str) else tuple(asked)
    for p in given:
        if ALIASES.get(p, p) not in allowed:
            why = f", which has no {calls[0]}" if calls and ALIASES.get(p, p) in _PLATFORMS else ""
            raise ParameterError(f"export: {name} does not run on {p!r}{why}", remedy=remedy)
    if not given:
        raise ParameterError(f"export: {name} is to run on no platform", remedy=remedy)
    return tuple(dict.fromkeys([ALIASES.get(p, p) for p in given]))


def _described(structure: Structure) -> Json:
    try:
        return describe(structure)
    except ArgumentError as e:  # it speaks of files
        raise ArgumentError(f"export: {e.message.partition(': ')[2]}", remedy=e.remedy) from None


def _bits(program: Program[..., Any], bound: object) -> bytes:
    if isinstance(bound, Tracer):
        raise ArgumentError(
            f"export: {program.name} closes over {bound!r} of an enclosing trace", remedy="export the outer program"
        )
    return np.ascontiguousarray(np.asarray(bound)).tobytes()


def _typed(aval: Aval) -> Json:
    return [aval.dtype.name, list(aval.shape)]


def parts(data: bytes) -> tuple[dict[str, Any], bytes, list[bytes]]:
    """Head, artifact and arrays. Raises: FileFormatError."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ArgumentError(f"load_exported: {described(data)} is not bytes", remedy="read the file in binary mode")
    data = bytes(data)
    if not data.startswith(_MAGIC):
        raise FileFormatError("load_exported: these are not bytes that `export` wrote", remedy="pass all of them")
    body, given = data[:-_SUM], data[-_SUM:]
    if checksum([body]) != given:
        raise FileFormatError("load_exported: the bytes are damaged: their checksum differs", remedy="export it again")
    line, _, payload = body[len(_MAGIC) :].partition(b"\n")
    head: dict[str, Any] = json.loads(line)
    if head["format"] > FORMAT:
        raise FileFormatError(
            f"load_exported: the bytes have format {head['format']}, this fxad reads up to {FORMAT}",
            remedy="install a newer fxad",
        )
    at, parts = 0, []
    for size in head["sizes"]:
        parts.append(payload[at : at + size])
        at += size
    return head, parts[0], parts[1:]
