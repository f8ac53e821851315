"""The values of a program in finite fields.

A value is an ordinary array, if no operand of the program decides it, or `Symbolic`: residues, which stand for the
value as an expression in the operands. A Boolean value that depends on operands is a residue too: `select(c, x, y)` is
`x + c (y - x)`, `not c` is `1 - c`. So a proof holds for every outcome of every comparison, and not only for those that
were drawn. Integers are integers without wrap-around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Any, Final, TypeAlias, final

import numpy as np

from fxad import dtypes
from fxad.diagnosis.equality.field import BITS, PrimeFields, Residues
from fxad.dtypes import DType
from fxad.ir import Aval, Avals, Jaxpr, NDArray, Primitive, jaxprs_in_params, map_parameter, params

_CHUNK: Final = 1024
_MEMORY: Final = 1 << 28


@final
class Symbolic:
    """An array whose elements are expressions: `residues` has those of each element on its last axis, of the real part
    first if the array is complex.

    degree, level: bounds of the degree, where quotients count as variables, and of the nesting of quotients. bit: all
    elements are 0 or 1. joined: the order and the values, if the array is an extremum of arrays of its shape.
    """

    __slots__ = ("bit", "degree", "is_complex", "joined", "level", "residues")

    def __init__(
        self, residues: Residues, is_complex: bool = False, degree: float = 1.0, level: int = 0, bit: bool = False
    ) -> None:
        self.residues, self.is_complex, self.degree, self.level, self.bit = residues, is_complex, degree, level, bit
        self.joined: tuple[object, tuple[Residues, ...]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.residues.shape[:-1]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def like(self, residues: Residues, bit: bool = False) -> Symbolic:
        """Return an array of the same kind with other elements."""
        return Symbolic(residues, self.is_complex, self.degree, self.level, bit)

    def reshape(self, shape: Sequence[int]) -> Symbolic:
        """Return the array in another shape."""
        return self.like(self.residues.reshape(*shape, self.residues.shape[-1]), self.bit)


ExactValue: TypeAlias = "NDArray | Symbolic"

# (domain, primitive, operands, types of operands, types of results) -> results, or None: the rule does not apply
EvaluationRule: TypeAlias = "Callable[[ProofDomain, Any, list[ExactValue], Avals, Avals], list[ExactValue] | None]"


@final
class ProofDomain:
    """Operations on values, and a record of what limits a proof.

    interpreted: sums, products and comparisons have their meaning for real numbers. Otherwise each operation that
    rounds is a function of which nothing is known.
    exact_constants: constants are combined exactly, not rounded as the program does.

    For the bound of the error, a value is a polynomial of the operands, of random functions, and of quotients, each of
    which counts as a variable of degree 1. A quotient whose denominator has quotients of level k is of level k + 1. In
    `1 / (x + 1 / y)`, that of y has level 1, and the whole has level 2. `quotients` has for each level the number of
    denominators and their greatest degree.
    """

    def __init__(self, points: int, seed: int = 0, *, interpreted: bool = True, exact_constants: bool = False) -> None:
        self.field = PrimeFields(points, seed)
        self.interpreted, self.exact_constants = interpreted, exact_constants
        self.assumptions: set[str] = set()
        self.effects: list[object] = []
        self.noted = 0  # effects, repeated ones too
        self.degree = 1.0
        self.calls: Counter[str] = Counter()
        self.quotients: dict[int, tuple[int, float]] = {}
        self.infinity: Residues = self.field.random("infinity", np.zeros(1, np.int64))
        self._scalars: dict[object, Symbolic] = {}
        self._named: dict[str, list[object]] = {}  # the primitives that have a text
        # results of equations, by primitive and identities of the operands, and the bytes that further ones may take
        self.remembered: dict[object, tuple[Sequence[ExactValue], Sequence[ExactValue]]] = {}
        self.memory = _MEMORY

    @property
    def points(self) -> int:
        """The number of primes."""
        return self.field.points

    # --------------------------------------------------------------------------------------------- making values

    def variable(self, k: int, aval: Aval) -> Symbolic:
        """Return operand number k of a program: one variable for each element, or two if it is complex."""
        is_complex = aval.dtype in dtypes.COMPLEX
        places = self.field.of_integers(np.arange(aval.size, dtype=np.int64).reshape(aval.shape))
        residues = self.field.random(f"operand {k}", places, self.points * (1 + is_complex))
        return Symbolic(residues, is_complex, bit=aval.dtype == dtypes.bool_)

    def lift(self, x: ExactValue) -> Symbolic:
        """Return a value as residues."""
        if isinstance(x, Symbolic):
            return x
        if x.size > 1 and not any(x.strides):  # a literal of any shape
            scalar = self.lift(x[(0,) * x.ndim])
            whole = np.broadcast_to(scalar.residues, (*x.shape, scalar.residues.shape[-1]))
            return scalar.like(whole, scalar.bit)
        if x.ndim == 0:
            key = x.dtype, x.tobytes()
            if key not in self._scalars:
                self._scalars[key] = self._lifted(np.asarray(x))
            return self._scalars[key]
        return self._lifted(x)

    def _lifted(self, x: NDArray) -> Symbolic:
        if not self.interpreted:
            return self._as_bits(x)
        if x.dtype in dtypes.COMPLEX:
            return self.complex(self._lifted(np.real(x)), self._lifted(np.imag(x)))
        if x.dtype not in dtypes.FLOATING:
            return Symbolic(self.field.of_integers(x), degree=0.0, bit=bool(((x == 0) | (x == 1)).all()))
        wide = x.astype(np.float64)
        finite = np.isfinite(wide)
        residues = self.field.of_floats(np.where(finite, wide, 0.0))
        if not finite.all():
            self.assumptions.add("an infinite constant is a number like any other, and nan equals itself")
            nan = self.field.random("nan", np.zeros(1, np.int64))
            residues = np.where((wide == np.inf)[..., None], self.infinity, residues)
            residues = np.where((wide == -np.inf)[..., None], self.field.neg(self.infinity), residues)
            residues = np.where(np.isnan(wide)[..., None], nan, residues)
        return Symbolic(residues, degree=0.0, bit=bool(((wide == 0) | (wide == 1)).all()))

    def _as_bits(self, x: NDArray) -> Symbolic:
        """Return constants as functions of their bits. That of zero bits is zero, which data movement inserts."""
        words = np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)
        is_complex = x.dtype in dtypes.COMPLEX
        residues = self.field.random(f"bits {x.dtype}", words.astype(np.int64), self.points * (1 + is_complex))
        return Symbolic(np.where(words.any(-1, keepdims=True), residues, 0), is_complex)

    def complex(self, real: Symbolic, imag: Symbolic) -> Symbolic:
        """Return the complex array of two parts."""
        residues = np.concatenate(np.broadcast_arrays(real.residues, imag.residues), -1)
        return Symbolic(residues, True, max(real.degree, imag.degree), max(real.level, imag.level))

    def parts(self, x: Symbolic) -> tuple[Symbolic, Symbolic]:
        """Return the real and the imaginary part."""
        if not x.is_complex:
            return x, Symbolic(np.zeros_like(x.residues), degree=0.0)
        n = self.points
        real, imag = [Symbolic(r, False, x.degree, x.level) for r in (x.residues[..., :n], x.residues[..., n:])]
        return real, imag

    def constant(self, value: int) -> Symbolic:
        """Return an integer."""
        return self.lift(np.asarray(value, np.int64))

    # ------------------------------------------------------------------------------------------------ arithmetic

    def made(self, residues: Residues, is_complex: bool, degree: float, level: int) -> Symbolic:
        """Return a result of arithmetic, and note its degree for the bound of the error."""
        self.degree = max(self.degree, degree)
        return Symbolic(residues, is_complex, degree, level)

    def add(self, x: Symbolic, y: Symbolic) -> Symbolic:
        """Return x + y."""
        return self._partwise(self.field.add, x, y)

    def sub(self, x: Symbolic, y: Symbolic) -> Symbolic:
        """Return x - y."""
        return self._partwise(self.field.sub, x, y)

    def _partwise(self, f: Callable[[Residues, Residues], Residues], x: Symbolic, y: Symbolic) -> Symbolic:
        degree, level = max(x.degree, y.degree), max(x.level, y.level)
        if not (x.is_complex or y.is_complex):
            return self.made(f(x.residues, y.residues), False, degree, level)
        pairs = zip(self.parts(x), self.parts(y), strict=True)
        return self.complex(*[self._partwise(f, a, b) for a, b in pairs])

    def neg(self, x: Symbolic) -> Symbolic:
        """Return -x."""
        if not x.is_complex:
            return x.like(self.field.neg(x.residues))
        return self.complex(*[self.neg(part) for part in self.parts(x)])

    def mul(self, x: Symbolic, y: Symbolic) -> Symbolic:
        """Return x * y."""
        if not (x.is_complex or y.is_complex):
            made = self.field.mul(x.residues, y.residues)
            return self.made(made, False, x.degree + y.degree, max(x.level, y.level))
        (a, b), (c, d) = self.parts(x), self.parts(y)
        return self.complex(self.sub(self.mul(a, c), self.mul(b, d)), self.add(self.mul(a, d), self.mul(b, c)))

    def inverse(self, x: Symbolic) -> Symbolic:
        """Return 1 / x."""
        if x.is_complex:
            a, b = self.parts(x)
            scale = self.inverse(self.add(self.mul(a, a), self.mul(b, b)))
            return self.complex(self.mul(a, scale), self.neg(self.mul(b, scale)))
        inverse = self.field.inverse(x.residues)
        by_zero = (x.residues == 0).all(-1, keepdims=True)
        if by_zero.any():  # a denominator that is zero whatever the operands are
            self.assumptions.add("a quotient by zero is a number like any other")
            inverse = np.where(by_zero, self.field.random("quotient by zero", np.ones(1, np.int64)), inverse)
        if not x.degree:
            return self.made(inverse, False, 0.0, x.level)
        self.assumptions.add("no denominator is zero")
        count, degree = self.quotients.get(x.level, (0, 1.0))
        self.quotients[x.level] = count + x.size, max(degree, x.degree)
        return self.made(inverse, False, 1.0, x.level + 1)

    def power(self, x: Symbolic, n: int) -> Symbolic:
        """Return x ** n for an integer n."""
        if n < 0:
            return self.power(self.inverse(x), -n)
        out = self.constant(1)
        while n:
            out = self.mul(out, x) if n & 1 else out
            n >>= 1
            x = self.mul(x, x) if n else x
        return Symbolic(
            np.broadcast_to(out.residues, (*x.shape, out.residues.shape[-1])), out.is_complex, out.degree, out.level
        )

    def choose(self, bit: Symbolic, no: Symbolic, yes: Symbolic) -> Symbolic:
        """Return `yes` where a bit is 1, else `no`."""
        if not self.interpreted:
            return self.function("choose", [bit, no, yes], no.is_complex)
        if np.array_equal(no.residues, yes.residues):
            return no
        chosen = self.add(no, self.mul(bit, self.sub(yes, no)))
        chosen.bit = no.bit and yes.bit
        return chosen

    def negated(self, bit: Symbolic) -> Symbolic:
        """Return 1 - bit."""
        one = self.sub(self.constant(1), bit)
        one.bit = True
        return one

    def sign(self, x: Symbolic) -> tuple[Symbolic, NDArray]:
        """Return x or -x, the same for both, and where it is -x."""
        first = x.residues[..., :1]
        flip = first > np.int64(self.field.primes[0] // 2)
        return x.like(np.where(flip, self.field.neg(x.residues), x.residues)), flip[..., 0]

    # ------------------------------------------------------------------------------------------- random functions

    def named(self, prim: Primitive, without: Sequence[str] = ()) -> str:
        """Return a text for the value of a primitive, without some parameters, the same in every process. Parameters
        that differ have two texts, also if their `repr` does not show it."""
        digests = {j: j.digest for j in jaxprs_in_params(prim)}

        def text(value: object) -> object:
            return digests.get(value, value) if isinstance(value, Jaxpr) else value

        kept = [(n, v) for n, v in params(prim) if n not in without]
        shown = ", ".join([f"{n}={map_parameter(v, text)!r}" for n, v in kept])
        name = f"{type(prim).__module__}.{type(prim).__qualname__}({shown})"
        alike = self._named.setdefault(name, [])
        value = type(prim), kept
        if value not in alike:
            alike.append(value)
        return name + f" {alike.index(value)}" * (alike[0] != value)

    def function(self, name: str, args: Sequence[Symbolic], is_complex: bool = False, bit: bool = False) -> Symbolic:
        """Return a function of which nothing is known, element by element: equal arguments give equal results."""
        rows = _beside(args)
        self.calls[name] += prod(rows.shape[:-1])
        return Symbolic(self.field.random(name, rows, self.points * (1 + is_complex)), is_complex, bit=bit)

    def function_of_rows(
        self, name: str, rows: Residues, shape: Sequence[int], is_complex: bool, bit: bool
    ) -> Symbolic:
        """Return a function of each row of `rows`, with results of `shape` for each."""
        lead, n = rows.shape[:-1], prod(shape)
        key = self.digest(name, rows)
        self.calls[name] += prod(lead)
        places = self.field.of_integers(np.arange(n, dtype=np.int64))
        both = np.concatenate(
            [
                np.broadcast_to(key[..., None, :], (*lead, n, key.shape[-1])),
                np.broadcast_to(places, (*lead, n, self.points)),
            ],
            -1,
        )
        made = self.field.random(f"{name} elements", both, self.points * (1 + is_complex))
        return Symbolic(made.reshape(*lead, *shape, made.shape[-1]), is_complex, bit=bit)

    def digest(self, name: str, rows: Residues) -> Residues:
        """Return a random function of each row, of `points` residues."""
        name = f"{name} {rows.shape[-1]}"
        while rows.shape[-1] > _CHUNK:
            short = -rows.shape[-1] % _CHUNK
            rows = np.concatenate([rows, np.zeros((*rows.shape[:-1], short), np.int64)], -1)
            rows = self.field.random("chunk", rows.reshape(*rows.shape[:-1], -1, _CHUNK))
            rows = rows.reshape(*rows.shape[:-2], -1)
        return self.field.random(name, rows)

    # ----------------------------------------------------------------------------------------------- probability

    def bits_of_error(self, results: int) -> float:
        """Return -log2 of a bound of the probability that different expressions were found equal.

        Two polynomials of degree d that differ agree at a random point with probability at most d / p, for each prime
        (Schwartz 1980, Zippel 1979). The bound sums over the pairs of calls of the random functions, and the results. A
        quotient is a variable; to replace those of a level by the quotients multiplies the degree by at most 1 + the
        sum of the degrees of their denominators.
        """
        degree = log2(max(self.degree, 1.0))
        for count, of_denominator in self.quotients.values():
            degree += log2(1.0 + count * max(of_denominator, 1.0))
        events = sum([n * n / 2 for n in self.calls.values()]) + results
        return self.points * (BITS - degree) - log2(max(events, 1.0))


def _beside(args: Sequence[Symbolic]) -> Residues:
    """Return the residues of arguments of one shape side by side."""
    if len(args) == 1:
        return args[0].residues
    shape = np.broadcast_shapes(*[a.shape for a in args])
    return np.concatenate([np.broadcast_to(a.residues, (*shape, a.residues.shape[-1])) for a in args], -1)


def kind_of(dtype: DType) -> tuple[bool, bool]:
    """Return whether values of a dtype are complex, and whether they are bits."""
    return dtype in dtypes.COMPLEX, dtype == dtypes.bool_
