"""Decorators with options, jitted methods, Jacobians, and types of results."""

from typing import reveal_type

import fxad as fx
import fxad.numpy as fnp


@fx.tree.dataclass
class Params:
    w: fx.Array


class Model:
    @fx.jit
    def loss(self, x: fx.Array) -> fx.Array:
        return fnp.sum(x)

    @fx.jit(static_argnames="n")
    def power(self, x: fx.Array, n: int) -> fx.Array:
        return x**n


@fx.tree.dataclass
class Layer:
    w: fx.Array

    @fx.jit
    def __call__(self, x: fx.Array) -> fx.Array:
        return x @ self.w


def loss(p: Params, x: fx.Array) -> fx.Array:
    return fnp.sum(p.w * x)


def scaled(x: fx.Array, n: int) -> fx.Array:
    return x * n


def parts(x: fx.Array) -> dict[str, fx.Array]:
    return {"x": x}


def with_aux(p: Params, x: fx.Array) -> tuple[fx.Array, int]:
    return loss(p, x), 3


def pair(x: fx.Array) -> tuple[fx.Array, fx.Array]:
    return x, x


x = fnp.ones(3)
params = Params(x)

reveal_type(Model().loss(x))  # R: Array
reveal_type(Model().power(x, n=3))  # R: Array
reveal_type(Model.loss(Model(), x))  # R: Array
reveal_type(Model().loss.lower(x).text())  # R: str
reveal_type(Layer(fnp.eye(3))(x))  # R: Array

reveal_type(fx.vmap(in_axes=(0, None))(scaled)(x, 3))  # R: Array
reveal_type(fx.grad(argnums=1)(loss)(params, x))  # R: Array
reveal_type(fx.grad()(loss)(params, x))  # R: Params
reveal_type(fx.grad(argnums=(0, 1))(loss)(params, x))  # R: tuple[Params, Array]
reveal_type(fx.grad(has_aux=True)(with_aux)(params, x))  # R: tuple[Params, int]
reveal_type(fx.value_and_grad(argnums=1)(loss)(params, x))  # R: tuple[Array, Array]
reveal_type(fx.remat(policy=fx.policies.dots)(loss)(params, x))  # R: Array
reveal_type(fx.checkpoint(policy=fx.policies.dots)(loss)(params, x))  # R: Array
reveal_type(fx.jit(static_argnames="n")(scaled)(x, 3))  # R: Array
reveal_type(fx.jit(donate="x")(scaled)(x, 3))  # R: Array
reveal_type(fx.jit()(scaled)(x, 3))  # R: Array
reveal_type(fx.jacfwd(argnums=0)(loss)(params, x))  # R: Params
reveal_type(fx.hessian()(scaled)(x, 3))  # R: Array
reveal_type(fx.shard_map(in_specs=(), out_specs=())(scaled)(x, 3))  # R: Array
reveal_type(fx.custom_jvp(nondiff_argnums=(1,))(scaled)(x, 3))  # R: Array
reveal_type(fx.outline(min_cost=1.0)(loss)(params, x))  # R: Array
reveal_type(fx.invertible(keep="n")(scaled)(x, 3))  # R: Array
reveal_type(fx.named_call(name="f")(scaled)(x, 3))  # R: Array

reveal_type(fx.jacfwd(loss)(params, x))  # R: Params
reveal_type(fx.jacrev(loss, argnums=1)(params, x))  # R: Array
reveal_type(fx.jacrev(parts)(x)["x"])  # R: Array
reveal_type(fx.jacfwd(fx.trace(loss, params, x)))  # R: Program[[Params, x: Array], Params]
reveal_type(fx.hessian(scaled)(x, 3))  # R: Array
reveal_type(fx.hessian(fx.trace(scaled, x, 3))(x, 3))  # R: Array

reveal_type(fx.eval_shape(loss, params, x))  # R: Spec
reveal_type(fx.eval_shape(pair, x))  # R: tuple[Spec, Spec]
reveal_type(fx.eval_shape(parts, x))  # R: dict[str, Spec]
version: str = fx.__version__
reveal_type(x.item(0))  # R: int | float | complex
