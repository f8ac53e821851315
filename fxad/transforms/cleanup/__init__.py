"""Transformations that keep the value and reduce the equations: common subexpression elimination, simplification,
inlining. Dead code elimination is in `fxad.core.dce`, because the rules of primitives use it too."""
