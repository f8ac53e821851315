"""Sparse derivatives.

`sparsity` finds the pattern of the derivative of a program, `derivatives` makes the program of the derivative
(`sparse_jacobian`, `sparse_hessian`) from a pattern and a coloring, and `products` is what that program computes.
`matrix` is the type of its result.
"""
