"""Dead code elimination: removes equations that no result and no effect depends on."""

from __future__ import annotations

from fxad.core.liveness import dce as dce
from fxad.core.liveness import prune as prune
