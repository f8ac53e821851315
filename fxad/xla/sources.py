"""What the cache compiles, and what compiling gives."""

from __future__ import annotations

from typing import final

from fxad.core.dataclasses import dataclass
from fxad.ir import Aval, Jaxpr
from fxad.lower import first_line, lower_jaxpr
from fxad.lowering.nesting import check_nesting
from fxad.xla import custom_calls
from fxad.xla.client import Device
from fxad.xla.executable import CompileOptions, Described, LoadedProgram, compile_module


@final
@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling gave: an executable, the functions it calls by name, and the characters it was compiled from."""

    program: LoadedProgram
    targets: tuple[str, ...]
    text: int


def compiled(source: Jaxpr, options: CompileOptions, device: Device) -> Compiled:
    """Compile, always. Raises: CompileError."""
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


def described(source: Jaxpr) -> Described:
    """What messages say of a program that was not compiled here."""
    return _Program(source.in_avals, source.out_avals, source.name, first_line(source))


def size(source: Jaxpr) -> str:
    """How large a program is, in words."""
    return f"{len(source.eqns)} equations"
