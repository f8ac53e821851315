"""Elementwise functions of `fxad.numpy` in equations: promotion, then primitives."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from fxad import dtypes
from fxad.dtypes import DType
from fxad.errors import DTypeError
from fxad.ir import Atom, Atoms, Emit, Lit, Primitive, Var
from fxad.operations.arguments import check_real, to_int, with_atoms
from fxad.operations.promotion import (
    broadcast,
    common_shape,
    convert,
    promote_all,
    promote_and_broadcast,
    to_inexact_dtype,
)
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, MIN, MUL, NEG, REM, SUB
from fxad.primitives.elementwise.complex_parts import COMPLEX, CONJ, IMAG, REAL
from fxad.primitives.elementwise.convert import BitcastConvertType
from fxad.primitives.elementwise.exponential import EXP, LOG, LOG1P, Log2, Log10
from fxad.primitives.elementwise.family import literal_like
from fxad.primitives.elementwise.logic import (
    AND,
    EQ,
    GT,
    IS_FINITE,
    LE,
    LT,
    NE,
    NOT,
    OR,
    POPULATION_COUNT,
    SHIFT_RIGHT_ARITHMETIC,
    SHIFT_RIGHT_LOGICAL,
)
from fxad.primitives.elementwise.powers import ABS, HYPOT, SQUARE
from fxad.primitives.elementwise.select import CEIL, CLAMP, FLOOR, SELECT_N, TO_NEAREST_EVEN, Round, emit_where
from fxad.primitives.elementwise.trigonometric import ATAN2

# ------------------------------------------------------------------------------------------- one primitive, mostly


def identity(_: Emit, x: Atom) -> Atoms:
    """Return x itself."""
    return (x,)


def unary(emit: Emit, x: Atom, prim: Primitive) -> Atoms:
    """Return `prim` of x, without conversion."""
    return emit(prim, x)


def inexact_unary(emit: Emit, x: Atom, prim: Primitive) -> Atoms:
    """Return `prim` of x; integers and bools are first converted to float32."""
    return emit(prim, convert(emit, x, to_inexact_dtype(x.aval.dtype)))


def inexact_binary(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atoms:
    """Return `prim` of both, promoted; integers and bools are first converted to float32."""
    x, y = promote_and_broadcast(prim.name, emit, x, y)
    dtype = to_inexact_dtype(x.aval.dtype)
    return emit(prim, convert(emit, x, dtype), convert(emit, y, dtype))


def broadcast_ones(emit: Emit, *args: *tuple[*tuple[Atom, ...], Primitive]) -> Atoms:
    """Return a primitive, the last argument, of operands without axes, or of one rank; axes of size 1 are repeated."""
    *operands, prim = args
    shape = operands[0].aval.shape
    for x in operands[1:]:
        shape = common_shape(prim.name, shape, x.aval.shape)
    return emit(prim, *[broadcast(emit, x, shape) for x in operands])


def select_by_scalar(emit: Emit, which: Atom, *cases: Atom) -> Atoms:
    """Return the case at an index without axes; the cases have one shape."""
    return emit(SELECT_N, broadcast(emit, which, cases[0].aval.shape), *cases)


def same_type(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atoms:
    """Return `prim` of operands of one dtype; one may be a scalar. No promotion."""
    shape = x.aval.shape or y.aval.shape
    return emit(prim, broadcast(emit, x, shape), broadcast(emit, y, shape))


def mulhi(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return the upper half of the product of integers of one dtype; axes of size 1 are repeated."""
    if not dtypes.is_integer(x.aval.dtype) or x.aval.dtype is not y.aval.dtype:
        raise DTypeError(f"mulhi: takes integers of one dtype, got {x.aval} and {y.aval}")
    shape, dtype = common_shape("mulhi", x.aval.shape, y.aval.shape), x.aval.dtype
    x, y = broadcast(emit, x, shape), broadcast(emit, y, shape)
    bits = 8 * dtype.itemsize
    if bits < 64:
        signed = dtypes.RANGES[dtype][0] < 0
        wide = dtypes.as_dtype(f"{'' if signed else 'u'}int{2 * bits}")
        (product,) = emit(MUL, convert(emit, x, wide), convert(emit, y, wide))
        (upper,) = emit(SHIFT_RIGHT_ARITHMETIC if signed else SHIFT_RIGHT_LOGICAL, product, literal_like(bits, product))
        return (convert(emit, upper, dtype),)
    # by halves of 32 bits; no sum below exceeds 64 bits
    word = dtypes.uint64
    (a1, a0), (b1, b0) = [_halves(emit, convert(emit, v, word)) for v in (x, y)]
    (low,) = emit(SHIFT_RIGHT_LOGICAL, *_with_literal(emit(MUL, a0, b0)[0], 32))
    (middle,) = emit(ADD, emit(MUL, a1, b0)[0], low)
    carry, rest = _halves(emit, middle)
    (other,) = emit(ADD, emit(MUL, a0, b1)[0], rest)
    (top,) = emit(ADD, emit(ADD, emit(MUL, a1, b1)[0], carry)[0], _halves(emit, other)[0])
    if dtype is word:
        return (top,)
    # a negative x is x + 2**64 as a word, which adds y to the upper half
    high: Atom = convert(emit, top, dtype)
    for negative, added in ((x, y), (y, x)):
        (sign,) = emit(SHIFT_RIGHT_ARITHMETIC, *_with_literal(negative, 63))
        (high,) = emit(SUB, high, emit(AND, sign, added)[0])
    return (high,)


def _with_literal(x: Atom, number: int) -> tuple[Atom, Atom]:
    return x, literal_like(number, x)


def _halves(emit: Emit, x: Atom) -> tuple[Atom, Atom]:
    """Return the upper and the lower 32 bits of words of 64."""
    return emit(SHIFT_RIGHT_LOGICAL, *_with_literal(x, 32))[0], emit(AND, *_with_literal(x, 0xFFFFFFFF))[0]


def round_unary(emit: Emit, x: Atom, prim: Primitive) -> Atoms:
    """Return x rounded by `prim`, whose results are integral. Integers and bools are returned unchanged."""
    return emit(prim, x) if x.aval.dtype in dtypes.INEXACT else (x,)


def astype(emit: Emit, x: Atom, dtype: DType) -> Atoms:
    """Return x in another dtype. Raises: DTypeError from complex to real, which would lose a part."""
    if x.aval.dtype in dtypes.COMPLEX and dtype not in dtypes.COMPLEX and dtype is not dtypes.bool_:
        raise DTypeError(f"astype: {x.aval} to {dtype.name} would drop the imaginary part", remedy="use x.real or abs")
    return (convert(emit, x, dtype),)


# -------------------------------------------------------------------------------------------------------- choosing


def where(emit: Emit, x: Atom, y: Atom, condition: Atom) -> Atoms:
    """Return x where the condition holds, else y: `fxad.numpy.where`.

    The condition comes last, unlike in NumPy: a Python scalar takes the dtype of the first array operand, which must
    not be that of the condition.
    """
    (mask,) = is_nonzero(emit, condition)
    x, y = promote_and_broadcast("where", emit, x, y)
    shape = common_shape("where", mask.aval.shape, x.aval.shape)
    return emit(SELECT_N, *[broadcast(emit, a, shape) for a in (mask, y, x)])


def clip(emit: Emit, x: Atom, low: Atom, high: Atom) -> Atoms:
    """Return x, not below `low` and then not above `high`."""
    x, low, high = promote_all("clip", emit, (x, low, high))
    check_real("clip", x.aval)
    return emit(MIN, emit.one(MAX, x, low), high)


def clamp(emit: Emit, x: Atom, low: Atom, high: Atom) -> Atoms:
    """Return x limited to bounds of its dtype, of its shape or 0-d: no promotion."""
    shape = x.aval.shape
    return emit(CLAMP, *[broadcast(emit, a, shape) if not a.aval.shape else a for a in (low, x, high)])


def clip_below(emit: Emit, x: Atom, low: Atom) -> Atoms:
    """Return x, not below `low`."""
    check_real("clip", x.aval, low.aval)
    return emit(MAX, *promote_and_broadcast("clip", emit, x, low))


def clip_above(emit: Emit, x: Atom, high: Atom) -> Atoms:
    """Return x, not above `high`."""
    check_real("clip", x.aval, high.aval)
    return emit(MIN, *promote_and_broadcast("clip", emit, x, high))


def is_nonzero(emit: Emit, x: Atom) -> Atoms:
    """Return True where x is not zero."""
    return (convert(emit, x, dtypes.bool_),)


def logical_binary(emit: Emit, x: Atom, y: Atom, prim: Primitive) -> Atoms:
    """Return a logical function of whether x and y are not zero."""
    return emit(prim, *promote_and_broadcast(prim.name, emit, *is_nonzero(emit, x), *is_nonzero(emit, y)))


def logical_not(emit: Emit, x: Atom) -> Atoms:
    """Return True where x is zero."""
    return emit(NOT, *is_nonzero(emit, x))


# ------------------------------------------------------------------------------------------------------- questions


def isfinite(emit: Emit, x: Atom) -> Atoms:
    """Return True where x is neither infinite nor nan."""
    if x.aval.dtype in dtypes.COMPLEX:
        return emit(AND, emit.one(IS_FINITE, emit.one(REAL, x)), emit.one(IS_FINITE, emit.one(IMAG, x)))
    return emit(IS_FINITE, x) if x.aval.dtype in dtypes.FLOATING else (_full_bool(True, x),)


def isnan(emit: Emit, x: Atom) -> Atoms:
    """Return True where x is nan."""
    return emit(NE, x, x) if x.aval.dtype in dtypes.INEXACT else (_full_bool(False, x),)


def isinf(emit: Emit, x: Atom) -> Atoms:
    """Return True where x is infinite."""
    if x.aval.dtype not in dtypes.INEXACT:
        return (_full_bool(False, x),)
    if x.aval.dtype in dtypes.COMPLEX:
        return emit(OR, *isinf(emit, emit.one(REAL, x)), *isinf(emit, emit.one(IMAG, x)))
    return emit(EQ, emit.one(ABS, x), literal_like(np.inf, x))


def signbit(emit: Emit, x: Atom) -> Atoms:
    """Return True where the sign bit is set, also for -0.0 and nan."""
    if x.aval.dtype in dtypes.FLOATING:
        x = emit.one(BitcastConvertType(dtypes.SIGNED_OF_SIZE[x.aval.dtype.itemsize]), x)
    return emit(LT, x, literal_like(0, x))


def _full_bool(value: bool, x: Atom) -> Lit:
    return Lit.of(value, x.aval.with_dtype(dtypes.bool_))


# ------------------------------------------------------------------------------------------------- a few primitives


def conj(emit: Emit, x: Atom) -> Atoms:
    """Return the complex conjugate; real values are returned unchanged."""
    return emit(CONJ, x) if x.aval.dtype in dtypes.COMPLEX else (x,)


def real(emit: Emit, x: Atom) -> Atoms:
    """Return the real part; real values are returned unchanged."""
    return emit(REAL, x) if x.aval.dtype in dtypes.COMPLEX else (x,)


def imag(emit: Emit, x: Atom) -> Atoms:
    """Return the imaginary part; 0 for real values."""
    return emit(IMAG, x) if x.aval.dtype in dtypes.COMPLEX else (literal_like(0, x),)


def square(emit: Emit, x: Atom) -> Atoms:
    """Return x * x; of a bool, as int32."""
    return emit(SQUARE, convert(emit, x, dtypes.int32) if x.aval.dtype is dtypes.bool_ else x)


def trunc(emit: Emit, x: Atom) -> Atoms:
    """Return the integral part, towards zero."""
    if x.aval.dtype not in dtypes.INEXACT:
        return (x,)
    negative, down, up = emit.one(LT, x, literal_like(0, x)), emit.one(FLOOR, x), emit.one(CEIL, x)
    return (emit_where(emit, negative, up, down),)


def round_to(emit: Emit, x: Atom, decimals: int) -> Atoms:
    """Return x rounded to a number of decimals, ties to even."""
    decimals = to_int("round", "decimals", decimals)
    dtype = x.aval.dtype
    if dtype in dtypes.COMPLEX:
        return emit(COMPLEX, *[round_to(emit, emit.one(part, x), decimals)[0] for part in (REAL, IMAG)])
    if dtype not in dtypes.INEXACT:
        if decimals >= 0:
            return (x,)
        if dtype == dtypes.bool_:
            raise DTypeError(f"round: {decimals} decimals of {x.aval}", remedy="convert to an integer dtype first")
        return (_round_integer(emit, x, 10**-decimals),)
    if decimals == 0:
        return emit(Round(TO_NEAREST_EVEN), x)
    power = 10.0 ** min(abs(decimals), 308)
    with np.errstate(over="ignore"):
        beyond = abs(decimals) > 308 or not np.isfinite(np.asarray(power).astype(dtype).astype(np.float64))
    if beyond:  # of the range of the dtype
        return (x,) if decimals > 0 else emit(MUL, x, literal_like(0.0, x))
    scale = literal_like(power, x)
    up, down = (MUL, DIV) if decimals > 0 else (DIV, MUL)
    return emit(down, emit.one(Round(TO_NEAREST_EVEN), emit.one(up, x, scale)), scale)


def _round_integer(emit: Emit, x: Atom, unit: int) -> Atom:
    """Return integers rounded to multiples of `unit`, ties to even. A multiple beyond the dtype wraps around."""
    signed, bits = x.aval.dtype in dtypes.SIGNED, 8 * x.aval.dtype.itemsize
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    zero = literal_like(0, x)

    def wrapped(value: int) -> Lit:
        return literal_like((value - low) % (high - low + 1) + low, x)

    if unit > high:
        half = unit // 2  # at the tie the even multiple is 0
        up = zero if half >= high else emit_where(emit, emit.one(GT, x, literal_like(half, x)), wrapped(unit), zero)
        down = signed and half < -low
        return emit_where(emit, emit.one(LT, x, literal_like(-half, x)), wrapped(-unit), up) if down else up
    step = literal_like(unit, x)
    quotient, rest = emit.one(DIV, x, step), emit.one(REM, x, step)
    size = emit.one(ABS, rest) if signed else rest
    other = emit.one(SUB, step, size)  # twice the size may not fit
    odd = emit.one(NE, emit.one(REM, quotient, literal_like(2, x)), zero)
    away = emit.one(OR, emit.one(GT, size, other), emit.one(AND, emit.one(EQ, size, other), odd))
    one = literal_like(1, x)
    towards = emit_where(emit, emit.one(LT, x, zero), literal_like(-1, x), one) if signed else one
    rounded = emit_where(emit, away, emit.one(ADD, quotient, towards), quotient)
    return emit.one(MUL, rounded, step)


def times_constant(emit: Emit, x: Atom, factor: float) -> Atoms:
    """Return x times a constant."""
    x = convert(emit, x, to_inexact_dtype(x.aval.dtype))
    return emit(MUL, x, literal_like(factor, x))


def log_in_base(emit: Emit, x: Atom, prim: Log2 | Log10) -> Atoms:
    """Return the logarithm in base 2 or 10."""
    x = convert(emit, x, to_inexact_dtype(x.aval.dtype))
    if x.aval.dtype not in dtypes.COMPLEX:
        return emit(prim, x)
    y, scale = emit.one(LOG, x), math.log(prim.base)  # part by part: a complex factor would turn infinities into nan
    return emit(COMPLEX, *[_divide_by_constant(emit, emit.one(part, y), scale) for part in (REAL, IMAG)])


def _divide_by_constant(emit: Emit, x: Atom, by: float) -> Atom:
    return emit.one(DIV, x, literal_like(by, x))


def reciprocal(emit: Emit, x: Atom) -> Atoms:
    """Return 1 / x."""
    x = convert(emit, x, to_inexact_dtype(x.aval.dtype))
    return emit(DIV, literal_like(1, x), x)


def logaddexp(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return log(exp(x) + exp(y)), without overflow."""
    x, y = promote_and_broadcast("logaddexp", emit, x, y)
    dtype = to_inexact_dtype(x.aval.dtype)
    x, y = convert(emit, x, dtype), convert(emit, y, dtype)
    if dtype in dtypes.COMPLEX:
        return (_complex_logaddexp(emit, x, y),)
    total, gap = emit.one(ADD, x, y), emit.one(SUB, x, y)
    # the difference of equal infinities is nan: they are replaced, so that no nan reaches a derivative
    without = emit.one(NE, gap, gap)
    x, y = [emit_where(emit, without, literal_like(0, v), v) for v in (x, y)]
    # chosen, not max and abs: at a tie each choice has all derivatives of the result, and max and abs have averages
    gap = emit.one(SUB, x, y)
    swapped = emit.one(LT, x, y)
    top = emit_where(emit, swapped, y, x)
    soft = emit.one(LOG1P, emit.one(EXP, emit_where(emit, swapped, gap, emit.one(NEG, gap))))
    # two elements that are inf have half of the slope each. Two that are -inf are no elements: a constant. A nan stays
    total = emit_where(emit, without, total, literal_like(0, total))
    slope = emit_where(emit, emit.one(NE, total, total), literal_like(np.nan, total), literal_like(0.5, total))
    empty = emit.one(EQ, total, literal_like(-np.inf, total))
    edge = emit_where(emit, empty, literal_like(-np.inf, total), emit.one(MUL, total, slope))
    return (emit_where(emit, without, edge, emit.one(ADD, top, soft)),)


def _complex_logaddexp(emit: Emit, x: Atom, y: Atom) -> Atom:
    """Return the logarithm whose angle is from -pi to pi."""
    gap = emit.one(SUB, x, y)
    swapped = emit.one(LT, emit.one(REAL, x), emit.one(REAL, y))
    top = emit_where(emit, swapped, y, x)
    soft = emit.one(LOG1P, emit.one(EXP, emit_where(emit, swapped, gap, emit.one(NEG, gap))))
    # equal infinities: their difference is nan, their sum is themselves; a nan stays one
    out = emit_where(emit, emit.one(NE, gap, gap), emit.one(ADD, x, y), emit.one(ADD, top, soft))
    phase = emit.one(IMAG, out)
    turn = literal_like(2 * math.pi, phase)
    turns = emit.one(Round(TO_NEAREST_EVEN), emit.one(DIV, phase, turn))
    return emit.one(COMPLEX, emit.one(REAL, out), emit.one(SUB, phase, emit.one(MUL, turns, turn)))


def hypot(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return sqrt(x**2 + y**2), without overflow. Complex operands are refused, as by NumPy."""
    x, y = promote_and_broadcast("hypot", emit, x, y)
    dtype = to_inexact_dtype(x.aval.dtype)
    x, y = convert(emit, x, dtype), convert(emit, y, dtype)
    return emit(HYPOT, x, y)


def copysign(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return abs(x) with the sign of y."""
    x, y = promote_and_broadcast("copysign", emit, x, y)
    dtype = to_inexact_dtype(x.aval.dtype)
    x, y = emit.one(ABS, convert(emit, x, dtype)), convert(emit, y, dtype)
    return emit(SELECT_N, *signbit(emit, y), x, emit.one(NEG, x))


def heaviside(emit: Emit, x: Atom, y: Atom) -> Atoms:
    """Return 0 below zero, 1 above, y at zero."""
    x, y = promote_and_broadcast("heaviside", emit, x, y)
    dtype = to_inexact_dtype(x.aval.dtype)
    x, y = convert(emit, x, dtype), convert(emit, y, dtype)
    step = convert(emit, emit.one(GT, x, literal_like(0, x)), dtype)
    step = emit_where(emit, emit.one(NE, x, x), x, step)
    return (emit_where(emit, emit.one(EQ, x, literal_like(0, x)), y, step),)


def angle(emit: Emit, x: Atom) -> Atoms:
    """Return the angle of a complex number, from -pi to pi."""
    x = convert(emit, x, to_inexact_dtype(x.aval.dtype))
    return emit(ATAN2, *imag(emit, x), *real(emit, x))


def nan_to_num(
    emit: Emit, x: Atom, *args: *tuple[*tuple[Atom, ...], tuple[float | None, ...], tuple[bool, ...]]
) -> Atoms:
    """Return x with nan and infinities replaced. Arguments: the replacements that are atoms, then those of nan, inf and
    -inf that are numbers, and for each of the three if it is an atom. None is the greatest and the least finite
    number."""
    *atoms, static, which = args
    if x.aval.dtype in dtypes.COMPLEX:
        parts = [nan_to_num(emit, emit.one(part, x), *args)[0] for part in (REAL, IMAG)]
        return emit(COMPLEX, *parts)
    if x.aval.dtype not in dtypes.FLOATING:
        return (x,)
    limits = ml_dtypes.finfo(x.aval.dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
    defaults = (0.0, float(limits.max), float(limits.min))
    numbers, given_values = (
        [default if v is None else v for default, v in zip(defaults, static, strict=True)],
        iter(atoms),
    )
    nan, high, low = [
        _broadcast_number(emit, next(given_values) if is_atom else number, x)
        for number, is_atom in zip(numbers, which, strict=True)
    ]
    y = emit_where(emit, emit.one(NE, x, x), nan, x)
    y = emit_where(emit, emit.one(EQ, x, literal_like(np.inf, x)), high, y)
    return (emit_where(emit, emit.one(EQ, x, literal_like(-np.inf, x)), low, y),)


def _broadcast_number(emit: Emit, value: Atom | float, like: Atom) -> Atom:
    """Return a number, or an atom without axes, in the shape and the dtype of another value."""
    if isinstance(value, Var | Lit):
        return broadcast(emit, convert(emit, value, like.aval.dtype), like.aval.shape)
    return literal_like(value, like)


def isclose(emit: Emit, x: Atom, y: Atom, *args: *tuple[*tuple[Atom, ...], float | None, float | None, bool]) -> Atoms:
    """Return True where abs(x - y) <= atol + rtol * abs(y), or both are the same infinity. A tolerance None is an atom,
    one of the first arguments."""
    *atoms, relative, absolute, equal_nan = args
    rtol, atol = with_atoms((relative, absolute), atoms)
    x, y = promote_and_broadcast("isclose", emit, x, y)
    dtype = to_inexact_dtype(x.aval.dtype)
    x, y = convert(emit, x, dtype), convert(emit, y, dtype)
    size = emit.one(ABS, y)
    scaled = emit.one(MUL, _broadcast_number(emit, rtol, size), size)
    bound = emit.one(ADD, _broadcast_number(emit, atol, size), scaled)
    near = emit.one(LE, emit.one(ABS, emit.one(SUB, x, y)), bound)
    near = emit.one(AND, near, *isfinite(emit, y))
    near = emit.one(OR, near, emit.one(EQ, x, y))
    return emit(OR, near, emit.one(AND, emit.one(NE, x, x), emit.one(NE, y, y))) if equal_nan else (near,)


def bit_count(emit: Emit, x: Atom) -> Atoms:
    """Return the number of bits of abs(x) that are set, as uint8."""
    if x.aval.dtype is dtypes.bool_:
        return (convert(emit, x, dtypes.uint8),)
    if x.aval.dtype in dtypes.SIGNED:
        x = emit.one(ABS, x)
    return (convert(emit, emit.one(POPULATION_COUNT, x), dtypes.uint8),)
