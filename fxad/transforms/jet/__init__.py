"""Truncated Taylor series of programs, and the rewrite that sums directions early.

jet        (coefficients of operands) -> (coefficients of results)
rows       shorter rules of a few primitives
collapse   a sum over a batch axis moves through linear equations towards the operands
"""
