"""Transformations that keep the value and reduce the equations: dead code elimination, elimination of common
subexpressions, simplification, inlining. The file of `dce` is in `core`, because the rules of primitives use it too."""

from fxad.core.dce import dce as dce, prune as prune
