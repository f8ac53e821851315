"""Types survive the way from a function to an executable."""

from typing import reveal_type

import fxad as fx
import fxad.numpy as fnp


@fx.tree.dataclass
class Params:
    w: fx.Array
    b: fx.Array


def loss(params: Params, x: fx.Array, scale: float = 1.0) -> fx.Array:
    return fnp.sum(x @ params.w + params.b) * scale


params = Params(w=fnp.ones((3, 2)), b=fnp.zeros(2))
x = fnp.ones((5, 3))

ir = fx.trace(loss, params, x)
reveal_type(ir)  # R: Program[[params: Params, x: Array, scale: float =], Array]
reveal_type(ir(params, x))  # R: Array
reveal_type(fx.trace(loss, params, fx.Spec((5, 3), "float32")))  # R: Program[[params: Params, x: Array, scale: float =], Array]

lean = fx.remat(ir)
reveal_type(lean)  # R: Program[[params: Params, x: Array, scale: float =], Array]

some = fx.remat(ir, policy=fx.policies.dots | fx.policies.names("hidden"))
reveal_type(some)  # R: Program[[params: Params, x: Array, scale: float =], Array]
decorated = fx.remat(policy=fx.policies.dots)(loss)
reveal_type(decorated(params, x))  # R: Array
planned = fx.remat(ir, plan=fx.residuals(ir).without(2))
reveal_type(planned)  # R: Program[[params: Params, x: Array, scale: float =], Array]
reveal_type(fx.checkpoint_name(params, "params"))  # R: Params

g = fx.grad(lean)
reveal_type(g)  # R: Program[[Params, x: Array, scale: float =], Params]
reveal_type(fx.lower(g))  # R: Lowered[[Params, x: Array, scale: float =], Params]
run = fx.lower(g).compile()
reveal_type(run)  # R: Executable[[Params, x: Array, scale: float =], Params]
reveal_type(run(params, x))  # R: Params
reveal_type(run.memory().temp_bytes)  # R: int

reveal_type(fx.jit(loss)(params, x))  # R: Array
