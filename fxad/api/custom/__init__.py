"""Functions with custom rules.

`decorators` has `custom_jvp`, `custom_vjp` and `custom_vmap`, which give a function rules. `derived_decorators` has
decorators that are written with these. `traced_rules` traces and checks the rules, and `traced_call` makes a call of
the function one equation.
"""
