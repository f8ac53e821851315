"""Parts at constant positions: which other values the solver determines from them.

These functions are no rows of the table. The solver calls them for a part of a value (`invert_at_places`, `reads_part`,
`unchanged_operands`); they have the knowledge of primitives that this needs.

`x.at[..., 1::2].set(u)` is a choice between x and u padded to its shape. The mask is True in a window and False
elsewhere. So the elements of the result in this window are those of u, and the others are those of x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.ir import Atom, Emit, Eqn, NDArray
from fxad.primitives.dynamic_slicing import DynamicUpdateSlice
from fxad.primitives.elementwise.select import SelectN
from fxad.primitives.slicing import Concatenate, Pad
from fxad.transforms.inversion.rules.assembling import constant_mask, covers_window, where_case, with_part
from fxad.transforms.inversion.rules.contract import ChosenPart, MaskPart, Window
from fxad.transforms.inversion.rules.structure import constant_window, pad_elements, slice_of_window, window_of

FindProducer = Callable[[Atom], Eqn | None]


def invert_at_places(
    emit: Emit, eqn: Eqn, part: ChosenPart | MaskPart, unknown: Callable[[Atom], bool], producer: FindProducer
) -> MaskPart | Atom | None:
    """Invert an equation for a part of its result. Return its one unknown operand, or a part of it; None if the
    positions are not constant."""
    if part.mask is None:
        return None
    if isinstance(eqn.prim, Pad) and unknown(eqn.ins[0]) and not unknown(eqn.ins[1]):
        elements = pad_elements(eqn.prim, eqn.ins[0].aval.shape, part.value.aval.shape)
        places = tuple([p for p, _ in elements])
        if [len(of) for _, of in elements] == list(eqn.ins[0].aval.shape) and covers_window(part.mask, places):
            return emit.one(slice_of_window(places), part.value)
    if isinstance(eqn.prim, SelectN):
        holes = [k for k, a in enumerate(eqn.ins[1:]) if unknown(a)]
        mask = constant_mask(eqn.ins[0], producer)
        if len(holes) == 1 and mask is not None:
            return _part_of_case(part, eqn, holes[0], np.logical_and(part.mask, where_case(mask, holes[0])))
    return None


def reads_part(eqn: Eqn, v: Atom, part: ChosenPart | MaskPart, unknown: Callable[[Atom], bool]) -> bool:
    """Return True if an equation reads exactly the elements of v that a part has, and no other unknown value."""
    window = window_of(eqn.prim, v.aval)
    if part.mask is not None and window is not None and covers_window(part.mask, window):
        return all([a is v or not unknown(a) for a in eqn.ins])
    if not isinstance(part, ChosenPart) or not isinstance(eqn.prim, SelectN) or eqn.ins[0] is not part.selector:
        return False
    return all([(a is v) == (j == part.case) and (a is v or not unknown(a)) for j, a in enumerate(eqn.ins[1:])])


def unchanged_operands(eqn: Eqn | None) -> list[tuple[Atom, Window]]:
    """Return the operands of an equation that its result contains unchanged, and their windows."""
    if eqn is not None and isinstance(eqn.prim, DynamicUpdateSlice):
        x, update, *starts = eqn.ins
        window = constant_window(starts, update.aval.shape, x.aval.shape)
        return [] if window is None else [(update, window)]
    if eqn is not None and isinstance(eqn.prim, Concatenate):
        windows: list[tuple[Atom, Window]] = []
        start, axis = 0, eqn.prim.axis
        for a in eqn.ins:
            along = range(start, start + a.aval.shape[axis])
            windows.append((a, tuple([along if k == axis else range(n) for k, n in enumerate(a.aval.shape)])))
            start = along.stop
        return windows
    return []


def _part_of_case(part: ChosenPart | MaskPart, eqn: Eqn, case: int, mask: NDArray) -> MaskPart:
    """Return a part of one case of a choice, given a part of its result: those elements of this part that come from
    the case. `mask` marks them."""
    selector, *cases = eqn.ins

    def write(emit: Emit, base: Atom) -> Atom:
        inner = ChosenPart(with_part(emit, part, base), selector, case, len(cases))
        return with_part(emit, inner, base)

    return MaskPart(part.value, mask, write)
