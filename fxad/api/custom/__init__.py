"""Functions with custom rules.

`function` has the function on which rules are defined; `custom_jvp`, `custom_vjp` and `custom_vmap` make one
(`fxad.api.custom_function`). `derived_decorators` has decorators that are written with these. `traced_rules` traces
the rules, `rule_signature` has what all of them are traced and checked with, and `traced_call` makes a call of the
function one equation.
"""
