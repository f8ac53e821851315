"""Products of values with directions, as einsums of their summands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple, TypeAlias, final

from fxad.core.builder import Builder
from fxad.ir import Atom, Eqn, Lit
from fxad.primitives.dot import DotGeneral
from fxad.primitives.shape import ReduceSum, Transpose, emit_broadcast, emit_reshape
from fxad.transforms.jet.along import without
from fxad.transforms.jet.directions.summands import Derivatives, Placement, SummandBuilder, free_indices

# An axis of the first or second operand of a product, or an index of the direction: (one of these, its number).
Label: TypeAlias = tuple[int, int]
LEFT, _RIGHT, DIRECTION = 0, 1, 2
_SIDES: Final = (LEFT, _RIGHT)


@final
class _Factor(NamedTuple):
    """A factor of a product, as summands. A factor without directions has no axis of
    them, and is one summand."""

    axis: int | None
    dims: tuple[int, ...]
    summands: Mapping[Placement, Atom]

    @classmethod
    def of(cls, x: Derivatives) -> _Factor:
        return cls(x.axis, x.dims, x.summands)


@final
class _AxisNames:
    """One name for all axes that have one index in an einsum: a union-find. The name is that of an axis of the result
    (`preferred`), if there is one."""

    __slots__ = ("parents", "preferred")

    def __init__(self, preferred: Sequence[Label]) -> None:
        self.preferred, self.parents = preferred, dict[Label, Label]()

    def of(self, label: Label) -> Label:
        while label in self.parents:
            label = self.parents[label]
        return label

    def unite(self, a: Label, b: Label) -> None:
        a, b = self.of(a), self.of(b)
        if a != b:
            if a in self.preferred:
                a, b = b, a
            self.parents[a] = b


def _names_of_axes(
    names: _AxisNames, factors: Iterable[tuple[Sequence[Label], _Factor, Placement]]
) -> list[list[Label]]:
    """Return the names of the axes of the arrays of two summands. An axis of a value to which an index of the direction
    is tied has the name of this index. Given are, for each factor, the labels of its axes, the factor, and its
    summand."""
    arrays: list[list[Label]] = []
    for labels, factor, placement in factors:
        of_value = [label for label in labels if label[1] != factor.axis]  # a placement does not count that axis
        for k, axis in enumerate(placement):
            if axis is not None:
                names.unite((DIRECTION, k), of_value[axis])
        arrays.append([*[(DIRECTION, k) for k in free_indices(placement)], *of_value])
    return [[names.of(label) for label in array] for array in arrays]


def dot_general(
    arrays: SummandBuilder, dense: Callable[[Atom], Atom], eqn: Eqn, operands: Sequence[Derivatives | None]
) -> Derivatives | Atom | None:
    """Return a product. None if it is one for each direction, or takes a diagonal of an operand.

    The product of two summands is an einsum in which an index of the direction and the axis whose index it is have
    one label. For the product z of a matrix B[b, a] and a value x of the summand delta(d, a) S[a],

        T_z[d, b] = sum_a B[b, a] delta(d, a) S[a] = B[b, d] S[d]

    is `bd,d->db`: the result has the label of a, which is d, so nothing is summed.

    Axis a of an operand of the equation has the label La or Ra, and index k of a direction the label Dk. Labels of
    one index are united (`_AxisNames`), and all get one name. With a batch, z[i, b] = sum_a B[i, b, a] x[i, a]: the
    operands are B: f32[5, 4, 3] and x: f32[15, 5, 3], whose axis R0 is that of the 15 directions, of the dims
    (5, 3). The summand (0, 1) of x says that R1 is D0 and R2 is D1. As the batch unites L0 and R1, and the sum
    unites L2 and R2, the names are

        B                     L0 L1 R2
        the summand of x      L0 R2
        the direction         L0 R2
        the result            L0 L1

    So D0 is tied to axis 0 of the result, D1 is free, and the summand (0, None) of z is `iba,ia->aib`.

    If the product sums over the directions, both factors have them, and the result has none: no index is
    left, and it is an array. A dense factor becomes one summand whose directions are free. For
    z[i, a] = sum_d C[i, d] x[d, a], with C: f32[2, 3] and the summand delta(d, a) S[a] of x: f32[3, 3], it is C
    transposed, C^T[d, i]. R1 is D0, so d has the name of a, and z is `ai,a->ia`: z[i, a] = C[i, a] S[a].
    """
    prim = eqn.prim
    assert isinstance(prim, DotGeneral)
    batch = tuple(zip(prim.lhs_batch, prim.rhs_batch, strict=True))
    contract = tuple(zip(prim.lhs_contract, prim.rhs_contract, strict=True))
    if any([_has_directions(operands, pair) for pair in batch]):
        return None  # a product for each direction
    over_directions = next((pair for pair in contract if _has_directions(operands, pair)), None)
    if over_directions is None:
        factors = _factors(dense, eqn, operands)
        return None if factors is None else _product(arrays, eqn, prim, factors, (*batch, *contract))
    summed_factors = _factors_summed_over(arrays, dense, eqn, operands, over_directions)
    return None if summed_factors is None else _sum_over_directions(arrays, eqn, prim, summed_factors, over_directions)


def _has_directions(operands: Sequence[Derivatives | None], pair: tuple[int, int]) -> bool:
    """Return True if an axis of a pair, one of each operand, is that of directions."""
    return any([x is not None and x.axis == axis for x, axis in zip(operands, pair, strict=True)])


def _factors(
    dense: Callable[[Atom], Atom], eqn: Eqn, operands: Sequence[Derivatives | None]
) -> tuple[_Factor, _Factor] | None:
    """Return the factors of a product for each direction. None if both have directions."""
    if operands.count(None) == 0:
        return None
    x, y = [
        _Factor(None, (), {(): dense(a)}) if x is None else _Factor.of(x)
        for a, x in zip(eqn.ins, operands, strict=True)
    ]
    return x, y


def _factors_summed_over(
    arrays: SummandBuilder,
    dense: Callable[[Atom], Atom],
    eqn: Eqn,
    operands: Sequence[Derivatives | None],
    pair: tuple[int, int],
) -> tuple[_Factor, _Factor] | None:
    """Return the factors of a product that sums over directions, which are the axes `pair`, with the same indices. None
    if they are other axes of a factor."""
    x, y = [
        as_one_summand(arrays.b, dense(a), axis) if x is None else x
        for a, x, axis in zip(eqn.ins, operands, pair, strict=True)
    ]
    if (x.axis, y.axis) != pair:
        return None
    with_directions = operands[0] or operands[1]
    assert with_directions is not None
    dims = with_directions.dims
    x, y = [z if z.dims == dims else _with_dims(arrays.b, z, dims) for z in (x, y)]
    return _Factor.of(x), _Factor.of(y)


def as_one_summand(b: Builder, x: Atom, axis: int) -> Derivatives:
    """Return a dense value as one summand, for directions with one index, which is free."""
    size, shape = x.aval.shape[axis], without(x.aval.shape, axis)
    order = (axis, *[k for k in range(x.aval.ndim) if k != axis])
    front = x if axis == 0 or isinstance(x, Lit) else b.one(Transpose(order), x)
    return Derivatives(axis, (size,), shape, {(None,): emit_reshape(b, front, (size, *shape))})


def _with_dims(b: Builder, x: Derivatives, dims: tuple[int, ...]) -> Derivatives:
    """Return a dense value, which is its only summand, for directions with several indices."""
    ((_, array),) = x.summands.items()
    return Derivatives(x.axis, dims, x.shape, {(None,) * len(dims): emit_reshape(b, array, (*dims, *x.shape))})


def _product(
    arrays: SummandBuilder, eqn: Eqn, prim: DotGeneral, factors: Sequence[_Factor], pairs: Sequence[tuple[int, int]]
) -> Derivatives | None:
    """Return a product for each direction. One factor has directions."""
    (directions,) = [(side, x.axis) for side, x in zip(_SIDES, factors, strict=True) if x.axis is not None]
    dense_labels = _labels_of_result(eqn, prim)
    labels = [label for label in dense_labels if label != directions]
    dims = factors[LEFT].dims or factors[_RIGHT].dims
    summands = _einsums(arrays, eqn, prim, factors, pairs, labels, len(dims))
    if summands is None:
        return None
    shape = tuple([eqn.ins[side].aval.shape[axis] for side, axis in labels])
    return Derivatives(dense_labels.index(directions), dims, shape, summands)


def _sum_over_directions(
    arrays: SummandBuilder, eqn: Eqn, prim: DotGeneral, factors: Sequence[_Factor], directions: tuple[int, int]
) -> Atom | None:
    """Return a product that sums over directions: one array."""
    pairs = [*zip(prim.lhs_batch, prim.rhs_batch, strict=True), *zip(prim.lhs_contract, prim.rhs_contract, strict=True)]
    pairs.remove(directions)
    summands = _einsums(arrays, eqn, prim, factors, pairs, _labels_of_result(eqn, prim), 0)
    return None if summands is None else summands.get(())


def _labels_of_result(eqn: Eqn, prim: DotGeneral) -> list[Label]:
    """Return the labels of the axes of the result: the batch, then the axes of each operand that are left."""
    sides = [(*prim.lhs_batch, *prim.lhs_contract), (*prim.rhs_batch, *prim.rhs_contract)]
    uncontracted = [[(side, a) for a in range(eqn.ins[side].aval.ndim) if a not in sides[side]] for side in _SIDES]
    return [(LEFT, a) for a in prim.lhs_batch] + uncontracted[LEFT] + uncontracted[_RIGHT]


def _einsums(
    arrays: SummandBuilder,
    eqn: Eqn,
    prim: DotGeneral,
    factors: Sequence[_Factor],
    pairs: Sequence[tuple[int, int]],
    labels: Sequence[Label],
    n_indices: int,
) -> dict[Placement, Atom] | None:
    """Return the summands of a product: the einsum of each two summands of its factors. None if one takes a diagonal of
    an operand.

    `pairs` are the axes of the operands that have one index, `labels` those of the axes of the result. The direction of
    the result has `n_indices` indices.
    """
    operand_labels = [[(side, a) for a in range(x.aval.ndim)] for side, x in enumerate(eqn.ins)]
    summands: dict[Placement, Atom] = {}
    for (x_placement, x), (y_placement, y) in product(*[factor.summands.items() for factor in factors]):
        names = _AxisNames(labels)
        for x_axis, y_axis in pairs:
            names.unite((LEFT, x_axis), (_RIGHT, y_axis))
        x_names, y_names = _names_of_axes(names, zip(operand_labels, factors, (x_placement, y_placement), strict=True))
        if len(set(x_names)) < len(x_names) or len(set(y_names)) < len(y_names):
            return None
        of_result = [names.of(label) for label in labels]
        indices = [names.of((DIRECTION, k)) for k in range(n_indices)]
        placement = tuple([of_result.index(name) if name in of_result else None for name in indices])
        free_names = [indices[k] for k in free_indices(placement)]
        order = list(dict.fromkeys([*free_names, *of_result]))
        n_free = len(free_names)
        term = contraction(arrays, prim, (x, x_names), (y, y_names), order)
        term = _repeated(arrays, term, [*order[:n_free], *of_result])
        summands[placement] = arrays.sum(summands.get(placement), term)
    return summands


# An array with the names of its axes.
Named: TypeAlias = tuple[Atom, Sequence[Label]]


def contraction(arrays: SummandBuilder, prim: DotGeneral, lhs: Named, rhs: Named, order: Sequence[Label]) -> Atom:
    """Return the sum of products of two arrays over the axes that the result lacks. Axes with one name are one."""
    (x, x_names), (y, y_names) = lhs, rhs
    common = [name for name in x_names if name in y_names]
    # ones, such as the first value, when nothing is summed: the other array is copied along their axes
    if x == Lit.of(1, x.aval) and set(order) == {*x_names, *y_names} and prim.preferred in (None, x.aval.dtype):
        sizes = dict(zip((*x_names, *y_names), (*x.aval.shape, *y.aval.shape), strict=True))
        y_order = [name for name in order if name in y_names]
        shape = tuple([sizes[name] for name in order])
        dims = tuple([order.index(name) for name in y_order])
        return emit_broadcast(arrays.b, arrays.transposed(y, y_names, y_order), shape, dims)
    batch, contract = [name for name in common if name in order], [name for name in common if name not in order]
    x, x_names = _summed_over(arrays.b, (x, x_names), [n for n in x_names if n not in common and n not in order])
    y, y_names = _summed_over(arrays.b, (y, y_names), [n for n in y_names if n not in common and n not in order])
    batched_product = replace(
        prim,
        lhs_contract=tuple([x_names.index(name) for name in contract]),
        rhs_contract=tuple([y_names.index(name) for name in contract]),
        lhs_batch=tuple([x_names.index(name) for name in batch]),
        rhs_batch=tuple([y_names.index(name) for name in batch]),
    )
    uncontracted = [name for name in (*x_names, *y_names) if name not in common]
    return arrays.transposed(arrays.b.one(batched_product, x, y), [*batch, *uncontracted], order)


def _summed_over(b: Builder, named: Named, summed: Sequence[Label]) -> Named:
    """Return an array summed over some axes, with the names of the others."""
    a, names = named
    if not summed:
        return named
    total = b.one(ReduceSum(tuple([names.index(name) for name in summed])), a)
    return total, [name for name in names if name not in summed]


def _repeated(arrays: SummandBuilder, a: Atom, order: Sequence[Label]) -> Atom:
    """Return an array with an axis for each name in `order`, and zeros where indices with one name differ."""
    for k, name in enumerate(order):
        first = order.index(name)
        if first < k:
            shape = (*a.aval.shape[:k], a.aval.shape[first], *a.aval.shape[k:])
            copies = emit_broadcast(arrays.b, a, shape, tuple([i for i in range(len(shape)) if i != k]))
            a = arrays.masked(copies, first, k)
    return a
