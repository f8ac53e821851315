"""Loops in nested segments: reverse mode stores the carries between the segments, and computes the rest again.

scan of 10 steps in segments of 4:    scan of 2 (remat(scan of 4 steps)), then remat(scan of 2 steps)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Jaxpr
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.shape import Reshape
from fxad.primitives.slicing import Concatenate, Slice
from fxad.transforms.memory.policies import Policy
from fxad.transforms.memory.remat import remat


def nested_scan(scan: Scan, sizes: tuple[int, ...], keep: Policy | None) -> Jaxpr:
    """Return a scan, which must not be `upto`, as a program over its operands, in nested segments of `sizes` steps,
    outermost first.

    Each segment is a `remat` of a scan. If `keep` is a policy, each step is a `remat` with this policy too. Otherwise
    the innermost segment stores the values of its steps.

    Law: same values; in exact arithmetic, the same gradients; any length, also one that `sizes` do not divide.
    """
    step = scan.body if keep is None else remat(scan.body, keep)
    return _nested(step, scan.length, scan.reverse, scan.unroll, scan.n_consts, scan.n_carry, sizes)


@by_value
def _nested(
    step: Jaxpr, n: int, reverse: bool, unroll: int, n_consts: int, n_carry: int, sizes: tuple[int, ...]
) -> Jaxpr:
    """Return n steps as a program: constants, carry, arrays of n slices -> carry, stacked results."""
    b = Builder()
    avals = step.in_avals
    consts, state = b.inputs(avals[:n_consts]), b.inputs(avals[n_consts : n_consts + n_carry])
    xs = b.inputs([a.with_shape((n, *a.shape)) for a in avals[n_consts + n_carry :]])
    if not sizes:
        return b.build(
            b(Scan(step, n, reverse=reverse, unroll=unroll, n_consts=n_consts, n_carry=n_carry), *consts, *state, *xs),
            step.name,
        )
    m, inner_sizes = sizes[0], sizes[1:]
    segments = LoopSegments(n, m, reverse)
    segment = remat(_nested(step, m, reverse, unroll, n_consts, n_carry, inner_sizes))
    outs = b(segments.loop(segment, n_consts, n_carry, reverse), *consts, *state, *segments.blocks(b, xs))
    carry, ys = outs[:n_carry], segments.joined(b, outs[n_carry:])
    if n_tail := segments.tail:
        tail = _nested(step, n_tail, reverse, unroll, n_consts, n_carry, tuple([s for s in inner_sizes if s < n_tail]))
        outs = b(Remat(tail), *consts, *carry, *segments.tail_rows(b, xs))
        carry, ys = outs[:n_carry], segments.all_rows(b, ys, outs[n_carry:])
    return b.build([*carry, *ys], f"segments_{step.name}")


@final
@dataclass(frozen=True, slots=True)
class LoopSegments:
    """n steps of a loop over rows in segments of m. The loop runs the segments, then the *tail*: the steps that are no
    whole segment. If it is reversed, the segments are its last rows.

    For n = 11 and m = 4 there are 2 segments, the rows 0 to 7, and a tail of 3 steps; reversed, the segments are the
    rows 3 to 10.
    """

    n: int
    m: int
    reverse: bool

    @property
    def count(self) -> int:
        """The number of segments."""
        return self.n // self.m

    @property
    def tail(self) -> int:
        """The number of steps of the tail."""
        return self.n % self.m

    def blocks(self, b: Builder, xs: Atoms) -> list[Atom]:
        """Return the rows of the segments, in one block for each segment."""
        start = self.tail if self.reverse else 0
        return [row_block(b, x, start, start + self.count * self.m, (self.count, self.m)) for x in xs]

    def tail_rows(self, b: Builder, xs: Atoms) -> list[Atom]:
        """Return the rows of the tail."""
        start = 0 if self.reverse else self.count * self.m
        return [row_block(b, x, start, start + self.tail, (self.tail,)) for x in xs]

    def loop(self, segment: Jaxpr, n_consts: int, n_carry: int, reverse: bool) -> Scan:
        """Return a loop over the segments. `reverse`: of this loop, which may be another one over the same rows."""
        return Scan(segment, self.count, reverse=reverse, unroll=1, n_consts=n_consts, n_carry=n_carry)

    def joined(self, b: Builder, blocks: Atoms) -> list[Atom]:
        """Return blocks of rows as rows."""
        return [b.one(Reshape((self.count * self.m, *y.aval.shape[2:])), y) for y in blocks]

    def all_rows(self, b: Builder, rows: Sequence[Atom], tail: Sequence[Atom]) -> list[Atom]:
        """Return the rows of the segments and those of the tail, in order."""
        pairs = zip(tail, rows, strict=True) if self.reverse else zip(rows, tail, strict=True)
        return [b.one(Concatenate(0), *pair) for pair in pairs]


def row_block(b: Builder, x: Atom, start: int, stop: int, lead: tuple[int, ...]) -> Atom:
    """Return rows of x, with leading axes `lead` in place of the first."""
    shape = x.aval.shape
    if (start, stop) != (0, shape[0]):
        x = b.one(Slice((start, *[0] * (len(shape) - 1)), (stop, *shape[1:]), (1,) * len(shape)), x)
    return x if x.aval.shape == (*lead, *shape[1:]) else b.one(Reshape((*lead, *shape[1:])), x)


def balanced(n: int, depth: int) -> tuple[int, ...]:
    """Return sizes of `depth - 1` nested segments of n steps, with about as many parts on every level.

    For 1,000 steps and depth 3 they are (100, 10): 10 segments of 100 steps, each of 10 segments of 10 steps.
    """
    parts, below = max(n, 1), 0  # the least number on each level: parts**depth >= n
    while parts - below > 1:
        middle = (parts + below) // 2
        parts, below = (middle, below) if middle**depth >= n else (parts, middle)
    out, m = [], n
    for _ in range(depth - 1):
        m = -(-m // parts)
        out.append(m)
    return tuple([m for k, m in enumerate(out) if m > 1 and m < (out[k - 1] if k else n)])


def near_divisor(n: int, target: int) -> int:
    """Return a divisor of n near the wanted number, or that number if none is near. A loop whose last segment is
    shorter copies its slices."""
    near = [m for m in range(max(1, target // 2), min(n, 2 * target) + 1) if n % m == 0]
    return min(near, key=lambda m: abs(m - target), default=target)


def carries_stored(n: int, sizes: Sequence[int]) -> int:
    """Return the largest number of carries stored at a time: on each level one for each part. For 1,000 steps in
    segments of (100, 10) they are 10 + 10 + 10."""
    total = 0
    for m in sizes:
        total += -(-n // m)
        n = m
    return total + n
