"""Programs as values, and the tools that read and build them: types, printing, meaning, memoisation. `diff` is imported
at its first use."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.core import diff
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="diff")  # an error for a name of `jax.core`

__all__ = ["diff"]
