"""Start indices of slicing operations: parameters of the static forms, operands of the dynamic forms.

Static operations with different start indices become one dynamic operation with different operands. So `outline` can
make the layers that read `w[0]`, `w[1]`, ... calls of one body, and `inline` makes the operations static again.

    static form                                       dynamic form, with every start index marked
    index[starts=(2, 0), sizes=(1, 4), ...] w         index[starts=(0, 0), sizes=(1, 4), ..., dynamic=(0, 1)] w 2 0
    slice[starts=(2,), limits=(5,)] x                 dynamic_slice[sizes=(3,)] x 2
    pad[low=(2,), high=(5,)] x 0.0                    dynamic_update_slice 0.0:f32[10] x 2      (x:f32[3])
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.sizes.lower_bounds import at_least
from fxad.ir import Atom, Atoms, Aval, Eqn, Flags, Lit, Primitive
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice, DynamicUpdateSlice
from fxad.primitives.index import Index, index_dtype
from fxad.primitives.slicing import Pad, Slice

PrimitiveAndOperands: TypeAlias = tuple[Primitive, Atoms]


@final
@dataclass(frozen=True, slots=True)
class DynamicForm:
    """How an equation with static start indices becomes one with start indices as operands.

    key:          equal for two equations if they have the same dynamic form.
    starts:       the start indices of the equation.
    with_dynamic: the primitive and the operands of the dynamic form, given the equation and the mask of the start
                  indices that become operands. Slices and paddings ignore the mask: all become operands.
    """

    key: Callable[[Eqn], Hashable]
    starts: Callable[[Eqn], tuple[int, ...]]
    with_dynamic: Callable[[Eqn, Flags], PrimitiveAndOperands]


def _literals(shape: tuple[int, ...], starts: Sequence[int]) -> tuple[Lit, ...]:
    aval = Aval((), index_dtype(shape))
    return tuple([Lit.of(start, aval) for start in starts])


def _index_key(eqn: Eqn) -> Hashable:
    prim = eqn.prim
    assert isinstance(prim, Index)
    strided_starts = tuple([s if stride != 1 else 0 for s, stride in zip(prim.starts, prim.strides, strict=True)])
    return strided_starts, prim.sizes, prim.strides, prim.dropped, prim.dynamic


def _starts(eqn: Eqn) -> tuple[int, ...]:
    assert isinstance(eqn.prim, Index | Slice)
    return eqn.prim.starts


def _dynamic_index(eqn: Eqn, marked: Flags) -> PrimitiveAndOperands:
    prim, (x, *places) = eqn.prim, eqn.ins
    assert isinstance(prim, Index)
    start_of_axis: dict[int, Atom] = dict(zip(prim.dynamic, places, strict=True))
    literals = _literals(x.aval.shape, prim.starts)
    start_of_axis |= {a: literals[a] for a, m in enumerate(marked) if m}
    static_starts = tuple([0 if m else s for s, m in zip(prim.starts, marked, strict=True)])
    axes = sorted(start_of_axis)
    dynamic = Index(static_starts, prim.sizes, prim.strides, prim.dropped, tuple(axes))
    return dynamic, (x, *[start_of_axis[a] for a in axes])


def _slice_key(eqn: Eqn) -> Hashable:
    prim = eqn.prim
    assert isinstance(prim, Slice)
    return prim if any([s != 1 for s in prim.strides]) else eqn.outs[0].aval


def _dynamic_slice(eqn: Eqn, _marked: Flags) -> PrimitiveAndOperands:
    (x,) = eqn.ins
    return DynamicSlice(eqn.outs[0].aval.shape), (x, *_literals(x.aval.shape, _starts(eqn)))


def _pad_key(eqn: Eqn) -> Hashable:
    prim, value = eqn.prim, eqn.ins[1]
    assert isinstance(prim, Pad)
    inside = not any(prim.interior) and all([at_least(n, 0) for n in (*prim.low, *prim.high)])
    return (eqn.outs[0].aval, value) if inside and isinstance(value, Lit) else prim


def _low(eqn: Eqn) -> tuple[int, ...]:
    assert isinstance(eqn.prim, Pad)
    return eqn.prim.low


def _dynamic_pad(eqn: Eqn, _marked: Flags) -> PrimitiveAndOperands:
    (x, value), out = eqn.ins, eqn.outs[0].aval
    assert isinstance(value, Lit)
    return DYNAMIC_UPDATE_SLICE, (value.with_shape(out.shape), x, *_literals(out.shape, _low(eqn)))


DYNAMIC_FORMS: Final = MappingProxyType[type[Primitive], DynamicForm](
    {
        Index: DynamicForm(_index_key, _starts, _dynamic_index),
        Slice: DynamicForm(_slice_key, _starts, _dynamic_slice),
        Pad: DynamicForm(_pad_key, _low, _dynamic_pad),
    }
)


# ------------------------------------------------------------------------------------------- static forms again


def static_starts(prim: Primitive, ins: Atoms) -> PrimitiveAndOperands:
    """Return the operation with literal start indices as parameters again: the inverse of `with_dynamic`."""
    rule = _STATIC_STARTS.get(type(prim))
    return (rule(prim, ins) if rule else None) or (prim, ins)


def _literal_starts(places: Sequence[Atom], largest: Sequence[int]) -> list[int] | None:
    """Return the start indices if all are literals between 0 and the largest valid start, for all named sizes; None
    otherwise."""
    if not all([isinstance(a, Lit) for a in places]):
        return None
    values = [a.integer for a in places if isinstance(a, Lit)]
    inside = [at_least(v, 0) and at_least(n - v, 0) for v, n in zip(values, largest, strict=True)]
    return values if all(inside) else None


def _largest_starts(shape: Sequence[int], window: Sequence[int]) -> list[int]:
    return [n - m for n, m in zip(shape, window, strict=True)]


def _static_index(prim: Primitive, ins: Atoms) -> PrimitiveAndOperands | None:
    """Return an `index` whose literal places are parameters again. Example: of x[i, 2], with both places dynamic, the
    second one becomes the start 2, and `dynamic` is (0,)."""
    assert isinstance(prim, Index)
    (x, *places), largest = ins, _largest_starts(ins[0].aval.shape, prim.sizes)
    starts, still_dynamic = list(prim.starts), []
    for a, place in zip(prim.dynamic, places, strict=True):
        literal = _literal_starts((place,), (largest[a],))
        if literal is None:
            still_dynamic.append((a, place))
        else:
            starts[a] = literal[0]
    axes = tuple([a for a, _ in still_dynamic])
    return Index(tuple(starts), prim.sizes, prim.strides, prim.dropped, axes), (
        x,
        *[place for _, place in still_dynamic],
    )


def _static_slice(prim: Primitive, ins: Atoms) -> PrimitiveAndOperands | None:
    assert isinstance(prim, DynamicSlice)
    starts = _literal_starts(ins[1:], _largest_starts(ins[0].aval.shape, prim.sizes))
    if starts is None:
        return None
    limits = tuple([s + n for s, n in zip(starts, prim.sizes, strict=True)])
    return Slice(tuple(starts), limits, (1,) * len(starts)), ins[:1]


def _static_update(_prim: Primitive, ins: Atoms) -> PrimitiveAndOperands | None:
    x, update, *places = ins
    largest = _largest_starts(x.aval.shape, update.aval.shape)
    starts = _literal_starts(places, largest)
    if starts is None or not isinstance(x, Lit):
        return None
    high = tuple([n - s for s, n in zip(starts, largest, strict=True)])
    return Pad(tuple(starts), high, (0,) * len(starts)), (update, x.with_shape(()))


_STATIC_STARTS: Final = MappingProxyType[type[Primitive], Callable[[Primitive, Atoms], PrimitiveAndOperands | None]](
    {Index: _static_index, DynamicSlice: _static_slice, DynamicUpdateSlice: _static_update}
)
