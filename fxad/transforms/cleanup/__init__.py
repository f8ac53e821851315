"""Same value, fewer equations: dead code, common subexpressions, simplification, inlining."""
