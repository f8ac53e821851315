"""`scan`: the same step for each slice of arrays, one after the other, with a carry from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np

from fxad.errors import ArgumentError, FxadError, ParameterError, ShapeError
from fxad.interpret import run
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Cotangent,
    Eqn,
    HigherOrder,
    Hlo,
    HloValue,
    Hole,
    Jaxpr,
    JvpCtx,
    Linear,
    NDArray,
    Prune,
    Region,
    Tangent,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.control import scan_lowering as loops
from fxad.primitives.control.scan_parts import Steps


@final
@primitive
class Scan(HigherOrder, Linear):
    """`body` applied `length` times: constants are the same for all steps, the carry goes from one to the next, and of
    the other operands each step reads one slice along axis 0 and writes one of each result.

    Type:   operands: constants, first carry, arrays of `length` slices; body: (constants, carry, slices) -> (carry,
            slices of results); results: last carry, stacked results.
    Rule:   `reverse` runs from the last slice to the first; results keep the place of their slice. `unroll` steps make
            one trip of the loop; it changes no value.
    Cost:   arrays are read and written in place, a slice a step.
    Source: stablehlo.while
    """

    name: ClassVar[str] = "scan"
    body: Jaxpr
    length: int
    reverse: bool
    unroll: int
    n_consts: int
    n_carry: int

    @property
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Scan:
        return self.over(Steps(bodies[0], self.n_consts, self.n_carry))

    @property
    def steps(self) -> Steps:
        """The body with its operands in three groups."""
        return Steps(self.body, self.n_consts, self.n_carry)

    def over(self, steps: Steps, *, backward: bool = False) -> Scan:
        """A scan of the same length over other steps, from the other end if `backward`."""
        return Scan(steps.body, self.length, self.reverse != backward, self.unroll, steps.n_consts, steps.n_carry)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        self._check_parameters()
        if len(avals) != len(self.body.ins):
            raise ArgumentError(f"scan: {self.body.name} takes {len(self.body.ins)} operands, got {len(avals)}")
        consts, carry, xs = self.steps.split(avals)
        for group, have in (("constant", consts), ("carry", carry), ("xs", xs)):
            self._check_group(group, have)
        outs = self.body.out_avals
        return outs[: self.n_carry] + tuple([a.with_shape((self.length, *a.shape)) for a in outs[self.n_carry :]])

    def _check_parameters(self) -> None:
        for field, least in (("length", 0), ("unroll", 1), ("n_consts", 0), ("n_carry", 0)):
            if getattr(self, field) < least:
                raise ParameterError(f"scan: {field} is {getattr(self, field)}, less than {least}")
        n, n_out = self.n_consts + self.n_carry, len(self.body.outs)
        if n > len(self.body.ins) or self.n_carry > n_out:
            raise ParameterError(
                f"scan: {self.n_consts} constants and {self.n_carry} carries do not fit {self.body.name}, of "
                f"{len(self.body.ins)} operands and {n_out} results"
            )
        carry = self.body.in_avals[self.n_consts : n]
        for k, (have, want) in enumerate(zip(self.body.out_avals, carry, strict=False)):
            if have is not want:
                raise ShapeError(f"scan: {self.body.name} takes {want} for carry {k} and gives {have}")

    def _check_group(self, group: str, avals: tuple[Aval, ...]) -> None:
        """Check the operands of one group. Raises: ShapeError."""
        wants = dict(zip(("constant", "carry", "xs"), self.steps.split(self.body.in_avals), strict=True))[group]
        for k, (have, want) in enumerate(zip(avals, wants, strict=True)):
            if group != "xs":
                if have is not want:
                    raise ShapeError(f"scan: {group} {k} of {self.body.name} is {have}, its body takes {want}")
            elif have is not want.with_shape((self.length, *want.shape)):
                raise ShapeError(
                    f"scan: {group} {k} of {self.body.name} is {have}, its body takes {self.length} slices {want}"
                )

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        consts, carry, xs = self.steps.split(args)
        ys = [np.empty((self.length, *a.shape), a.dtype) for a in self.body.out_avals[self.n_carry :]]
        for i in reversed(range(self.length)) if self.reverse else range(self.length):
            outs = run(self.body, (*consts, *carry, *[x[i] for x in xs]))
            carry = outs[: self.n_carry]
            for y, row in zip(ys, outs[self.n_carry :], strict=True):
                y[i] = row
        return *carry, *ys

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        consts, carry, xs = self.steps.split(args)
        n, counts = self.length, (self.n_consts, self.n_carry)
        if n <= max(self.unroll, 1):
            if n:
                return hlo.call(loops.straight(self.body, n, 0, self.reverse, *counts), (*consts, *xs, *carry))
            return *carry, *[hlo.constant(Zero(a).instantiate()) for a in outs[self.n_carry :]]
        blank = [hlo.constant(Zero(a).instantiate()) for a in outs[self.n_carry :]]
        index = loops.index_aval(n)
        more = loops.condition(self.body, n, self.unroll, *counts)
        trip = loops.trip(self.body, n, self.reverse, self.unroll, *counts)
        _, *state = hlo.op(
            "stablehlo.while",
            (hlo.constant(Zero(index).instantiate()), *carry, *blank),
            (index, *outs),
            regions=(more, Region(trip, (*consts, *xs))),
        )
        rest = n % self.unroll
        if not rest:
            return state
        return hlo.call(loops.straight(self.body, n, n - rest, self.reverse, *counts), (*consts, *xs, *state))

    def slim(self, eqn: Eqn, used: tuple[bool, ...], prune: Prune) -> Eqn:
        return eqn

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        raise FxadError("scan: todo")

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        raise FxadError("scan: todo")

    def linear_in(self, mask: tuple[bool, ...]) -> bool:
        return False

    def transpose(
        self, ctx: TransposeCtx, cts: tuple[Cotangent, ...], args: tuple[Atom | Hole, ...]
    ) -> tuple[Cotangent | None, ...]:
        raise FxadError("scan: todo")
