"""Repeated sequences of equations become calls of one body.

`outline` is the pass. It finds repetitions as those of numbers (`repeats`), makes their bodies (`shared_body`), and
also calls a body where some of its equations are missing (`incomplete_match`). `merge_bodies` does so for bodies that
are called already. `outline_before_ad` decides on the pass before differentiation. `reroll` turns chains of calls into
loops.
"""
