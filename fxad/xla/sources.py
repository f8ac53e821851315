"""Compilation of a program for the cache."""

from __future__ import annotations

from typing import final

from fxad.core.dataclasses import dataclass
from fxad.ir import Aval, Jaxpr
from fxad.lower import first_line, lower_jaxpr, may_not_end
from fxad.lowering.nesting import check_nesting
from fxad.xla import custom_calls
from fxad.xla.client import Device
from fxad.xla.executable import CompileOptions, LoadedProgram, ProgramDescription, compile_module


@final
@dataclass(frozen=True, slots=True)
class Compilation:
    """The result of a compilation: an executable, the functions it calls by name, and the length of its text."""

    program: LoadedProgram
    targets: tuple[str, ...]
    text: int


def compile_uncached(source: Jaxpr, options: CompileOptions, device: Device) -> Compilation:
    """Compile, without a cache. Raises: CompileError."""
    check_nesting(source)
    lowered = lower_jaxpr(source)
    program = compile_module(lowered, options, device)
    text = len(lowered.body) + len(lowered.locations)
    return Compilation(program, tuple(sorted(custom_calls.custom_call_targets(lowered.body))), text)


@final
@dataclass(frozen=True, slots=True)
class _Program:
    """The description of a program that was not lowered."""

    in_avals: tuple[Aval, ...]
    out_avals: tuple[Aval, ...]
    name: str
    where: str
    unbounded: bool


def describe_program(source: Jaxpr) -> ProgramDescription:
    """The description, for messages, of a program that was not compiled here."""
    return _Program(source.in_avals, source.out_avals, source.name, first_line(source), may_not_end(source))


def size_text(source: Jaxpr) -> str:
    """The size of a program as text."""
    return f"{len(source.eqns)} equations"
