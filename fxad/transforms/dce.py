"""Dead code elimination: drop what no result and no effect needs."""

from __future__ import annotations

from fxad.liveness import dce as dce
from fxad.liveness import prune as prune
