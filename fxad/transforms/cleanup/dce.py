"""Dead code elimination. The code is in `fxad.core.dce`, because the rules of primitives use it too."""

from __future__ import annotations

from fxad.core.dce import dce as dce, prune as prune
