"""Functions with rules keep their signatures."""

from typing import Any, reveal_type

import fxad as fx
import fxad.numpy as fnp
from fxad import lax


@fx.custom_jvp
def f(x: fx.Array, scale: float = 1.0) -> fx.Array:
    return fnp.sin(x) * scale


@f.defjvp
def f_jvp(primals: Any, tangents: Any) -> tuple[fx.Array, fx.Array]:
    return fnp.sin(primals[0]), tangents[0]


@fx.custom_vjp(nondiff_argnums=(1,))
def g(x: fx.Array, n: int) -> tuple[fx.Array, int]:
    return x, n


x = fnp.ones(3)

reveal_type(f(x))  # R: Array
reveal_type(f(x, scale=2.0))  # R: Array
reveal_type(f_jvp((x,), (x,)))  # R: tuple[Array, Array]
reveal_type(g(x, 2))  # R: tuple[Array, int]
reveal_type(fx.jit(f)(x))  # R: Array
reveal_type(fx.vmap(f)(x))  # R: Array
reveal_type(lax.linear_call(lambda _, b: -b, lambda _, b: -b, None, x))  # R: Any
f(x, "2")  # type: ignore[arg-type]
