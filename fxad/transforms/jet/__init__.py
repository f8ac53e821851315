"""Truncated Taylor series of programs, and rewrites for derivatives along many directions.

jet         (coefficients of operands) -> (coefficients of results)
rows        shorter rules of a few primitives
graded      mixed derivatives from the program of a series along one direction
collapse    a sum over a batch axis moves through linear equations towards the operands
directions  derivatives along unit vectors, without those that are zero
along       equations that treat all slices along an axis alike
"""
