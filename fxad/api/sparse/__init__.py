"""Sparse derivatives.

`sparsity` finds the pattern of the derivative of a program, `derivatives` makes the program of the derivative
(`sparse_jacobian`, `sparse_hessian`) from a pattern and a coloring, and `products` is what that program computes.
`matrix` is the type of its result; it registers this type and that of patterns as pytrees, so it is imported with each of
the others.
"""

from fxad.api.sparse import matrix as matrix
