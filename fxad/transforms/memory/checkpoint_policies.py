"""Policies of `remat` under the names of `jax.checkpoint_policies`."""

from collections.abc import Callable

from fxad.transforms.memory.policies import (
    Policy,
    check_policy,
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
save_any_names_but_these = names_except


def save_anything_except_these_names(*labels: str) -> Policy:
    """Store every value but those that `checkpoint_name` labels with one of these names."""
    return ~names(*labels)


def save_from_both_policies(policy_1: Policy | Callable[..., bool], policy_2: Policy | Callable[..., bool]) -> Policy:
    """Store what one of two policies stores."""
    name = "save_from_both_policies"
    return check_policy(name, policy_1) | check_policy(name, policy_2)


__all__ = [
    "checkpoint_dots", "checkpoint_dots_with_no_batch_dims", "dots_saveable", "dots_with_no_batch_dims_saveable",
    "everything_saveable", "nothing_saveable", "save_any_names_but_these", "save_anything_except_these_names",
    "save_from_both_policies", "save_only_these_names",
]  # fmt: skip
