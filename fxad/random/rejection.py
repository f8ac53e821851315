"""The loop of rejection samplers: elements whose proposal is not accepted get another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fxad import dtypes, lax, numpy as fnp
from fxad.random.cipher import literal_of, uniform_01
from fxad.random.keys import split_keys
from fxad.tracing.array import Array

_State: TypeAlias = tuple[Array, Array, Array]


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
