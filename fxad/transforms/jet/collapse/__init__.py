"""A sum over an axis moves through linear equations towards the operands.

sums       one equation: the sum of its result from sums of its operands
decisions  which sums move, from the last equation to the first, also into bodies
emission   the program after these decisions, from the first equation to the last
collapse   both
"""
