"""The smallest program that fails for the same reason: the public function is `fxad.reduce_program`.

reduce_program    the public function: checks of `fails`, the result
reduced           the result: a program with its arguments, as text and as a test in a file
search            the attempts: budget, memo, the smallest candidate so far; the order of the steps
candidate         a program with values of its operands, its size, its normal form
recorded          the values of all equations of a run, also inside of bodies
slices            consecutive equations of a program or a body as a program of their own
edits             one equation less: values become operands, literals or other values; bodies are opened
retyped           smaller shapes, dtypes and parameters
operand_values    plainer values of operands
reading           programs with operands as text, and back
source_code       the imports and the code with which a test in a file calls `fails`
child             a predicate that runs in a process of its own, with a time limit
"""

from fxad.diagnosis.reduce.reading import read_reduced as read_reduced
