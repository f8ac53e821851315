"""Transformations that keep the value and reduce the equations: dead code and common subexpression elimination,
simplification, inlining."""
