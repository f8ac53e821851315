"""Rounding errors of programs, and programs in other floating dtypes.

- `retype`: equations and programs in a wider dtype;
- `local_errors`: the rounding error of one equation; `rounding`: one adjoint pass that weights and sums them;
- `bounds`: unbounded loops get the number of steps that they take; `shadow`: a run beside one in higher precision;
- `double_double`: pairs of float64 as numbers of 106 bits;
- `cast`: mixed precision.
"""
