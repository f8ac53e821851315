"""Formulas in Python notation, and loops over them, for functions that XLA lacks.

The operators of a `Formula` add equations, so a series reads as in its source. Loops become `stablehlo.while`. All
elements are computed together, and each stops changing when it has converged, so its result does not depend on its
neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.ir import INT32_SCALAR, Atom, Aval, Emit, Hlo, HloValue, Jaxpr, Lit, Primitive
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, NEG, SUB
from fxad.primitives.elementwise.exponential import EXP, EXPM1, LOG, LOG1P, XLOG1PY, XLOGY
from fxad.primitives.elementwise.logic import AND, GE, GT, LE, LT, NOT, OR
from fxad.primitives.elementwise.powers import ABS, RSQRT, SQRT
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.elementwise.special import DIGAMMA, LGAMMA
from fxad.primitives.reduce import ReduceOr

FormulaOperand: TypeAlias = "Formula | float"


@final
class Formula:
    """An array in a formula; numbers in it take its type. Its operators add equations. Those of `annex_g.HloReal` write
    StableHLO, where a primitive is lowered."""

    __slots__ = ("_emit", "atom")

    def __init__(self, emit: Emit, atom: Atom) -> None:
        self._emit = emit
        self.atom = atom

    def apply(self, prim: Primitive, *others: FormulaOperand) -> Formula:
        """Return a primitive of this and others."""
        atoms = [o.atom if isinstance(o, Formula) else Lit.of(o, self.atom.aval) for o in others]
        return Formula(self._emit, self._emit.one(prim, self.atom, *atoms))

    def __add__(self, other: FormulaOperand) -> Formula:
        return self.apply(ADD, other)

    def __sub__(self, other: FormulaOperand) -> Formula:
        return self.apply(SUB, other)

    def __mul__(self, other: FormulaOperand) -> Formula:
        return self.apply(MUL, other)

    def __truediv__(self, other: FormulaOperand) -> Formula:
        return self.apply(DIV, other)

    def __radd__(self, other: float) -> Formula:
        return self.like(other) + self

    def __rsub__(self, other: float) -> Formula:
        return self.like(other) - self

    def __rmul__(self, other: float) -> Formula:
        return self * other

    def __rtruediv__(self, other: float) -> Formula:
        return self.like(other) / self

    def __neg__(self) -> Formula:
        return self.apply(NEG)

    def __lt__(self, other: FormulaOperand) -> Formula:
        return self.apply(LT, other)

    def __le__(self, other: FormulaOperand) -> Formula:
        return self.apply(LE, other)

    def __gt__(self, other: FormulaOperand) -> Formula:
        return self.apply(GT, other)

    def __ge__(self, other: FormulaOperand) -> Formula:
        return self.apply(GE, other)

    def __and__(self, other: Formula) -> Formula:
        return self.apply(AND, other)

    def __or__(self, other: Formula) -> Formula:
        return self.apply(OR, other)

    def __invert__(self) -> Formula:
        return self.apply(NOT)

    def __abs__(self) -> Formula:
        return self.apply(ABS)

    def like(self, value: float) -> Formula:
        """Return a number with the type of this array."""
        return Formula(self._emit, Lit.of(value, self.atom.aval))

    @property
    def eps(self) -> float:
        """The distance from 1 to the next number of its dtype."""
        return 2.0**-52 if self.atom.aval.dtype == dtypes.float64 else 2.0**-23

    @property
    def double(self) -> bool:
        """True if the dtype has the precision of float64."""
        return self.atom.aval.dtype == dtypes.float64

    def where(self, yes: FormulaOperand, no: Formula) -> Formula:
        """Return `yes` where this holds, else `no`."""
        taken = yes if isinstance(yes, Formula) else no.like(yes)
        return Formula(self._emit, emit_where(self._emit, self.atom, taken.atom, no.atom))

    def anywhere(self) -> Formula:
        """Return True if this holds at any element."""
        axes = tuple(range(self.atom.aval.ndim))
        return Formula(self._emit, self._emit.one(ReduceOr(axes), self.atom))

    def exp(self) -> Formula:
        """Return e to the power of this value."""
        return self.apply(EXP)

    def expm1(self) -> Formula:
        """Return exp(x) - 1."""
        return self.apply(EXPM1)

    def log(self) -> Formula:
        """Return the natural logarithm."""
        return self.apply(LOG)

    def log1p(self) -> Formula:
        """Return log(1 + x)."""
        return self.apply(LOG1P)

    def sqrt(self) -> Formula:
        """Return the square root."""
        return self.apply(SQRT)

    def rsqrt(self) -> Formula:
        """Return one over the square root."""
        return self.apply(RSQRT)

    def lgamma(self) -> Formula:
        """Return log |gamma|."""
        return self.apply(LGAMMA)

    def digamma(self) -> Formula:
        """Return the derivative of lgamma."""
        return self.apply(DIGAMMA)

    def least(self, other: FormulaOperand) -> Formula:
        """Return the lesser of two."""
        return self.apply(MIN, other)

    def greatest(self, other: FormulaOperand) -> Formula:
        """Return the greater of two."""
        return self.apply(MAX, other)


Formulas: TypeAlias = tuple[Formula, ...]
FormulaFunction: TypeAlias = Callable[[Formulas], Formulas]


def x_log_y(x: Formula, y: Formula) -> Formula:
    """Return x log y; 0 where x is 0, also if the logarithm is infinite."""
    return x.apply(XLOGY, y)


def x_log1p_y(x: Formula, y: Formula) -> Formula:
    """Return x log(1 + y); 0 where x is 0, as `x_log_y`."""
    return x.apply(XLOG1PY, y)


def polynomial(x: Formula, coefficients: Sequence[float]) -> Formula:
    """Return the polynomial with the highest power first, by Horner's rule."""
    total = x.like(coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def chebyshev(x: Formula, coefficients: Sequence[float]) -> Formula:
    """Return the sum of Chebyshev polynomials of -1 <= x <= 1, the highest order first, by Clenshaw's recurrence."""
    kept = [c for c in coefficients if abs(c) > x.eps * 1e-3]
    double, last, before = x * 2, x.like(kept[0]), x.like(0)
    for c in kept[1:-1]:
        last, before = double * last - before + c, last
    return x * last - before + kept[-1]


def formula_program(name: str, avals: Sequence[Aval], body: FormulaFunction) -> Jaxpr:
    """Return the program of formulas."""
    b = Builder()
    outs = body(tuple([Formula(b, v) for v in b.inputs(avals)]))
    return b.build([f.atom for f in outs], name)


def iterate_until_converged(
    hlo: Hlo,
    name: str,
    mask: HloValue,
    args: tuple[HloValue, ...],
    t: Aval,
    start: FormulaFunction,
    step: Callable[[Formulas], tuple[Formula, Formulas]],
    n_results: int,
    limit: int = 20_000,
) -> tuple[HloValue, ...]:
    """Repeat a step until it has converged at all elements where `mask` holds; return the results.

    For 1 + x + x^2 + ..., with args (x,): the state is (total, term), of which the first entry is the result.

        start((x,))             -> (1, 1)
        step((x, total, term))  -> term * x > eps, (total + term * x, term * x)

    Type: args and all entries of the state have the type `t`. `start` makes the state from the args; `step` takes the
          args, then the state, and returns a mask of the elements that continue, and the next state. The first
          `n_results` entries are returned; they do not change after convergence. At most `limit` rounds.
    """
    n_args, count_type = len(args), INT32_SCALAR
    first = formula_program(f"{name}_start", (t,) * n_args, start)
    types = (count_type, t.with_dtype(dtypes.bool_), *[t] * n_args, *first.out_avals)

    def goes_on(carry: Formulas) -> Formulas:
        count, active, *_ = carry
        return ((count < limit) & active.anywhere(),)

    def again(carry: Formulas) -> Formulas:
        count, active, *values = carry
        more, new = step(tuple(values))
        results = [
            active.where(x, old) for x, old in zip(new[:n_results], values[n_args : n_args + n_results], strict=True)
        ]
        return (count + 1, active & more, *values[:n_args], *results, *new[n_results:])

    regions = formula_program(f"{name}_goes_on", types, goes_on), formula_program(f"{name}_again", types, again)
    zero = hlo.constant(Lit.of(0, count_type))
    outs = hlo.op("stablehlo.while", (zero, mask, *args, *hlo.call(first, args)), types, {}, regions)
    return tuple(outs[2 + n_args : 2 + n_args + n_results])
