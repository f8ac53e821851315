"""The primitives of the language, one family per file. `manifest.ALL` lists all of them."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.primitives.manifest import ALL as ALL
else:
    __getattr__, __dir__ = lazy_exports(__name__, {"fxad.primitives.manifest": "ALL"})
