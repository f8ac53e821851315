"""Traced numbers: Python numbers whose values are not known while a function is traced.

A number that is an argument of a traced function, or computed from one, is a `TracedNumber`. It means what a Python
number means (decision 88), so its dtype depends on what it meets. An operation of numbers only, `n + 1`, gives a
number again. It adds no equation: it is an expression, which is computed when the number becomes an array:

| method | when | dtype of the array | computed in |
|---|---|---|---|
| `beside(dtype)` | an operation takes it with an array of `dtype` | that, if its kind holds the number | base |
| `as_type(dtype)` | `astype`, `asarray(x, dtype)`: the user names the dtype | `dtype`, rounded once | base |
| `in_base()` | all bits are needed: a user's rule, `DifferentiatedNumber.rest` | base | base |
| `settled()` | it is a result, or an operand of an equation or a method | its own: i32, f32, c64, bool | its own |

Each kind of number has two dtypes. The *base*, of 64 bits, has all of its bits: Python computes in it. But the
base of a bool is bool, and that of an `INT`, an int of at most 32 bits, is int32. *Its own*, of 32 bits, is that of an
array of the number alone. For `lambda x, n: (x * (n + 1), n + 1)`, of an array and a float:

    beside(f32)     a: f64[] = add n 1.0    b: f32[] = convert_element_type a
    settled()       c: f32[] = convert_element_type n    d: f32[] = add c 1.0

`NumberOperands` decides the dtypes of the arguments when the trace ends.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.numbers import NUMBER_ARGUMENTS
from fxad.errors import DTypeError
from fxad.ir import Atom, Atoms, Aval, Eqn, Jaxpr, Lit, NDArray, Source, Var
from fxad.operations import arithmetic, contractions, elementwise, promotion
from fxad.operations.number_types import BOOL, FLOAT, INT, RESULTS, CallType, NumberType, number_type
from fxad.operations.promotion import NumberKind
from fxad.primitives.elementwise.arithmetic import ADD, SUB
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.elementwise.logic import AND, OR, XOR
from fxad.primitives.elementwise.select import emit_where
from fxad.tracing.array import Array, Operation, is_scalar, operation_name
from fxad.tracing.tracer import Trace, Tracer, active_trace, encloses, user_source


@final
class Uncomputed(Enum):
    """It stands in place of the variable of a computed number, which a conversion makes. It is no atom and has no type,
    so no equation takes it, and nobody reads a value from it."""

    UNCOMPUTED = 0


UNCOMPUTED: Final = Uncomputed.UNCOMPUTED


@final
class TracedNumber(Tracer):
    """A Python number whose value is not known: an argument of a traced function, or computed from one.

    It takes the dtype of an array that it meets, as a number does. Everywhere else it is an array without axes, of
    int32, float32, ...: it is *settled*.

    The variable of an argument has the base type of the number. `NumberOperands` decides the dtype of the operand when
    the trace ends. A computed number has an expression, and `UNCOMPUTED` in place of a variable. If the number meets an
    array, the program computes it as Python does, in full precision (but integers wrap at 64 bits).

    `arguments` are the arguments of traced functions from which the number is computed; `meets_64_bits` is True for one
    that has met a floating array of 64 bits.
    """

    __slots__ = ("_arrays", "_expression", "_number_type", "arguments", "meets_64_bits")

    def __init__(
        self, trace: Trace, var: Atom, number_type: NumberType, expression: NumberExpression | None = None
    ) -> None:
        Tracer.__init__(self, trace, var)
        self._number_type = number_type
        self._expression = expression
        self.arguments: tuple[TracedNumber, ...] = (self,)
        if expression is not None:
            self.arguments = tuple([n for x in expression.args if type(x) is TracedNumber for n in x.arguments])
        self.meets_64_bits = False
        self._arrays: dict[tuple[dtypes.DType, bool], Tracer] = {}

    @property
    def number_type(self) -> NumberType:
        return self._number_type

    @property
    def aval(self) -> Aval:
        return self.number_type.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> dtypes.DType:
        return self.number_type.dtype

    def in_dtype(self, dtype: dtypes.DType, base: bool = True) -> Tracer:
        """Return the number as an array of a dtype, in the trace of the number. An expression is computed in its base
        dtype, or else in its own, and then converted."""
        array = self._arrays.get((dtype, base))
        if array is None:
            b, expression = self._trace.builder, self._expression
            if expression is None:
                b.source = user_source(2)
                var = self._var
            else:
                self._compute_operands(base)
                b.source = expression.source
                var = self._computed(expression, *self._computed_in(expression, base))
            if var.aval.dtype is not dtype:
                var = b.one(ConvertElementType(dtype), var)
            array = self._arrays[dtype, base] = Tracer(self._trace, var)
        return array

    def _computed_in(self, e: NumberExpression, base: bool) -> tuple[dtypes.DType, bool]:
        """Return the dtype in which the expression is computed, and whether that is the base: a comparison is exact."""
        base = base or self.number_type is BOOL
        return (e.computed.base.dtype if base else e.computed.dtype), base

    def _compute_operands(self, base: bool) -> None:
        """Compute the numbers from which this one is computed, the innermost first: a long sum must not recur."""
        pending = [(self, self.dtype, base)]  # the caller computes this number itself, so its dtype is not used
        while pending:
            number, dtype, number_base = pending[-1]
            operand = number._uncomputed_operand(number_base)
            if operand is not None:
                pending.append(operand)
                continue
            pending.pop()
            if number is not self:
                number.in_dtype(dtype, number_base)

    def _uncomputed_operand(self, base: bool) -> tuple[TracedNumber, dtypes.DType, bool] | None:
        """Return the first number in the expression that was not computed in the dtype in which the expression takes
        it, with the arguments of `in_dtype` that compute it."""
        e = self._expression
        assert e is not None, "an argument is computed already"
        key = self._computed_in(e, base)
        numbers = [x for x in e.args if type(x) is TracedNumber and x._expression is not None]
        return next(((x, *key) for x in numbers if key not in x._arrays), None)

    def _computed(self, e: NumberExpression, dtype: dtypes.DType, base: bool) -> Atom:
        """Return the result of an expression that is computed in a dtype. Raises: DTypeError for an int that does not
        fit."""
        trace, operands = self._trace, list[Atom]()
        for k, x in enumerate(e.args):
            if type(x) is TracedNumber:
                operands.append(trace.lift(e.op.__name__, k, x.in_dtype(dtype, base)))
            elif type(x) in NUMBER_ARGUMENTS:
                operands.append(trace.number_operand(cast("promotion.Scalar", x), dtype))
            else:
                operands.append(promotion.scalar_literal(cast("promotion.Scalar", x), Aval((), dtype)))
        trace.builder.source = e.source
        return e.op(trace.builder, *operands, *e.static)[0]

    def in_base(self) -> Tracer:
        """Return the number as an array with all of its bits."""
        return self.in_dtype(self._var.aval.dtype if self._expression is None else self.number_type.base.dtype)

    def beside(self, dtype: dtypes.DType) -> Tracer:
        """Return the number in the dtype that it takes beside an array of `dtype`."""
        dtype = self.number_type.dtype_beside(dtype)
        if dtype in _64_BITS:
            self.meet_64_bits()
        return self.in_dtype(dtype)

    def as_type(self, dtype: dtypes.DType) -> Tracer:
        """Return the number converted to a dtype as by `astype`, rounded once; a complex one by itself if `dtype` is
        real."""
        if dtypes.is_complex(self.dtype) and not dtypes.is_complex(dtype):
            return self.settled()
        if dtype in _64_BITS:
            self.meet_64_bits()
        return self.in_dtype(dtype)

    def meet_64_bits(self) -> None:
        """Record that the number meets a floating array of 64 bits."""
        for number in self.arguments:
            number.meets_64_bits = True

    def settled(self) -> Tracer:
        """Return the number as an array of its own dtype."""
        return self.in_dtype(self.dtype, base=False)

    def _apply(self, op: Operation, args: tuple[object, ...], static: tuple[Hashable, ...]) -> Any:
        kind = self.number_type.kind
        if op is arithmetic.integer_power:
            kind = max(kind, NumberKind.FLOATING) if cast("int", static[0]) < 0 else kind
        elif op not in (arithmetic.negative, arithmetic.invert, elementwise.conj, *_REAL_OF_COMPLEX):
            return super()._apply(op, args, static)
        if op is arithmetic.invert and kind is NumberKind.BOOL:  # Python's has a truth value of True
            raise DTypeError(
                f"invert: ~ of a bool of Python, {self!r}: Python gives an int, -2 or -1, NumPy and JAX the other bool",
                remedy="fxad.numpy.logical_not gives the other bool; numpy.bool_(x) is an array of one bool",
            )
        result = FLOAT if kind is NumberKind.COMPLEX and op in _REAL_OF_COMPLEX else None
        return self._number_of(op, (self,), static, RESULTS[max(kind, NumberKind.INTEGER)], result)

    def _binary(self, op: Operation, x: Any, y: Any, *static: Hashable) -> Any:
        numbers = [v.number_type if type(v) is TracedNumber else number_type(v) for v in (x, y)]
        kinds = [n.kind for n in numbers if n is not None]
        if len(kinds) < 2 or op is contractions.matmul:
            return super()._binary(op, x, y, *static)
        computed = max(kinds)
        logical = op is arithmetic.bitwise_operator and static[0] in (AND, OR, XOR)
        compared = bool(static) and isinstance(static[0], Compare)
        if op is arithmetic.true_divide:
            computed = max(computed, NumberKind.FLOATING)
        elif not (logical or compared):  # a bool is an int
            computed = max(computed, NumberKind.INTEGER)
        # the base of INT is int32: a comparison needs no more, while a sum or product may, and takes int64
        in_32_bits = compared and all([n is INT for n in numbers])
        return self._number_of(op, (x, y), static, INT if in_32_bits else RESULTS[computed], BOOL if compared else None)

    def _number_of(
        self,
        op: Operation,
        args: tuple[object, ...],
        static: tuple[Hashable, ...],
        computed: NumberType,
        result: NumberType | None = None,
    ) -> TracedNumber:
        """Return the number that an operation gives for numbers. It is computed in the base dtype of `computed`.

        Raises: DTypeError for an operation that numbers of this kind do not have, and for an int of more than 64 bits.
        """
        self.check_usable(f"{operation_name(op, static)}: argument {0 if args[0] is self else 1}")
        trace = self._trace
        for x in args:
            if type(x) is not TracedNumber:
                promotion.scalar_dtype(cast("promotion.Scalar", x), computed.base.dtype)
            elif encloses(trace, x._trace):  # the innermost one
                trace = x._trace
        scratch = Builder()
        op(scratch, *scratch.inputs([computed.base] * len(args)), *static)  # it may refuse them
        expression = NumberExpression(op, args, static, computed, user_source(2))
        result = computed if result is None else result
        return TracedNumber(trace, cast("Atom", UNCOMPUTED), result, expression)


class NumberExpression(NamedTuple):
    """An operation on numbers, at least one of which is traced; the type in which they are computed; the line."""

    op: Operation
    args: tuple[object, ...]
    static: tuple[Hashable, ...]
    computed: NumberType
    source: Source


_REAL_OF_COMPLEX: Final = (arithmetic.absolute, elementwise.real, elementwise.imag)
_64_BITS: Final[frozenset[object]] = frozenset({dtypes.float64, dtypes.complex128})


@final
class DifferentiatedNumber(NamedTuple):
    """The type of an argument by which a function is differentiated and that is a Python number, with the number.

    Its tangent is of float32 or complex64 unless it meets an array of 64 bits. If Python computes with it, the program
    needs all of its bits. Then its operand is the number rounded to 32 bits; the rest is an operand without tangent.
    Without a value there is no rest.
    """

    number_type: NumberType
    value: object = None

    def rest(self) -> object:
        """Return the number without the number rounded to 32 bits, in 64 bits; 0 where that is not finite."""
        wide, narrow = self.number_type.base.dtype, self.number_type.dtype
        if type(self.value) is not TracedNumber:
            with np.errstate(all="ignore"):
                value = np.asarray(self.value, wide)
                rest = value - value.astype(narrow).astype(wide)
            return rest if np.isfinite(rest) else np.zeros_like(rest)
        x, b = self.value.in_base(), self.value._trace.builder
        rounded = b.one(ConvertElementType(wide), b.one(ConvertElementType(narrow), x._var))
        difference = b.one(SUB, x._var, rounded)
        finite = elementwise.isfinite(b, difference)[0]
        return Tracer(self.value._trace, emit_where(b, finite, difference, Lit.zero(difference.aval)))


# The type of an argument of a traced function.
ArgumentType: TypeAlias = CallType | DifferentiatedNumber


@final
class NumberOperands:
    """The operands of a program for the arguments that are Python numbers.

    While a function is traced, the variable of a number can hold each value of its type: that of a float has 64 bits.
    An equation converts it where the number is used. At the end of the trace, the operand gets the dtype in which the
    program uses the number, so a conversion to this dtype goes. For `lambda x, n: x * n`, of an array and a float:

        while it is traced                          at the end
        x: f32[3], n: f64[]                         x: f32[3], n: f32[]
        a: f32[] = convert_element_type n
        b: f32[3] = mul x a                         b: f32[3] = mul x n

    `types` are the types of the operands. `rests` are the values of further operands, one for each number that is
    rounded to 32 bits although the program uses all of its bits: see `DifferentiatedNumber`.
    """

    __slots__ = ("_met", "_operands", "_exact", "rests", "types")

    def __init__(
        self, numbers: Sequence[TracedNumber], differentiated: Mapping[Atom, DifferentiatedNumber], jaxpr: Jaxpr
    ) -> None:
        self._met = met = _dtypes_in_use([n._var for n in numbers], jaxpr)
        self.types = {n._var: Aval((), n.number_type.operand_dtype(met[n._var])) for n in numbers}
        self.rests: dict[Atom, Any] = {}
        for n in numbers:
            v, number = n._var, differentiated.get(n._var)
            if number is None or n.meets_64_bits or self.types[v].dtype not in _64_BITS:
                continue
            self.types[v] = n.number_type.aval  # rounded to 32 bits, those of its tangent
            if number.value is not None:
                self.rests[v] = number.rest()
        self._operands: dict[Atom, Atom] = {}
        self._exact: dict[Atom, Atom] = {}  # of each number, the value that is converted where the program uses it

    def add_operands(self, b: Builder, ins: Sequence[Var]) -> list[Atom]:
        """Add the operands for the arguments `ins` of the program, those of `rests` first. Return what its equations
        read in place of `ins`: the exact number, in the dtype of its variable, if an equation reads the variable
        itself. All others are conversions of it, which `convert` replaces.

        `grad` of `lambda n, x: (x * (n * n)).sum()` by n = 0.1 has the operands rest: f64[], n: f32[], x: f32[3], and

            a: f64[] = convert_element_type n       0.1 rounded to 32 bits
            exact: f64[] = add a rest               0.1, of which the program computes n * n
        """
        rests = {v: b.input(v.aval) for v in self.rests}
        self._operands = {v: b.input(self.types.get(v, v.aval)) for v in ins}
        self._exact = exact = {v: self._operands[v] for v in self.types}
        for v, rest in rests.items():
            exact[v] = b.one(ADD, promotion.convert(b, exact[v], rest.aval.dtype), rest)
        reads = dict(self._operands)
        for v, met in self._met.items():
            if v.aval.dtype in met:
                reads[v] = promotion.convert(b, exact[v], v.aval.dtype)
        return list(reads.values())

    def convert(self, b: Builder, eqn: Eqn, _: Atoms) -> Atoms | None:
        """Return a conversion of a number, from the dtype that its operand has now; None for another equation."""
        prim, v = eqn.prim, eqn.ins[0] if eqn.ins else None
        if not isinstance(prim, ConvertElementType) or v not in self._exact:
            return None
        if v in self.rests and prim.dtype is self.types[v].dtype:
            return (self._operands[v],)  # the number itself, rounded to 32 bits
        return (promotion.convert(b, self._exact[v], prim.dtype),)


def _dtypes_in_use(numbers: Sequence[Atom], jaxpr: Jaxpr) -> dict[Atom, set[dtypes.DType]]:
    """Return the dtypes in which the program uses each operand that is a number."""
    met: dict[Atom, set[dtypes.DType]] = {v: set() for v in numbers}
    if not met:
        return met
    for eqn in jaxpr.eqns:
        for x in eqn.ins:
            if x in met:
                met[x].add(eqn.prim.dtype if type(eqn.prim) is ConvertElementType else x.aval.dtype)
    for x in jaxpr.outs:
        if x in met:
            met[x].add(x.aval.dtype)
    return met


def is_number(x: object) -> bool:
    """Return True for a Python number, also for a traced one."""
    return type(x) is TracedNumber or is_scalar(x)


def dtype_of_number(x: object, like: dtypes.DType | None, what: str = "scalar") -> dtypes.DType:
    """Return `promotion.scalar_dtype`, also of a traced number."""
    if type(x) is TracedNumber:
        return x.number_type.dtype_beside(like)
    return promotion.scalar_dtype(cast("promotion.Scalar", x), like, what)


def number_array(x: object, dtype: dtypes.DType) -> Array | NDArray:
    """Return a number as an array without axes, of a dtype that holds its kind. In a trace, it is an operand if the
    number is an argument of the traced function."""
    if type(x) is TracedNumber:
        return x.as_type(dtype)
    trace = active_trace() if type(x) in NUMBER_ARGUMENTS else None
    value = cast("promotion.Scalar", x)
    return (
        promotion.scalar_element(value, dtype) if trace is None else Tracer(trace, trace.number_operand(value, dtype))
    )
