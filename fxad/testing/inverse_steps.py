"""The steps of generated invertible programs. Each maps some arrays to arrays that determine them.

The arrays have one shape and several dtypes. Steps that compute take real or complex arrays; steps that only move
elements take integers and bools too. Each step is well conditioned, so the inverse is accurate within a small
tolerance. Functions that grow for complex arguments are applied to real and imaginary parts separately.
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
from fxad.testing.inverse_custom_rules import (
    custom_derivative_step,
    custom_inverse_of_state_step,
    custom_inverse_step,
    custom_ivjp_step,
)
from fxad.testing.inverse_state import (
    Apply,
    HeldArrays,
    Move,
    State,
    UnaryFunction,
    cast_like,
    factor_from,
    has_tangent,
    is_complex,
    on_complex_parts,
    sine,
    squashed,
)
from fxad.tracing.array import Array


def run_steps(moves: Sequence[Move], state: State, held: HeldArrays) -> State:
    """Apply a chain of steps."""
    for move in moves:
        state = APPLY[move.name](state, held, move)
    return state


# ------------------------------------------------------------------------------------------------- what steps are for


def _replace_array(state: State, k: int, *values: Array) -> State:
    return (*state[:k], *values, *state[k + 1 :])


def _is_integer(x: Array) -> bool:
    return x.dtype in dtypes.INTEGER


def _is_bool(x: Array) -> bool:
    return x.dtype == dtypes.bool_


def _suits_all(_: Array) -> bool:
    return True


Suits: TypeAlias = Callable[[Array], bool]


def _on_one_array(function: Callable[[Array, HeldArrays, Move], Array | State], suits: Suits = has_tangent) -> Apply:
    """Return a step that changes one suitable array of the state, or nothing if no array suits."""

    def apply(state: State, held: HeldArrays, move: Move) -> State:
        suitable = [k for k, x in enumerate(state) if suits(x)]
        if not suitable:
            return state
        k = suitable[move.i % len(suitable)]
        changed = function(state[k], held, move)
        return _replace_array(state, k, *(changed if isinstance(changed, tuple) else (changed,)))

    return apply


def _couple_arrays(function: Callable[[Array, Array], Array]) -> Apply:
    """Return a step that changes one array by a function of another and of the held array; if there is one array, of
    the held array alone."""

    def apply(state: State, held: HeldArrays, move: Move) -> State:
        moving = [k for k, x in enumerate(state) if has_tangent(x)]
        k, by = moving[move.i % len(moving)], move.j % len(state)
        x = state[k]
        other = held.w if k == by else squashed(cast_like(state[by], x)) * cast_like(held.w, x)
        return _replace_array(state, k, function(x, cast_like(other, x)))

    return apply


def _along_last_axis(
    function: Callable[[Array, HeldArrays, Move], Array], alone: UnaryFunction
) -> Callable[[Array, HeldArrays, Move], Array]:
    """Return a step along the last axis; `alone` is applied to an array of shape ()."""
    return lambda x, held, move: function(x, held, move) if x.ndim else alone(x)


# ------------------------------------------------------------------------------------------------ of numbers that move


def _couple_halves(x: Array, held: HeldArrays, move: Move) -> Array:
    """Couple two slices of one array."""
    cut, w = move.j % (x.shape[-1] + 1), cast_like(held.w, x)
    first, second = x[..., :cut], x[..., cut:]
    by = fnp.sum(sine(first), axis=-1, keepdims=True)
    return fnp.concatenate([first, second * factor_from(by) + by * w[..., cut:]], axis=-1)


def _swap_parts(x: Array, _: HeldArrays, move: Move) -> Array:
    """Couple two slices and return them in exchanged order."""
    cut = move.j % (x.shape[-1] + 1)
    first, second = fnp.split(x, [cut], axis=-1)
    by = on_complex_parts(fnp.cos)(fnp.sum(second, axis=-1, keepdims=True))
    return fnp.concatenate([second, first + by], axis=-1)


def _update_in_place(x: Array, _: HeldArrays, move: Move) -> Array:
    """Change the first or the last element by a function of its neighbour."""
    n = x.shape[-1]
    if n < 2:
        return x * 2.0
    target, neighbor = ((0, 1), (n - 1, n - 2))[move.i % 2]
    return x.at[..., target].set(x[..., target] - sine(x[..., neighbor]))


def _triangular_product(x: Array, held: HeldArrays, move: Move) -> Array:
    """Multiply by a triangular matrix."""
    a = cast_like(held.a, x)
    one = fnp.eye(x.shape[-1], dtype=x.dtype)
    low = 0.3 * fnp.tril(a, -1) + one * 1.5
    return (x @ low, x @ low.T, x @ (0.25 * fnp.tril(sine(a)) + one))[move.j % 3]


def _complex_rotation(x: Array, held: HeldArrays, move: Move) -> Array:
    """Multiply by a complex number of about size 1, or conjugate."""
    w = held.w.astype(x.dtype)
    return (x * fnp.exp(1j * fnp.real(w)).astype(x.dtype), fnp.conj(x), fnp.conj(x) / (2.0 + 1j * w))[move.j % 3]


def _scale(x: Array, held: HeldArrays, move: Move) -> Array:
    """Multiply by a selected factor, or by one factor for each element."""
    return (x * factor_from(cast_like(held.w, x)), x * fnp.where(held.flag, 2.0, 0.5).astype(x.dtype), -x / 1.5)[
        move.j % 3
    ]


def _swap_where(state: State, held: HeldArrays, move: Move) -> State:
    """Exchange elements of two arrays where a bool of the state, or a held one, is True."""
    pairs = [
        (k, m)
        for k, x in enumerate(state)
        for m, y in enumerate(state)
        if k < m and x.dtype == y.dtype and not _is_bool(x)
    ]
    if not pairs:
        return state
    k, m = pairs[move.i % len(pairs)]
    bools = [x for x in state if _is_bool(x)]
    where = bools[move.j % len(bools)] if bools and move.j % 2 else fnp.broadcast_to(held.flag, state[k].shape)
    x, y = state[k], state[m]
    return _replace_array(_replace_array(state, k, fnp.where(where, x, y)), m, fnp.where(where, y, x))


def _permute_arrays(state: State, _: HeldArrays, move: Move) -> State:
    """Permute the arrays of one dtype."""
    places = [k for k, x in enumerate(state) if x.dtype == state[move.i % len(state)].dtype]
    source = dict(zip(places, places[move.j % len(places) :] + places[: move.j % len(places)], strict=True))
    return tuple([state[source.get(k, k)] for k in range(len(state))])


# ---------------------------------------------------------------------------------------- of integers, of bools, of all


def _add_integers(x: Array, held: HeldArrays, move: Move) -> Array:
    """Add to integers, which wrap, so the sum is invertible."""
    shift = (cast_like(held.w, fnp.zeros((), "float64")) * 4.0).astype(x.dtype)
    return (x + 3, 5 - x, x - shift, fnp.bitwise_xor(x, 6), fnp.invert(x), x + held.flag.astype(x.dtype))[move.j]


def _toggle_bools(x: Array, held: HeldArrays, move: Move) -> Array:
    return (
        fnp.logical_not(x),
        fnp.logical_xor(x, held.flag),
        x == held.flag,
        fnp.not_equal(held.flag, x),
        fnp.real(held.w) > 0.0 if x.size == 0 else fnp.logical_xor(x, fnp.real(held.w) > 0.0),
        fnp.where(held.flag, fnp.logical_not(x), x),
    )[move.j]


def _move_elements(x: Array, _: HeldArrays, move: Move) -> Array:
    """Move elements by a reshape, a transpose or a broadcast axis of size 1."""
    shape, n = x.shape, x.ndim
    if move.j % 3 == 0:
        return fnp.reshape(fnp.flip(fnp.reshape(x, (-1,)) if x.size else fnp.zeros((0,), x.dtype), 0), shape)
    if move.j % 3 == 1 and n:
        axes = tuple(range(n))[::-1]
        return fnp.permute_dims(fnp.expand_dims(fnp.flip(fnp.permute_dims(x, axes), 0), axis=0)[0], axes)
    return fnp.squeeze(fnp.broadcast_to(x, (1, *shape)), axis=0)


def _add_discrete(state: State, _: HeldArrays, move: Move) -> State:
    """Change a number by a function of an integer or a bool."""
    whole, moving = [x for x in state if not has_tangent(x)], [k for k, x in enumerate(state) if has_tangent(x)]
    if not whole:
        return state
    k, by = moving[move.i % len(moving)], whole[move.j % len(whole)]
    x = state[k]
    gate = by if _is_bool(by) else by > 0
    value = (x * fnp.where(gate, 2.0, 0.75).astype(x.dtype), fnp.where(gate, x + 1.0, 0.25 - x * 1.5))
    return _replace_array(state, k, value[move.j // 2 % 2] if _is_bool(by) else x + squashed(by.astype(x.dtype)))


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


def _widen(to: Mapping[dtypes.DType, tuple[dtypes.DType, ...]]) -> Apply:
    """Convert to a dtype that holds all values of this one."""
    return _on_one_array(lambda x, _, move: x.astype(to[x.dtype][move.j % len(to[x.dtype])]), lambda x: x.dtype in to)


def _join_complex(state: State, _: HeldArrays, move: Move) -> State:
    """Join two real arrays into one complex array."""
    real = [k for k, x in enumerate(state) if x.dtype in (dtypes.float32, dtypes.float64)]
    pairs = [(k, m) for k in real for m in real if k != m and state[k].dtype == state[m].dtype]
    if not pairs:
        return state
    k, m = pairs[move.i % len(pairs)]
    joined = _replace_array(state, k, lax.complex(state[k], state[m]))
    return (*joined[:m], *joined[m + 1 :])


def _append_array(state: State, held: HeldArrays, move: Move) -> State:
    """Append an array that the others determine, or that has no derivative."""
    whole = [x for x in state if not has_tangent(x)]
    x = next(x for x in state if has_tangent(x))
    k = whole[move.i % len(whole)] if whole else fnp.broadcast_to(held.flag, x.shape)
    return *state, (squashed(k.astype(x.dtype)), fnp.ones_like(x), sine(x), cast_like(held.w, x))[move.j % 4]


# -------------------------------------------------------------------------------------------------------- with bodies


def _in_jit(state: State, held: HeldArrays, move: Move) -> State:
    return jit(lambda s, w: run_steps(move.bodies[0], s, HeldArrays(w, held.a, held.flag)))(state, held.w)


def _in_remat(state: State, held: HeldArrays, move: Move) -> State:
    """Run the body in a `remat`."""
    return remat(lambda s, w: run_steps(move.bodies[0], s, HeldArrays(w, held.a, held.flag)))(state, held.w)


def _in_invertible(state: State, held: HeldArrays, move: Move) -> State:
    """Run the body in an `invertible`."""
    inner = invertible(lambda s, w, a: run_steps(move.bodies[0], s, HeldArrays(w, a, held.flag)), keep=(1, 2))
    return inner(state, held.w, held.a)


def _in_cond(state: State, held: HeldArrays, move: Move) -> State:
    """Select a body by the held bool."""
    first, second = [lambda s, m=moves: run_steps(m, s, held) for moves in move.bodies]
    return lax.cond(held.flag, first, second, state)


def _in_scan(state: State, held: HeldArrays, move: Move) -> State:
    """Run the body in a loop over rows of the held array."""

    def step(carry: State, w: Array) -> tuple[State, None]:
        return run_steps(move.bodies[0], carry, HeldArrays(w, held.a, held.flag)), None

    return lax.scan(step, state, fnp.stack([held.w, -held.w, held.w * 0.5]), reverse=bool(move.i % 2))[0]


def _in_fori_loop(state: State, held: HeldArrays, move: Move) -> State:
    """Run the body in a loop with a counter."""
    k = next(k for k, x in enumerate(state) if has_tangent(x))

    def step(i: Array, s: State) -> State:
        return run_steps(move.bodies[0], _replace_array(s, k, s[k] + 0.25 * i.astype(s[k].dtype)), held)

    return lax.fori_loop(0, move.i % 3, step, state)


# ---------------------------------------------------------------------------------------------------------- the table

SIMPLE: Final[Mapping[str, Apply]] = MappingProxyType(
    {
        "add": _couple_arrays(lambda x, by: x + sine(by)),
        "scale": _couple_arrays(lambda x, by: x * fnp.exp(0.5 * squashed(by))),
        "affine": _couple_arrays(lambda x, by: (x - by) / factor_from(by)),
        "subtract from": _couple_arrays(lambda x, by: by - x),
        "asinh": _on_one_array(lambda x, *_: on_complex_parts(fnp.arcsinh)(x)),
        "atan": _on_one_array(lambda x, *_: on_complex_parts(fnp.arctan)(x * 0.5)),
        "softplus": _on_one_array(lambda x, *_: on_complex_parts(lambda x: fnp.log1p(fnp.exp(fnp.arcsinh(x))))(x)),
        "multiply": _on_one_array(_scale),
        "rotate": _on_one_array(_complex_rotation, is_complex),
        "swap where": _swap_where,
        "add discrete": _add_discrete,
        "add integer": _on_one_array(_add_integers, _is_integer),
        "toggle": _on_one_array(_toggle_bools, _is_bool),
        "move elements": _on_one_array(_move_elements, _suits_all),
        "flip": _on_one_array(
            _along_last_axis(lambda x, _, move: fnp.flip(x, move.j % x.ndim), lambda x: x), _suits_all
        ),
        "roll": _on_one_array(_along_last_axis(lambda x, _, move: fnp.roll(x, move.j, -1), lambda x: x), _suits_all),
        "permute arrays": _permute_arrays,
        "couple halves": _on_one_array(_along_last_axis(_couple_halves, lambda x: x * 0.75)),
        "swap parts": _on_one_array(_along_last_axis(_swap_parts, lambda x: x)),
        "update one": _on_one_array(_along_last_axis(_update_in_place, lambda x: x * 2.0)),
        "triangular product": _on_one_array(_along_last_axis(_triangular_product, lambda x: x * 1.5)),
        "custom inverse": _on_one_array(custom_inverse_step),
        "custom ivjp": _on_one_array(custom_ivjp_step),
        "custom inverse of state": custom_inverse_of_state_step,
        "widen": _widen(_WIDER),
        "to complex": _widen(_NUMBER),
        "join complex": _join_complex,
        "append array": _append_array,
        "complex parts": _on_one_array(lambda x, *_: (fnp.real(x), fnp.imag(x)), is_complex),
    }
)
NESTED: Final[Mapping[str, tuple[Apply, int]]] = MappingProxyType(
    {
        "call": (_in_jit, 1),
        "remat": (_in_remat, 1),
        "invertible": (_in_invertible, 1),
        "cond": (_in_cond, 2),
        "scan": (_in_scan, 1),
        "fori": (_in_fori_loop, 1),
    }
)
# a step whose derivative is not that of its function: no law of differences holds
OWN_DERIVATIVE: Final[Mapping[str, Apply]] = MappingProxyType(
    {"custom derivative": _on_one_array(custom_derivative_step)}
)
APPLY: Final[Mapping[str, Apply]] = MappingProxyType(
    {**SIMPLE, **OWN_DERIVATIVE, **{k: f for k, (f, _) in NESTED.items()}}
)
# without a log-determinant; with other types than before, so not in bodies whose types are to stay
UNMEASURED: Final = frozenset(
    {"custom inverse", "custom ivjp", "custom inverse of state", "to complex", "append array"}
)
RETYPING: Final = frozenset({"widen", "to complex", "join complex", "append array", "complex parts"})
STEADY: Final = frozenset({"cond", "scan", "fori"})
