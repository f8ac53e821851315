"""Assembles operands from the parts that several equations determine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad import dtypes
from fxad.core.sizes.lower_bounds import at_least
from fxad.ir import Atom, Aval, Emit, Eqn, Lit, NDArray, literal_number
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.shape import BroadcastInDim
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.transforms.inversion.rules.contract import (
    ChosenPart,
    MaskPart,
    PartialValue,
    ScatteredPart,
    SharePart,
    Window,
    WindowPart,
)
from fxad.transforms.inversion.rules.structure import pad_elements, window_mask


def complete(aval: Aval, parts: Sequence[PartialValue]) -> bool:
    """Return True if the parts complete an operand. If the positions of a part are known only at run time, a
    sufficient number of elements counts as complete. Elements that are in no part are then nan, so this is not
    permitted for a dtype without nan."""
    if _have_all_shares(parts):
        return True
    windows = [p for p in parts if isinstance(p, WindowPart)]
    masks = [p.mask for p in parts if isinstance(p, ChosenPart | MaskPart) and p.mask is not None]
    scattered = [p.count for p in parts if isinstance(p, ScatteredPart)]
    if scattered:
        n_elements = sum([p.value.aval.size for p in windows]) + sum(scattered)
        return aval.dtype in dtypes.INEXACT and at_least(n_elements - aval.size, 0)
    if aval.symbolic:
        return False  # a window with numbers does not cover an axis of any size
    if masks:
        masks += [window_mask(p.window, aval.shape) for p in windows]
        return bool(np.logical_or.reduce(np.broadcast_arrays(*masks)).all())
    covered = np.zeros(tuple([1 if _spans(windows, k, n) else n for k, n in enumerate(aval.shape)]), bool)
    for p in windows:
        places = [
            np.arange(1) if _spans(windows, k, n) else np.asarray(p.window[k], int) for k, n in enumerate(aval.shape)
        ]
        covered[np.ix_(*places)] = True
    return bool(covered.all())


def may_lack_elements(parts: Sequence[PartialValue]) -> bool:
    """Return True if complete parts may lack elements of an operand, which is known only at run time."""
    return not _have_all_shares(parts) and any([isinstance(p, ScatteredPart) for p in parts])


def covers_window(covers: NDArray, window: Window) -> bool:
    """Return True if a mask covers all elements of a window."""
    each = [np.zeros(len(r), int) if n == 1 else np.asarray(r, int) for r, n in zip(window, covers.shape, strict=True)]
    return bool(covers[np.ix_(*each)].all())


def constant_mask(a: Atom, producer: Callable[[Atom], Eqn | None]) -> NDArray | None:
    """Return the value of a constant selector: a literal, or a constant window padded by a constant, also broadcast. An
    axis of size 1 stands for equal elements. Return None for any other selector, and for one of symbolic shape."""
    if a.aval.symbolic:
        return None
    if isinstance(a, Lit):
        value = literal_number(a)
        return np.reshape(np.asarray(value), (1,) * a.aval.ndim) if value is not None and a.aval.size != 0 else None
    eqn = producer(a)
    if eqn is None or a.aval.dtype != dtypes.bool_ or a.aval.size == 0:
        return None
    if isinstance(eqn.prim, BroadcastInDim):
        mask = constant_mask(eqn.ins[0], producer)
        shape = [1] * a.aval.ndim
        for axis, n in zip(eqn.prim.dims, () if mask is None else mask.shape, strict=mask is not None):
            shape[axis] = n
        return None if mask is None else mask.reshape(shape)
    if not isinstance(eqn.prim, Pad) or not all([isinstance(x, Lit) for x in eqn.ins]):
        return None
    inside, outside = [bool(x.array.any()) for x in eqn.ins if isinstance(x, Lit)]
    elements = pad_elements(eqn.prim, eqn.ins[0].aval.shape, a.aval.shape)
    return np.where(window_mask(tuple([places for places, _ in elements]), a.aval.shape), inside, outside)


def where_case(selector: NDArray, case: int) -> NDArray:
    """Return a mask of the elements where a constant selector chooses a case."""
    return np.equal(selector.astype(np.int32), case)


def _have_all_shares(parts: Sequence[PartialValue]) -> bool:
    """Return True if the parts are all shares of an operand, or all cases of a selector."""
    indices_of: dict[tuple[Atom | str, int], set[int]] = {}
    for p in parts:
        match p:
            case ChosenPart():
                indices_of.setdefault((p.selector, p.count), set()).add(p.case)
            case SharePart():
                indices_of.setdefault((p.of, p.count), set()).add(p.index)
            case _:
                pass
    return any([len(indices) == count for (_, count), indices in indices_of.items()])


def where_chosen(emit: Emit, a: Atom, part: ChosenPart) -> Atom:
    """Return a value with 0.5 where the selector of a part chose another case. These elements are not used. They may
    have no preimage, and the derivative there would be nan. In reverse mode the cotangent there is 0, and 0 * nan would
    be nan. Most functions are finite at 0.5."""
    if isinstance(a, Lit) or not a.aval.inexact:
        return a
    return emit.one(SELECT_N, part.selector, *_cases(part, a, Lit.of(0.5, a.aval)))


def _cases(part: ChosenPart, value: Atom, other: Atom) -> list[Atom]:
    return [value if k == part.case else other for k in range(part.count)]


def _spans(parts: Sequence[WindowPart], axis: int, size: int) -> bool:
    """Return True if every part has all elements along an axis."""
    return size > 0 and all([len(p.window[axis]) == size for p in parts])


def assembled_operand(emit: Emit, aval: Aval, parts: Sequence[PartialValue]) -> Atom:
    """Return the operand that the parts complete."""
    windows = [p for p in parts if isinstance(p, WindowPart)]
    if len(windows) == len(parts):
        partial = [k for k, n in enumerate(aval.shape) if not _spans(windows, k, n)]
        ordered = sorted(windows, key=lambda p: [r.start for r in p.window])
        if len(partial) == 1 and _tiles(ordered, partial[0], aval.shape[partial[0]]):
            return emit.one(Concatenate(partial[0]), *[p.value for p in ordered])
        if not partial:
            return windows[0].value
    assembled: Atom = unknown_elements(aval)
    for p in parts:
        assembled = with_part(emit, p, assembled)
    return assembled


def with_part(emit: Emit, part: PartialValue, base: Atom) -> Atom:
    """Return an array with the elements of a part at their positions."""
    match part:
        case WindowPart():
            return _with_window(emit, part, base)
        case ChosenPart():
            return emit.one(SELECT_N, part.selector, *_cases(part, part.value, base))
        case _:
            return part.write(emit, base)


def unknown_elements(aval: Aval) -> Lit:
    """Return an array of unknown elements: nan, in both parts of a complex number; 0 for dtypes without nan."""
    if aval.dtype in dtypes.COMPLEX:
        return Lit.of(complex("nan+nanj"), aval)
    return Lit.of(float("nan") if aval.inexact else 0, aval)


def _tiles(parts: Sequence[WindowPart], axis: int, size: int) -> bool:
    """Return True if the parts follow each other along an axis and cover it."""
    start = 0
    for p in parts:
        r = p.window[axis]
        if r.step != 1 or r.start != start:
            return False
        start = r.stop
    return start == size


def _with_window(emit: Emit, part: WindowPart, base: Atom) -> Atom:
    """Return an array with the elements of a part in its window."""
    value = part.value
    config = [
        (r.start, n - r.start - (r.step * (len(r) - 1) + 1), r.step - 1)
        for r, n in zip(part.window, base.aval.shape, strict=True)
    ]
    pad = Pad(*[tuple(c) for c in zip(*config, strict=True)])
    true = Lit.of(True, value.aval.with_dtype(dtypes.bool_))
    inside = emit.one(pad, true, Lit.of(False, Aval((), dtypes.bool_)))
    return emit.one(SELECT_N, inside, base, emit.one(pad, value, Lit.of(0, Aval((), value.aval.dtype))))


def slice_of_part(part: WindowPart, window: Window) -> Slice | None:
    """Return the slice of a part that a window selects; None if the part lacks some elements of the window."""
    indices: list[tuple[int, int, int]] = []
    for have, want in zip(part.window, window, strict=True):
        if not len(want):
            indices.append((0, 0, 1))
        elif want[0] not in have or want[-1] not in have or (len(want) > 1 and want.step % have.step):
            return None
        else:
            step = want.step // have.step if len(want) > 1 else 1
            indices.append((have.index(want[0]), have.index(want[-1]) + 1, step))
    return Slice(*[tuple(w) for w in zip(*indices, strict=True)]) if indices else None
