"""The memory of reverse mode: `remat`, its policies, tables of residuals, and segments."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.transforms.memory import checkpoint_policies as checkpoint_policies, policies as policies
else:
    __getattr__, __dir__ = lazy_exports(__name__, {}, "checkpoint_policies policies")
