"""`graded`: mixed derivatives of a function from the program of its series along one direction.

Coefficient k of f(x + v t) is a homogeneous polynomial of degree k in the direction v. So each value of the program of
these coefficients has a degree in v, and its equations are linear, or products of values of two degrees. This pass
takes the variables of v apart: in place of a value of degree k, the program carries a row for each of its coefficients.

Of u, these rows are u_b for monomials b: the derivative of u of multi-index b, divided by b!. Rows of a product are

    (u v)_d = sum of u_b v_c over b + c = d.

An operator P, the sum of p_t D^t over multi-indices t, does not need all rows. Of a low degree, those b suffice that
divide some t. Of a high degree there are fewer sums: the rows P_a u, for monomials a, where P_a is the derivative of
the polynomial P, the sum of p_t t! / (t - a)! D^(t - a). With P_a u = sum over t of p_t t! u_(t - a),

    P_a (u v) = sum of p_(a + b + c) (a + b + c)! u_b v_c       if both are low,
    P_a (u v) = sum of (P_(a + b) u) v_b                        if u is high.

For Laplacians these are n first derivatives and the sum of the second ones (the forward Laplacian), for biharmonics of
five variables 5, 15, 5 and 1 rows. No operator can do with fewer than there are independent derivatives of P.

Products of rows are single equations on slices: XLA reads a slice in place, and copies rows that are gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import combinations
from math import factorial, prod
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias, final

import numpy as np

from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Linear, Lit, Primitive
from fxad.primitives.elementwise.arithmetic import ADD, MUL
from fxad.primitives.elementwise.convert import emit_convert
from fxad.primitives.elementwise.family import Binary
from fxad.primitives.linear_call import LinearCall
from fxad.primitives.linearity import is_linear_in_each, is_zero, linear_operands
from fxad.primitives.shape import ReduceSum, emit_broadcast, emit_expand_dims, emit_reshape
from fxad.primitives.slicing import Concatenate, emit_slice
from fxad.transforms.jet.along import apply_to_stack

# The numbers of its variables in increasing order: (0, 0, 3) is x_0^2 x_3.
Monomial: TypeAlias = tuple[int, ...]


class _Row(NamedTuple):
    """A row in a sum of rows: its place, the number of the term t by whose p_t t! it is multiplied (None for 1), and a
    further factor: 2 in a square, for the two products u_b u_c and u_c u_b."""

    place: int
    term: int | None = None
    factor: int = 1


# A sum of rows, each with its number.
_RowSum: TypeAlias = tuple[_Row, ...]
# A row of a product: a row of the first factor, times a sum of rows of the second one, for each element.
_ProductRow: TypeAlias = tuple[tuple[int, _RowSum], ...]


def divisors(monomial: Monomial, degree: int) -> Iterator[tuple[Monomial, Monomial]]:
    """Yield the divisors of a monomial that have a degree, each with the quotient."""
    divisors_so_far: set[Monomial] = set()
    for places in combinations(range(len(monomial)), degree):
        divisor = tuple([monomial[k] for k in places])
        if divisor not in divisors_so_far:
            divisors_so_far.add(divisor)
            yield divisor, tuple([v for k, v in enumerate(monomial) if k not in places])


def product_of(a: Monomial, b: Monomial) -> Monomial:
    """Return the product of two monomials."""
    return tuple(sorted(a + b))


def factorials(monomial: Monomial) -> int:
    """Return a! of a multi-index a."""
    return prod([factorial(monomial.count(v)) for v in set(monomial)])


@final
class Grading:
    """The rows that are carried for the operator with the terms t.

    rows: for each degree k, monomials b if k <= `low`, and else (order of P, monomial a) of the rows P_a.
    """

    def __init__(self, terms: Sequence[Monomial], low: int) -> None:
        self.terms: Final = {t: k for k, t in enumerate(terms)}
        self.order: Final = max(map(len, terms))
        self.low: Final = low
        self._by_order: Final = {k: [t for t in terms if len(t) == k] for k in {len(t) for t in terms}}
        self._divisors: Final = {k: self._divisors_of_terms(terms, k) for k in range(1, self.order + 1)}
        self._high: Final = {
            k: [(j, a) for j, ts in self._by_order.items() if j >= k for a in self._divisors_of_terms(ts, j - k)]
            for k in range(low + 1, self.order + 1)
        }
        self._place: Final = {k: {b: i for i, b in enumerate(bs)} for k, bs in self._divisors.items()}
        self._place_of_high: Final = {k: {r: i for i, r in enumerate(rows)} for k, rows in self._high.items()}

    @classmethod
    def least(cls, terms: Sequence[Monomial]) -> Grading:
        """Return the grading with the fewest rows. Of a product of two factors, one is low."""
        order = max(map(len, terms))
        return min([cls(terms, low) for low in range(max(1, order // 2), order + 1)], key=lambda g: g.n_rows)

    @staticmethod
    def _divisors_of_terms(terms: Sequence[Monomial], degree: int) -> list[Monomial]:
        return sorted({b for t in terms if len(t) >= degree for b, _ in divisors(t, degree)})

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables in which derivatives are taken, which are the rows of the direction."""
        return tuple([v for (v,) in self._divisors[1]])

    def size(self, degree: int) -> int:
        return len(self._divisors[degree] if degree <= self.low else self._high[degree])

    @property
    def n_rows(self) -> int:
        """The number of values that are carried for each value, itself included."""
        return 1 + sum(map(self.size, range(1, self.order + 1)))

    @property
    def n_products(self) -> int:
        """The number of products of rows, for one product of values of each two degrees."""
        halves = [(p, q) for q in range(1, self.order) for p in range(1, min(q, self.order - q) + 1)]
        return sum([len(row) for p, q in halves for row in self.product(p, q)])

    def total(self, order: int) -> _RowSum | None:
        """Return the terms of one order as a sum of rows; None if there are none."""
        if order not in self._by_order:
            return None
        if order > self.low:
            return (_Row(self._place_of_high[order][order, ()]),)
        return tuple([_Row(self._place[order][t], self.terms[t]) for t in self._by_order[order]])

    def product(self, p: int, q: int) -> list[_ProductRow]:
        """Return the rows of a product of values of degrees p <= q."""
        if p + q <= self.low:
            return [self._low_row(d, p, q) for d in self._divisors[p + q]]
        row = self._row_of_low_and_high if q > self.low else self._high_row_of_lows
        return [row(j, a, p, q) for j, a in self._high[p + q]]

    def _low_row(self, d: Monomial, p: int, q: int) -> _ProductRow:
        """(u v)_d = sum of u_b v_c over b + c = d."""
        return tuple([(self._place[p][b], (_Row(self._place[q][c]),)) for b, c in divisors(d, p)])

    def _row_of_low_and_high(self, j: int, a: Monomial, p: int, q: int) -> _ProductRow:
        """P_a (u v) = sum of u_b (P_(a + b) v), for the terms of order j. The rows that v has are those of derivatives
        that are not zero."""
        places = [self._place_of_high[q].get((j, product_of(a, b))) for b in self._divisors[p]]
        return tuple([(i, (_Row(place),)) for i, place in enumerate(places) if place is not None])

    def _high_row_of_lows(self, j: int, a: Monomial, p: int, q: int) -> _ProductRow:
        """P_a (u v) = sum of p_t t! u_b v_c, for the terms t = a + b + c of order j."""
        sums: dict[int, list[_Row]] = {}
        for t in self._by_order[j]:
            for rest in [rest for divisor, rest in divisors(t, len(a)) if divisor == a]:
                for b, c in divisors(rest, p):
                    sums.setdefault(self._place[p][b], []).append(_Row(self._place[q][c], self.terms[t]))
        return tuple([(i, tuple(sorted(s, key=attrgetter("place")))) for i, s in sorted(sums.items())])


def _squared(rows: Sequence[_ProductRow]) -> list[_ProductRow]:
    """Return the rows of the product of a value with itself: u_b u_c and u_c u_b are one product."""
    halves = [
        [(b, tuple([_Row(c, term, factor * (1 + (b < c))) for c, term, factor in s if b <= c])) for b, s in row]
        for row in rows
    ]
    return [tuple([(b, s) for b, s in row if s]) for row in halves]


@final
@dataclass(frozen=True, slots=True)
class _TermNumbers:
    """The number p_t t! of each term. `factors` is a vector of the program: other factors of the terms."""

    constants: tuple[float, ...]
    factors: Atom | None

    def times(self, b: Builder, x: Atom, term: int | None, factor: int) -> Atom:
        """Return a value times the number of a term and a factor."""
        number = factor if term is None else self.constants[term] * factor
        if number != 1:
            by = Lit.of(number, x.aval)
            if not np.isfinite(np.asarray(by.value, np.float64)).all():
                raise _NotHomogeneousError  # 3! * 15000 is no float16
            x = b.one(MUL, x, by)
        if term is None or self.factors is None:
            return x
        scalar = emit_reshape(b, emit_slice(b, self.factors, 0, term, term + 1), ())
        return b.one(MUL, x, emit_broadcast(b, emit_convert(b, scalar, x.aval.dtype), x.aval.shape, ()))

    def group(self, term: int | None, factor: int) -> object:
        """Return what is equal for rows with one number."""
        if term is None or self.factors is not None:
            return term, factor
        return self.constants[term] * factor


class _NotHomogeneousError(Exception):
    """An equation for which this module has no rule, or a number that its type has not."""


@final
class _RowBuilder:
    """Builds the program. `degree` has the values that depend on the direction."""

    def __init__(self, grading: Grading, numbers: _TermNumbers, b: Builder) -> None:
        self.grading, self.numbers, self.b = grading, numbers, b
        self.env: dict[Atom, Atom] = {}
        self.degree: dict[Atom, int] = {}
        self._products: dict[tuple[int, int], list[_ProductRow]] = {}
        self._rows: dict[Atom, Sequence[Atom]] = {}  # of values that were taken apart or stacked

    def equations(self, jaxpr: Jaxpr) -> None:
        for eqn in jaxpr.eqns:
            self.b.source = eqn.source
            args = tuple([self.env.get(a, a) for a in eqn.ins])
            degrees = [self.degree.get(a, 0) for a in eqn.ins]
            if not any(degrees):
                self.env.update(zip(eqn.outs, self.b.copy(eqn, args), strict=True))
                continue
            degree, outs = self.apply(eqn, args, degrees)
            self.env.update(zip(eqn.outs, outs, strict=True))
            self.degree.update(dict.fromkeys(eqn.outs, degree))

    def apply(self, eqn: Eqn, args: tuple[Atom, ...], degrees: Sequence[int]) -> tuple[int, Sequence[Atom]]:
        prim, varying = eqn.prim, [k for k, d in enumerate(degrees) if d]
        if not isinstance(prim, Linear) or isinstance(prim, HigherOrder) or prim.effects:
            raise _NotHomogeneousError
        flags = tuple([d > 0 for d in degrees])
        if len({degrees[k] for k in varying}) == 1 and linear_operands(prim, args, flags) is not None:
            degree = degrees[varying[0]]
            return degree, apply_to_stack(self.b, prim, args, flags, self.grading.size(degree))
        if len(varying) != 2 or not is_linear_in_each(prim, flags):
            raise _NotHomogeneousError
        return sum(degrees), (self.product(prim, args, varying, degrees),)

    def total(self, coefficients: Sequence[Atom]) -> Atom:
        """Return the operator of a result from its coefficients, the value first."""
        value, terms = coefficients[0].aval, list[Atom]()
        for k, a in enumerate(coefficients):
            total = self.grading.total(k) if k else None
            if total is None or is_zero(a):
                continue
            if self.degree.get(a) != k:
                raise _NotHomogeneousError
            terms.append(emit_reshape(self.b, self.row_sum(self.env[a], total), value.shape))
        return self.sum(terms) if terms else Lit.zero(value)

    # ------------------------------------------------------------------------------------------------------ products

    def product(self, prim: Primitive, args: tuple[Atom, ...], varying: Sequence[int], degrees: Sequence[int]) -> Atom:
        """Return the rows of degree p + q of a product of two varying operands, of degrees p <= q.

        The grading says of which pairs a row of the product is the sum: each is a row of the first operand with a sum
        of rows of the second one. A pair that several rows need is multiplied once. If there is one row, and it pairs
        row k with row k for all k, the stacks are multiplied as they are, and the rows added.

        Example: p = q = 1 and two variables, each factor with the rows 0 and 1. The row of the monomial (0, 1) is
        u_0 v_1 + u_1 v_0: the pairs are (0, row 1) and (1, row 0).
        """
        i, j = sorted(varying, key=degrees.__getitem__)
        p, q = degrees[i], degrees[j]
        if p + q > self.grading.order:
            raise _NotHomogeneousError
        if (p, q) not in self._products:
            self._products[p, q] = self.grading.product(p, q)
        rows = self._products[p, q]
        u, v = args[i], args[j]
        if u is v and prim == MUL:
            rows = _squared(rows)
        flags = tuple([k in varying for k in range(len(args))])

        def times(u_rows: Atom, v_rows: Atom, size: int) -> Atom:
            operands = [u_rows if k == i else v_rows if k == j else a for k, a in enumerate(args)]
            return apply_to_stack(self.b, prim, operands, flags, size)[0]

        every_row = tuple([(k, (_Row(k),)) for k in range(u.aval.shape[0])])
        if len(rows) == 1 and rows[0] == every_row and len(every_row) == v.aval.shape[0]:
            return self.sum_of_rows(times(u, v, len(every_row)))
        pairs = list(dict.fromkeys([pair for row in rows for pair in row]))
        factors = [(self.slice(u, k), self.row_sum(v, s)) for k, s in pairs]
        if isinstance(prim, Binary):
            products = dict(zip(pairs, [times(a, b, 1) for a, b in factors], strict=True))
        else:  # one equation for all
            stacked = times(self.stack([a for a, _ in factors]), self.stack([b for _, b in factors]), len(pairs))
            products = {pair: self.slice(stacked, k) for k, pair in enumerate(pairs)}
        zero = Lit.zero(next(iter(products.values())).aval)
        return self.stack([self.sum([products[pair] for pair in row]) if row else zero for row in rows])

    def row_sum(self, x: Atom, rows: _RowSum) -> Atom:
        """Return a sum of rows. Those with one number are added first."""
        groups: dict[object, list[_Row]] = {}
        for row in rows:
            groups.setdefault(self.numbers.group(row.term, row.factor), []).append(row)
        return self.sum([
            self.numbers.times(
                self.b, self.sum([self.slice(x, row.place) for row in group]), group[0].term, group[0].factor
            )
            for group in groups.values()
        ])  # fmt: skip

    def slice(self, x: Atom, k: int) -> Atom:
        """Return row k, with its axis."""
        if x.aval.shape[0] == 1:
            return x
        if x not in self._rows:
            self._rows[x] = self.b(_rows_of(x.aval), x)
        return self._rows[x][k]

    def stack(self, rows: Sequence[Atom]) -> Atom:
        if len(rows) == 1:
            return rows[0]
        stacked = self.b.one(Concatenate(0), *rows)
        self._rows[stacked] = rows
        return stacked

    def sum(self, terms: Sequence[Atom]) -> Atom:
        return reduce(lambda total, term: self.b.one(ADD, total, term), terms)

    def sum_of_rows(self, x: Atom) -> Atom:
        return x if x.aval.shape[0] == 1 else emit_expand_dims(self.b, self.b.one(ReduceSum((0,)), x), (0,))


def _rows_of(aval: Aval) -> LinearCall:
    """Return the map of a stack to its rows, each with its axis. Its adjoint stacks; that of slices would add arrays as
    large as the stack."""
    take, stack = Builder(), Builder()
    x = take.input(aval)
    n = aval.shape[0]
    body = take.build([emit_slice(take, x, 0, k, k + 1) for k in range(n)], "rows")
    adjoint = stack.build([stack.one(Concatenate(0), *stack.inputs(body.out_avals))], "stack")
    return LinearCall(body, adjoint, 1)


def graded(
    jaxpr: Jaxpr,
    direction: range,
    n_results: int,
    grading: Grading,
    numbers: Sequence[float],
    factors_type: Aval | None,
) -> Jaxpr | None:
    """Return the program of the results and of the operator, for each of them: (operands, factors) -> (results,
    operator). None if an equation has bodies, or no rule.

    `jaxpr` computes the results and their coefficients 1 to K along a direction, the operands of `direction`, which get
    an axis for the variables in front. `numbers` are p_t t! for the terms t of the operator. `factors_type` is the
    type of a vector of other factors of the terms, the last operand; None if there is none.

    Law:  coefficient k is homogeneous of degree k in the direction.
    Cost: `grading.n_rows` values for each value.
    """
    b = Builder()
    n_variables = len(grading.variables)
    operands = [b.input(v.aval.stacked(n_variables, 0) if k in direction else v.aval) for k, v in enumerate(jaxpr.ins)]
    factors = None if factors_type is None else b.input(factors_type)
    rows = _RowBuilder(grading, _TermNumbers(tuple(numbers), factors), b)
    rows.env.update(zip(jaxpr.ins, operands, strict=True))
    rows.degree.update({jaxpr.ins[k]: 1 for k in direction})
    try:
        rows.equations(jaxpr)
        values, totals = jaxpr.outs[:n_results], [rows.total(jaxpr.outs[i::n_results]) for i in range(n_results)]
    except _NotHomogeneousError:
        return None
    return dce(b.build([*[rows.env.get(a, a) for a in values], *totals], jaxpr.name))
