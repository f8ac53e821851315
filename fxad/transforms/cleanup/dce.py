"""Dead code elimination: drop what no result and no effect needs."""

from __future__ import annotations

from fxad.core.liveness import dce as dce
from fxad.core.liveness import prune as prune
