"""What the cache compiles: programs, and programs of other processes that were exported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

from fxad import lowering
from fxad.core.atomic_file import checksum
from fxad.core.dataclasses import dataclass
from fxad.ir import Aval, Jaxpr
from fxad.lower import first_line, lower_jaxpr
from fxad.lowering.nesting import check_nesting
from fxad.xla import custom_calls
from fxad.xla.client import Device
from fxad.xla.executable import CompileOptions, Described, LoadedProgram, compile_artifact, compile_module


@final
class Artifact:
    """A program that was exported, as it is compiled: portable StableHLO, with its types and what it is called.

    Law: `artifact(*given) is artifact(*given)` while that is held, as equal jaxprs are one. Make it with `artifact`.
    """

    __slots__ = (
        "__weakref__", "calls", "digest", "in_avals", "name", "out_avals", "portable", "stablehlo", "where",
    )  # fmt: skip

    def __init__(
        self,
        portable: bytes,
        stablehlo: str,
        calls: Sequence[str],
        types: tuple[tuple[Aval, ...], tuple[Aval, ...]],
        name: str,
        where: str,
    ) -> None:
        self.portable, self.stablehlo, self.calls = portable, stablehlo, tuple(calls)
        self.in_avals, self.out_avals = types
        self.name, self.where = name, where
        head = [stablehlo, self.calls, *[str(a) for avals in types for a in avals], len(self.in_avals), name, where]
        self.digest = checksum([json.dumps(head).encode(), b"\n", portable]).hex()

    def __repr__(self) -> str:
        return f"<exported {self.name}>"


_artifacts: Final[WeakValueDictionary[str, Artifact]] = WeakValueDictionary()


def artifact(
    portable: bytes,
    stablehlo: str,
    calls: Sequence[str],
    types: tuple[tuple[Aval, ...], tuple[Aval, ...]],
    name: str,
    where: str,
) -> Artifact:
    """The artifact of these bytes: `types` are those of operands and results, `calls` functions it calls by name."""
    made = Artifact(portable, stablehlo, calls, types, name, where)
    return _artifacts.setdefault(made.digest, made)


Source: TypeAlias = Jaxpr | Artifact


@final
@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling gave: an executable, the functions it calls by name, and the characters it was compiled from."""

    program: LoadedProgram
    targets: tuple[str, ...]
    text: int


def compiled(source: Source, options: CompileOptions, device: Device) -> Compiled:
    """Compile, always. Raises: CompileError; FileFormatError for an artifact that this jaxlib does not read."""
    if isinstance(source, Artifact):
        module = lowering.portable.restored(source.portable, source.stablehlo)
        program = compile_artifact(module, source.calls, source, options, device)
        return Compiled(program, source.calls, len(source.portable))
    check_nesting(source)
    lowered = lower_jaxpr(source)
    program = compile_module(lowered, options, device)
    text = len(lowered.body) + len(lowered.locations)
    return Compiled(program, tuple(sorted(custom_calls.called(lowered.body))), text)


@final
@dataclass(frozen=True, slots=True)
class _Program:
    """What is said of a program that was not lowered."""

    in_avals: tuple[Aval, ...]
    out_avals: tuple[Aval, ...]
    name: str
    where: str


def described(source: Source) -> Described:
    """What messages say of a program that was not compiled here."""
    if isinstance(source, Artifact):
        return source
    return _Program(source.in_avals, source.out_avals, source.name, first_line(source))


def size(source: Source) -> str:
    """How large a program is, in words."""
    return (
        f"{len(source.eqns)} equations" if isinstance(source, Jaxpr) else f"{len(source.portable)} bytes of StableHLO"
    )
