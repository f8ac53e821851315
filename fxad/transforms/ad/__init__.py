"""Automatic differentiation: forward mode, linearization, transposition, and their compositions.

jvp                  forward mode: one program for results and tangents
linearize            a primal program with residuals, and a linear program
partial_eval         a known and an unknown half of a program (`halves`); `partial_eval_rules` splits equations with
                     bodies, `split_loops` loops, and `split_bounded_loops` those that end by a predicate
transpose            the adjoint of a linear program; it separates linear values from others with `partial_eval`
vjp                  reverse mode: `linearize`, then `transpose`
jacobian             forward or reverse mode, batched over unit vectors

linear_rule          the tangents and cotangents that users' rules compute: checked to be linear, and split
linear_as_whole      those whose equations need not be linear: a loop without a bound, a host function
transpose_by_basis   the transpose of such a map, computed with unit vectors
"""
