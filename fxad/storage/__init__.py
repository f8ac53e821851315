"""Programs in files and as bytes for other processes. `exported` is imported at its first use."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.storage import exported
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, modules="exported")

__all__ = ["exported"]
