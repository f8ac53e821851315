"""A loop in patterns: from the dependence of one step to that of all steps.

With the state c (the carries one after the other), inputs x (constants, and one slice of each sliced operand) and
rows y (one slice of each sliced result), a step is, in patterns,

    c' = C c + E x        y = R c + D x

So n steps give the state C^n c + (I + C + ... + C^(n-1)) E x, and a row is R of such a state, plus D x. Two
relations of states therefore say everything: the power C^n, and the union of the powers below it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias, final

from fxad.core.layout import (
    Layout,
    Runs,
    Sliced,
    Times,
    UpTo,
)
from fxad.ir import Eqn, Shape
from fxad.transforms.sparse.composition import compose
from fxad.transforms.sparse.powers import powers
from fxad.transforms.sparse.relation import (
    EMPTY,
    Relation,
    box,
    relation,
    repeated,
    shifted,
    strided,
    transposed,
    triangle,
    union,
)  # fmt: skip
from fxad.transforms.sparse.rules import strides_of

Relations: TypeAlias = "dict[int, Relation]"  # by operand


class StepCount(NamedTuple):
    """How often a loop takes its step: `most` times (None: nobody knows), or, if not `exact`, possibly less often.
    `reverse`: from the last slice to the first."""

    most: int | None
    exact: bool
    reverse: bool


def count_of(runs: Runs) -> StepCount:
    """Return how often a body runs."""
    match runs:
        case Times(count, reverse):
            return StepCount(count, True, reverse)
        case UpTo(most, reverse):
            return StepCount(most, False, reverse)
        case _:
            return StepCount(None, False, False)


@final
class LoopPattern(NamedTuple):
    """The step of a loop in patterns.

    carries: the operands that are carries and depend; the state is their elements, one carry after the other.
    sizes:   the numbers of their elements.
    inputs:  the other operands that depend. A step reads one slice of those that are sliced.
    in_step: for each result of the loop, what a step gives it from carries and inputs.
    stacks:  for each result of the loop, what all steps give, one after the other, from carries, inputs and the slices
             of all steps; without results if it is not computed.
    """

    eqn: Eqn
    layout: Layout
    carries: tuple[int, ...]
    sizes: tuple[int, ...]
    inputs: tuple[int, ...]
    in_step: Mapping[int, Relations]
    stacks: Mapping[int, Relations]

    @classmethod
    def of(
        cls,
        eqn: Eqn,
        layout: Layout,
        marked: Collection[int],
        in_step: Mapping[int, Relations],
        stacks: Mapping[int, Relations],
    ) -> LoopPattern:
        carries = tuple([p for p in layout.carries if p in marked])
        inputs = tuple(sorted([p for p in marked if p not in layout.carries]))
        return cls(eqn, layout, carries, tuple([eqn.ins[p].aval.size for p in carries]), inputs, in_step, stacks)

    def states(self, count: StepCount) -> tuple[Relation, Relation]:
        """Return the relation of the last state to the first one, and the union of those of the states in which a step
        starts. It is also that of the last state to what any step adds to the state."""
        of_carries = [self.in_step.get(self.layout.carries[p], {}) for p in self.carries]
        step = block_matrix(
            [{j: block.get(q, EMPTY) for j, q in enumerate(self.carries)} for block in of_carries],
            self.sizes,
            self.sizes,
        )
        power, below = powers(step, sum(self.sizes), count.most)
        if count.most is None:
            return below, below
        return (power if count.exact else union(power, below)), below

    def final_carry(self, carry: int, final: Relation, before_step: Relation) -> Relations:
        """Return the dependence of the last value of a carry: on first values, and on inputs of every step."""
        if carry not in self.carries:
            return {}  # in no step does it depend
        j = self.carries.index(carry)
        block = {p: block_of(final, self.sizes, self.sizes, j, i) for i, p in enumerate(self.carries)}
        rows = relation(box(0, sum(self.sizes[:j]), ((self.sizes[j], 1, 1),)))
        from_added = compose(rows, before_step, sum(self.sizes))
        for p in self.inputs:
            role, shape = self.layout.operand_roles[p], self.eqn.ins[p].aval.shape
            if not isinstance(role, Sliced):
                block[p] = compose(from_added, self._added_by(p), sum(self.sizes))
                continue
            n, (to_slices, size) = shape[role.axis], slices_of(shape, role.axis)
            if self.stacks:
                of_slices = compose(from_added, self._added_by_slices_of(p, n), sum(self.sizes))
            else:
                of_slices = repeated(compose(from_added, self._added_by(p), sum(self.sizes)), (n, 0, size))
            block[p] = compose(of_slices, to_slices, prod(shape))
        return block

    def stacked_rows(self, r: int, axis: int, before_step: Relation, reverse: bool) -> Relations:
        """Return the dependence of the rows of all steps: on first values of carries, on the inputs of the same step,
        and by the state on those of earlier steps."""
        shape = self.eqn.outs[r].aval.shape
        n, (to_rows, row_size) = shape[axis], slices_of(shape, axis)
        in_row, of_rows = self.in_step.get(r, {}), self.stacks.get(r, {})
        of_state = block_matrix([{j: in_row.get(p, EMPTY) for j, p in enumerate(self.carries)}], [row_size], self.sizes)
        of_row = compose(of_state, before_step, sum(self.sizes))
        block: Relations = {}
        for i, p in enumerate(self.carries):
            columns = relation(box(sum(self.sizes[:i]), 0, ((self.sizes[i], 1, 1),)))
            block[p] = repeated(compose(of_row, columns, sum(self.sizes)), (n, row_size, 0))
        for p in self.inputs:
            now = in_row.get(p, EMPTY)
            earlier = compose(of_row, self._added_by(p), sum(self.sizes))
            if isinstance(role := self.layout.operand_roles[p], Sliced):
                in_shape = self.eqn.ins[p].aval.shape
                to_slices, size = slices_of(in_shape, role.axis)
                rel = of_rows[p] if p in of_rows else repeated(now, (n, row_size, size))
                # row i depends by the state on the slices j < i, or j > i in reverse
                for o, i0, dims in triangle(n, row_size, size, reverse=reverse, strict=True):
                    rel = union(rel, shifted(repeated(earlier, *dims), o, i0))
                block[p] = compose(rel, to_slices, prod(in_shape))
            else:
                at_once = of_rows[p] if p in of_rows else repeated(now, (n, row_size, 0))
                block[p] = union(at_once, repeated(earlier, (n, row_size, 0)))
        return {p: compose(transposed(to_rows), rel, prod(shape)) for p, rel in block.items()}

    def _added_by_slices_of(self, p: int, n: int) -> Relation:
        """Return the relation of the state after any of n steps to the slices of an input, one after the other."""
        blocks = [self.stacks.get(self.layout.carries[q], {}).get(p, EMPTY) for q in self.carries]
        added = [
            {0: compose(any_of(n, size), rel, n * size)} for rel, size in zip(blocks, self.sizes, strict=True)
        ]  # fmt: skip
        return block_matrix(added, self.sizes, [0])

    def _added_by(self, p: int) -> Relation:
        """Return the relation of the state after a step to an input of the step."""
        return block_matrix(
            [{0: self.in_step.get(self.layout.carries[q], {}).get(p, EMPTY)} for q in self.carries], self.sizes, [0]
        )


def block_matrix(blocks: Sequence[Relations], rows: Sequence[int], columns: Sequence[int]) -> Relation:
    """Return blocks as one relation between the arrays one after the other."""
    return union(*[
        shifted(r, sum(rows[:i]), sum(columns[:j])) for i, block in enumerate(blocks) for j, r in block.items()
    ])  # fmt: skip


def block_of(matrix: Relation, rows: Sequence[int], columns: Sequence[int], i: int, j: int) -> Relation:
    """Return one block of a relation between arrays one after the other."""
    m, n = sum(rows), sum(columns)
    top, left = sum(rows[:i]), sum(columns[:j])
    cut_rows = relation(box(0, top, ((rows[i], 1, 1),)))
    cut_columns = relation(box(left, 0, ((columns[j], 1, 1),)))
    return compose(cut_rows, compose(matrix, cut_columns, n), m)


def any_of(n: int, size: int) -> Relation:
    """Return the relation of an element of an array to the same element of `n` arrays, one after the other."""
    return strided((n, size), (0, 1), (size, 1))


def slices_of(shape: Shape, axis: int) -> tuple[Relation, int]:
    """Return the relation of the slices of an array, one after the other, to the array, and the size of a slice."""
    front = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    strides = strides_of(shape)
    front_strides = (strides[axis], *strides[:axis], *strides[axis + 1 :])
    return strided(front, strides_of(front), front_strides), prod(front[1:])
