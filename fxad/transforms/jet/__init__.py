"""Truncated Taylor series of programs, and rewrites for derivatives along many directions.

jet           (coefficients of operands) -> (coefficients of results)
nodes         the values of a series, which compute each coefficient when it is needed
series_rules  which way the series of an equation is computed
rows          shorter rules of a few primitives
compositions  functions of one real number, from their derivatives
body_series   equations with bodies, over the series of the bodies
graded        mixed derivatives from the program of a series along one direction
collapse      a sum over a batch axis moves through linear equations towards the operands
directions    derivatives along unit vectors, without those that are zero
along         equations that treat all slices along an axis alike
"""
