"""A result has the type that it has."""

import fxad as fx
import fxad.numpy as fnp


@fx.tree.dataclass
class Params:
    w: fx.Array


def loss(params: Params, x: fx.Array) -> fx.Array:
    return fnp.sum(x @ params.w)


def name(params: Params) -> str:
    return "loss"


params = Params(w=fnp.ones(3))
x = fnp.ones((4, 3))
program = fx.trace(loss, params, x)

gradient: fx.Array = fx.grad(program)(params, x)  # E: expression has type "Params", variable has type "Array"
value: Params = fx.value_and_grad(program)(params, x)  # E: expression has type "tuple[Array, Params]", variable has type "Params"
fx.lower(program).compile()(params, x).w  # E: "Array" has no attribute "w"
fx.grad(name)  # E: Argument 1 to "grad" has incompatible type "Callable[[Params], str]"
fx.lower(loss)  # E: Argument 1 to "lower" has incompatible type
program.jaxpr = program.jaxpr  # E: Property "jaxpr" defined in "Program" is read-only
