"""Convolution of two arrays, as in neural networks: a cross-correlation.

Convolutions are closed under differentiation, transposition and batching: the derivative is two convolutions, each
transpose is one, and a batched convolution is one with more examples, features or groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.dtypes import DType
from fxad.errors import ParameterError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Cotangent,
    Cotangents,
    Dims,
    Emit,
    Hlo,
    HloValue,
    HloValues,
    Hole,
    Lit,
    NDArray,
    Operands,
    Shape,
    TransposeCtx,
    Zero,
    primitive,
)
from fxad.primitives.axes import Axes, remove_axes
from fxad.primitives.dot import product_dtype
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.family import as_accumulated
from fxad.primitives.families import Bilinear
from fxad.primitives.operand_checks import check_count, check_precision
from fxad.primitives.shape import Rev, merge_axes, move_axis, split_axis
from fxad.primitives.sliding import (
    Padding,
    adjoint_padding,
    check_padding,
    check_positive,
    dilated_size,
    pad_with_holes,
    padding_attribute,
    window_count,
    window_views,
)
from fxad.primitives.stablehlo import i64_array, i64_attribute, precision_attribute, zeros_constant


@final
@primitive
class ConvGeneralDilated(Bilinear):
    """The sum of products of a window of lhs and the kernel rhs, for each position of the window.

    The specs give the axis order: (batch, feature, *spatial) for lhs and the result, (output feature, input feature,
    *spatial) for rhs. `feature_groups` divides the features of lhs and the output features of rhs into groups that are
    paired one to one; rhs has the input features of one group. `batch_groups` divides the examples of lhs and the
    output features in the same way.

    Type: lhs and rhs of one dtype but bool, with two axes and any number of spatial ones. The result has the dtype
          `preferred` (of the same kind and no narrower), or theirs when it is None; integers wrap.
          `precision` is that of the products on an accelerator: "high", "highest", or "" for the fastest.
    Rule: linear in each operand; the transposes are convolutions of the cotangent with the other operand, computed in
          the dtype of the cotangent.
    Source: stablehlo.convolution; `impl` sums floats below 32 bits in float32 and rounds once.
    """

    name: ClassVar[str] = "conv_general_dilated"
    strides: Axes
    padding: Padding
    lhs_dilation: Axes
    rhs_dilation: Axes
    lhs_spec: Axes
    rhs_spec: Axes
    out_spec: Axes
    feature_groups: int
    batch_groups: int
    preferred: DType | None
    precision: str = ""

    # ------------------------------------------------------------------------------------------------------- types

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        lhs, rhs = check_count(self, avals, 2)
        check_precision(self.name, self.precision)
        dtype = product_dtype(self.name, lhs, rhs, self.preferred)
        self._check_axes(lhs, rhs)
        self._check_groups(lhs, rhs)
        batch, out_features = lhs.shape[self.lhs_spec[0]], rhs.shape[self.rhs_spec[0]]
        shape = [0] * lhs.ndim
        shape[self.out_spec[0]] = batch // self.batch_groups
        shape[self.out_spec[1]] = out_features
        for k, a in enumerate(self.out_spec[2:]):
            n, w = lhs.shape[self.lhs_spec[2 + k]], rhs.shape[self.rhs_spec[2 + k]]
            pads, base = self.padding[k], self.lhs_dilation[k]
            check_padding(f"{self.name}: lhs", self.lhs_spec[2 + k], n, pads, base)
            shape[a] = window_count(n, w, self.strides[k], pads, base, self.rhs_dilation[k])
        return (Aval(tuple(shape), dtype),)

    def _check_axes(self, lhs: Aval, rhs: Aval) -> None:
        name, n = self.name, lhs.ndim
        if n < 2 or rhs.ndim != n:
            raise ShapeError(
                f"{name}: lhs {lhs} and rhs {rhs} must have one number of axes, at least 2",
                remedy="lhs has axes for batch, feature and space; rhs for output feature, input feature and space",
            )
        for role, spec in (("lhs", self.lhs_spec), ("rhs", self.rhs_spec), ("out", self.out_spec)):
            if sorted(spec) != list(range(n)):
                raise ParameterError(f"{name}: {role}_spec {spec} is not a permutation of the {n} axes of {lhs}")
        if len(self.padding) != n - 2:
            raise ParameterError(f"{name}: padding {self.padding} has {len(self.padding)} pairs for {n - 2} axes")
        check_positive(
            name, n - 2, strides=self.strides, lhs_dilation=self.lhs_dilation, rhs_dilation=self.rhs_dilation
        )

    def _check_groups(self, lhs: Aval, rhs: Aval) -> None:
        name, features, batches = self.name, self.feature_groups, self.batch_groups
        if features < 1 or batches < 1 or 1 not in (features, batches):
            raise ParameterError(
                f"{name}: feature_groups {features} and batch_groups {batches} must be positive, and one of them 1"
            )
        (b, f, *_), (o, i, *_) = self.lhs_spec, self.rhs_spec
        have, want = lhs.shape[f], rhs.shape[i]
        if have != want * features:
            times = f" times {features} groups" if features != 1 else ""
            raise ShapeError(f"{name}: features differ: lhs dim {f} has {have}, rhs dim {i} has {want}{times}")
        for field, count, role, axis, n in (
            ("feature_groups", features, "output features: rhs", o, rhs.shape[o]),
            ("batch_groups", batches, "examples: lhs", b, lhs.shape[b]),
            ("batch_groups", batches, "output features: rhs", o, rhs.shape[o]),
        ):
            if n % count != 0:
                raise ShapeError(f"{name}: {field} {count} does not divide the {role} dim {axis} has {n}")

    # ----------------------------------------------------------------------------------------------------- meaning

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        lhs, rhs = args
        (out,) = self.abstract_eval(*[Aval(x.shape, x.dtype) for x in args])
        dtype, groups = out.dtype, self.feature_groups * self.batch_groups
        x, w = lhs.transpose(self.lhs_spec), rhs.transpose(self.rhs_spec)
        x, w = [as_accumulated(a.astype(dtype) if a.dtype.itemsize < dtype.itemsize else a) for a in (x, w)]
        (n, f, *_), (o, i, *window) = x.shape, w.shape
        pad = pad_with_holes(((0, 0), (0, 0), *self.padding), (1, 1, *self.lhs_dilation))
        (holes,) = pad.impl(x, np.zeros((), x.dtype))
        patches = window_views(holes, (1, 1, *window), (1, 1, *self.strides), (1, 1, *self.rhs_dilation))
        patches = patches.reshape([n, f, *patches.shape[2 : x.ndim], prod(window)])
        sizes, positions = list(patches.shape[2:-1]), prod(patches.shape[2:-1])
        # (groups, examples and positions, summed terms) @ (groups, summed terms, output features)
        examples, window_size = n // self.batch_groups, prod(window)
        grouped = patches.reshape([self.batch_groups, examples, self.feature_groups, i, positions, window_size])
        grouped = grouped.transpose(0, 2, 1, 4, 3, 5).reshape([groups, examples * positions, i * window_size])
        kernel = w.reshape([groups, o // groups, i * window_size]).transpose(0, 2, 1)
        y = np.matmul(grouped, kernel).reshape([groups, examples, positions, o // groups])
        y = y.transpose(1, 0, 3, 2).reshape([examples, o, *sizes])
        return (y.transpose(np.argsort(self.out_spec)).astype(dtype),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if not all([a.size != 0 for a in (*ins, *outs)]):
            return (zeros_constant(hlo, outs[0]),)
        # Use the axis order of the fast convolution in XLA's CPU backend. XLA permutes axes itself only in the entry
        # computation: in a branch or loop, another order is up to a hundred times slower.
        lhs, rhs, out = self._specs()
        orders = (lhs[0], *lhs[2:], lhs[1]), (*rhs[2:], rhs[1], rhs[0]), (out[0], *out[2:], out[1])
        args = [_permute(hlo, x, a, order) for x, a, order in zip(args, ins, orders[:2], strict=True)]
        specs = [
            _dimension_text(tuple([order.index(axis) for axis in spec]), names)
            for spec, order, names in zip(self._specs(), orders, ("bf", "oi", "bf"), strict=True)
        ]
        attrs = {
            "window_strides": i64_array(self.strides),
            "padding": padding_attribute(self.padding),
            "lhs_dilation": i64_array(self.lhs_dilation),
            "rhs_dilation": i64_array(self.rhs_dilation),
            "dimension_numbers": f"#stablehlo.conv<{specs[0]}x{specs[1]}->{specs[2]}>",
            "feature_group_count": i64_attribute(self.feature_groups),
            "batch_group_count": i64_attribute(self.batch_groups),
            **precision_attribute(self.precision),
        }
        aval = outs[0].with_shape(tuple([outs[0].shape[k] for k in orders[2]]))
        wide = aval.with_dtype(_wide_dtype(ins, aval.dtype, ins[1].size // ins[1].shape[self.rhs_spec[0]]))
        (y,) = hlo.op("stablehlo.convolution", args, (wide,), attrs)
        if wide is not aval:
            (y,) = hlo.op("stablehlo.convert", (y,), (aval,))
        return (_permute(hlo, y, aval, tuple([orders[2].index(k) for k in range(aval.ndim)])),)

    def _specs(self) -> tuple[Axes, Axes, Axes]:
        return self.lhs_spec, self.rhs_spec, self.out_spec

    # ---------------------------------------------------------------------------------------------------- batching

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        (lhs, rhs), (lhs_dim, rhs_dim), size = args, dims, ctx.size
        (b, f, *_), o, (out_b, out_f, *_) = self.lhs_spec, self.rhs_spec[0], self.out_spec
        if size == 0:
            return self._empty_batch(lhs.aval, rhs.aval, lhs_dim, rhs_dim)
        if lhs_dim is not None and rhs_dim is not None:
            # each example is a group
            one_batch = self.batch_groups == 1
            x, w = _merge_groups(ctx, lhs, lhs_dim, f if one_batch else b, 1), _merge_groups(ctx, rhs, rhs_dim, o, 1)
            conv = (
                self._with_groups(self.feature_groups * size, 1)
                if one_batch
                else self._with_groups(1, self.batch_groups * size)
            )
            return (_split_groups(ctx, ctx.one(conv, x, w), out_f, 1, size),), (out_f,)
        if lhs_dim is not None:
            y = ctx.one(self, _merge_groups(ctx, lhs, lhs_dim, b, self.batch_groups), rhs)
            return (_split_groups(ctx, y, out_b, 1, size),), (out_b,)
        assert rhs_dim is not None
        groups = self.feature_groups * self.batch_groups
        y = ctx.one(self, lhs, _merge_groups(ctx, rhs, rhs_dim, o, groups))
        return (_split_groups(ctx, y, out_f, groups, size),), (out_f,)

    def _empty_batch(self, lhs: Aval, rhs: Aval, lhs_dim: int | None, rhs_dim: int | None) -> tuple[Atoms, Dims]:
        """Return the result for an empty batch."""
        avals = [
            a if d is None else a.with_shape(remove_axes(a.shape, (d,))) for a, d in ((lhs, lhs_dim), (rhs, rhs_dim))
        ]
        (out,) = self.abstract_eval(*avals)
        return (Lit.zero(out.stacked(0)),), (0,)

    def _with_groups(self, feature_groups: int, batch_groups: int) -> ConvGeneralDilated:
        return ConvGeneralDilated(
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            *self._specs(),
            feature_groups,
            batch_groups,
            self.preferred,
            self.precision,
        )

    # ------------------------------------------------------------------------------------------------- derivatives

    def transpose(self, ctx: TransposeCtx, cts: Cotangents, args: Operands) -> tuple[Cotangent | None, ...]:
        if not all([a.aval.size != 0 for a in (*cts, *args)]):
            return tuple([Zero(a.aval) if isinstance(a, Hole) else None for a in args])
        return Bilinear.transpose(self, ctx, cts, args)  # a slotted dataclass has no `super()`

    def lhs_cotangent(self, emit: Emit, ct: Atom, lhs: Aval, rhs: Atom) -> Atom:
        """Return the cotangent, dilated by the strides, convolved with the mirrored kernel whose features are
        swapped."""
        groups = self.feature_groups * self.batch_groups
        (o, i, *space), (b, f, *_) = self.rhs_spec, self.lhs_spec
        sizes = self._spatial(lhs.shape, rhs.aval.shape, ct.aval.shape)
        padding = tuple(
            [
                adjoint_padding(n, m, w, stride, low, base, dilation)
                for (n, w, m), stride, (low, _), base, dilation in zip(
                    sizes, self.strides, self.padding, self.lhs_dilation, self.rhs_dilation, strict=True
                )
            ]
        )
        kernel = _reverse_spatial(emit, _regroup(emit, emit_convert(emit, rhs, ct.aval.dtype), o, i, groups), space)
        conv = ConvGeneralDilated(
            strides=self.lhs_dilation,
            padding=padding,
            lhs_dilation=self.strides,
            rhs_dilation=self.rhs_dilation,
            lhs_spec=self.out_spec,
            rhs_spec=_swap_features(self.rhs_spec),
            out_spec=self.lhs_spec,
            feature_groups=groups,
            batch_groups=1,
            preferred=None,
            precision=self.precision,
        )
        bar = _regroup(emit, emit.one(conv, ct, kernel), f, b, self.batch_groups)
        return emit_convert(emit, bar, lhs.dtype)

    def rhs_cotangent(self, emit: Emit, ct: Atom, lhs: Atom, rhs: Aval) -> Atom:
        """Return lhs convolved with the cotangent as the kernel. It sums over examples; the features of lhs become
        examples.

        Feature groups and batch groups are exchanged.
        """
        padding = []
        sizes = self._spatial(lhs.aval.shape, rhs.shape, ct.aval.shape)
        for k, (n, w, m) in enumerate(sizes):
            low, base = self.padding[k][0], self.lhs_dilation[k]
            padded = (w - 1) * self.rhs_dilation[k] + dilated_size(m, self.strides[k])  # for a result of size w
            padding.append((low, padded - low - dilated_size(n, base)))
        conv = ConvGeneralDilated(
            strides=self.rhs_dilation,
            padding=tuple(padding),
            lhs_dilation=self.lhs_dilation,
            rhs_dilation=self.strides,
            lhs_spec=_swap_features(self.lhs_spec),
            rhs_spec=_swap_features(self.out_spec),
            out_spec=_swap_features(self.rhs_spec),
            feature_groups=self.batch_groups,
            batch_groups=self.feature_groups,
            preferred=None,
            precision=self.precision,
        )
        return emit_convert(emit, emit.one(conv, emit_convert(emit, lhs, ct.aval.dtype), ct), rhs.dtype)

    def _spatial(self, lhs: Shape, rhs: Shape, out: Shape) -> list[tuple[int, int, int]]:
        """Return the sizes of each spatial axis in lhs, in the kernel and in the result."""
        specs = [spec[2:] for spec in self._specs()]
        return [(lhs[a], rhs[b], out[c]) for a, b, c in zip(*specs, strict=True)]


def _dimension_text(spec: Axes, names: str) -> str:
    """Return a spec in StableHLO syntax: `[b, 0, 1, f]`."""
    labels = [*names, *map(str, range(len(spec) - 2))]
    return f"[{', '.join([labels[spec.index(a)] for a in range(len(spec))])}]"


def _wide_dtype(ins: Sequence[Aval], dtype: DType, terms: int) -> DType:
    """Return the dtype in which sums are computed before reduction modulo 2^n, as `impl` does. XLA saturates constant
    sums of fewer than 64 bits; 32 bits suffice if nothing overflows."""
    if dtype not in dtypes.INTEGER or dtype.itemsize == 8:
        return dtype
    bound = terms
    for aval in ins:
        bound *= max(abs(end) for end in dtypes.RANGES[aval.dtype])
    signed = dtype in dtypes.SIGNED
    if bound <= dtypes.RANGES[dtypes.int32 if signed else dtypes.uint32][1]:
        return dtypes.int32 if signed else dtypes.uint32
    return dtypes.int64 if signed else dtypes.uint64


def _permute(hlo: Hlo, x: HloValue, aval: Aval, order: Axes) -> HloValue:
    """Return an operand with its axes in another order."""
    if order == tuple(range(aval.ndim)):
        return x
    to = aval.with_shape(tuple([aval.shape[k] for k in order]))
    return hlo.op("stablehlo.transpose", (x,), (to,), {"permutation": i64_array(order)})[0]


def _swap_features(spec: Axes) -> Axes:
    return (spec[1], spec[0], *spec[2:])


def _reverse_spatial(emit: Emit, kernel: Atom, space: Sequence[int]) -> Atom:
    axes = tuple(sorted([a for a in space if not at_least(1 - kernel.aval.shape[a], 0)]))
    return emit.one(Rev(axes), kernel) if axes else kernel


def _regroup(emit: Emit, x: Atom, src: int, dst: int, groups: int) -> Atom:
    """Return `x` with the groups of axis `src` moved to the front of axis `dst`, and merged into it.

    Of shape (6, 4), with 2 groups of axis 0: split to (2, 3, 4), moved to (3, 2, 4), merged to (3, 8).
    """
    if groups == 1:
        return x
    return merge_axes(emit, move_axis(emit, split_axis(emit, x, src, groups), src, dst), dst)


def _merge_groups(emit: Emit, x: Atom, dim: int, axis: int, groups: int) -> Atom:
    """Return `x` with its mapped axis merged into `axis` (counted without it), inside the groups of `axis`.

    5 examples of shape (6,), with 2 groups: (5, 6) is split to (5, 2, 3), moved to (2, 5, 3), merged to (30,). So a
    group of the batched convolution has that group of every example.
    """
    x = move_axis(emit, x, dim, axis)
    if groups == 1:
        return merge_axes(emit, x, axis)
    x = move_axis(emit, split_axis(emit, x, axis + 1, groups), axis + 1, axis)
    return merge_axes(emit, x, axis, 3)


def _split_groups(emit: Emit, y: Atom, axis: int, groups: int, size: int) -> Atom:
    """Return the inverse of `_merge_groups`: return `y` with the mapped axis of that `size` in front of `axis`.

    Of shape (30,), with 2 groups and 5 examples: split to (2, 5, 3), moved to (5, 2, 3), merged to (5, 6).
    """
    if groups == 1:
        return split_axis(emit, y, axis, size)
    y = move_axis(emit, split_axis(emit, y, axis, groups, size), axis + 1, axis)
    return merge_axes(emit, y, axis + 1)


CONV: Final = (ConvGeneralDilated,)
