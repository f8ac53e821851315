"""Donation: the results of a call reuse the memory of donated arguments.

`Donation` describes which arguments of a function the user donates. `DonatingStart` wraps the execution of a program.
Before the execution, it rejects a call that uses an array that is already donated. After it, it deletes the donated
buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, final

from fxad import runtime
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.errors import ArgumentError, DonationWarning, ParameterError, shown, warn
from fxad.ir import Aval
from fxad.lower import aliases
from fxad.operations.arguments import argument_keys, plain_ints
from fxad.runtime import Start, XlaResults
from fxad.tracing.program import Program
from fxad.tracing.tracer import user_source

# An argument by position or name, several, or a tree prefix of bools for each: {"state": {"w": True, "step": False}}
Donate: TypeAlias = (
    "int | str | Sequence[int | str] | Mapping[str, object] | Mapping[int, object] | Mapping[int | str, object]"
)


def donates_any(donate: Donate) -> bool:
    """Return False for None and for an empty collection. Other falsy values (0, an empty name, a NumPy 0) are
    attempts to name an argument."""
    donate = plain_ints(donate)
    empty = isinstance(donate, Sequence | Mapping) and not isinstance(donate, str) and not donate
    return donate is not None and not empty


@final
@dataclass(frozen=True, slots=True)
class Donation:
    """The donated arguments of a function: names, or positions of arguments without a name. Each has a tree prefix of
    bools, which marks the donated leaves. `parse_donation` makes one."""

    what: str
    entries: tuple[tuple[int | str, object], ...]

    def of_method(self) -> Donation:
        """Return the donation of a bound method: positions without a name decrease by one."""
        shifted = [(k if isinstance(k, str) else k - 1, prefix) for k, prefix in self.entries if k != 0]
        return replace(self, entries=tuple(shifted))

    def leaves(self, program: Program[..., object]) -> tuple[int, ...]:
        """Return the indices of the donated argument leaves of a program. Arguments that the call omits are ignored.

        Raises: TreeError when a prefix does not fit its argument.
        """
        arguments = {key: a for a in program.arguments for key in (a.key, a.name)}
        leaves: list[int] = []
        for key, prefix in self.entries:
            argument = arguments.get(key)
            if argument is not None:
                donated = tree.broadcast_prefix(prefix, argument.tree, f"{self.what}: donate of {key!r}", _is_bool)
                leaves.extend([k for k, is_donated in zip(argument.leaves, donated, strict=True) if is_donated])
        return tuple(sorted(leaves))


def _is_bool(x: object) -> bool:
    return isinstance(x, bool)


def parse_donation(
    what: str, donate: Donate, positional: Sequence[str], parameters: Collection[str] | None, any_number: bool = False
) -> Donation:
    """Return the donation that `donate` describes, for a function with these positional parameters. `parameters` are
    all its parameters (None: it takes any name); with `any_number` it takes further positional ones. `what` is the name
    of the caller in messages.

    Raises: ParameterError for an unknown argument, and for an argument that is named twice.
    """
    entries: dict[int | str, object] = {}
    for argument, prefix in _entries(what, donate):
        key = _argument_key(what, argument, positional, parameters, any_number)
        if key in entries:
            raise ParameterError(
                f"{what}: donate names the argument {key!r} twice: {shown(donate)}", remedy="name each argument once"
            )
        entries[key] = prefix
    return Donation(what, tuple(entries.items()))


def _entries(what: str, donate: Donate) -> list[tuple[int | str, object]]:
    """Return each argument with its prefix. Raises: ParameterError for a value that names no arguments."""
    keys = argument_keys([*donate] if isinstance(donate, Mapping) else donate)
    if keys is None:
        raise ParameterError(
            f"{what}: donate is {shown(plain_ints(donate))}, not a position or a name of an argument",
            remedy="give a position, a name, a sequence of them, or {name: tree prefix of bools}",
        )
    prefixes = donate.values() if isinstance(donate, Mapping) else [True] * len(keys)
    return list(zip(keys, prefixes, strict=True))


def _argument_key(
    what: str, argument: int | str, positional: Sequence[str], parameters: Collection[str] | None, any_number: bool
) -> int | str:
    """Return the name of an argument, or its position if it has no name."""
    n = len(positional)
    if isinstance(argument, str):
        if parameters is not None and argument not in parameters:
            names = [*positional, *sorted({*parameters} - {*positional})]
            remedy = "number its arguments" if any_number else "it takes no arguments"
            raise ParameterError(
                f"{what}: donate has {shown(argument)}, which is no argument of it",
                remedy=f"its arguments are {', '.join(names)}" if names else remedy,
            )
        return argument
    if not -n <= argument < n and (argument < 0 or not any_number):
        takes = "any number of" if any_number else str(n)
        raise ParameterError(
            f"{what}: donate has {argument}, it takes {takes} positional arguments",
            remedy="number them from 0, or give their names",
        )
    return positional[argument] if argument < n else argument


def donated_operands(program: Program[..., object], donate: Donate) -> tuple[int, ...]:
    """Return the operands of a program's jaxpr that `donate` describes."""
    names = [a.name for a in program.arguments]
    positional = names[: program.args_tree.num_children]
    donation = parse_donation(f"compile of {program.name}", donate, positional, names)
    return tuple([len(program.bound) + k for k in donation.leaves(program)])


# ----------------------------------------------------------------------------------------------------------- running


@final
class DonatingStart:
    """The execution of a program that donates operands: their buffers are deleted after the call.

    Rule:   a donated operand is deleted even if no result can reuse its memory, so that calls behave alike. If two
            threads donate one array at the same time, one of the calls is refused.
    Raises: ArgumentError, before anything runs, for an array that is donated and given a second time.
    """

    __slots__ = ("_name", "_operands", "_path", "_record", "_start")

    def __init__(self, start: Start, operands: tuple[int, ...], name: str, path: Callable[[int], str]) -> None:
        self._start, self._operands, self._name, self._path = start, operands, name, path
        self._record = runtime.DonationRecord(name, None)

    def __call__(self, buffers: Sequence[runtime.Buffer]) -> XlaResults:
        if len(set(map(id, buffers))) != len(buffers):
            self._check(buffers)
        record, source = self._record, user_source(2)
        if record.source != source:  # a training loop calls from one line, so the object is reused
            record = self._record = runtime.DonationRecord(self._name, source)
        call = runtime.DonatingCall()
        claim = runtime.claim_of(call, record)
        try:
            for k in self._operands:
                # a deleted buffer is not taken: the start refuses it, and the error says what has deleted it
                if not buffers[k].is_deleted() and not runtime.take_for_donation(buffers[k], claim):
                    raise runtime.XlaRuntimeError(runtime.OPERAND_DELETED)  # a call in another thread has taken it
            results = self._start(buffers)
            for k in self._operands:
                runtime.delete(buffers[k])  # XLA does not delete buffers that no result reuses or that NumPy views
        except BaseException:
            # Releases the operands. In a linked run, earlier steps may have consumed theirs already
            del call
            raise
        return results

    def _check(self, buffers: Sequence[runtime.Buffer]) -> None:
        """Check that no donated array is given twice. Raises: ArgumentError."""
        donated = set(self._operands)
        first: dict[int, int] = {}  # the first operand with each array
        for k, b in enumerate(buffers):
            j = first.setdefault(id(b), k)
            # arrays that were donated share a placeholder, which the start refuses with what has deleted them
            if j != k and (j in donated or k in donated) and not b.is_deleted():
                twice = "donated twice" if j in donated and k in donated else "donated and given a second time"
                raise ArgumentError(
                    f"{self._name}: one array is {twice}: {self._path(j)} and {self._path(k)}",
                    remedy="pass a copy for one of them: fxad.numpy.copy(x)",
                )


def check_donated_operands(program: Program[..., object], operands: tuple[int, ...]) -> None:
    """Warn of donated operands that no result can reuse. Raises: ParameterError for a closed-over array."""
    bound = len(program.bound)
    if operands and min(operands) < bound:
        raise ParameterError(
            f"compile of {program.name}: operand {min(operands)} is an array that it closes over, which is not donated",
            remedy=f"number the argument leaves from {bound}, or name them: compile(donate=...)",
        )
    ins: tuple[Aval, ...] = program.jaxpr.in_avals
    reused = aliases(ins, program.out_avals, operands)
    not_reused = [f"{program.paths[k - bound]} ({ins[k]})" for k in operands if k not in reused]
    if not_reused:
        warn(
            f"{program.name}: donated memory is of no use to its results: no result of its type is left for"
            f" {', '.join(not_reused)}; leave it out of `donate`",
            DonationWarning,
        )
