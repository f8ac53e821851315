"""Pairs of small programs that are equal by construction: the same steps, each written in one of two ways.

`twins(seed)` takes a fraction of a millisecond, and compiles nothing, so that a million pairs can be decided. Some
identities are beyond what the fields know (`HARD`): then floats decide, and must not find a difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

from fxad.core.builder import Builder
from fxad.ir import Atom, Aval, Jaxpr, Lit, Primitive
from fxad.primitives import elementwise as ew
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.cumulative import CumSum
from fxad.primitives.dot import DotGeneral
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.shape import BroadcastInDim, ExpandDims, ReduceSum, Reshape, Rev, Squeeze, Transpose
from fxad.primitives.slicing import Concatenate, Slice
from fxad.primitives.softmax import Softmax
from fxad.primitives.sort import Sort


@final
class Term:
    """A value of a program that is built, with operators."""

    __slots__ = ("atom", "b")

    def __init__(self, b: Builder, atom: Atom) -> None:
        self.b, self.atom = b, atom

    def of(self, prim: Primitive, *others: Term | float) -> Term:
        """Apply a primitive to this value and others."""
        rest = [x.atom if isinstance(x, Term) else Lit.of(x, self.atom.aval) for x in others]
        return Term(self.b, self.b.one(prim, self.atom, *rest))

    def __add__(self, other: Term | float) -> Term:
        return self.of(ew.ADD, other)

    def __sub__(self, other: Term | float) -> Term:
        return self.of(ew.SUB, other)

    def __mul__(self, other: Term | float) -> Term:
        return self.of(ew.MUL, other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.of(ew.DIV, other)

    def __neg__(self) -> Term:
        return self.of(ew.NEG)

    def __lt__(self, other: Term | float) -> Term:
        return self.of(ew.LT, other)

    def __gt__(self, other: Term | float) -> Term:
        return self.of(ew.GT, other)

    def __ge__(self, other: Term | float) -> Term:
        return self.of(ew.GE, other)

    def __invert__(self) -> Term:
        return self.of(ew.NOT)

    def where(self, yes: Term, no: Term) -> Term:
        """Return `yes` where this bool is true, else `no`."""
        return self.of(ew.SELECT_N, no, yes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.atom.aval.shape


Form: TypeAlias = Callable[..., Term]
Identity: TypeAlias = tuple[int, Form, Form]  # the number of operands, and both forms


def one_over(x: Term) -> Term:
    """Return 1 / x."""
    return (x * 0.0 + 1.0) / x


def body(f: Form, *avals: Aval) -> Jaxpr:
    """Return a function as a program."""
    b = Builder()
    return b.build([f(*[Term(b, x) for x in b.inputs(avals)]).atom], "body")


def called(kind: Callable[[Jaxpr], Primitive], f: Form) -> Form:
    """Return a function as one equation with a body."""
    return lambda *xs: xs[0].of(kind(body(f, *[x.atom.aval for x in xs])), *xs[1:])


def chosen(c: Term, *xs: Term) -> Term:
    """Return the sum or the difference, by a branch that the first element of a bool decides."""
    avals = [x.atom.aval for x in xs]
    first = c.of(Reshape((c.atom.aval.size,))).of(Slice((0,), (1,), (1,))).of(Squeeze((0,)))
    which = first.of(ew.ConvertElementType(I32))
    return which.of(Cond((body(lambda x, y: x - y, *avals), body(lambda x, y: x + y, *avals))), *xs)


def spread_first(c: Term) -> Term:
    """Return the first element of a bool, in its shape."""
    first = c.of(Reshape((c.atom.aval.size,))).of(Slice((0,), (1,), (1,))).of(Squeeze((0,)))
    return first.of(BroadcastInDim(c.shape, ()))


def thrice(x: Term, y: Term) -> Term:
    """Return ((x y + y) y + y) y + y, as a loop."""
    step = body(lambda y, c: c * y + y, y.atom.aval, x.atom.aval)
    return y.of(Scan(step, 3, False, 1, 1, 1), x)


I32: Final = Aval((), "int32").dtype

REAL: Final[tuple[Identity, ...]] = (
    (2, lambda x, y: x + y, lambda x, y: y + x),
    (2, lambda x, y: x * y, lambda x, y: y * x),
    (3, lambda x, y, z: (x + y) + z, lambda x, y, z: x + (z + y)),
    (3, lambda x, y, z: (x * y) * z, lambda x, y, z: x * (z * y)),
    (3, lambda x, y, z: x * (y + z), lambda x, y, z: x * y + x * z),
    (3, lambda x, y, z: (x + y) / z, lambda x, y, z: x / z + y / z),
    (2, lambda x, y: x - y, lambda x, y: -(y - x)),
    (2, lambda x, y: x - y, lambda x, y: x + -y),
    (2, lambda x, y: (x + y) * (x - y), lambda x, y: x * x - y * y),
    (2, lambda x, y: x / y, lambda x, y: one_over(y / x)),
    (2, lambda x, y: x / y, lambda x, y: x * one_over(y)),
    (1, lambda x: x + x, lambda x: x * 2.0),
    (1, lambda x: x.of(ew.SQUARE), lambda x: x * x),
    (1, lambda x: x.of(ew.IntegerPow(3)), lambda x: x * x * x),
    (1, lambda x: (x + 1.0) * (x - 1.0), lambda x: x * x - 1.0),
    (1, lambda x: x * 0.5 * 4.0, lambda x: x + x),
    (1, lambda x: x.of(ew.NEG).of(ew.NEG), lambda x: x * 1.0),
    (1, lambda x: (-x).of(ew.SIN), lambda x: -x.of(ew.SIN)),
    (1, lambda x: (-x).of(ew.COS), lambda x: x.of(ew.COS)),
    (1, lambda x: (-x).of(ew.TANH), lambda x: -x.of(ew.TANH)),
    (1, lambda x: (-x).of(ew.ABS), lambda x: x.of(ew.ABS)),
    (1, lambda x: x.of(ew.EXPM1), lambda x: x.of(ew.EXP) - 1.0),
    (1, lambda x: (x * x + 1.0).of(ew.RSQRT), lambda x: one_over((x * x + 1.0).of(ew.SQRT))),
    (1, lambda x: (x * (x + 1.0)).of(ew.EXP), lambda x: (x * x + x).of(ew.EXP)),
    (2, lambda x, y: x.of(ew.MAX, y), lambda x, y: y.of(ew.MAX, x)),
    (2, lambda x, y: x.of(ew.MAX, y), lambda x, y: -(-x).of(ew.MIN, -y)),
    (3, lambda x, y, z: x.of(ew.MAX, y).of(ew.MAX, z), lambda x, y, z: x.of(ew.MAX, z.of(ew.MAX, y))),
    (3, lambda x, y, z: x.of(ew.CLAMP, y, z), lambda x, y, z: x.of(ew.MAX, y).of(ew.MIN, z)),
    (2, lambda x, y: (x < y).where(x, y), lambda x, y: (x >= y).where(y, x)),
    (3, lambda x, y, z: (x < y).where(y, z), lambda x, y, z: (y > x).where(y, z)),
    (3, lambda x, y, z: (x < y).where(x, z) + y, lambda x, y, z: (x < y).where(x + y, z + y)),
    (3, lambda x, y, z: (x > z).of(ew.AND, y > z).where(x, y), lambda x, y, z: (x > z).where((z < y).where(x, y), y)),
    (2, lambda x, y: chosen(x > 0.5, x, y), lambda x, y: spread_first(x > 0.5).where(x + y, x - y)),
    (2, called(Call, lambda x, y: x * y + y), lambda x, y: (x + 1.0) * y),
    (2, called(Remat, lambda x, y: x * y - y), lambda x, y: (x - 1.0) * y),
    (2, thrice, lambda x, y: (((x * y + y) * y) + y) * y + y),
)  # fmt: skip

# of arrays with one axis at least
ARRAY: Final[tuple[Identity, ...]] = (
    (1, lambda x: x.of(Rev((0,))).of(Rev((0,))), lambda x: x * 1.0),
    (2, lambda x, y: x.of(Rev((0,))) * y.of(Rev((0,))), lambda x, y: (y * x).of(Rev((0,)))),
    (1, lambda x: total(x), lambda x: total(x.of(Rev((0,))))),
    (2, lambda x, y: total(x + y), lambda x, y: total(x) + total(y)),
    (2, lambda x, y: inner(x, y), lambda x, y: total(y * x)),
    (1, lambda x: largest(x), lambda x: -smallest(-x)),
    (1, lambda x: x.of(CumSum(0, True)), lambda x: x.of(Rev((0,))).of(CumSum(0, False)).of(Rev((0,)))),
    (2, lambda x, y: (x + y).of(CumSum(0, False)), lambda x, y: x.of(CumSum(0, False)) + y.of(CumSum(0, False))),
    (1, lambda x: rotated(rotated(x)), lambda x: rotated(x, 2)),
    (2, lambda x, y: rotated(x) * rotated(y), lambda x, y: rotated(x * y)),
    (1, lambda x: x.of(Softmax((0,))), lambda x: x.of(ew.EXP) / spread(x.of(ew.EXP).of(ReduceSum((0,))), x)),
    (1, lambda x: x.of(Sort(0, 1)), lambda x: x.of(ExpandDims((0,))).of(Sort(1, 1)).of(Squeeze((0,)))),
    (1, lambda x: x.of(Transpose(turned(x))).of(ew.SIN).of(Transpose(turned(x))), lambda x: x.of(ew.SIN)),
    (1, lambda x: x.of(Reshape((x.atom.aval.size,))).of(ew.EXP).of(Reshape(x.shape)), lambda x: x.of(ew.EXP)),
)  # fmt: skip


def turned(x: Term) -> tuple[int, ...]:
    """Return the axes in the opposite order."""
    return tuple(range(len(x.shape)))[::-1]


def spread(row: Term, x: Term) -> Term:
    """Return a value without the first axis, along that axis of `x`."""
    return row.of(BroadcastInDim(x.shape, tuple(range(1, len(x.shape)))))


def total(x: Term) -> Term:
    """Return the sum along the first axis, in the shape of the operand."""
    return spread(x.of(ReduceSum((0,))), x)


def largest(x: Term) -> Term:
    """Return the maximum along the first axis."""
    return spread(x.of(ReduceMax((0,))), x)


def smallest(x: Term) -> Term:
    """Return the minimum along the first axis."""
    return spread(x.of(ReduceMin((0,))), x)


def inner(x: Term, y: Term) -> Term:
    """Return the inner products along the first axis."""
    rest = tuple(range(1, len(x.shape)))
    return spread(x.of(DotGeneral((0,), (0,), rest, rest, None), y), x)


def rotated(x: Term, by: int = 1) -> Term:
    """Return the elements moved along the first axis, around the end."""
    n, rest = x.shape[0], x.shape[1:]
    by %= n
    ones, zeros = (1,) * len(x.shape), (0,) * len(rest)
    return x.of(Slice((by, *zeros), x.shape, ones)).of(Concatenate(0), x.of(Slice((0, *zeros), (by, *rest), ones)))


# real functions are equal, and the fields do not know it: a law of exp, roots, jumps, constants that floats round
HARD: Final[tuple[Identity, ...]] = (
    (2, lambda x, y: (x + y).of(ew.EXP), lambda x, y: x.of(ew.EXP) * y.of(ew.EXP)),
    (1, lambda x: (x + x).of(ew.SIN), lambda x: x.of(ew.SIN) * x.of(ew.COS) * 2.0),
    (1, lambda x: (x * x + 1.0).of(ew.SQRT).of(ew.SQUARE), lambda x: x * x + 1.0),
    (1, lambda x: (x * x + 1.0).of(ew.LOG).of(ew.EXP), lambda x: x * x + 1.0),
    (1, lambda x: (x + 1.0).of(ew.FLOOR), lambda x: x.of(ew.FLOOR) + 1.0),
    (1, lambda x: (x * x).of(ew.SQRT), lambda x: x.of(ew.ABS)),
    (1, lambda x: x.of(ew.SIGN) * x.of(ew.ABS), lambda x: x * 1.0),
    (1, lambda x: x.of(ew.SINH), lambda x: (x.of(ew.EXP) - (-x).of(ew.EXP)) * 0.5),
    (1, lambda x: x.of(ew.LOGISTIC), lambda x: one_over((-x).of(ew.EXP) + 1.0)),
    (1, lambda x: (x.of(ew.FLOOR) - x).of(ew.CEIL), lambda x: x * 0.0),
    (1, lambda x: x * 0.1 * 0.3, lambda x: x * (0.1 * 0.3)),
    (1, lambda x: (x * 3.0 > x).where(x, -x), lambda x: (x > 0.0).where(x, -x)),
    (2, lambda x, y: x.of(ew.MAX, y) + x.of(ew.MIN, y), lambda x, y: x + y),
    (1, lambda x: ((x - 1000.0).of(ew.EXP) > 0.0).where(x, -x), lambda x: x * 1.0),
    (1, lambda x: (x - 740.0).of(ew.EXP).of(ew.LOG), lambda x: x - 740.0),
    (1, lambda x: ((x * x + 1.0) * 1e-30).of(ew.IntegerPow(12)).of(ew.SIGN), lambda x: x * 0.0 + 1.0),
)  # fmt: skip

INTEGER: Final[tuple[Identity, ...]] = (
    (2, lambda x, y: x + y, lambda x, y: y + x),
    (2, lambda x, y: x * y, lambda x, y: y * x),
    (3, lambda x, y, z: x * (y + z), lambda x, y, z: x * z + x * y),
    (2, lambda x, y: x - y, lambda x, y: -y + x),
    (1, lambda x: x + x, lambda x: x * 2),
    (2, lambda x, y: x.of(ew.MAX, y), lambda x, y: y.of(ew.MAX, x)),
    (2, lambda x, y: (x < y).where(x, y), lambda x, y: (y > x).where(x, y)),
)  # fmt: skip

COMPLEX: Final[tuple[Identity, ...]] = (
    (2, lambda x, y: x + y, lambda x, y: y + x),
    (3, lambda x, y, z: x * (y - z), lambda x, y, z: x * y - x * z),
    (2, lambda x, y: x / y, lambda x, y: one_over(y / x)),
    (2, lambda x, y: (x * y).of(ew.CONJ), lambda x, y: y.of(ew.CONJ) * x.of(ew.CONJ)),
    (1, lambda x: x.of(ew.REAL).of(ew.COMPLEX, x.of(ew.IMAG)), lambda x: x * 1.0),
    (1, lambda x: (x * x.of(ew.CONJ)).of(ew.REAL), lambda x: x.of(ew.REAL).of(ew.SQUARE) + x.of(ew.IMAG).of(ew.SQUARE)),
    (1, lambda x: (x * (x + 1.0)).of(ew.EXP), lambda x: (x * x + x).of(ew.EXP)),
)  # fmt: skip

OF_DTYPE: Final = MappingProxyType({"float32": REAL, "float64": REAL, "int32": INTEGER, "complex64": COMPLEX})
SHAPES: Final = ((), (3,), (2, 2))
HARD_SHARE: Final = 0.01  # of the steps


def twins(seed: int) -> tuple[Jaxpr, Jaxpr, bool]:
    """Return two equal programs, and whether an identity is beyond the fields."""
    source = random.Random(seed)
    left, right = Builder(), Builder()
    aval = Aval(
        source.choice(SHAPES), source.choice(("float32", "float64", "float64", "float64", "int32", "complex64"))
    )
    count = source.randint(1, 3)
    pool = [
        (Term(left, x), Term(right, y)) for x, y in zip(*[b.inputs([aval] * count) for b in (left, right)], strict=True)
    ]
    hard = False
    for _ in range(source.randint(1, 5)):
        own = pool[-1][0].atom.aval
        if own != aval:
            break
        choices = OF_DTYPE[aval.dtype.name]
        if choices is REAL and source.random() < HARD_SHARE:
            choices, hard = HARD, True
        elif choices is REAL and aval.ndim and source.random() < 0.25:
            choices = ARRAY
        n, *forms = source.choice(choices)
        if source.random() < 0.5:
            forms.reverse()
        if source.random() < 0.2:
            forms[1] = forms[0]
        args = [source.choice(pool) for _ in range(n)]
        ours, theirs = zip(*args, strict=True)
        pool.append((forms[0](*ours), forms[1](*theirs)))
    outs: Sequence[Any] = pool[-1:]
    return left.build([x.atom for x, _ in outs], "f"), right.build([y.atom for _, y in outs], "g"), hard
