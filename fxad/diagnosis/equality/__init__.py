"""Equality of programs without tolerances: evaluation in finite fields, in place of floats.

`field` has the arithmetic, `domain` the values, `rules` the meaning of primitives (`bits` that of comparisons and
choices, `extrema` that of maxima and minima), `evaluate` that of programs, `verdict` the question and the answers,
`decide` the decision, `differences` the search for operands that show a difference, `equal` the public function.
"""
