"""Equality of programs without tolerances: evaluation in finite fields, in place of floats.

`field` has the arithmetic, `domain` the values, `rules` the meaning of primitives, `evaluate` that of programs,
`decide` the decision and its confirmation in float64, `equal` the public function.
"""
