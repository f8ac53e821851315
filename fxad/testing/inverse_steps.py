"""The steps that programs which are run backwards are made of: each takes some arrays to others that determine them.

The arrays have one shape and several dtypes: what computes takes those of real or complex numbers, what only moves
elements takes integers and bools too. Each step is well conditioned, so that what comes back is what was there within a
small tolerance; functions that grow where complex numbers do are applied to real and imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.api.inverse import invertible
from fxad.api.jit import jit
from fxad.api.rewrite import remat
from fxad.testing.inverse_given import bent, cubic, fused, ruled
from fxad.testing.inverse_state import (
    Apply,
    Function,
    Held,
    Move,
    State,
    alike,
    by_parts,
    is_complex,
    moving,
    sine,
    slope,
    squashed,
)
from fxad.tracing.array import Array


def through(moves: Sequence[Move], state: State, held: Held) -> State:
    """A chain of steps."""
    for move in moves:
        state = APPLY[move.name](state, held, move)
    return state


# ------------------------------------------------------------------------------------------------- what steps are for


def _replaced(state: State, k: int, *values: Array) -> State:
    return (*state[:k], *values, *state[k + 1 :])


def _whole(x: Array) -> bool:
    return x.dtype in dtypes.INTEGER


def _logical(x: Array) -> bool:
    return x.dtype == dtypes.bool_


def _any(_: Array) -> bool:
    return True


Suits: TypeAlias = Callable[[Array], bool]


def _each(function: Callable[[Array, Held, Move], Array | State], suits: Suits = moving) -> Apply:
    """A step that changes one array of the state, of those that suit it; no array where there are none."""

    def apply(state: State, held: Held, move: Move) -> State:
        there = [k for k, x in enumerate(state) if suits(x)]
        if not there:
            return state
        k = there[move.i % len(there)]
        made = function(state[k], held, move)
        return _replaced(state, k, *(made if isinstance(made, tuple) else (made,)))

    return apply


def _coupled(function: Callable[[Array, Array], Array]) -> Apply:
    """A step that changes one array by what another and the array held say; alone, by the latter."""

    def apply(state: State, held: Held, move: Move) -> State:
        there = [k for k, x in enumerate(state) if moving(x)]
        k, by = there[move.i % len(there)], move.j % len(state)
        x = state[k]
        other = held.w if k == by else squashed(alike(state[by], x)) * alike(held.w, x)
        return _replaced(state, k, function(x, alike(other, x)))

    return apply


def _along(function: Callable[[Array, Held, Move], Array], alone: Function) -> Callable[[Array, Held, Move], Array]:
    """A step along the last axis; where there is none, another."""
    return lambda x, held, move: function(x, held, move) if x.ndim else alone(x)


# ------------------------------------------------------------------------------------------------ of numbers that move


def _halves(x: Array, held: Held, move: Move) -> Array:
    """A coupling of two slices of one array."""
    cut, w = move.j % (x.shape[-1] + 1), alike(held.w, x)
    first, second = x[..., :cut], x[..., cut:]
    by = fnp.sum(sine(first), axis=-1, keepdims=True)
    return fnp.concatenate([first, second * slope(by) + by * w[..., cut:]], axis=-1)


def _split(x: Array, _: Held, move: Move) -> Array:
    """A coupling of two parts that come back in the other order."""
    cut = move.j % (x.shape[-1] + 1)
    first, second = fnp.split(x, [cut], axis=-1)
    by = by_parts(fnp.cos)(fnp.sum(second, axis=-1, keepdims=True))
    return fnp.concatenate([second, first + by], axis=-1)


def _updated(x: Array, _: Held, move: Move) -> Array:
    """The first or the last element changed by the one beside it, in its place."""
    n = x.shape[-1]
    if n < 2:
        return x * 2.0
    here, there = ((0, 1), (n - 1, n - 2))[move.i % 2]
    return x.at[..., here].set(x[..., here] - sine(x[..., there]))


def _product(x: Array, held: Held, move: Move) -> Array:
    """A product with a triangular matrix."""
    a = alike(held.a, x)
    one = fnp.eye(x.shape[-1], dtype=x.dtype)
    low = 0.3 * fnp.tril(a, -1) + one * 1.5
    return (x @ low, x @ low.T, x @ (0.25 * fnp.tril(sine(a)) + one))[move.j % 3]


def _turned(x: Array, held: Held, move: Move) -> Array:
    """A complex number multiplied by one of about the size 1, or its conjugate."""
    w = held.w.astype(x.dtype)
    return (x * fnp.exp(1j * fnp.real(w)).astype(x.dtype), fnp.conj(x), fnp.conj(x) / (2.0 + 1j * w))[move.j % 3]


def _scaled(x: Array, held: Held, move: Move) -> Array:
    """By a factor that is chosen, or by one for each element."""
    return (x * slope(alike(held.w, x)), x * fnp.where(held.flag, 2.0, 0.5).astype(x.dtype), -x / 1.5)[move.j % 3]


def _exchanged(state: State, held: Held, move: Move) -> State:
    """Elements of two arrays change places where a bool of the state says so, or one that is held."""
    pairs = [
        (k, m)
        for k, x in enumerate(state)
        for m, y in enumerate(state)
        if k < m and x.dtype == y.dtype and not _logical(x)
    ]
    if not pairs:
        return state
    k, m = pairs[move.i % len(pairs)]
    there = [x for x in state if _logical(x)]
    where = there[move.j % len(there)] if there and move.j % 2 else fnp.broadcast_to(held.flag, state[k].shape)
    x, y = state[k], state[m]
    return _replaced(_replaced(state, k, fnp.where(where, x, y)), m, fnp.where(where, y, x))


def _passed(state: State, _: Held, move: Move) -> State:
    """Arrays of one dtype change places."""
    places = [k for k, x in enumerate(state) if x.dtype == state[move.i % len(state)].dtype]
    source = dict(zip(places, places[move.j % len(places) :] + places[: move.j % len(places)], strict=True))
    return tuple([state[source.get(k, k)] for k in range(len(state))])


# ---------------------------------------------------------------------------------------- of integers, of bools, of all


def _counted(x: Array, held: Held, move: Move) -> Array:
    """Integers wrap: sums come back."""
    shift = (alike(held.w, fnp.zeros((), "float64")) * 4.0).astype(x.dtype)
    return (x + 3, 5 - x, x - shift, fnp.bitwise_xor(x, 6), fnp.invert(x), x + held.flag.astype(x.dtype))[move.j]


def _toggled(x: Array, held: Held, move: Move) -> Array:
    return (
        fnp.logical_not(x),
        fnp.logical_xor(x, held.flag),
        x == held.flag,
        fnp.not_equal(held.flag, x),
        fnp.real(held.w) > 0.0 if x.size == 0 else fnp.logical_xor(x, fnp.real(held.w) > 0.0),
        fnp.where(held.flag, fnp.logical_not(x), x),
    )[move.j]


def _rearranged(x: Array, _: Held, move: Move) -> Array:
    """Elements moved, by a reshape, by transposed axes or by a broadcast axis of size 1."""
    shape, n = x.shape, x.ndim
    if move.j % 3 == 0:
        return fnp.reshape(fnp.flip(fnp.reshape(x, (-1,)) if x.size else fnp.zeros((0,), x.dtype), 0), shape)
    if move.j % 3 == 1 and n:
        axes = tuple(range(n))[::-1]
        return fnp.permute_dims(fnp.expand_dims(fnp.flip(fnp.permute_dims(x, axes), 0), axis=0)[0], axes)
    return fnp.squeeze(fnp.broadcast_to(x, (1, *shape)), axis=0)


def _blended(state: State, _: Held, move: Move) -> State:
    """A number changed by what an integer or a bool beside it says."""
    whole, there = [x for x in state if not moving(x)], [k for k, x in enumerate(state) if moving(x)]
    if not whole:
        return state
    k, by = there[move.i % len(there)], whole[move.j % len(whole)]
    x = state[k]
    gate = by if _logical(by) else by > 0
    value = (x * fnp.where(gate, 2.0, 0.75).astype(x.dtype), fnp.where(gate, x + 1.0, 0.25 - x * 1.5))
    return _replaced(state, k, value[move.j // 2 % 2] if _logical(by) else x + squashed(by.astype(x.dtype)))


# ------------------------------------------------------------------------------------------------ of another dtype then

_WIDER: Final = MappingProxyType(
    {
        dtypes.float32: (dtypes.float64,),
        dtypes.complex64: (dtypes.complex128,),
        dtypes.uint8: (dtypes.int16, dtypes.uint32),
        dtypes.int32: (dtypes.int64, dtypes.uint64),
        dtypes.bool_: (dtypes.uint8, dtypes.int32),
    }
)
_NUMBER: Final = MappingProxyType(
    {
        dtypes.float32: (dtypes.complex64, dtypes.complex128),
        dtypes.float64: (dtypes.complex128,),
    }
)


def _widened(to: Mapping[dtypes.DType, tuple[dtypes.DType, ...]]) -> Apply:
    """Into a dtype that holds all values of this one."""
    return _each(lambda x, _, move: x.astype(to[x.dtype][move.j % len(to[x.dtype])]), lambda x: x.dtype in to)


def _joined(state: State, _: Held, move: Move) -> State:
    """Two real arrays as one of complex numbers."""
    real = [k for k, x in enumerate(state) if x.dtype in (dtypes.float32, dtypes.float64)]
    pairs = [(k, m) for k in real for m in real if k != m and state[k].dtype == state[m].dtype]
    if not pairs:
        return state
    k, m = pairs[move.i % len(pairs)]
    made = _replaced(state, k, lax.complex(state[k], state[m]))
    return (*made[:m], *made[m + 1 :])


def _told(state: State, held: Held, move: Move) -> State:
    """One array more, that the others tell or that has no derivative."""
    whole = [x for x in state if not moving(x)]
    x = next(x for x in state if moving(x))
    k = whole[move.i % len(whole)] if whole else fnp.broadcast_to(held.flag, x.shape)
    return *state, (squashed(k.astype(x.dtype)), fnp.ones_like(x), sine(x), alike(held.w, x))[move.j % 4]


# -------------------------------------------------------------------------------------------------------- with bodies


def _called(state: State, held: Held, move: Move) -> State:
    return jit(lambda s, w: through(move.bodies[0], s, Held(w, held.a, held.flag)))(state, held.w)


def _again(state: State, held: Held, move: Move) -> State:
    """Around a `remat`."""
    return remat(lambda s, w: through(move.bodies[0], s, Held(w, held.a, held.flag)))(state, held.w)


def _nested(state: State, held: Held, move: Move) -> State:
    """An `invertible` inside."""
    inner = invertible(lambda s, w, a: through(move.bodies[0], s, Held(w, a, held.flag)), keep=(1, 2))
    return inner(state, held.w, held.a)


def _chosen(state: State, held: Held, move: Move) -> State:
    """Branches on what is held."""
    first, second = [lambda s, m=moves: through(m, s, held) for moves in move.bodies]
    return lax.cond(held.flag, first, second, state)


def _looped(state: State, held: Held, move: Move) -> State:
    """A loop over rows of what is held."""

    def step(carry: State, w: Array) -> tuple[State, None]:
        return through(move.bodies[0], carry, Held(w, held.a, held.flag)), None

    return lax.scan(step, state, fnp.stack([held.w, -held.w, held.w * 0.5]), reverse=bool(move.i % 2))[0]


def _stepped(state: State, held: Held, move: Move) -> State:
    """A loop with a counter."""
    k = next(k for k, x in enumerate(state) if moving(x))

    def step(i: Array, s: State) -> State:
        return through(move.bodies[0], _replaced(s, k, s[k] + 0.25 * i.astype(s[k].dtype)), held)

    return lax.fori_loop(0, move.i % 3, step, state)


# ---------------------------------------------------------------------------------------------------------- the table

SIMPLE: Final[Mapping[str, Apply]] = MappingProxyType(
    {
        "add": _coupled(lambda x, by: x + sine(by)),
        "scale": _coupled(lambda x, by: x * fnp.exp(0.5 * squashed(by))),
        "affine": _coupled(lambda x, by: (x - by) / slope(by)),
        "from": _coupled(lambda x, by: by - x),
        "asinh": _each(lambda x, *_: by_parts(fnp.arcsinh)(x)),
        "atan": _each(lambda x, *_: by_parts(fnp.arctan)(x * 0.5)),
        "softplus": _each(lambda x, *_: by_parts(lambda x: fnp.log1p(fnp.exp(fnp.arcsinh(x))))(x)),
        "weigh": _each(_scaled),
        "turn": _each(_turned, is_complex),
        "exchange": _exchanged,
        "blend": _blended,
        "count": _each(_counted, _whole),
        "toggle": _each(_toggled, _logical),
        "rearrange": _each(_rearranged, _any),
        "flip": _each(_along(lambda x, _, move: fnp.flip(x, move.j % x.ndim), lambda x: x), _any),
        "roll": _each(_along(lambda x, _, move: fnp.roll(x, move.j, -1), lambda x: x), _any),
        "pass": _passed,
        "halves": _each(_along(_halves, lambda x: x * 0.75)),
        "split": _each(_along(_split, lambda x: x)),
        "update": _each(_along(_updated, lambda x: x * 2.0)),
        "product": _each(_along(_product, lambda x: x * 1.5)),
        "cumsum": _each(_along(lambda x, *_: fnp.cumsum(x, axis=-1), lambda x: x)),
        "custom": _each(cubic),
        "ivjp": _each(fused),
        "ruled": ruled,
        "widen": _widened(_WIDER),
        "number": _widened(_NUMBER),
        "join": _joined,
        "told": _told,
        "parts": _each(lambda x, *_: (fnp.real(x), fnp.imag(x)), is_complex),
    }
)
NESTED: Final[Mapping[str, tuple[Apply, int]]] = MappingProxyType(
    {
        "call": (_called, 1),
        "remat": (_again, 1),
        "invertible": (_nested, 1),
        "cond": (_chosen, 2),
        "scan": (_looped, 1),
        "fori": (_stepped, 1),
    }
)
# with derivatives that are not the function's: no law of differences holds of these
BENT: Final[Mapping[str, Apply]] = MappingProxyType({"bent": _each(bent)})
APPLY: Final[Mapping[str, Apply]] = MappingProxyType({**SIMPLE, **BENT, **{k: f for k, (f, _) in NESTED.items()}})
# without a log-determinant; with other types than before, so not in bodies whose types are to stay
UNMEASURED: Final = frozenset({"custom", "ivjp", "ruled", "number", "told"})
RETYPING: Final = frozenset({"widen", "number", "join", "told", "parts"})
STEADY: Final = frozenset({"cond", "scan", "fori"})
