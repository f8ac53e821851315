"""`argnums` of a literal is resolved by overloads, on programs and on functions alike."""

from typing import reveal_type

import fxad as fx
import fxad.numpy as fnp


@fx.tree.dataclass
class Params:
    w: fx.Array


@fx.tree.dataclass
class Data:
    x: fx.Array
    y: fx.Array


def loss(params: Params, data: Data) -> fx.Array:
    return fnp.sum((data.x @ params.w - data.y) ** 2)


def with_aux(params: Params, data: Data) -> tuple[fx.Array, Data]:
    return loss(params, data), data


params = Params(fnp.ones(3))
data = Data(fnp.ones((4, 3)), fnp.ones(4))

reveal_type(fx.grad(loss)(params, data))  # R: Params
reveal_type(fx.grad(loss, argnums=0)(params, data))  # R: Params
reveal_type(fx.grad(loss, argnums=1)(params, data))  # R: Data
reveal_type(fx.grad(loss, argnums=(0, 1))(params, data))  # R: tuple[Params, Data]
reveal_type(fx.grad(with_aux, has_aux=True)(params, data))  # R: tuple[Params, Data]
reveal_type(fx.value_and_grad(loss)(params, data))  # R: tuple[Array, Params]
reveal_type(fx.value_and_grad(loss, argnums=1)(params, data))  # R: tuple[Array, Data]

program = fx.trace(loss, params, data)
reveal_type(fx.grad(program))  # R: Program[[Params, data: Data], Params]
reveal_type(fx.grad(program, argnums=1))  # R: Program[[Params, Data], Data]
reveal_type(fx.value_and_grad(program))  # R: Program[[Params, data: Data], tuple[Array, Params]]
reveal_type(fx.value_and_grad(program)(params, data))  # R: tuple[Array, Params]
reveal_type(fx.dce(program))  # R: Program[[params: Params, data: Data], Array]
reveal_type(fx.vmap(program, in_axes=(None, 0), axis_size=4)(params, data))  # R: Array


def energy(x: fx.Array) -> fx.Array:
    return fnp.sum(x**2)


# The gradient of a program, of known or of unknown parameters, is a program of any parameters.
slope: fx.Program[..., fx.Array] = fx.grad(fx.trace(energy, data.y))
unknown: fx.Program[..., fx.Array] = fx.trace(energy, data.y)
slope = fx.grad(unknown)
both: fx.Program[..., tuple[fx.Array, fx.Array]] = fx.value_and_grad(unknown)


# The auxiliary result of `vjp` and `linearize` has its type.
value, pullback = fx.vjp(loss, params, data)
reveal_type(value)  # R: Array
value, pullback, aux = fx.vjp(with_aux, params, data, has_aux=True)
reveal_type(value)  # R: Array
reveal_type(aux)  # R: Data
out, tangent_map = fx.linearize(loss, params, data)
reveal_type(tangent_map(params, data))  # R: Array
reveal_type(fx.linearize(with_aux, params, data, has_aux=True)[2])  # R: Data
reveal_type(fx.linearize(program).linear((params, data), ()))  # R: Array
vector, unravel = fx.tree.ravel(params)
reveal_type(vector)  # R: Array
reveal_type(unravel(2 * vector))  # R: Params
made: fx.Program[..., fx.Array] = fx.make_jaxpr(loss)(params, data)
# A result that Python cannot describe is Any, not an alias of it: overloads then give Any too, and not their first type.
reveal_type(fx.vmap(fx.inverse(program), axis_size=4))  # R: Any
