"""The primitives of the language, a family a file. `ALL`, from `manifest`: what is not in it does not exist."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import later

if TYPE_CHECKING:
    from fxad.primitives.manifest import ALL as ALL
else:
    __getattr__, __dir__ = later(__name__, {"fxad.primitives.manifest": "ALL"})
