"""The memory planner: which values a program stores, and which it computes again, within a budget of bytes.

plan             the value that users see and edit, and the passes of a budget
search           the candidates: which recomputations are worth trying, in the order of their time
flat_program     the program that a plan is about: calls inlined, equations moved to where they need less memory
rematerialize    a flat program in segments: what crosses its turn is stored or computed again
layers           where a program is cut: between repeated equations, and where few bytes live
loop_pairs       a loop and its derivative, in segments of steps

The words, for a training step of two layers, with the loss as the last equation of the forward part:

    segments     h1 = layer(x) | h2 = layer(h1), loss     the equations before the turn, cut
    turn                                                  after the loss: most values live across it
    intervals    the gradient of layer 2 | of layer 1     the equations after the turn, cut where residuals are read
    crossing     a value that lives across the turn, or between two segments: a row of a plan
    block        equations that run together, as an opaque `remat`: what an interval computes again

`memory` cuts loops and programs into segments too. It serves `remat`: the user says what reverse mode stores, before
the program is differentiated. This package plans a program that is not differentiated any more, such as a gradient.
"""
