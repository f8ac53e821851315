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


def counted(s: State, _: None) -> tuple[State, fx.Array]:
    return step(s), s.x


def add(total: fx.Array, x: fx.Array) -> tuple[fx.Array, fx.Array]:
    return total + x, total


reveal_type(lax.scan(counted, state, length=3))  # R: tuple[State, Array]
reveal_type(lax.scan(counted, state, None, 3))  # R: tuple[State, Array]
reveal_type(lax.scan(lambda c, _: (fnp.sin(c), c), x, xs=None, length=3))  # R: tuple[Array, Array]
reveal_type(lax.scan(lambda c, v: (c + v, None), x, x))  # R: tuple[Array, None]
reveal_type(lax.scan(add, 0.0, x))  # R: tuple[Array, Array]

vector = fx.Spec((3,))
reveal_type(fx.pure_callback(abs, vector, x))  # R: Array
reveal_type(fx.pure_callback(abs, (vector, vector), x))  # R: tuple[Array, Array]
reveal_type(fx.pure_callback(abs, {"a": vector}, x))  # R: dict[str, Array]
reveal_type(fx.pure_callback(abs, state, x))  # R: State
reveal_type(fx.io_callback(abs, vector, x, ordered=True))  # R: Array
reveal_type(fx.io_callback(abs, None, x))  # R: None

# with lambdas, and with numbers, which become Arrays
reveal_type(lax.cond(True, lambda x: x + 1, lambda x: x - 1, x))  # R: Array
reveal_type(lax.cond(True, lambda x, s: s, lambda x, s: step(s), x, state))  # R: State
reveal_type(lax.cond(True, lambda v: v, lambda v: -v, operand=x))  # R: Array
reveal_type(lax.fori_loop(0, 3, lambda i, c: c + i, x))  # R: Array
reveal_type(lax.fori_loop(0, 3, lambda i, s: step(s), state))  # R: State
reveal_type(lax.map(lambda v: (v, v.sum()), x))  # R: tuple[Array, Array]
reveal_type(lax.map(step, state))  # R: State
reveal_type(lax.scan(lambda c, v: (c + v, c), 0.0, x))  # R: tuple[Array, Array]
reveal_type(lax.associative_scan(lambda a, b: a + b, x))  # R: Array
reveal_type(lax.associative_scan(fnp.add, x))  # R: Array
reveal_type(lax.checkpointed_scan(add, x[0], x, budget=2))  # R: tuple[Array, Array]


def first(c: tuple[fx.Array, fx.Array]) -> tuple[fx.Array, fx.Array]:
    return c[0] + 1, c[1]


reveal_type(lax.while_loop(lambda c: c[0] < 3, first, (0, x)))  # R: tuple[Array, Array]

# implicit functions
reveal_type(lax.custom_root(lambda x: x * x - 2, x, lambda f, x0: x0, lambda g, y: y))  # R: Array
reveal_type(lax.custom_linear_solve(lambda v: 2 * v, x, lambda matvec, b: b / 2))  # R: Array
reveal_type(lax.custom_fixed_point(fnp.cos, x))  # R: Array
reveal_type(lax.cg(lambda v: 2 * v, x)[0])  # R: Array
reveal_type(lax.gmres(x, x)[0])  # R: Array
reveal_type(lax.fixed_point_iteration(lambda v: v / 2, x)[0])  # R: Array
