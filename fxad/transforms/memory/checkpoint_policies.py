"""Policies of `remat` under the names of `jax.checkpoint_policies`."""

from fxad.transforms.memory.policies import (
    Policy,
    dots as dots_saveable,
    dots_without_batch_dims as dots_with_no_batch_dims_saveable,
    everything,
    names,
    names_except,
    nothing,
)

everything_saveable: Policy = everything
nothing_saveable: Policy = nothing
checkpoint_dots: Policy = dots_saveable
checkpoint_dots_with_no_batch_dims: Policy = dots_with_no_batch_dims_saveable
save_only_these_names = names
save_anything_except_these_names = names_except

__all__ = [
    "checkpoint_dots", "checkpoint_dots_with_no_batch_dims", "dots_saveable", "dots_with_no_batch_dims_saveable",
    "everything_saveable", "nothing_saveable", "save_anything_except_these_names",
    "save_only_these_names",
]  # fmt: skip
