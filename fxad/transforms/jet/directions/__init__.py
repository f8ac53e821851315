"""Derivatives along unit vectors, without the entries that are zero.

summands    the derivatives of a value, as a sum of arrays
products    products, as einsums of these arrays
directions  the walk, and the other equations
"""
