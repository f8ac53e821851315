"""Keys and random bits. A key of JAX is its words; what an implementation of JAX computes is translated."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import MappingProxyType
from typing import Any, Final

import jax
import numpy as np

from fxad import dtypes, lax
from fxad.api.mapped_axes import AxesPrefix
from fxad.api.vmap import vmap
from fxad.interop.jax.equations import EqnTranslation, Equation, JaxValue, Rows, array, unchanged
from fxad.primitives.random import THREEFRY2X32, THREEFRY2X32_LOOP, GammaSample
from fxad.tracing.array import Array
from fxad.tracing.spec import Spec
from fxad.tracing.tracer import bind

# A cipher of so few words makes keys. It is a loop, so that its consumers do not duplicate it.
_FEW: Final = 64


def _translated(eqn: Equation, fn: Callable[..., Any], *specs: Spec) -> Callable[..., JaxValue]:
    """Return the translation of a function of JAX, of these types, with one result."""
    closed = jax.make_jaxpr(fn)(*specs)
    return lambda *xs: array(eqn.translation.call(closed, xs, eqn.name)[0])


def _words(impl: Any) -> Any:
    return jax.ShapeDtypeStruct(impl.key_shape, np.uint32)


def _mapped(fn: Callable[..., JaxValue], ndim: int, in_axes: AxesPrefix = 0) -> Callable[..., JaxValue]:
    for _ in range(ndim):
        fn = vmap(fn, in_axes=in_axes)
    return fn


def _seed(eqn: Equation, seeds: JaxValue) -> object:
    impl, seeds = eqn.params["impl"], array(seeds)
    one = _translated(eqn, impl.seed, jax.ShapeDtypeStruct((), seeds.dtype))
    return _mapped(one, seeds.ndim)(seeds)


def _of_keys(call: Callable[[Equation, Any], Callable[..., JaxValue]]) -> EqnTranslation:
    """Return the row of a function of one key, for arrays of keys."""

    def row(eqn: Equation, keys: JaxValue) -> object:
        impl = eqn.ins[0].dtype._impl
        return _mapped(_translated(eqn, call(eqn, impl), _words(impl)), len(eqn.ins[0].shape))(keys)

    return row


def _fold_in(eqn: Equation, keys: JaxValue, data: JaxValue) -> object:
    aval, data = eqn.ins[0], array(data)
    impl, kinds = aval.dtype._impl, (len(aval.shape), data.ndim)
    if kinds[0] and kinds[1] and aval.shape != data.shape:
        raise eqn.refuse(f"keys {aval.shape} and data {data.shape} are broadcast", "broadcast them to one shape first")
    one = _translated(eqn, impl.fold_in, _words(impl), jax.ShapeDtypeStruct((), data.dtype))
    return _mapped(one, max(kinds), tuple([0 if n else None for n in kinds]))(keys, data)


def _gamma(eqn: Equation, key: JaxValue, a: JaxValue) -> Array:
    """Return a draw, differentiable in its parameter."""
    a, log = array(a), eqn.params["log_space"]
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in eqn.ins]
    closed = jax.make_jaxpr(lambda k, x: eqn.primitive.impl(k, x, log_space=log, use_vmap=True))(*specs)
    (draw,) = eqn.translation.call(closed, (key, lax.stop_gradient(a)), eqn.name)
    return bind(GammaSample(log), a, draw)[0]


def _threefry(eqn: Equation, *words: JaxValue) -> tuple[Array, ...]:
    prim = THREEFRY2X32_LOOP if prod(eqn.shape) <= _FEW else THREEFRY2X32
    return bind(prim, *eqn.fitted(*words))


def _counters(eqn: Equation) -> tuple[Array, Array]:
    shape = tuple(eqn.params["shape"])
    if prod(shape) >= 1 << 32:
        raise eqn.refuse("it counts beyond 2**32", "draw fewer numbers of one key")
    low = lax.reshape(lax.iota(dtypes.uint32, prod(shape)), shape)
    return lax.full(shape, 0, dtypes.uint32), low


KEYS: Final[Rows] = MappingProxyType({
    "random_seed": _seed,
    "random_split": _of_keys(lambda eqn, impl: lambda key: impl.split(key, tuple(eqn.params["shape"]))),
    "random_bits": _of_keys(
        lambda eqn, impl: lambda key: impl.random_bits(key, eqn.params["bit_width"], tuple(eqn.params["shape"]))
    ),
    "random_fold_in": _fold_in,
    "random_wrap": unchanged,
    "random_unwrap": unchanged,
    "random_clone": unchanged,
    "to_edtype": unchanged,
    "from_edtype": unchanged,
    "random_gamma": _gamma,
    "threefry2x32": _threefry,
    "iota_2x32_shape": _counters,
})  # fmt: skip
