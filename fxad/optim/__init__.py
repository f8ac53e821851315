"""Optimisers: pure functions from trees of gradients to trees of updates, with optax's names and argument orders."""

from fxad.api.trees import global_norm
from fxad.optim.clipping import Clip, ClipByGlobalNorm, clip, clip_by_global_norm
from fxad.optim.lbfgs import Lbfgs, LbfgsState, lbfgs, line_search
from fxad.optim.loss_scaling import LossScale, LossScaleState, keep_if, loss_scale
from fxad.optim.optimizers import (
    Adam,
    AdamState,
    Lion,
    LionState,
    Momentum,
    MomentumState,
    Sgd,
    SgdState,
    adam,
    adamw,
    lion,
    momentum,
    sgd,
)
from fxad.optim.schedules import (
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    join_schedules,
    linear_schedule,
    piecewise_constant_schedule,
    polynomial_schedule,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
)
from fxad.optim.transformations import Chain, Rate, Schedule, Transformation, apply_updates, chain

__all__ = [
    "Adam", "AdamState", "Chain", "Clip", "ClipByGlobalNorm", "Lbfgs", "LbfgsState", "Lion", "LionState", "LossScale",
    "LossScaleState", "Momentum", "MomentumState", "Rate", "Schedule", "Sgd", "SgdState", "Transformation", "adam",
    "adamw", "apply_updates", "chain", "clip", "clip_by_global_norm", "constant_schedule", "cosine_decay_schedule",
    "exponential_decay", "global_norm", "join_schedules", "keep_if", "lbfgs", "line_search", "linear_schedule", "lion",
    "loss_scale", "momentum", "piecewise_constant_schedule", "polynomial_schedule", "sgd", "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
]  # fmt: skip


def __dir__() -> list[str]:
    """Return the names of the module, without those that it imports."""
    return sorted(__all__)
