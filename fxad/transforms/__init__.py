"""Transformations: pure functions from jaxpr to jaxpr, memoised by value.

ad             derivatives: jvp, linearize, transpose, vjp, Jacobians, partial evaluation
vmap           a program over a stack of examples
cleanup        dce, cse, simplify, inline
outlining      repeated equations as calls of one body
memory         `remat` under a policy, tables of residuals, segments
memory_plans   what a program stores and computes again within a budget of bytes
inversion      inverses, log-determinants, reverse mode that reconstructs values
mask           padded arrays
specialize     named sizes replaced by numbers
spmd           maps over devices
jet            Taylor series and differential operators
sparse         patterns of Jacobians, colourings
precision      rounding errors, mixed precision

costs, fusion, liveness     models of XLA: times, kernels, bytes
start_indices               slices with static and with dynamic starts
locate                      errors of rules name the line of the user
map_bodies, rule_tables     a transformation of bodies; tables of rules

`__init__.pyi` states what the package exports; a file is imported when a name of it is first used
(`core/lazy_exports`). `vmap` and `specialize` have the names of their modules, so they are not exported here: import
them from these.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
