"""What a project of a user calls. `.ci/run` runs and checks it with the wheel, outside of the checkout."""

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, optim, random, tree
from fxad.sharding import make_mesh
import fxad.scipy.special as special


@fx.tree.dataclass
class Params:
    w: fx.Array
    b: fx.Array


def loss(p: Params, x: fx.Array) -> fx.Array:
    return fnp.sum(fnp.tanh(x @ p.w + p.b) ** 2) + special.gammaln(x).sum()


p = Params(fnp.ones((3, 2)), fnp.zeros(2))
ir: fx.Program[[Params, fx.Array], fx.Array] = fx.trace(loss, p, fnp.ones((4, 3)))
g: fx.Program[[Params, fx.Array], Params] = fx.grad(fx.remat(ir))
run: fx.Executable[[Params, fx.Array], Params] = fx.lower(g).compile()
out: Params = run(p, fnp.ones((4, 3)))
rule = optim.adam(1e-3)
state = rule.init(p)
h = fx.jit(fx.vmap(lambda x: nn.relu(x)))(fnp.ones((2, 3)))
k = random.normal(random.key(0), (3,))
y = lax.fori_loop(0, 3, lambda i, x: x + 1, fnp.ones(2))
n = tree.leaves(out)
print(fx.__file__, out, len(n))
