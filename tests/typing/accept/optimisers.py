"""Optimisers keep the types of parameters, updates and states."""

from typing import reveal_type

import fxad as fx
import fxad.numpy as fnp
from fxad import optim


@fx.tree.dataclass
class Params:
    w: fx.Array
    b: fx.Array


params = Params(fnp.ones(3), fnp.zeros(()))
optimiser = optim.adamw(optim.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100))
state = optimiser.init(params)

reveal_type(state)  # R: AdamState[Params]
reveal_type(state.mean.w)  # R: Array
reveal_type(optimiser.update(params, state, params)[0])  # R: Params
reveal_type(optimiser.update(params, state, params)[1])  # R: AdamState[Params]
reveal_type(optim.apply_updates(params, params))  # R: Params
reveal_type(optim.sgd(0.1).update(params, optim.sgd(0.1).init(params))[0].b)  # R: Array
reveal_type(optim.lbfgs().update(params, optim.lbfgs().init(params), params)[0])  # R: Params

clipped = optim.chain(optim.clip_by_global_norm(1.0), optimiser)
reveal_type(clipped.update(params, clipped.init(params), params)[0])  # R: Params
