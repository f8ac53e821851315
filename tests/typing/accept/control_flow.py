"""Control flow keeps the types of carries and results."""

from typing import reveal_type

import fxad as fx
import fxad.numpy as fnp
from fxad import lax


@fx.tree.dataclass
class State:
    x: fx.Array
    n: fx.Array


def going(s: State) -> fx.Array:
    return s.n < 3


def step(s: State) -> State:
    return State(fnp.sin(s.x), s.n + 1)


state = State(fnp.ones(3), fnp.asarray(0))
x = fnp.ones(3)

reveal_type(lax.while_loop(going, step, state))  # R: State
reveal_type(lax.while_loop(going, step, state, max_steps=3).x)  # R: Array
reveal_type(lax.while_loop(lambda x: fnp.sum(x) < 9, fnp.exp, x))  # R: Array
reveal_type(lax.while_loop(lambda c: c[1] < 9, lambda c: (c[0], c[1] + 1), (x, state.n)))  # R: tuple[Array, Array]
reveal_type(lax.cond(True, step, step, state))  # R: State
reveal_type(lax.cond(x[0] > 0, fnp.sin, fnp.cos, x, batched="loop"))  # R: Array
reveal_type(lax.switch(2, [fnp.sin, fnp.cos], x))  # R: Array
