"""Reductions of axes and windows by a body: any associative operation on tuples of elements.

Reductions by a single addition, maximum, minimum, product or logical operation are primitives of their own, with
derivatives (a table is in `reduce`). The functions of `fxad.lax` use those if the body is such an operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.layout import Body, Elements, Group, Layout, Unknown, Value
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, DTypeError, NotDifferentiableError, ParameterError, ShapeError
from fxad.ir import (
    BOOL_SCALAR,
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Emit,
    HigherOrder,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Shape,
    Tangents,
    primitive,
)
from fxad.primitives.axes import Axes, axes_after_insert, other_axes, remove_axes
from fxad.primitives.elementwise.logic import OR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.operand_checks import check_axes
from fxad.primitives.shape import Transpose, align_batch_axes, emit_broadcast, emit_reshape
from fxad.primitives.slicing import Concatenate
from fxad.primitives.sliding import Padding, Windowed
from fxad.primitives.stablehlo import i64_array

BatchedResults: TypeAlias = tuple[tuple[Atom, ...], tuple[int | None, ...]]


class Fold(HigherOrder):
    """A reduction: operands of one shape, then as many 0-d initial values; the body maps two tuples of elements to one.

    The body must be associative, and the initial values must be its identity, so that the elements can be combined in
    groups. It need not be commutative: StableHLO keeps the order of the elements.
    """

    __slots__ = ()

    body: Jaxpr

    @property
    @final
    def bodies(self) -> tuple[Jaxpr, ...]:
        return (self.body,)

    @property
    @final
    def layout(self) -> Layout:
        n = len(self.body.outs)
        operands, results = Group(Elements(), 2 * n, fixed=True), Group(Value(), n, fixed=True)
        return Layout((operands,), (results,), (Body(self.body, (0,), (0,), Unknown()),))

    @final
    def _operands(self, avals: tuple[Aval, ...]) -> tuple[Aval, ...]:
        """Return the types of the operands without the initial values, checked against each other and the body.

        Raises: ArgumentError, ShapeError, DTypeError, ParameterError.
        """
        n = len(avals) // 2
        if not avals or len(avals) % 2:
            raise ArgumentError(f"{self.name}: takes as many initial values as operands, got {len(avals)} in all")
        xs, inits = avals[:n], avals[n:]
        for k, (x, init) in enumerate(zip(xs, inits, strict=True)):
            if x.shape != xs[0].shape:
                raise ShapeError(f"{self.name}: shapes differ: operand 0 {xs[0]}, operand {k} {x}")
            if init.shape:
                raise ShapeError(f"{self.name}: initial value {k} must be 0-d, got {init}")
            if init.dtype is not x.dtype:
                raise DTypeError(f"{self.name}: dtypes differ: operand {k} {x}, its initial value {init}")
        if self.body.in_avals != (*inits, *inits) or self.body.out_avals != inits:
            scalars = ", ".join(map(str, inits))
            have = f"({', '.join(map(str, self.body.in_avals))}) -> ({', '.join(map(str, self.body.out_avals))})"
            raise ParameterError(
                f"{self.name}: {self.body.name} is {have}, expected ({scalars}, {scalars}) -> ({scalars})"
            )
        return xs

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        raise NotDifferentiableError(
            f"{self.name}: the derivative of a reduction by {self.body.name} is not known: only reductions by add, mul,"
            " max and min have one",
            remedy="reduce by one of add, mul, max, min; or write it as lax.associative_scan or lax.scan",
        )

    @final
    def fold_last_axis(self, inits: Sequence[NDArray], values: Sequence[NDArray]) -> tuple[NDArray, ...]:
        """Fold the body over the last axis of `values`, from the left."""
        lead = values[0].shape[:-1]
        outs = [np.empty(lead, v.dtype) for v in values]
        for at in np.ndindex(*lead):
            totals: tuple[NDArray, ...] = tuple(inits)
            for k in range(values[0].shape[-1]):
                totals = run(self.body, [*totals, *[np.asarray(v[(*at, k)]) for v in values]])
            for out, value in zip(outs, totals, strict=True):
                out[at] = value
        return tuple(outs)


@final
@primitive
class Reduce(Fold):
    """Combine the elements along `axes`, which disappear, by `body`.

    Type:  n operands of one shape, n 0-d initial values of their dtypes; body: n and n scalars -> n scalars; `axes`
           increasing.
    Rule:  not differentiable; batching reduces the same axes of the stack.
    Source: stablehlo.reduce
    """

    name: ClassVar[str] = "reduce"
    body: Jaxpr
    axes: Axes

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> Reduce:
        (body,) = bodies
        return Reduce(body, self.axes)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        xs = self._operands(avals)
        check_axes(self.name, self.axes, xs[0].ndim)
        return tuple([x.with_shape(remove_axes(x.shape, self.axes)) for x in xs])

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        n = len(args) // 2
        kept = other_axes(self.axes, args[0].ndim)
        lead = tuple([args[0].shape[a] for a in kept])
        size = prod([args[0].shape[a] for a in self.axes])
        return self.fold_last_axis(args[n:], [x.transpose(*kept, *self.axes).reshape(*lead, size) for x in args[:n]])

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.reduce", args, outs, {"dimensions": i64_array(self.axes)}, (self.body,))

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> BatchedResults:
        n = len(args) // 2
        xs = align_batch_axes(ctx, args[:n], dims[:n])
        if all([d is None for d in dims[n:]]):
            outs = ctx(Reduce(self.body, axes_after_insert(self.axes, 0)), *xs, *args[n:])
            return outs, (0,) * n
        return _reduce_examples(
            ctx, self.body, xs, axes_after_insert(self.axes, 0), align_batch_axes(ctx, args[n:], dims[n:]), None
        ), (0,) * n


@final
@primitive
class ReduceWindow(Fold, Windowed):
    """Combine the elements of each window by `body`; holes hold the initial values.

    Type:  n operands of one shape, n 0-d initial values of their dtypes; body: n and n scalars -> n scalars; one entry
           of each other parameter per axis.
    Rule:  not differentiable; batching slides the same windows over the stack.
    Source: stablehlo.reduce_window
    """

    name: ClassVar[str] = "reduce_window"
    body: Jaxpr
    window: Shape
    strides: Axes
    padding: Padding
    base_dilation: Axes
    window_dilation: Axes

    def with_bodies(self, bodies: tuple[Jaxpr, ...]) -> ReduceWindow:
        (body,) = bodies
        return ReduceWindow(body, *self.sliding.values)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        xs = self._operands(avals)
        shape = self.sliding.result_shape(self.name, xs[0])
        return tuple([x.with_shape(shape) for x in xs])

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        n, ndim = len(args) // 2, args[0].ndim
        windows = [self.sliding.windows(x, hole) for x, hole in zip(args[:n], args[n:], strict=True)]
        size = prod(self.window)
        return self.fold_last_axis(args[n:], [w.reshape(*w.shape[:ndim], size) for w in windows])

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        n = len(outs)
        xs, _, windows = self.sliding.lower_single(hlo, args[:n], ins[:n], args[n:])
        return hlo.op("stablehlo.reduce_window", (*xs, *args[n:]), outs, windows.attributes(), (self.body,))

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> BatchedResults:
        n, sliding = len(args) // 2, self.sliding.mapped(0)
        xs = align_batch_axes(ctx, args[:n], dims[:n])
        if all([d is None for d in dims[n:]]):
            return ctx(self.with_sliding(sliding), *xs, *args[n:]), (0,) * n
        inits = align_batch_axes(ctx, args[n:], dims[n:])
        flag = Lit.of(True, xs[0].aval.with_dtype(dtypes.bool_))
        window = ReduceWindow(_guarded_body(self.body), *sliding.values)
        flags, *ys = ctx(window, flag, *xs, *_guarded_inits(xs))
        return _reduce_examples(ctx, self.body, tuple(ys), (), inits, flags), (0,) * n


# ------------------------------------------------------------------------------- initial values that differ by example


def _guarded_inits(xs: Iterable[Atom]) -> list[Atom]:
    """Return the initial values of a guarded body: flags that are False, then zeros."""
    return [Lit.of(False, BOOL_SCALAR), *[Lit.zero(x.aval.with_shape(())) for x in xs]]


@by_value
def _guarded_body(body: Jaxpr) -> Jaxpr:
    """Return the body on elements that carry a flag for presence. It needs no identity element."""
    b, scalars = Builder(), body.out_avals
    left_present, *left = b.inputs((BOOL_SCALAR, *scalars))
    right_present, *right = b.inputs((BOOL_SCALAR, *scalars))
    combined = b.inline(body, (*left, *right))
    with_left = [emit_where(b, right_present, z, x) for x, z in zip(left, combined, strict=True)]
    outs = [emit_where(b, left_present, z, y) for y, z in zip(right, with_left, strict=True)]
    return b.build([b.one(OR, left_present, right_present), *outs], f"{body.name}_guarded")


def _reduce_examples(emit: Emit, body: Jaxpr, xs: Atoms, axes: Axes, inits: Atoms, flags: Atom | None) -> Atoms:
    """Reduce `axes` of `xs` (mapped at axis 0) from initial values that differ between examples.

    StableHLO has one initial value for all examples. So the initial value of each example becomes its first element:
    the reduction of the rows [x0, x1] and [y0, y1] from the initial values i and j reduces [i, x0, x1] and [j, y0, y1].
    The reduction of these rows needs an initial value too, and no identity element of the body is known. So elements
    carry a flag for presence, and the initial value is not present.

    `flags` mark the elements of `xs` that are present; None marks all.
    """
    shape = xs[0].aval.shape
    remaining = other_axes(axes, len(shape))
    batch_shape = tuple([shape[a] for a in remaining])
    size = prod([shape[a] for a in axes])

    def flatten_axes(x: Atom) -> Atom:
        perm = (*remaining, *axes)
        transposed = x if perm == tuple(range(len(perm))) else emit.one(Transpose(perm), x)
        return emit_reshape(emit, transposed, (*batch_shape, size))

    columns = [
        emit.one(Concatenate(len(batch_shape)), emit_broadcast(emit, init, (*batch_shape, 1), (0,)), flatten_axes(x))
        for x, init in zip(xs, inits, strict=True)
    ]
    flag = Aval((*batch_shape, 1), dtypes.bool_)
    present: Atom = Lit.of(True, flag.with_shape((*batch_shape, 1 + size)))
    if flags is not None:
        present = emit.one(Concatenate(len(batch_shape)), Lit.of(True, flag), flatten_axes(flags))
    return emit(Reduce(_guarded_body(body), (len(batch_shape),)), present, *columns, *_guarded_inits(xs))[1:]


FOLD: Final = (Reduce, ReduceWindow)
