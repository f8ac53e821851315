"""`check`: returns its operands, or raises an error at run time if a predicate holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, CheckError, DTypeError, ShapeError
from fxad.ir import (
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    HigherOrder,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lin,
    Linear,
    NDArray,
    Operands,
    Primitive,
    Region,
    Tangents,
    TransposeCtx,
    Zero,
    known_operands,
    primitive,
)
from fxad.primitives.host_call import IO, HostCall, call_host
from fxad.primitives.reduce import ReduceOr
from fxad.primitives.shape import broadcast_to_axis


@final
@primitive
class Check(Linear):
    """Return the operands that follow a predicate and `n_fields` values; raise an error if the predicate holds at run
    time.

    Type:   (bool[mapped axes], fields of any types, operands of any types) -> the operands.
    Rule:   no effect. A check whose results nothing reads runs and may fail, as any equation of a program; it is dead
            code, which `dce` and the transformations that clean up drop. So programs with and without it are not equal.
            Tangents and cotangents are checked too, so a gradient is checked even if it does not read the value.
            `message` is a format string for the fields, if there are any. Batched with a predicate that varies, `sizes`
            are the mapped axes from the outside in, and the error reports the first example. A check must not run for
            an example that the program does not run for: a rule that runs a body for such examples guards its checks
            (`fxad.primitives.control.effects`).
    Cost:   a branch; the host is called only if the check fails.
    """

    name: ClassVar[str] = "check"
    message: str
    equation: str
    where: str
    n_fields: int = 0
    sizes: tuple[int, ...] = ()
    # True only inside a lowered program, in the branch that runs if the predicate holds: the equation calls the host,
    # which raises the error, and has no operands besides the predicate and the fields
    reports: bool = False

    @property
    def effects(self) -> frozenset[str]:
        return frozenset({IO}) if self.reports else frozenset()  # without results, it would be dead otherwise

    @property
    def label(self) -> str:
        """The name of the operation in messages."""
        return "a check"

    @property
    def refusal(self) -> tuple[str, str]:
        """The subject and the remedy of the message for a place where this equation is not allowed."""
        return "the host where a check fails", "leave checks out of what does not run here, on a CPU"

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        n = 1 + self.n_fields
        if len(avals) < n:
            raise ArgumentError(f"check: takes a predicate and {self.n_fields} fields, got {len(avals)} operands")
        if avals[0].dtype != dtypes.bool_:
            raise DTypeError(f"check: the predicate is {avals[0]}, not a bool")
        for k, aval in enumerate(avals[:n]):
            if aval.shape[: len(self.sizes)] != self.sizes or (k == 0 and aval.shape != self.sizes):
                raise ShapeError(f"check: operand {k} has mapped axes {list(self.sizes)}, got {aval}")
        return avals[n:]

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        n = 1 + self.n_fields
        if args[0].any():
            raise self.failure(args[0], args[1:n])
        return args[n:]

    def failure(self, pred: NDArray, fields: Sequence[NDArray]) -> CheckError:
        """Return the error for the first example for which the predicate holds."""
        at = tuple([int(k) for k in np.argwhere(pred)[0]])
        message = self.message.format(*[np.array(x[at])[()] for x in fields]) if fields else self.message
        index = f" (in example {at[0] if len(at) == 1 else list(at)})" if at else ""
        return CheckError(message + index, equation=self.equation, where=self.where)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if self.reports:
            return call_host(self, hlo, args, ())
        n = 1 + self.n_fields
        b = Builder()
        failed = b.build((b.one(ReduceOr(tuple(range(len(self.sizes)))), b.input(ins[0])),), "failed")
        any_failed = hlo.call(failed, args[:1]) if self.sizes else args[:1]
        b = Builder()
        b(replace(self, reports=True), *b.inputs(ins[:n]))
        hlo.op("stablehlo.if", any_failed, (), regions=(Region(b.build((), "report"), tuple(args[:n])), NOTHING))
        return args[n:]

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        n = 1 + self.n_fields
        first = args[:n]
        prim = self
        if any([d is not None for d in dims[:n]]):
            first = tuple([broadcast_to_axis(ctx, a, d, ctx.size, 0) for a, d in zip(first, dims[:n], strict=True)])
            prim = replace(self, sizes=(ctx.size, *self.sizes))
        return ctx(prim, *first, *args[n:]), dims[n:]

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        n = 1 + self.n_fields
        outs = ctx(self, *primals)
        lins = [t for t in tangents[n:] if isinstance(t, Lin)]
        checked = iter(ctx.lin(self, *primals[:n], *lins) if lins else ())
        return outs, tuple([next(checked) if isinstance(t, Lin) else t for t in tangents[n:]])

    def linear_in(self, flags: tuple[bool, ...]) -> bool:
        n = 1 + self.n_fields
        return all(flags[n:]) and not any(flags[:n])

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        n = 1 + self.n_fields
        pred_and_fields = known_operands(args[:n])
        checked = iter(ctx(self, *pred_and_fields, *[ct for ct in cts if not isinstance(ct, Zero)]))
        return (*[None] * n, *[ct if isinstance(ct, Zero) else next(checked) for ct in cts])


NOTHING: Final = Builder().build((), "nothing")


@by_value
def has_check(jaxpr: Jaxpr) -> bool:
    """Return True if the program or one of its bodies contains a check."""
    return any(map(prim_has_check, jaxpr.prims))


def prim_has_check(prim: Primitive) -> bool:
    """Return True if the equation is a check or has one in its bodies."""
    return isinstance(prim, Check) or (isinstance(prim, HigherOrder) and any([has_check(b) for b in prim.bodies]))


CHECK: Final = (Check,)
CallsHost: TypeAlias = HostCall | Check  # an equation for which XLA calls the host


@by_value
def calls_host(jaxpr: Jaxpr) -> bool:
    """Return True if the program may call the host: for values, for effects, or for a failed check."""
    return any(map(prim_calls_host, jaxpr.prims))


def prim_calls_host(prim: Primitive) -> bool:
    """Return True if the equation may call the host, itself or in its bodies."""
    return isinstance(prim, CallsHost) or (isinstance(prim, HigherOrder) and any([calls_host(b) for b in prim.bodies]))
