"""Rematerialisation, under the names of `jax.ad_checkpoint`."""

from fxad.api.staging import checkpoint
from fxad.lax import checkpoint_name
from fxad.transforms.memory import checkpoint_policies

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies"]
