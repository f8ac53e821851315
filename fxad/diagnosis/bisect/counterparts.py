"""The search with the values of another program: which equation computes a value that the other program does not have.

Two versions of a program, or a program before and after a pass, have no common numbering of equations. So values are
compared: a value is known if some value of the other program, also inside of a body, is close to it. From a result that
differs, the search goes back over values that are not known, to an equation whose operands are all known. A value whose
elements are all elements of the operands, as those of a stack or a transpose, passes for known if they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import producing_eqns
from fxad.core.dataclasses import dataclass
from fxad.core.interpreter import array_of, run_by_layout, run_with
from fxad.diagnosis.bisect.closeness import Closeness
from fxad.diagnosis.bisect.sides import run_bodies
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, NDArray, Var, source_location
from fxad.transforms.locate import body_label

_PROJECTIONS: Final = 3
_MOVED: Final = 1 << 20  # a value of at most so many elements is looked up among the operands


# Called after each equation, with its results.
_Observe: TypeAlias = Callable[[Eqn, Sequence[NDArray]], None]


def _walk(jaxpr: Jaxpr, operands: Sequence[NDArray], observe: _Observe) -> list[NDArray]:
    """Return the results of a program. `observe` is called for each equation, also in bodies."""

    def apply(_: int, eqn: Eqn, ins: list[NDArray]) -> list[NDArray]:
        outs = run_bodies(eqn, ins, [v.aval for v in eqn.outs], partial(_walk, observe=observe))
        if outs is None:
            outs = [np.asarray(x) for x in eqn.prim.impl(*ins)]
        observe(eqn, outs)
        return outs

    return run_with(jaxpr, operands, apply, array_of)


@final
class KnownValues:
    """The values of a run, as sketches: nothing of the size of a value is kept."""

    def __init__(self, close: Closeness) -> None:
        self._close = close
        self._exact: set[bytes] = set()
        self._sketches: dict[tuple[object, ...], list[NDArray]] = {}

    def add(self, values: Iterable[NDArray]) -> None:
        """Add values."""
        for x in values:
            digest = _digest(x)
            if digest in self._exact:
                continue
            self._exact.add(digest)
            if self._close.tolerance != 0 and dtypes.is_inexact(x.dtype):
                self._sketches.setdefault(_kind(x), []).append(_sketch(x))

    def has(self, x: NDArray) -> bool:
        """Return True if a value of the run is close to one."""
        if _digest(x) in self._exact:
            return True
        if self._close.tolerance == 0 or not dtypes.is_inexact(x.dtype):
            return False
        rows = self._sketches.get(_kind(x))
        if not rows:
            return False
        table, sketch = np.array(rows), _sketch(x)
        size = np.maximum(table[:, -1], sketch[-1])[:, None]
        # a difference grows on its way to the result, where it is larger than the tolerance
        tolerance = self._close.of_dtype(x.dtype) ** 1.5
        bound = tolerance * size + tolerance**2 * self._close.scale
        return bool((np.abs(np.subtract(table, sketch)) <= bound).all(axis=1).any())


def _kind(x: NDArray) -> tuple[object, ...]:
    return x.shape, x.dtype.kind, np.isnan(x).tobytes() if x.size <= 64 else int(np.isnan(x).sum())


def _digest(x: NDArray) -> bytes:
    return hashlib.sha256(repr((x.shape, x.dtype)).encode() + np.ascontiguousarray(x).tobytes()).digest()


def _sketch(x: NDArray) -> NDArray:
    """Return projections of a value on random directions, and its root mean square."""
    complex_ = dtypes.is_complex(x.dtype)
    v = x.astype(np.complex128 if complex_ else np.float64).reshape(-1)
    v = np.concatenate([v.real, v.imag]) if complex_ else v
    v = np.nan_to_num(v, nan=0.0, posinf=1e300, neginf=-1e300)
    random = np.random.Generator(np.random.PCG64(len(v)))
    count = max(len(v), 1)
    with np.errstate(all="ignore"):
        rows = [float(random.normal(size=len(v)) @ v) / count**0.5 for _ in range(_PROJECTIONS)]
        return np.array([*rows, float(np.sqrt((v * v).sum() / count))])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unmatched:
    """An equation that computes a value which the other program does not have, the bodies around it, its operands, its
    result, and the value that the other program has at the same line, if there is one."""

    eqns: tuple[Eqn, ...]
    inside: tuple[str, ...]
    operands: tuple[NDArray, ...]
    actual: NDArray
    expected: NDArray | None


_Run: TypeAlias = tuple[Jaxpr, Sequence[NDArray]]  # a program and its operands


def unmatched(ours: _Run, theirs: _Run, close: Closeness, differing: int) -> Unmatched | None:
    """Return the equation of a program from which its result number `differing` differs from that of another program.
    Each has its own operands: two versions may close over other arrays."""
    program, operands = ours
    known = KnownValues(close)
    at_line: dict[object, list[tuple[str, NDArray]]] = {}

    def note(eqn: Eqn, outs: Sequence[NDArray]) -> None:
        known.add(outs)
        location = source_location(eqn.source)
        for x in outs:
            at_line.setdefault((location, x.shape, x.dtype), []).append((eqn.prim.name, x))

    own = KnownValues(close)
    with np.errstate(all="ignore"):
        known.add(theirs[1])
        _walk(*theirs, note)
        _walk(program, operands, lambda _, outs: own.add(outs))
        foreign = [v for v, x in zip(program.ins, operands, strict=True) if not known.has(x)]
        for moved in (True, False):
            found = _back(program, operands, known, [differing], moved, foreign)
            if found is not None:
                actual, eqn = found.actual, found.eqns[-1]
                same_line = at_line.get((source_location(eqn.source), actual.shape, actual.dtype), [])
                others = [(name, x) for name, x in same_line if not own.has(x)]
                expected = next((x for name, x in others if name == eqn.prim.name), None)
                if expected is None and len(others) == 1:
                    ((_, expected),) = others
                return replace(found, expected=expected)
    return None


def _back(
    jaxpr: Jaxpr,
    operands: Sequence[NDArray],
    known: KnownValues,
    differing: Sequence[int],
    moved: bool,
    foreign: Sequence[Var] = (),
) -> Unmatched | None:
    """Return the equation at the end of a chain of values that are not known, from results of a program. `foreign` are
    operands that the other program does not have: arrays that the program closes over."""
    producers = producing_eqns(jaxpr.eqns)
    values: dict[Atom, NDArray] = dict(zip(jaxpr.ins, operands, strict=True))
    is_known: dict[Atom, bool] = {v: v not in foreign for v in jaxpr.ins}

    def apply(_: int, eqn: Eqn, ins: list[NDArray]) -> list[NDArray]:
        outs = [np.asarray(x) for x in eqn.prim.impl(*ins)]
        of_known = all([isinstance(a, Lit) or is_known[a] for a in eqn.ins])
        for v, x in zip(eqn.outs, outs, strict=True):
            values[v] = x
            is_known[v] = known.has(x) or (moved and of_known and _is_moved(x, ins))
        return outs

    run_with(jaxpr, operands, apply, array_of)
    start = next((a for k in differing if (a := jaxpr.outs[k]) in producers), None)
    if start is None:
        return None
    is_known[start] = False
    eqn = producers[start]
    while True:
        before = next((a for a in eqn.ins if isinstance(a, Var) and a in producers and not is_known[a]), None)
        if before is None:
            break
        eqn = producers[before]
    ins = [np.asarray(a.array) if isinstance(a, Lit) else values[a] for a in eqn.ins]
    inner = _back_in_bodies(eqn, ins, known, moved)
    if inner is not None:
        return replace(inner, eqns=(eqn, *inner.eqns))
    return Unmatched((eqn,), (), tuple(ins), values[next(v for v in eqn.outs if not is_known[v])], None)


def _back_in_bodies(eqn: Eqn, ins: list[NDArray], known: KnownValues, moved: bool) -> Unmatched | None:
    prim = eqn.prim
    if not isinstance(prim, HigherOrder) or not prim.layout.states_results:
        return None
    layout = prim.layout
    found: list[Unmatched] = []

    def run_body(at: int, step: int | None, args: list[NDArray]) -> list[NDArray] | None:
        body = layout.bodies[at].jaxpr
        outs = [np.asarray(x) for x in _walk(body, args, lambda *_: None)]
        unknown = [k for k, x in enumerate(outs) if not known.has(x)]
        if unknown:
            inner = _back(body, args, known, unknown, moved)
            if inner is not None:
                label = body_label(eqn, body) if step is None else f"step {step} of {prim.name}"
                found.append(replace(inner, inside=(label, *inner.inside)))
                return None
        return outs

    run_by_layout(layout, ins, [v.aval for v in eqn.outs], run_body)
    return found[0] if found else None


def _is_moved(x: NDArray, ins: Sequence[NDArray]) -> bool:
    """Return True if all elements of a value are elements of the operands of its dtype."""
    same = [v.reshape(-1) for v in ins if v.dtype == x.dtype]
    if not same or x.size > _MOVED or sum([v.size for v in same]) > _MOVED:
        return False
    return bool(np.isin(_bits(x), _bits(np.concatenate(same))).all())


def _bits(x: NDArray) -> NDArray:
    """Return the elements of a value as unsigned integers; those of 16 bytes, as complex numbers."""
    size = x.dtype.itemsize
    flat = np.ascontiguousarray(x).reshape(-1)
    return flat.view(f"u{size}") if size <= 8 else flat.view(np.complex128)
