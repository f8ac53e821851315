"""Wrong arguments are found before anything runs."""

import fxad as fx
import fxad.numpy as fnp


@fx.tree.dataclass
class Params:
    w: fx.Array


def loss(params: Params, x: fx.Array) -> fx.Array:
    return fnp.sum(x @ params.w)


params = Params(w=fnp.ones(3))
x = fnp.ones((4, 3))
program = fx.trace(loss, params, x)
run = fx.lower(program).compile()

run(params)  # E: Missing positional argument "x"
run(params, x, x)  # E: Too many arguments
run(x, x)  # E: Argument 1 to "__call__" of "Executable" has incompatible type "Array"; expected "Params"
run(params, "x")  # E: incompatible type "str"; expected "Array"
program(params)  # E: Missing positional argument "x"
fx.grad(program)(x, x)  # E: incompatible type "Array"; expected "Params"
fx.grad(program, argnums=1)(params, params)  # E: incompatible type "Params"; expected "Array"
fx.jit(loss)("wrong", x)  # E: incompatible type "str"; expected "Params"
fx.jit(loss)(params, x, 4)  # E: Too many arguments
fx.vmap(loss)(params)  # E: Too few arguments
fx.remat(loss)(x, x)  # E: incompatible type "Array"; expected "Params"
fx.remat(policy=fx.policies.dots)(loss)(x, x)  # E: incompatible type "Array"; expected "Params"
fx.remat(loss, policy="dots")  # E: No overload variant
Params(v=x)  # E: Unexpected keyword argument "v" for "Params"
params.w = x  # E: Property "w" defined in "Params" is read-only
