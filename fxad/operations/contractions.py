"""Sums of products over shared axes: matmul, dot, tensordot, einsum.

All are one operation on labelled axes: a label on two operands is a shared axis; a label that is not in the result is
summed over. Each function only labels its axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.size import maximum, minimum
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import Atom, Atoms, Emit, Lit
from fxad.operations.arithmetic import multiply
from fxad.operations.axes import normalize_axis_index, normalize_axis_tuple
from fxad.operations.elementwise import conj
from fxad.operations.promotion import convert, promote_dtypes
from fxad.operations.shapes import diagonal_mask, emit_transpose, slice_axis
from fxad.primitives.axes import other_axes
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import MUL
from fxad.primitives.elementwise.family import literal_like
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.shape import ReduceSum, Squeeze

Label: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class Labelled:
    """An operand and the labels of its axes."""

    x: Atom
    labels: tuple[Label, ...]

    def size(self, label: Label) -> int:
        """Return the size of the axis that carries a label."""
        return self.x.aval.shape[self.labels.index(label)]

    def at(self, labels: Sequence[Label]) -> tuple[int, ...]:
        """Return the axes that carry these labels, in their order."""
        return tuple([self.labels.index(n) for n in labels])


# -------------------------------------------------------------------------------------------------------- labelled


def contract(
    emit: Emit,
    op: str,
    operands: Sequence[Labelled],
    out: tuple[Label, ...],
    path: Sequence[tuple[int, ...]],
    preferred: DType | None,
) -> Atom:
    """Return the sum of products over all labels that are not in `out`.

    `path` is the contraction order as in `opt_einsum`: each entry is a set of positions in the list of remaining
    operands; the product is appended to the list.
    """
    dtype = operands[0].x.aval.dtype
    for o in operands[1:]:
        dtype = promote_dtypes(op, dtype, o.x.aval.dtype)
    # bools are multiplied and summed as integers, then converted back: logical and, or
    inner = dtypes.int32 if dtype is dtypes.bool_ else dtype
    if preferred is not None and _has_lone_label(operands, out):
        # its sum has the dtype of the operand, which would wrap or round
        inner = promote_dtypes(op, inner, preferred)
    remaining = [_take_repeated_diagonals(emit, replace(o, x=convert(emit, o.x, inner))) for o in operands]
    remaining = _drop_broadcast_axes(emit, op, remaining)
    for step in path:
        factors = [remaining.pop(k) for k in sorted(step, reverse=True)][::-1]
        needed_labels = {*out, *[n for o in remaining for n in o.labels]}
        while len(factors) > 1:
            x, y, *rest = factors
            needed_after = needed_labels | {n for o in rest for n in o.labels}
            x, y = (
                _sum_unneeded(emit, x, needed_after | {*y.labels}),
                _sum_unneeded(emit, y, needed_after | {*x.labels}),
            )
            factors = [_contract_pair(emit, x, y, needed_after, out, preferred), *rest]
        remaining.append(factors[0])
    (product,) = remaining
    product = _sum_unneeded(emit, product, set(out))
    result = emit_transpose(emit, product.x, product.at([n for n in out if n in product.labels]))
    return convert(emit, result, preferred or dtype)


def _has_lone_label(operands: Sequence[Labelled], out: tuple[Label, ...]) -> bool:
    """Return True if an axis of one operand alone is summed."""
    count = Counter([n for o in operands for n in set(o.labels)])
    return any([k == 1 and n not in out for n, k in count.items()])


def dot_of_bools(emit: Emit, x: Atom, y: Atom, prim: DotGeneral, preferred: DType | None) -> Atoms:
    """Return the product of bools: whether any pair holds, as a bool; or the number of pairs in a numeric dtype."""
    product = emit.one(prim, convert(emit, x, dtypes.int32), convert(emit, y, dtypes.int32))
    return (convert(emit, product, preferred or dtypes.bool_),)


def _take_repeated_diagonals(emit: Emit, o: Labelled) -> Labelled:
    """Take the diagonal of two axes with the same label."""
    for label, count in Counter(o.labels).items():
        for _ in range(count - 1):
            a = o.labels.index(label)
            b = o.labels.index(label, a + 1)
            shape = o.x.aval.shape
            if shape[a] != shape[b]:
                raise ShapeError(
                    f"einsum: label {label!r} names axes of {shape[a]} and {shape[b]} elements of {o.x.aval}",
                    remedy="a label that repeats takes the diagonal, so its axes must have equal sizes",
                )
            o = Labelled(_take_diagonal(emit, o.x, a, b), (*o.labels[:b], *o.labels[b + 1 :]))
    return o


def _take_diagonal(emit: Emit, x: Atom, a: int, b: int) -> Atom:
    """Return the elements with equal indices along two axes of one size; axis `b` is removed."""
    if x.aval.dtype is dtypes.bool_:
        return convert(emit, _take_diagonal(emit, convert(emit, x, dtypes.int32), a, b), dtypes.bool_)
    picked = emit_where(emit, diagonal_mask(emit, x.aval.shape, a, b, 0), x, literal_like(0, x))
    return emit.one(ReduceSum((b,)), picked)


def _drop_broadcast_axes(emit: Emit, op: str, operands: list[Labelled]) -> list[Labelled]:
    """Drop axes of size 1 that are paired with larger ones: they broadcast."""
    sizes: dict[Label, int] = {}
    for k, o in enumerate(operands):
        for label, n in zip(o.labels, o.x.aval.shape, strict=True):
            size = sizes.setdefault(label, n)
            if n != size and n != 1 and size != 1:
                raise ShapeError(
                    f"{op}: sizes differ: {_label_text(label)} has {n} in operand {k}, {o.x.aval}, and {size} in one "
                    "before",
                    remedy="what is contracted or batched together must have equal sizes, or 1",
                )
            sizes[label] = n if size == 1 else size
    out = []
    for o in operands:
        ones = tuple([a for a, label in enumerate(o.labels) if o.x.aval.shape[a] == 1 and sizes[label] != 1])
        if ones:
            x = (
                o.x.with_shape(_without_axes(o.x.aval.shape, ones))
                if isinstance(o.x, Lit)
                else emit.one(Squeeze(ones), o.x)
            )
            o = Labelled(x, _without_axes(o.labels, ones))
        out.append(o)
    return out


def _label_text(label: Label) -> str:
    return f"axis {label!r}" if isinstance(label, str) else "a paired axis"


def _without_axes(values: tuple[Label, ...] | tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return cast("tuple[int, ...]", tuple([v for a, v in enumerate(values) if a not in axes]))


def _sum_unneeded(emit: Emit, o: Labelled, needed: set[Label]) -> Labelled:
    """Sum over the axes whose labels are not needed."""
    axes = tuple([a for a, label in enumerate(o.labels) if label not in needed])
    return Labelled(emit.one(ReduceSum(axes), o.x), _without_axes(o.labels, axes)) if axes else o


def _contract_pair(
    emit: Emit, x: Labelled, y: Labelled, needed: set[Label], out: tuple[Label, ...], preferred: DType | None
) -> Labelled:
    """Return the product of two operands, summed over shared labels that are not needed.

    The labels of a product end with those of its second operand. The operand that has the last label of `out` comes
    second, so that the transpose to the order of `out` leaves the last axis in its place, or is not needed.
    """
    shared = [n for n in x.labels if n in y.labels]
    batch = [n for n in shared if n in needed]
    inner = [n for n in shared if n not in needed]
    if not inner and len(shared) == len(x.labels) == len(y.labels):  # nothing to sum: an elementwise product
        both = [x.x, emit_transpose(emit, y.x, y.at(x.labels))]
        dtype = preferred or x.x.aval.dtype
        return Labelled(emit.one(MUL, *[convert(emit, v, dtype) for v in both]), x.labels)
    if x.x.aval.dtype is not y.x.aval.dtype:  # one of them already has the preferred dtype
        x, y = [replace(o, x=convert(emit, o.x, cast("DType", preferred))) for o in (x, y)]
    from_one = [n for n in out if (n in x.labels) != (n in y.labels)]
    if from_one and from_one[-1] in x.labels and len(y.labels) > len(shared):
        x, y = y, x
    prim = DotGeneral(x.at(inner), y.at(inner), x.at(batch), y.at(batch), preferred)
    free = [n for o in (x, y) for n in o.labels if n not in shared]
    return Labelled(emit.one(prim, x.x, y.x), (*batch, *free))


# ------------------------------------------------------------------------------------------------ products by name


def matmul(emit: Emit, x: Atom, y: Atom, preferred: DType | None = None) -> Atoms:
    """Return the matrix product over the last two axes; other axes broadcast; a 1-d operand is a row or a column."""
    n, m = x.aval.ndim, y.aval.ndim
    if n == 0 or m == 0:
        raise ShapeError(f"matmul: takes arrays with at least one axis, got {x.aval} and {y.aval}", remedy="use *")
    if x.aval.shape[-1] != y.aval.shape[max(m - 2, 0)]:
        raise ShapeError(
            f"matmul: contracting sizes differ: lhs dim {n - 1} has {x.aval.shape[-1]}, "
            f"rhs dim {max(m - 2, 0)} has {y.aval.shape[max(m - 2, 0)]}: {x.aval} and {y.aval}",
            remedy="the last axis of the left operand meets the last but one of the right; transpose with .mT or .T",
        )
    if m <= 2 and x.aval.dtype is y.aval.dtype and x.aval.dtype is not dtypes.bool_:  # no batch axes in common
        return emit(DotGeneral((n - 1,), (max(m - 2, 0),), (), (), preferred), x, y)
    n_batch = max(n, m, 2) - 2
    row: list[Label] = ["row"] if n > 1 else []
    column: list[Label] = ["column"] if m > 1 else []
    x_labels = [*range(n_batch - max(n - 2, 0), n_batch), *row, "sum"]
    y_labels = [*range(n_batch - max(m - 2, 0), n_batch), "sum", *column]
    out = (*range(n_batch), *row, *column)
    return (contract(emit, "matmul", _with_labels((x, x_labels), (y, y_labels)), out, ((0, 1),), preferred),)


def _with_labels(*pairs: tuple[Atom, Sequence[Label]]) -> list[Labelled]:
    return [Labelled(x, tuple(labels)) for x, labels in pairs]


def dot(emit: Emit, x: Atom, y: Atom, preferred: DType | None = None) -> Atoms:
    """Return the product summed over the last axis of x and the last but one of y; a scalar multiplies."""
    if not x.aval.ndim or not y.aval.ndim:
        if preferred is None:
            return multiply(emit, x, y)
        dtype = promote_dtypes("dot", promote_dtypes("dot", x.aval.dtype, y.aval.dtype), preferred)
        (product,) = multiply(emit, convert(emit, x, dtype), convert(emit, y, dtype))
        return (convert(emit, product, preferred),)
    return tensordot(emit, x, y, (x.aval.ndim - 1,), (max(y.aval.ndim - 2, 0),), preferred)


def tensordot(
    emit: Emit, x: Atom, y: Atom, left: tuple[int, ...], right: tuple[int, ...], preferred: DType | None = None
) -> Atoms:
    """Return the product summed over pairs of axes; then come the other axes of x, then those of y."""
    for a, b in zip(left, right, strict=True):
        if x.aval.shape[a] != y.aval.shape[b]:
            raise ShapeError(
                f"tensordot: contracting sizes differ: lhs dim {a} has {x.aval.shape[a]}, "
                f"rhs dim {b} has {y.aval.shape[b]}",
                remedy="choose axes of equal sizes: axes=(left axes, right axes)",
            )
    x_labels: list[Label] = [f"l{a}" for a in range(x.aval.ndim)]
    y_labels: list[Label] = [f"r{b}" for b in range(y.aval.ndim)]
    for k, (a, b) in enumerate(zip(left, right, strict=True)):
        x_labels[a] = y_labels[b] = k
    out = tuple([n for n in (*x_labels, *y_labels) if isinstance(n, str)])
    return (contract(emit, "tensordot", _with_labels((x, x_labels), (y, y_labels)), out, ((0, 1),), preferred),)


def vecdot(emit: Emit, x: Atom, y: Atom, axis: int) -> Atoms:
    """Return the sum of products along one axis of both, x conjugated; the other axes broadcast."""
    i, j = normalize_axis_index("vecdot", axis, x.aval.ndim), normalize_axis_index("vecdot", axis, y.aval.ndim)
    if x.aval.shape[i] != y.aval.shape[j]:
        raise ShapeError(
            f"vecdot: contracting sizes differ: lhs dim {i} has {x.aval.shape[i]}, rhs dim {j} has {y.aval.shape[j]}",
            remedy="choose an axis that has one size in both operands",
        )
    x_labels: list[Label] = [k - x.aval.ndim + 1 for k in range(x.aval.ndim - 1)]
    y_labels: list[Label] = [k - y.aval.ndim + 1 for k in range(y.aval.ndim - 1)]
    x_labels.insert(i, "sum")
    y_labels.insert(j, "sum")
    out = tuple(range(-max(len(x_labels), len(y_labels)) + 1, 0))
    (x,) = conj(emit, x)
    return (contract(emit, "vecdot", _with_labels((x, x_labels), (y, y_labels)), out, ((0, 1),), None),)


def diagonal(emit: Emit, x: Atom, offset: int, axis1: int, axis2: int) -> Atoms:
    """Return the diagonal of two axes, which becomes the last axis."""
    a, b = normalize_axis_tuple("diagonal", (axis1, axis2), x.aval.ndim)
    rest = other_axes((a, b), x.aval.ndim)
    x = emit_transpose(emit, x, (*rest, a, b))
    n, m = x.aval.shape[-2:]
    size = maximum(0, minimum(n + min(offset, 0), m - max(offset, 0)))
    if size == 0:
        return (Lit.zero(x.aval.with_shape((*x.aval.shape[:-2], 0))),)
    last = x.aval.ndim - 1
    x = slice_axis(emit, x, last - 1, max(-offset, 0), max(-offset, 0) + size)
    x = slice_axis(emit, x, last, max(offset, 0), max(offset, 0) + size)
    return (_take_diagonal(emit, x, last - 1, last),)


def only_diagonal(emit: Emit, x: Atom, offset: Atom, axis1: int, axis2: int) -> Atoms:
    """Return x with zeros beside a diagonal of two axes, which become the last ones. The program computes which
    diagonal."""
    if offset.aval.dtype not in dtypes.INTEGER or offset.aval.shape:
        raise DTypeError(f"trace: offset must be one integer, got {offset.aval}", remedy="offset.astype('int32')")
    a, b = normalize_axis_tuple("trace", (axis1, axis2), x.aval.ndim)
    x = emit_transpose(emit, x, (*other_axes((a, b), x.aval.ndim), a, b))
    mask = diagonal_mask(emit, x.aval.shape, x.aval.ndim - 2, x.aval.ndim - 1, offset)
    return (emit_where(emit, mask, x, literal_like(0, x)),)


def einsum(
    emit: Emit,
    *args: *tuple[
        *tuple[Atom, ...], tuple[tuple[Label, ...], ...], tuple[Label, ...], tuple[tuple[int, ...], ...], DType | None
    ],
) -> Atoms:
    """Return the sum of products over labelled axes: operands, then their labels, the result's, the path, the dtype."""
    *arrays, labels, out, path, preferred = args
    operands = _with_labels(*zip(arrays, labels, strict=True))
    return (contract(emit, "einsum", operands, out, path, preferred),)
