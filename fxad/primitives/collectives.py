"""Collectives: operations over the indices of named axes, which `vmap`, `pmap` or `shard_map` binds.

A program is a function of one index. A collective says what the indices exchange. `names` are the axes, the first one
slowest, and `sizes` their sizes: so the type of an equation does not depend on the map around it, and a program whose
axes no map binds yet is a value like any other. `groups` divides the indices of one axis; without groups, all indices
along the axes are one group.

All collectives but the extrema are linear. Each is a linear map of the stack of the values of all indices, and its
transpose is the adjoint of that map.

The base classes hold the rules. A leaf defines what they call:

    rule            calls of a leaf    to get
    abstract_eval   result_type        the type of the result
    impl            compute            the result of one index, of the operands of its group
    lower           exchange           the operation of StableHLO
    batch           with_extra_axis    the result if `vmap` maps over another axis
                    batch_named_axis   the result if `vmap` binds one of the axes. A leaf of `Grouped` has two instead:
                    batch_ungrouped      without groups
                    batch_grouped        with groups, of one axis
    transpose       adjoint            the collective that is the transpose, if it is linear
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.lockstep import gather_from_runs, index_of
from fxad.core.memo import by_value
from fxad.core.sizes.size import Size
from fxad.errors import AxisNameError, ParameterError, ShapeError
from fxad.ir import (
    INT32_SCALAR,
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Dims,
    Emit,
    FreeAxes,
    HigherOrder,
    Hlo,
    HloValue,
    HloValues,
    Jaxpr,
    JvpCtx,
    LinearMap,
    Lit,
    NDArray,
    Primitive,
    Tangents,
    Zero,
    all_prims,
    primitive,
    primitive_family,
)
from fxad.primitives.axes import axes_after_insert, axis_after_insert, replace_entry
from fxad.primitives.dynamic_slicing import read_row
from fxad.primitives.elementwise.arithmetic import ADD, MUL
from fxad.primitives.elementwise.family import ORDERED
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.families import LinearInOne
from fxad.primitives.operand_checks import check_axis, check_count, check_dtype
from fxad.primitives.reduce import MAXIMUM, MINIMUM, SUM, Monoid, ReduceMax, ReduceMin, shares_of_ties
from fxad.primitives.shape import (
    Iota,
    ReduceSum,
    Transpose,
    broadcast_to_axis,
    emit_reshape,
    merge_axes,
    move_axis,
    split_axis,
)
from fxad.primitives.slicing import Concatenate, emit_slice
from fxad.primitives.stablehlo import i64_attribute, zeros_constant

AxisNames: TypeAlias = tuple[str, ...]
Sizes: TypeAlias = tuple[int, ...]
Groups: TypeAlias = tuple[tuple[int, ...], ...]
BatchedValue: TypeAlias = tuple[Atom, int | None]  # a value and its batch axis


# ---------------------------------------------------------------------------------------------------------- families


@primitive_family
class Collective(Primitive):
    """An operation of one operand over named axes."""

    __slots__ = ()

    names: AxisNames
    sizes: Sizes

    @property
    def free_axes(self) -> FreeAxes:
        return frozenset(zip(self.names, self.sizes, strict=True))

    @property
    def count(self) -> int:
        """The number of indices along the axes."""
        return prod(self.sizes)

    @final
    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = check_count(self, avals, 1)
        self.check_parameters()
        return (self.result_type(x),)

    def check_parameters(self) -> None:
        """Check the axes and the groups. Raises: ParameterError, AxisNameError."""
        check_named_axes(self.name, self.names, self.sizes)

    @abstractmethod
    def result_type(self, x: Aval) -> Aval:
        """Return the type of the result, for axes and groups that are right."""

    @final
    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        (x,) = args
        index = index_of(self.names, self.sizes)
        xs, group = gather_from_runs(self.names, self.sizes, x), self.group_of(index)
        return (np.asarray(self.compute([xs[k] for k in group], group.index(index))),)

    def group_of(self, index: int) -> Sequence[int]:
        """Return the indices that exchange values with `index`, which is one of them."""
        return range(self.count)

    @abstractmethod
    def compute(self, xs: list[NDArray], at: int) -> object:
        """Return the result for index number `at` of a group, of the operands of the group."""

    @final
    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if outs[0].size:
            return self.exchange(hlo, args, ins, outs)
        replica_groups(hlo, self.name, self.names, self.sizes)  # checks the axes; XLA refuses collectives of nothing
        return [zeros_constant(hlo, outs[0])]

    @abstractmethod
    def exchange(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        """Add the StableHLO operation, for a result that is not empty."""

    @final
    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (x,), (dim,) = args, dims
        if ctx.axis in self.names:
            k = self.names.index(str(ctx.axis))
            check_mapped_size(ctx, self.name, self.sizes[k])
            out, at = self.batch_named_axis(ctx, x, dim, k)
        else:
            out, at = self.batch_other_axis(ctx, x, dim)
        return (out,), (at,)

    def other_axes(self, k: int) -> tuple[AxisNames, Sizes]:
        """Return the axes without number `k`."""
        return (*self.names[:k], *self.names[k + 1 :]), (*self.sizes[:k], *self.sizes[k + 1 :])

    def batch_other_axis(self, ctx: BatchCtx, x: Atom, dim: int | None) -> BatchedValue:
        """Return the result for a stack along an axis that the collective does not run over."""
        return (ctx.one(self, x), None) if dim is None else (self.with_extra_axis(ctx, x, dim), dim)

    @abstractmethod
    def with_extra_axis(self, emit: Emit, x: Atom, dim: int) -> Atom:
        """Return the result for an operand with a further axis at `dim`, where the result has it too."""

    @abstractmethod
    def batch_named_axis(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        """Return the result for a stack along axis number `k` of the collective, which `vmap` binds: `x` holds the
        values of all indices along it."""


class Grouped(Collective):
    """A collective whose indices may be divided into groups of one size."""

    __slots__ = ()

    groups: Groups  # a field of the leaves, where it comes last

    @property
    def width(self) -> int:
        """The number of indices in a group."""
        return len(self.groups[0]) if self.groups else self.count

    @final
    def check_parameters(self) -> None:
        super().check_parameters()
        check_groups(self.name, self.names, self.sizes, self.groups)

    @final
    def group_of(self, index: int) -> Sequence[int]:
        return next((group for group in self.groups if index in group), range(self.count))

    @final
    def batch_named_axis(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        if not self.groups:
            return self.batch_ungrouped(ctx, x, dim, k)
        # (groups, members, ...) -> (groups, members, ...)
        n, (order, back) = len(self.groups), group_order(self.groups)
        rows = take_rows(ctx, broadcast_to_axis(ctx, x, dim, ctx.size, 0), order)
        result = self.batch_grouped(ctx, emit_reshape(ctx, rows, (n, self.width, *rows.aval.shape[1:])))
        return take_rows(ctx, emit_reshape(ctx, result, (ctx.size, *result.aval.shape[2:])), back), 0

    @abstractmethod
    def batch_ungrouped(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        """Return `batch_named_axis` of a collective without groups."""

    @abstractmethod
    def batch_grouped(self, emit: Emit, x: Atom) -> Atom:
        """Return `batch_named_axis` of a collective with groups: the results for a stack (groups, members, ...), in the
        same form."""

    def slower_axes(self, k: int) -> tuple[AxisNames, Sizes]:
        """Return the axes before number `k`, which are slower."""
        return self.names[:k], self.sizes[:k]

    def faster_axes(self, k: int) -> tuple[AxisNames, Sizes]:
        """Return the axes after number `k`, which are faster."""
        return self.names[k + 1 :], self.sizes[k + 1 :]


class LinearCollective(LinearMap, LinearInOne):
    """A collective that is linear in its operand."""

    __slots__ = ()

    @abstractmethod
    def adjoint(self) -> Primitive:
        """Return the collective that is the transpose."""

    @final
    def cotangent(self, emit: Emit, ct: Atom, x: Aval, others: Atoms) -> Cotangent:
        return emit.one(self.adjoint(), ct)


# ------------------------------------------------------------------------------------------------------------ checks


def check_named_axes(op: str, names: AxisNames, sizes: Sizes) -> None:
    """Check the axes of a collective. Raises: ParameterError, AxisNameError."""
    if len(names) != len(sizes) or not names or min(sizes) < 1:
        raise ParameterError(
            f"{op}: axes {names} of sizes {sizes} are not axes", remedy="give each axis a name and a size of 1 or more"
        )
    if len(set(names)) != len(names):
        raise AxisNameError(f"{op}: axes {names} name an axis twice", remedy="name each axis once")


def check_groups(op: str, names: AxisNames, sizes: Sizes, groups: Groups) -> None:
    """Check groups of indices. Raises: ParameterError."""
    if not groups:
        return
    if len(names) != 1:
        raise ParameterError(f"{op}: groups divide one axis, got {names}", remedy="name one axis, or leave out groups")
    if sorted([k for g in groups for k in g]) != list(range(*sizes)) or len({len(g) for g in groups}) != 1:
        raise ParameterError(
            f"{op}: groups {groups} do not divide axis {names[0]!r} of size {sizes[0]}",
            remedy="name each index in one group, and give all groups one size",
        )


def check_mapped_size(ctx: BatchCtx, op: str, size: int) -> None:
    """Check that `vmap` binds an axis of the size that an equation was traced with. Raises: AxisNameError."""
    if ctx.size != size:
        raise AxisNameError(
            f"{op}: axis {ctx.axis!r} has size {ctx.size}, it was traced with {size}",
            remedy="trace the program again for this size",
        )


# --------------------------------------------------------------------------------------------------- stacks of values


def group_order(groups: Groups) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices group by group, and the inverse of that permutation."""
    order = tuple([k for g in groups for k in g])
    return order, tuple(sorted(range(len(order)), key=order.__getitem__))


def take_rows(emit: Emit, x: Atom, order: Sequence[int]) -> Atom:
    """Return `x[order]` along axis 0, with zeros for -1; one slice for each run of consecutive indices. A run is
    k, k + 1, ..., or several -1: of [2, 3, -1, -1, 0] it is x[2:4], two rows of zeros, and x[0:1]."""
    if tuple(order) == tuple(range(x.aval.shape[0])):
        return x
    runs: list[list[int]] = []
    for k in order:
        if runs and k == (runs[-1][-1] + 1 if runs[-1][-1] >= 0 else -1):
            runs[-1].append(k)
        else:
            runs.append([k])
    parts = [
        emit_slice(emit, x, 0, run[0], run[-1] + 1)
        if run[0] >= 0
        else Lit.zero(x.aval.with_shape((len(run), *x.aval.shape[1:])))
        for run in runs
    ]
    return parts[0] if len(parts) == 1 else emit.one(Concatenate(0), *parts)


def _swap_axes(emit: Emit, x: Atom, a: int, b: int) -> Atom:
    """Return two axes exchanged."""
    a, b = min(a, b), max(a, b)
    return x if a == b else move_axis(emit, move_axis(emit, x, a, b), b - 1, a)


def _sum_of_equal(emit: Emit, x: Atom, n: int) -> Atom:
    """Return the sum of `n` values that are `x`: a product, if the dtype of x has the number n."""
    if has_number(x.aval, n):
        return emit.one(MUL, x, Lit.of(n, x.aval))
    return emit.one(ReduceSum((0,)), broadcast_to_axis(emit, x, None, n, 0))


def has_number(aval: Aval, n: int) -> bool:
    """Return True if a dtype has the number n exactly: float16 has no 100,000, and float8 has few integers. A symbolic
    size counts as exact."""
    if type(n) is Size:
        return True
    if not aval.inexact:
        return n < 128  # the bound of int8, for all integers: a larger number is added up
    with np.errstate(over="ignore"):
        return complex(np.asarray(float(n)).astype(aval.dtype)) == n


# ---------------------------------------------------------------------------------------------------------- lowering


def replica_groups(hlo: Hlo, op: str, names: AxisNames, sizes: Sizes, groups: Groups = ()) -> list[list[int]]:
    """Return the numbers of the devices that communicate with one another, a list for each group.

    Raises: AxisNameError for an axis that the devices do not have.
    """
    mesh = dict(hlo.mesh)
    for name, size in zip(names, sizes, strict=True):
        if mesh.get(name) != size:
            raise AxisNameError(
                f"{op}: axis {name!r} of size {size} is not bound",
                remedy=f"map over it: vmap(program, axis_name={name!r}, axis_size={size}), pmap or shard_map",
            )
    every, order = list(mesh), [*[a for a in mesh if a not in names], *names]
    ids = np.arange(prod(mesh.values())).reshape(tuple(mesh.values())).transpose([every.index(a) for a in order])
    rows: list[list[int]] = ids.reshape(-1, prod(sizes)).tolist()
    return [[row[k] for k in g] for row in rows for g in groups] if groups else rows


def _i64_rows(rows: list[list[int]]) -> str:
    """Return the attribute for a matrix of integers: the members of groups, or pairs."""
    return f"dense<{rows}> : tensor<{len(rows)}x{len(rows[0]) if rows else 2}xi64>"  # lists are printed as in MLIR


def _channel(hlo: Hlo) -> str:
    return f"#stablehlo.channel_handle<handle = {hlo.channel()}, type = 1>"


def _group_attributes(hlo: Hlo, prim: Grouped) -> dict[str, str]:
    rows = replica_groups(hlo, prim.name, prim.names, prim.sizes, prim.groups)
    return {"replica_groups": _i64_rows(rows), "channel_handle": _channel(hlo), "use_global_device_ids": "unit"}


# -------------------------------------------------------------------------------------------------------- reductions


def _reduce_complex_by_parts(
    hlo: Hlo, reduced: Callable[[HloValue, Aval], HloValue], x: HloValue, of: Aval, out: Aval
) -> HloValues:
    """Return a sum of complex values as the sums of the real and the imaginary parts. XLA's CPU compiler ends the
    process at a sum of a complex constant."""
    if not dtypes.is_complex(out.dtype):
        return (reduced(x, out),)
    part, whole = [a.with_dtype(dtypes.real_part(a.dtype)) for a in (of, out)]
    parts = [reduced(hlo.op(name, (x,), (part,))[0], whole) for name in ("stablehlo.real", "stablehlo.imag")]
    return hlo.op("stablehlo.complex", parts, (out,))


@primitive_family
class Reducing(Grouped):
    """A reduction over the indices of a group; each index has the result."""

    __slots__ = ()

    takes: ClassVar[frozenset[dtypes.DType]]
    monoid: ClassVar[Monoid]
    groups: Groups = ()

    @abstractmethod
    def reduction_along(self, axis: int) -> Primitive:
        """Return the reduction of one axis of an array."""

    @abstractmethod
    def of_equal_values(self, emit: Emit, x: Atom, n: int) -> Atom:
        """Return the result for `n` equal values."""

    @final
    def result_type(self, x: Aval) -> Aval:
        check_dtype(self.name, x, self.takes)
        return x

    @final
    def compute(self, xs: list[NDArray], at: int) -> object:
        wide = dtypes.accumulated(xs[0].dtype)
        return np.asarray(self.monoid.ufunc.reduce(np.stack(xs).astype(wide), 0)).astype(xs[0].dtype)

    @final
    def exchange(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        region = (self.monoid.prim.hlo_name,)

        def reduced(x: HloValue, out: Aval) -> HloValue:
            return hlo.op("stablehlo.all_reduce", (x,), (out,), _group_attributes(hlo, self), region)[0]

        return _reduce_complex_by_parts(hlo, reduced, args[0], ins[0], outs[0])

    @final
    def with_extra_axis(self, emit: Emit, x: Atom, dim: int) -> Atom:
        return emit.one(self, x)

    @final
    def batch_ungrouped(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        x = self.of_equal_values(ctx, x, ctx.size) if dim is None else ctx.one(self.reduction_along(dim), x)
        names, sizes = self.other_axes(k)
        return ctx.one(replace(self, names=names, sizes=sizes), x) if names else x, None

    @final
    def batch_grouped(self, emit: Emit, x: Atom) -> Atom:
        return broadcast_to_axis(emit, emit.one(self.reduction_along(1), x), None, x.aval.shape[1], 1)


@final
@primitive
class Psum(Reducing, LinearCollective):
    """The sum of the values of the indices of a group.

    Type: x of any dtype but bool; the dtype is kept.
    Rule: its own transpose.
    Source: stablehlo.all_reduce with stablehlo.add
    """

    name: ClassVar[str] = "psum"
    takes: ClassVar[frozenset[dtypes.DType]] = dtypes.NUMERIC
    monoid: ClassVar[Monoid] = SUM

    def reduction_along(self, axis: int) -> Primitive:
        return ReduceSum((axis,))

    def of_equal_values(self, emit: Emit, x: Atom, n: int) -> Atom:
        return _sum_of_equal(emit, x, n)

    def adjoint(self) -> Psum:
        return self


class Extremum(Reducing):
    """The greatest or least of the values of the indices of a group."""

    __slots__ = ()

    takes: ClassVar[frozenset[dtypes.DType]] = ORDERED

    @final
    def of_equal_values(self, emit: Emit, x: Atom, n: int) -> Atom:
        return x

    @final
    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        (x,), (t,) = primals, tangents
        y = ctx.one(self, x)
        total = Psum(self.names, self.sizes, self.groups)
        shares = shares_of_ties(ctx, ctx.one(EQ, x, y), x.aval.dtype, lambda ones: ctx.one(total, ones))
        return (y,), (ctx.lin_one(total, ctx.lin_one(MUL, t, shares)),)


@final
@primitive
class Pmax(Extremum):
    """The greatest of the values of the indices of a group; nan if one is nan.

    Type: x integer, float or bool; the dtype is kept.
    Rule: the tangent is the mean of the tangents of the values equal to the maximum.
    Source: stablehlo.all_reduce with stablehlo.maximum
    """

    name: ClassVar[str] = "pmax"
    monoid: ClassVar[Monoid] = MAXIMUM

    def reduction_along(self, axis: int) -> Primitive:
        return ReduceMax((axis,))


@final
@primitive
class Pmin(Extremum):
    """The least of the values of the indices of a group; nan if one is nan.

    Type: x integer, float or bool; the dtype is kept.
    Rule: the tangent is the mean of the tangents of the values equal to the minimum.
    Source: stablehlo.all_reduce with stablehlo.minimum
    """

    name: ClassVar[str] = "pmin"
    monoid: ClassVar[Monoid] = MINIMUM

    def reduction_along(self, axis: int) -> Primitive:
        return ReduceMin((axis,))


# ------------------------------------------------------------------------------------------------ parts of an array


@final
@primitive
class AllGather(Grouped, LinearCollective):
    """The values of the indices of a group, one after the other along axis `dim`.

    Type: x of any dtype; axis `dim` of the result is as many times as long as the group has indices.
    Rule: transpose is psum_scatter.
    Source: stablehlo.all_gather
    """

    name: ClassVar[str] = "all_gather"
    dim: int
    groups: Groups = ()

    def result_type(self, x: Aval) -> Aval:
        check_axis(self.name, self.dim, x.ndim)
        return x.with_shape(replace_entry(x.shape, self.dim, x.shape[self.dim] * self.width))

    def compute(self, xs: list[NDArray], at: int) -> object:
        return np.concatenate(xs, self.dim)

    def exchange(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op(
            "stablehlo.all_gather",
            args,
            outs,
            {"all_gather_dim": i64_attribute(self.dim), **_group_attributes(hlo, self)},
        )

    def with_extra_axis(self, emit: Emit, x: Atom, dim: int) -> Atom:
        return emit.one(AllGather(self.names, self.sizes, axis_after_insert(self.dim, dim), self.groups), x)

    def batch_ungrouped(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        # the fastest axis first, so that the slower ones are outside
        names, sizes = self.faster_axes(k)
        if names:
            x, dim = AllGather(names, sizes, self.dim).batch_other_axis(ctx, x, dim)
        x = merge_axes(ctx, broadcast_to_axis(ctx, x, dim, ctx.size, self.dim), self.dim)
        names, sizes = self.slower_axes(k)
        return ctx.one(AllGather(names, sizes, self.dim), x) if names else x, None

    def batch_grouped(self, emit: Emit, x: Atom) -> Atom:
        n = x.aval.shape[1]
        joined = merge_axes(emit, move_axis(emit, x, 1, 1 + self.dim), 1 + self.dim)
        return broadcast_to_axis(emit, joined, None, n, 1)

    def adjoint(self) -> PsumScatter:
        return PsumScatter(self.names, self.sizes, self.dim, self.groups)


@final
@primitive
class PsumScatter(Grouped, LinearCollective):
    """The sum of the values of the indices of a group, of which each index has one part of axis `dim`, in order.

    Type: x of any dtype but bool; the size of axis `dim` is a multiple of the number of indices in a group.
    Rule: transpose is all_gather.
    Source: stablehlo.reduce_scatter with stablehlo.add
    """

    name: ClassVar[str] = "psum_scatter"
    dim: int
    groups: Groups = ()

    def result_type(self, x: Aval) -> Aval:
        check_dtype(self.name, x, dtypes.NUMERIC)
        return x.with_shape(replace_entry(x.shape, self.dim, _size_of_part(self.name, x, self.dim, self)))

    def compute(self, xs: list[NDArray], at: int) -> object:
        wide = dtypes.accumulated(xs[0].dtype)
        total = np.add.reduce(np.stack(xs).astype(wide), 0).astype(xs[0].dtype)
        return np.split(total, len(xs), self.dim)[at]

    def exchange(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        def reduced(x: HloValue, out: Aval) -> HloValue:
            attrs = {"scatter_dimension": i64_attribute(self.dim), **_group_attributes(hlo, self)}
            return hlo.op("stablehlo.reduce_scatter", (x,), (out,), attrs, ("stablehlo.add",))[0]

        return _reduce_complex_by_parts(hlo, reduced, args[0], ins[0], outs[0])

    def with_extra_axis(self, emit: Emit, x: Atom, dim: int) -> Atom:
        return emit.one(PsumScatter(self.names, self.sizes, axis_after_insert(self.dim, dim), self.groups), x)

    def batch_ungrouped(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        # the slowest axis first: it has the largest parts
        names, sizes = self.slower_axes(k)
        if names:
            x, dim = PsumScatter(names, sizes, self.dim).batch_other_axis(ctx, x, dim)
        x = _sum_of_equal(ctx, x, ctx.size) if dim is None else ctx.one(ReduceSum((dim,)), x)
        x = split_axis(ctx, x, self.dim, ctx.size)
        names, sizes = self.faster_axes(k)
        return PsumScatter(names, sizes, self.dim).batch_other_axis(ctx, x, self.dim) if names else (x, self.dim)

    def batch_grouped(self, emit: Emit, x: Atom) -> Atom:
        parts = split_axis(emit, emit.one(ReduceSum((1,)), x), 1 + self.dim, x.aval.shape[1])
        return move_axis(emit, parts, 1 + self.dim, 1)

    def adjoint(self) -> AllGather:
        return AllGather(self.names, self.sizes, self.dim, self.groups)


@final
@primitive
class AllToAll(Grouped, LinearCollective):
    """Index k of a group has part k along axis `split` of the values of all indices of the group, in order along
    `concat`.

    Type: x of any dtype; the size of axis `split` is a multiple of the number of indices in a group.
    Rule: transpose is all_to_all with `split` and `concat` exchanged.
    Source: stablehlo.all_to_all
    """

    name: ClassVar[str] = "all_to_all"
    split: int
    concat: int
    groups: Groups = ()

    def result_type(self, x: Aval) -> Aval:
        part = _size_of_part(self.name, x, self.split, self)
        check_axis(self.name, self.concat, x.ndim)
        divided = replace_entry(x.shape, self.split, part)
        return x.with_shape(replace_entry(divided, self.concat, divided[self.concat] * self.width))

    def compute(self, xs: list[NDArray], at: int) -> object:
        return np.concatenate([np.split(x, len(xs), self.split)[at] for x in xs], self.concat)

    def exchange(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        attrs = {
            "split_dimension": i64_attribute(self.split),
            "concat_dimension": i64_attribute(self.concat),
            "split_count": i64_attribute(self.width),
            **_group_attributes(hlo, self),
        }
        del attrs["use_global_device_ids"]  # the operation has no such attribute: the channel says it
        return hlo.op("stablehlo.all_to_all", args, outs, attrs)

    def with_extra_axis(self, emit: Emit, x: Atom, dim: int) -> Atom:
        split, concat = axes_after_insert((self.split, self.concat), dim)
        return emit.one(AllToAll(self.names, self.sizes, split, concat, self.groups), x)

    def batch_ungrouped(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        # Axes ("i", "j") of sizes (2, 2), `vmap` binds "i". sp is part p of index s, and index 2 i + j is the number of
        # (i, j). At j = 0:
        #   the stack, of indices 0 and 2                         [[00, 01, 02, 03], [20, 21, 22, 23]]
        #   an axis of parts for each named axis                  [[[00, 01], [02, 03]], [[20, 21], [22, 23]]]
        #   exchanged over "i": the axes of "i" are swapped       [[[00, 01], [20, 21]], [[02, 03], [22, 23]]]
        #   exchanged over "j": all_to_all with j = 1             [[[00, 10], [20, 30]], [[02, 12], [22, 32]]]
        #   the axes of sources merged                            [[00, 10, 20, 30], [02, 12, 22, 32]]
        x = broadcast_to_axis(ctx, x, dim, ctx.size, 0)
        first = 1 + self.split
        x = split_axis(ctx, x, first, *self.sizes)
        for j, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            axis = first + j
            x = _swap_axes(ctx, x, 0, axis) if j == k else ctx.one(AllToAll((name,), (size,), axis, axis), x)
        return self._merge_sources(ctx, x, 1, len(self.sizes)), 0

    def _merge_sources(self, emit: Emit, x: Atom, lead: int, n: int) -> Atom:
        """Merge the `n` axes of sources, which stand before axis `split`, into axis `concat`. `lead` axes stand before
        those of the operand.

        With lead = 1, n = 2, split = 0 and concat = 1, the axes (stack, source i, source j, a, b) of x become
        (stack, a, source i, source j, b) and, merged, (stack, a, source i * source j * b).
        """
        sources = range(lead + self.split, lead + self.split + n)
        own_axes = [a for a in range(lead, x.aval.ndim) if a not in sources]
        order = [*range(lead), *own_axes[: self.concat], *sources, *own_axes[self.concat :]]
        if order != sorted(order):
            x = emit.one(Transpose(tuple(order)), x)
        return merge_axes(emit, x, lead + self.concat, n + 1)

    def batch_grouped(self, emit: Emit, x: Atom) -> Atom:
        n, at = x.aval.shape[1], 2 + self.split
        x = _swap_axes(emit, split_axis(emit, x, at, n), 1, at)
        return self._merge_sources(emit, x, 2, 1)

    def adjoint(self) -> AllToAll:
        return AllToAll(self.names, self.sizes, self.concat, self.split, self.groups)


def _size_of_part(op: str, x: Aval, dim: int, prim: Grouped) -> int:
    """Return the size of a part of axis `dim`. Raises: AxisError, ShapeError."""
    check_axis(op, dim, x.ndim)
    if x.shape[dim] % prim.width != 0:
        raise ShapeError(
            f"{op}: axis {dim} of {x} has size {x.shape[dim]}, which {prim.width} indices of"
            f" {', '.join(map(repr, prim.names))} do not divide",
            remedy="pad the axis, or choose another one",
        )
    return x.shape[dim] // prim.width


@final
@primitive
class Ppermute(Collective, LinearCollective):
    """Index `d` has the value of index `s`, for each pair `(s, d)` of `perm`; zeros if no pair has it as second entry.

    Type: x of any dtype; no two pairs have the same first, or the same second entry.
    Rule: transpose is ppermute with the pairs reversed.
    Source: stablehlo.collective_permute
    """

    name: ClassVar[str] = "ppermute"
    perm: tuple[tuple[int, int], ...]

    def result_type(self, x: Aval) -> Aval:
        check_perm(self.name, self.perm, self.count)
        return x

    def _sources(self) -> list[int]:
        """Return for each index, the index whose value it has; -1 for zeros."""
        sources = {d: s for s, d in self.perm}
        return [sources.get(k, -1) for k in range(self.count)]

    def compute(self, xs: list[NDArray], at: int) -> object:
        source = self._sources()[at]
        return xs[source] if source >= 0 else np.zeros_like(xs[at])

    def exchange(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        rows = replica_groups(hlo, self.name, self.names, self.sizes)
        pairs = [[row[s], row[d]] for row in rows for s, d in self.perm]
        if not pairs:
            return [zeros_constant(hlo, outs[0])]
        attrs = {"source_target_pairs": _i64_rows(pairs), "channel_handle": _channel(hlo)}
        return hlo.op("stablehlo.collective_permute", args, outs, attrs)

    def with_extra_axis(self, emit: Emit, x: Atom, dim: int) -> Atom:
        return emit.one(self, x)

    def batch_named_axis(self, ctx: BatchCtx, x: Atom, dim: int | None, k: int) -> BatchedValue:
        sources = self._sources()
        x = broadcast_to_axis(ctx, x, dim, ctx.size, 0)
        if len(self.names) == 1:
            return take_rows(ctx, x, sources), 0
        return self._gather_and_pick(ctx, x, k), 0

    def _gather_and_pick(self, ctx: BatchCtx, x: Atom, k: int) -> Atom:
        """Return the result for a stack along axis 0 of the values of all indices along axis number `k`, of several.

        Axes ("i", "j") of sizes (2, 2), `vmap` binds "i", index 2 i + j is the number of (i, j), and index d has the
        value of d - 1. At j = 0:
            the stack, of indices 0 and 2                        [x0, x2]
            the values of all indices, gathered over "j"         [x0, x2, x1, x3]
            the values of their sources, a row for each j        [[x3, x1], [x0, x2]]
            the row of this j                                    [x3, x1]
        """
        sources = self._sources()
        names, sizes = self.other_axes(k)
        gathered = ctx.one(AllGather(names, sizes, 0), broadcast_to_axis(ctx, x, None, 1, 0))
        values = emit_reshape(ctx, gathered, (self.count, *x.aval.shape[1:]))
        # the gathered axes are slower than the stack: [0, 2, 1, 3] in the example
        indices = np.moveaxis(np.arange(self.count).reshape(self.sizes), k, -1).ravel().tolist()
        row_of = {index: row for row, index in enumerate(indices)}
        received = take_rows(ctx, values, [row_of.get(sources[index], -1) for index in indices])
        rows = emit_reshape(ctx, received, (prod(sizes), *x.aval.shape))
        return read_row(ctx, rows, flat_index(ctx, names, sizes))

    def adjoint(self) -> Ppermute:
        return Ppermute(self.names, self.sizes, tuple([(d, s) for s, d in self.perm]))


def check_perm(op: str, perm: tuple[tuple[int, int], ...], count: int) -> None:
    """Check the pairs of a permutation of `count` indices. Raises: ParameterError."""
    for side, ends in (("source", [s for s, _ in perm]), ("target", [d for _, d in perm])):
        wrong = [k for k in ends if not 0 <= k < count or ends.count(k) > 1]
        if wrong:
            raise ParameterError(
                f"{op}: {side} {wrong[0]} of perm {perm} is used twice or is not below {count}",
                remedy="give pairs (source, target) of indices, each source and each target once",
            )


@final
@primitive
class AxisIndex(Primitive):
    """The index along a named axis. No operands.

    Type: i32[].
    Source: stablehlo.partition_id
    """

    name: ClassVar[str] = "axis_index"
    axis: str
    size: int

    @property
    def free_axes(self) -> FreeAxes:
        return frozenset({(self.axis, self.size)})

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        check_count(self, avals, 0)
        check_named_axes(self.name, (self.axis,), (self.size,))
        return (INT32_SCALAR,)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (np.asarray(index_of((self.axis,), (self.size,)), np.int32),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        replica_groups(hlo, self.name, (self.axis,), (self.size,))  # checks the axis
        names = [name for name, _ in hlo.mesh]
        stride = prod([size for _, size in hlo.mesh[names.index(self.axis) + 1 :]])
        id_ = INT32_SCALAR.with_dtype(dtypes.uint32)
        value = hlo.op("stablehlo.partition_id", (), (id_,))
        if stride > 1:
            value = hlo.op("stablehlo.divide", (*value, hlo.constant(Lit.of(stride, id_))), (id_,))
        value = hlo.op("stablehlo.remainder", (*value, hlo.constant(Lit.of(self.size, id_))), (id_,))
        return hlo.op("stablehlo.convert", value, outs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        if ctx.axis != self.axis:
            return ctx(self), (None,)
        check_mapped_size(ctx, self.name, self.size)
        return ctx(Iota((self.size,), dtypes.int32, 0)), (0,)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        return ctx(self), (Zero(INT32_SCALAR),)


def flat_index(emit: Emit, names: AxisNames, sizes: Sizes) -> Atom:
    """Return the index along several axes, the first one slowest."""
    at: Atom = Lit.of(0, INT32_SCALAR)
    for k, (name, size) in enumerate(zip(names, sizes, strict=True)):
        one: Atom = emit.one(AxisIndex(name, size))
        at = one if k == 0 else emit.one(ADD, emit.one(MUL, at, Lit.of(size, INT32_SCALAR)), one)
    return at


def check_uniform(ctx: BatchCtx, prim: HigherOrder) -> None:
    """Check that an equation whose bodies run for some indices of an axis only has no collectives that wait for the
    other indices: those over that axis, and on devices each ppermute, in which all devices of the mesh wait.

    Raises: AxisNameError.
    """
    axis = ctx.axis
    if axis is not None and axis in exchanged_axes(prim):
        raise AxisNameError(
            f"{prim.name}: its bodies have collectives over axis {axis!r}, and the indices of that axis"
            " do not agree on whether they run",
            remedy="make the predicate the same for all indices, with pmax or pmin over the axis, or move the"
            " collective out",
        )
    if axis is not None and ctx.devices and any(map(has_ppermute, prim.bodies)):
        raise AxisNameError(
            f"{prim.name}: its bodies have a ppermute, in which all devices wait, and the indices of axis {axis!r}"
            " do not agree on whether they run",
            remedy="make the predicate the same for all indices, with pmax or pmin over the axis, or use all_gather"
            " in place of ppermute",
        )


def exchanged_axes(prim: Primitive) -> frozenset[str]:
    """Return the free axes of a primitive over which indices exchange values.

    An `axis_index` exchanges none, a `psum` does over its axes, and a `scan` over those of the equations in its body.
    """
    if isinstance(prim, AxisIndex):
        return frozenset()
    names = frozenset([name for name, _ in prim.free_axes])
    if not isinstance(prim, HigherOrder):
        return names
    by_bodies = frozenset[str]().union(*map(_exchanged_axes, prim.bodies))
    of_no_body = prim.free_axes.difference(*[body.free_axes for body in prim.bodies])  # of custom rules: all count
    return (names & by_bodies) | {name for name, _ in of_no_body}


@by_value
def _exchanged_axes(jaxpr: Jaxpr) -> frozenset[str]:
    return frozenset[str]().union(*map(exchanged_axes, jaxpr.prims))


@by_value
def has_ppermute(jaxpr: Jaxpr) -> bool:
    """Return True if a program or a body has a `ppermute`. In one, XLA makes all devices wait."""
    return any([type(prim) is Ppermute for prim in all_prims(jaxpr)])


COLLECTIVES: Final = (Psum, Pmax, Pmin, AllGather, PsumScatter, AllToAll, Ppermute, AxisIndex)
