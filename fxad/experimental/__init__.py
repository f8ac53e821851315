"""Names of `jax.experimental`; fxad defines them elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from fxad.api.shard_map import shard_map
from fxad.lax.control.host import io_callback
from fxad.support.absent import absent

__all__ = ["io_callback", "shard_map"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(absent(__name__, name), name=name)
