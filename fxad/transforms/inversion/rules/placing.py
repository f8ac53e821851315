"""Elements at constant positions: followed to the values from which they were written.

`x.at[..., 1::2].set(u)` is a choice between x and u padded to its shape. The mask is True in a box and False elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fxad.ir import Atom, Emit, Eqn, NDArray
from fxad.primitives.dynamic_slicing import DynamicUpdateSlice
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.slicing import Concatenate, Pad
from fxad.transforms.inversion.rules.assembling import chosen_part, constant_mask, has_box
from fxad.transforms.inversion.rules.contract import PartialValue
from fxad.transforms.inversion.rules.structure import box_of, constant_window, kept_by, slice_of_ranges

Maker = Callable[[Atom], Eqn | None]


def with_places(part: PartialValue, maker: Maker) -> PartialValue:
    """Returns the part with the mask of its elements in `covers`, if the selector that chose it is constant."""
    if part.chosen is None or part.covers is not None:
        return part
    selector, k, _ = part.chosen
    mask = constant_mask(selector, maker)
    return part if mask is None else replace(part, covers=np.equal(mask.astype(np.int32), k))


def through_places(
    emit: Emit, eqn: Eqn, part: PartialValue, unknown: Callable[[Atom], bool], maker: Maker
) -> PartialValue | Atom | None:
    """Inverts an equation for a part of its result. Returns its one unknown operand, or a part of it; None if the
    positions are not constant."""
    if part.covers is None:
        return None
    if isinstance(eqn.prim, Pad) and unknown(eqn.ins[0]) and not unknown(eqn.ins[1]):
        kept = kept_by(eqn.prim, eqn.ins[0].aval.shape, part.value.aval.shape)
        places = tuple([p for p, _ in kept])
        if [len(of) for _, of in kept] == list(eqn.ins[0].aval.shape) and has_box(part.covers, places):
            return emit.one(slice_of_ranges(places), part.value)
    if isinstance(eqn.prim, SelectN):
        holes = [k for k, a in enumerate(eqn.ins[1:]) if unknown(a)]
        mask = constant_mask(eqn.ins[0], maker)
        if len(holes) == 1 and mask is not None:
            return _both(part, eqn, holes[0], mask.astype(np.int32) == holes[0])
    return None


def reads_part(eqn: Eqn, v: Atom, part: PartialValue, unknown: Callable[[Atom], bool]) -> bool:
    """Returns True if an equation reads exactly the elements of v that a part has, and no other unknown value."""
    if part.covers is not None and (box := box_of(eqn.prim, v.aval)) is not None and has_box(part.covers, box):
        return all([a is v or not unknown(a) for a in eqn.ins])
    if part.chosen is None or not isinstance(eqn.prim, SelectN) or eqn.ins[0] is not part.chosen[0]:
        return False
    k = part.chosen[1]
    return all([(a is v) == (j == k) and (a is v or not unknown(a)) for j, a in enumerate(eqn.ins[1:])])


def windows_of(eqn: Eqn | None) -> list[tuple[Atom, tuple[range, ...]]]:
    """Returns the operands of an equation that its result contains unchanged, and their boxes."""
    if eqn is not None and isinstance(eqn.prim, DynamicUpdateSlice):
        x, update, *starts = eqn.ins
        window = constant_window(starts, update.aval.shape, x.aval.shape)
        return [] if window is None else [(update, window)]
    if eqn is not None and isinstance(eqn.prim, Concatenate):
        windows: list[tuple[Atom, tuple[range, ...]]] = []
        start, axis = 0, eqn.prim.axis
        for a in eqn.ins:
            along = range(start, start + a.aval.shape[axis])
            windows.append((a, tuple([along if k == axis else range(n) for k, n in enumerate(a.aval.shape)])))
            start = along.stop
        return windows
    return []


def _both(part: PartialValue, eqn: Eqn, k: int, here: NDArray) -> PartialValue:
    """Returns the elements that two nested choices select."""
    selector, *cases = eqn.ins

    def write(emit: Emit, base: Atom) -> Atom:
        outer = part.write(emit, base) if part.write else base
        inner = chosen_part(outer, (selector, k, len(cases)))
        assert inner.write is not None
        return inner.write(emit, base)

    assert part.covers is not None
    return PartialValue(part.value, write=write, covers=np.logical_and(part.covers, here))
