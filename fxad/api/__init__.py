"""The transformations of the public interface: of a `Program` (value to value) or of a callable (traced when it is
called).

Most files have the name of their function: `vmap`, `mask`, `jet`, `pmap`. The others:

| file | public functions |
|---|---|
| `gradients` | `grad` `value_and_grad` `jacfwd` `jacrev` `hessian` |
| `directional` | `jvp` `linearize` `vjp` `transpose` |
| `operators` | `laplacian` `biharmonic` `operator` `collapse` |
| `sparse` | `sparsity` `sparse_jacobian` `sparse_hessian` |
| `custom_function` `custom_rule` | `custom_jvp` `custom_vjp` `custom_vmap` `custom_inverse`, and rules of other transformations |
| `rewrite` | passes: `remat` `dce` `cse` `simplify` `inline` `apply_passes` |
| `outline` | `outline` `reroll` |
| `memory` `budget` | `residuals` `partial_eval`; `plan_memory` |
| `precision` | `rounding_errors` `shadow` `cast` `plan_precision` |
| `reference` | `interpret` `diff` |
| `buckets` | `bucketed` `ragged_batches` |
| `staging` `devices` | JAX's functions: `eval_shape` `make_jaxpr` `checkpoint`, `local_devices`, ... |
| `trees` | `ravel` `global_norm` |

The code of a function is beside it: `gradient_programs` of `gradients`, `operator_programs` of `operators`, `jitted` and
`jit_calls` of `jit`. `lift` has what all share.
"""
