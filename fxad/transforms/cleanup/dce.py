"""Dead code elimination: removes equations that no result and no effect depends on."""

from __future__ import annotations

from fxad.core.dce import dce as dce, prune as prune
