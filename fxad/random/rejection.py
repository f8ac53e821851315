"""The loop of rejection samplers: elements whose proposal is not accepted get another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from fxad import dtypes, lax, numpy as fnp
from fxad.random.cipher import literal_of, uniform_01
from fxad.random.keys import split_keys
from fxad.tracing.array import Array

_State: TypeAlias = tuple[Array, Array, Array]


FEW: Final = 4096.0  # up to here the terms of a log-probability in float32 may cancel


def deviance(x: Array, mean: Array) -> Array:
    """Return x log(x / mean) + mean - x, of x near a large mean without cancellation."""
    e = (x - mean) / mean
    near = abs(e) < 0.1
    small = fnp.where(near, e, 0)
    # (1 + e) log(1 + e) - e as a series: e**2 / 2 - e**3 / 6 + e**4 / 12 - ...
    series = literal_of(0, x.dtype, x.shape)
    for k in range(12, 1, -1):
        series = (-1) ** k / (k * (k - 1)) + small * series
    far = fnp.where(near | (e <= -1), 0, e)
    direct = fnp.where(e <= -1, 1, (1 + far) * lax.log1p(far) - far)
    return mean * fnp.where(near, small * small * series, direct)


def repeat_until_accepted(
    key: Array, parameter: Array, propose: Callable[[Array, Array], tuple[Array, Array]]
) -> Array:
    """Return an accepted proposal for each element of a result of the shape and dtype of `parameter`.

    `propose(u, v)` takes uniform numbers in [-1/2, 1/2) and in [0, 1). It returns a proposal for each element, and
    bools that say if it is accepted. All elements propose in each round, as in JAX: the last accepted proposal is
    returned.

    Cost:   rounds until each element has accepted a proposal.
    """
    shape, dtype = parameter.shape, parameter.dtype

    def step(state: _State) -> _State:
        value, accepted, key = state
        following, key_u, key_v = split_keys(key, 3)
        proposed, now = propose(uniform_01(key_u, shape, dtype) - 0.5, uniform_01(key_v, shape, dtype))
        return fnp.where(now, proposed, value), accepted | now, following

    start = literal_of(-1, dtype, shape), literal_of(False, dtypes.bool_, shape), key
    return lax.while_loop(lambda state: (~state[1]).any(), step, start)[0]
