"""Converts numeric parameters of slicing operations to operands, and back: the start indices.

With start indices as operands, `x[0]`, `x[1]`, ... are one operation with different operands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.sizes import at_least
from fxad.ir import Atom, Atoms, Aval, Eqn, Lit, Mask, Primitive
from fxad.primitives.dynamic_slicing import DYNAMIC_UPDATE_SLICE, DynamicSlice, DynamicUpdateSlice
from fxad.primitives.index import Index, index_dtype
from fxad.primitives.slicing import Pad, Slice

PrimitiveAndOperands: TypeAlias = tuple[Primitive, Atoms]


@final
@dataclass(frozen=True, slots=True)
class Parametrised:
    """An operation with parameters that may become operands. `numbers` returns these parameters, `key` all others, and
    `general(eqn, marked)` the operation with the marked parameters as operands."""

    key: Callable[[Eqn], Hashable]
    numbers: Callable[[Eqn], tuple[int, ...]]
    general: Callable[[Eqn, Mask], PrimitiveAndOperands]


def _places(shape: tuple[int, ...], numbers: Sequence[int]) -> tuple[Lit, ...]:
    aval = Aval((), index_dtype(shape))
    return tuple([Lit.of(n, aval) for n in numbers])


def _index_key(eqn: Eqn) -> Hashable:
    prim = eqn.prim
    assert isinstance(prim, Index)
    fixed = tuple([start if stride != 1 else 0 for start, stride in zip(prim.starts, prim.strides, strict=True)])
    return fixed, prim.sizes, prim.strides, prim.dropped, prim.dynamic


def _index_numbers(eqn: Eqn) -> tuple[int, ...]:
    assert isinstance(eqn.prim, Index)
    return eqn.prim.starts


def _index(eqn: Eqn, marked: Mask) -> PrimitiveAndOperands:
    prim, (x, *places) = eqn.prim, eqn.ins
    assert isinstance(prim, Index)
    axes: dict[int, Atom] = dict(zip(prim.dynamic, places, strict=True))
    starts = _places(x.aval.shape, prim.starts)
    axes |= {a: starts[a] for a, m in enumerate(marked) if m}
    fixed = tuple([0 if m else s for s, m in zip(prim.starts, marked, strict=True)])
    order = sorted(axes)
    general = Index(fixed, prim.sizes, prim.strides, prim.dropped, tuple(order))
    return general, (x, *[axes[a] for a in order])


def _slice_key(eqn: Eqn) -> Hashable:
    prim = eqn.prim
    assert isinstance(prim, Slice)
    return prim if any([s != 1 for s in prim.strides]) else eqn.outs[0].aval


def _slice_numbers(eqn: Eqn) -> tuple[int, ...]:
    assert isinstance(eqn.prim, Slice)
    return eqn.prim.starts


def _slice(eqn: Eqn, _marked: Mask) -> PrimitiveAndOperands:
    (x,) = eqn.ins
    return DynamicSlice(eqn.outs[0].aval.shape), (x, *_places(x.aval.shape, _slice_numbers(eqn)))


def _pad_key(eqn: Eqn) -> Hashable:
    prim, value = eqn.prim, eqn.ins[1]
    assert isinstance(prim, Pad)
    inside = not any(prim.interior) and all([at_least(n, 0) for n in (*prim.low, *prim.high)])
    return (eqn.outs[0].aval, value) if inside and isinstance(value, Lit) else prim


def _pad_numbers(eqn: Eqn) -> tuple[int, ...]:
    assert isinstance(eqn.prim, Pad)
    return eqn.prim.low


def _pad(eqn: Eqn, _marked: Mask) -> PrimitiveAndOperands:
    (x, value), out = eqn.ins, eqn.outs[0].aval
    assert isinstance(value, Lit)
    return DYNAMIC_UPDATE_SLICE, (value.with_shape(out.shape), x, *_places(out.shape, _pad_numbers(eqn)))


PARAMETRISED: Final = MappingProxyType[type[Primitive], Parametrised](
    {
        Index: Parametrised(_index_key, _index_numbers, _index),
        Slice: Parametrised(_slice_key, _slice_numbers, _slice),
        Pad: Parametrised(_pad_key, _pad_numbers, _pad),
    }
)


# ----------------------------------------------------------------------------------------- operands to parameters


def static_starts(prim: Primitive, ins: Atoms) -> PrimitiveAndOperands:
    """Returns the operation with literal start indices as parameters again: the inverse of `general`."""
    rule = _STATIC_STARTS.get(type(prim))
    return (rule(prim, ins) if rule else None) or (prim, ins)


def _literal_starts(places: Sequence[Atom], largest: Sequence[int]) -> list[int] | None:
    """Returns the start indices if all are literals between 0 and the largest valid start, for all named sizes; None
    otherwise."""
    if not all([isinstance(a, Lit) for a in places]):
        return None
    values = [a.integer for a in places if isinstance(a, Lit)]
    inside = [at_least(v, 0) and at_least(n - v, 0) for v, n in zip(values, largest, strict=True)]
    return values if all(inside) else None


def _largest_starts(shape: Sequence[int], window: Sequence[int]) -> list[int]:
    return [n - m for n, m in zip(shape, window, strict=True)]


def _static_index(prim: Primitive, ins: Atoms) -> PrimitiveAndOperands | None:
    assert isinstance(prim, Index)
    (x, *places), largest = ins, _largest_starts(ins[0].aval.shape, prim.sizes)
    starts, left = list(prim.starts), []
    for a, place in zip(prim.dynamic, places, strict=True):
        known = _literal_starts((place,), (largest[a],))
        if known is None:
            left.append((a, place))
        else:
            starts[a] = known[0]
    axes = tuple([a for a, _ in left])
    return Index(tuple(starts), prim.sizes, prim.strides, prim.dropped, axes), (x, *[place for _, place in left])


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
