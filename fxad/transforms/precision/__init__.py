"""Rounding errors of programs, and programs in other floating dtypes.

- `retype`: equations and programs in a wider dtype;
- `local_errors`: the rounding error of one equation; `taps`: its sums in a derivative rule;
  `rounding`: one adjoint pass that weights and sums them;
- `bounds`: unbounded loops get the number of steps that they take; `shadow`: a run beside one in higher precision;
- `double_double`: pairs of float64 as numbers of 106 bits;
- `cast`: mixed precision; `plan`: the choice of dtypes within a tolerance;
- `wide`: convolutions and powers in float64 by products of matrices and roots, so that a wider run is quick;
- `table`: the rows that users see.
"""
