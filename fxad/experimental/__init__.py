"""Names of `jax.experimental`; fxad defines them elsewhere."""

from fxad.api.shard_map import shard_map
from fxad.lax.control.host import io_callback

__all__ = ["io_callback", "shard_map"]
