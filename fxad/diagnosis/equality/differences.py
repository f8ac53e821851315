"""The search for a difference of two programs: operands for which they have other results.

The results are computed in float64, with roundings in several directions, or in the own dtypes, bit for bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.interpreter import run, run_by_layout, run_with
from fxad.core.memo import by_value
from fxad.diagnosis.equality.verdict import Counterexample, OperandArrays, Question, bytes_differ
from fxad.diagnosis.in_dtype import OF_DTYPES, apply_in, dtype_in
from fxad.dtypes import DType
from fxad.errors import FxadError
from fxad.ir import Aval, Eqn, HigherOrder, Jaxpr, Lit, NDArray, distinct_jaxprs, literal_number
from fxad.primitives.check import Check
from fxad.primitives.cumulative import CumProd
from fxad.primitives.elementwise import (
    Abs,
    Clamp,
    Div,
    Erfc,
    Exp,
    Exp2,
    IntegerPow,
    Logistic,
    Max,
    Min,
    Mul,
    MulNoNan,
    Neg,
    Pow,
    Sech2,
    SelectN,
    Square,
    StopGradient,
)
from fxad.primitives.elementwise.beta import RegularizedIncompleteBeta
from fxad.primitives.elementwise.family import Compare
from fxad.primitives.elementwise.gamma import Igamma, Igammac
from fxad.primitives.index import Index
from fxad.primitives.reduce import ReduceMax, ReduceMin
from fxad.primitives.reduce_prod import ReduceProd
from fxad.primitives.shape import BroadcastInDim, Permutation
from fxad.primitives.slicing import Concatenate, Pad, Slice
from fxad.primitives.softmax import Softmax
from fxad.primitives.sort import Sort
from fxad.support.progress import Progress

_DRAWS: Final = 7
_WITH_TIES: Final = 4  # the draw whose floats are small integers, and equal each other
_EXTREME: Final = range(_DRAWS, _DRAWS + 4)  # draws whose integers are at the limits of their dtypes
_ELEMENTS: Final = 64  # least number of floats in all draws: one draw of a scalar may miss half of the cases of a `max`
_MAX_CONSTANTS: Final = 6  # greatest number of constants near which operands are drawn
_MAX_EQUATIONS: Final = 50_000  # a larger program is not run in search of a difference; bodies are counted once
_ROUNDINGS: Final = 3
_SPECIAL: Final = np.array([0.0, -0.0, 1.0, -1.0, 1e30, -1e-30, 1e300, np.inf, -np.inf, np.nan])
_SPECIAL_DRAWS: Final = 4
_CONFIRMING: Final = 16  # number of roundings that confirm a difference
_BEYOND_NOISE: Final = 32.0
# A literal that was rounded is off by up to spacing / 8. That is noise, and a difference is 32 times the noise: four
# spacings and more for each such literal.
_OF_LITERALS: Final = _BEYOND_NOISE / 4
_ABOVE_ZERO: Final = 1e-300  # it keeps a quotient of 0 and 0 from being nan
# The first element whose difference is this near to the largest one is shown: rounding does not choose among them.
_ABOUT_AS_LARGE: Final = 8
_MAX_TRIALS: Final = 60  # greatest number of simpler operands that are tried
_MAX_STEPS: Final = 20_000  # greatest number of steps of all loops of one run

# Operations whose result may be zero in float64 although the real number is not: `_FACTORS` where no factor is zero,
# `_POSITIVE` always.
_FACTORS: Final = (
    Mul, MulNoNan, Div, Square, IntegerPow, Pow, ReduceProd, CumProd, Igamma, Igammac, RegularizedIncompleteBeta,
)  # fmt: skip
_POSITIVE: Final = (Exp, Exp2, Logistic, Erfc, Sech2, Softmax)
_LEAST: Final = 2.0**-1074  # the least positive float


# equations that only move elements
MOVES: Final = (Permutation, BroadcastInDim, Slice, Concatenate, Index)
# operations that round nothing in float64: operands that are equal stay so
_EXACT: Final = (*MOVES, Pad, Neg, Abs, Max, Min, Clamp, SelectN, Sort, ReduceMax, ReduceMin, StopGradient)


def difference(question: Question) -> Counterexample | None:
    """Return operands where the results differ by more than rounding, as float64 computes them."""
    with Progress("searching for a difference", unit=" draws") as bar:
        for args in _draws(question):
            bar.step()
            counterexample = _compared(question, args)
            if counterexample is None or not _is_real(question, counterexample):
                continue
            simpler = _shrunk(question, counterexample)
            return simpler if _is_real(question, simpler) else counterexample
    return None


def _is_real(question: Question, counterexample: Counterexample) -> bool:
    return _confirmed(question, counterexample) and _shown_by_floats(question, counterexample)


def _shown_by_floats(question: Question, counterexample: Counterexample) -> bool:
    """Return True if the programs have results in their own dtypes, and differ in them where one of them reads the
    floats of a dtype: in float64, a conversion to float16 rounds nothing, and `reduce_precision` to it does."""
    kinds = {type(e.prim) for p in question.programs for body in distinct_jaxprs(p) for e in body.eqns}
    if kinds.isdisjoint((Check, *OF_DTYPES)):
        return True
    pairs = zip(question.programs, question.bound, strict=True)
    try:
        ours, theirs = [run(p, [*bound, *counterexample.args])[counterexample.result] for p, bound in pairs]
    except FxadError:  # a check failed: no evidence
        return False
    return kinds.isdisjoint(OF_DTYPES) or bool(bytes_differ(ours, theirs)[counterexample.index])


def _confirmed(question: Question, counterexample: Counterexample) -> bool:
    """Return True if the results differ however their equations are rounded: a floor or a comparison at a jump has a
    wrong value in float64 that rounding in one more direction changes."""
    return _compared(question, counterexample.args, _CONFIRMING) is not None


def _draws(question: Question) -> Iterator[list[NDArray]]:
    """Give operands: floats around 0 of several sizes, or positive ones, or equal ones, and small or extreme integers;
    then values above, below and at the constants of the programs, where comparisons change; then the first kinds again,
    if the operands have few elements. Operands whose values are given have these."""
    programs = question.programs
    constants = sorted({x for p in programs for x in _constants(p)}, key=abs, reverse=True)
    integers = any([x is None and not a.inexact for a, x in zip(question.avals, question.known, strict=True)])
    targets: list[tuple[float, float] | None] = [None] * (_DRAWS + len(_EXTREME) * integers)
    targets += [(c, side) for c in constants[:_MAX_CONSTANTS] for side in (1.0, -1.0, 0.0)]
    # `_drawn` looks at the target first, so the number of a draw with a target is no kind of operand
    n_kinds = len(targets)
    floats = sum([a.size for a, x in zip(question.avals, question.known, strict=True) if x is None and a.inexact])
    targets += [None] * max(0, -(-_ELEMENTS // floats) - _DRAWS if floats else 0)
    work = sum([len(body.eqns) for p in programs for body in distinct_jaxprs(p)])
    for draw in range(min(len(targets), max(3, _MAX_EQUATIONS // max(work, 1)))):
        source = np.random.default_rng([question.seed, draw])
        yield [
            _drawn(source, aval, draw if draw < n_kinds else draw % _DRAWS, targets[draw]) if value is None else value
            for aval, value in zip(question.avals, question.known, strict=True)
        ]


def _drawn(source: np.random.Generator, aval: Aval, draw: int, target: tuple[float, float] | None) -> NDArray:
    """Return an operand.

    With a target, a constant c and a side, its values are above c (1), below it (-1) or at it (0). Without, the number
    of the draw says the kind:

        draw            floats                      integers
        _WITH_TIES      rounded: many are equal     -4 to 4
        of _EXTREME     as the others               one of the extreme ones; in the last of these draws, all of them
        odd             positive                    -4 to 4
        even            around 0, wider each time   -4 to 4

    Bools are drawn alike in every case.
    """
    shape, dtype = aval.shape, aval.dtype
    if dtype == dtypes.bool_:
        return np.asarray(source.integers(0, 2, shape).astype(np.bool_))
    if target is not None:
        constant, side = target
        if not aval.inexact:
            real = np.full(shape, constant + side)
        elif side:
            real = constant + side * source.uniform(0, 1, shape) * (1 + abs(constant))
        else:
            real = np.where(source.integers(0, 2, shape), constant, source.normal(0, 1, shape))
    elif not aval.inexact and draw in _EXTREME:
        least, most = dtypes.RANGES[dtype]
        middle = least + (most - least + 1) // 2
        values = np.array([most, least, middle, most - 1, least + 1, middle - 1, middle + 1], object)
        which = source.integers(0, len(values), shape) if draw == _EXTREME[-1] else np.full(shape, draw - _DRAWS)
        return np.asarray(values[which], dtype)
    elif not aval.inexact:
        real = source.integers(-4, 5, shape).astype(np.float64)
    elif draw == _WITH_TIES:
        real = np.rint(source.normal(0, 1.0, shape))
    else:
        real = source.uniform(0.25, 1.0, shape) if draw % 2 else source.normal(0, 1.0 + draw, shape)
    with np.errstate(all="ignore"):
        if not aval.inexact:
            low, high = [float(x) for x in dtypes.RANGES[dtype]]
            return np.asarray(np.clip(np.rint(real), max(low, -(2.0**53)), min(high, 2.0**31 - 1)).astype(dtype))
        return np.asarray(real + 1j * source.normal(0, 1, shape) if dtype in dtypes.COMPLEX else real).astype(dtype)


def _special(question: Question) -> Iterator[list[NDArray]]:
    """Give operands whose floats are zeros of both signs, infinities, nans, and numbers whose products leave the range
    of a dtype."""
    for draw in range(_SPECIAL_DRAWS):
        source = np.random.default_rng([question.seed, draw, 1])
        args = []
        for aval, value in zip(question.avals, question.known, strict=True):
            if value is None and aval.inexact:
                with np.errstate(all="ignore"):
                    value = np.asarray(_SPECIAL[source.integers(0, len(_SPECIAL), aval.shape)]).astype(aval.dtype)
            args.append(_drawn(source, aval, draw, None) if value is None else value)
        yield args


@by_value
def _constants(jaxpr: Jaxpr) -> tuple[float, ...]:
    """Return the finite real constants of a program."""
    constants = set[float]()
    for body in distinct_jaxprs(jaxpr):
        for a in (a for eqn in body.eqns for a in eqn.ins):
            value = literal_number(a)
            if value is not None and a.aval.dtype not in dtypes.COMPLEX and np.isfinite(float(value)):
                constants.add(float(value))
    return tuple(sorted(constants))


def _compared(question: Question, args: Sequence[NDArray], roundings: int = _ROUNDINGS) -> Counterexample | None:
    """Return the element that differs most, relative to the noise of rounding; None if it is noise, or if a program
    cannot run in float64. Neither is evidence of a difference: to the callers, the programs are equal so far.

    Each program runs in float64, and then several times with results of each equation rounded at random: the spread of
    the results estimates their error (stochastic arithmetic: Vignes 1993).
    """
    pairs = [(p, [*bound, *args]) for p, bound in zip(question.programs, question.bound, strict=True)]
    try:
        runs = [[_run_rounded(p, operands, 0)] for p, operands in pairs]
        if all([np.array_equal(x, y) for x, y in zip(runs[0][0], runs[1][0], strict=True)]):
            return None
        for k in range(1, 1 + roundings):
            for runs_of_program, (p, operands) in zip(runs, pairs, strict=True):
                runs_of_program.append(_run_rounded(p, operands, k))
    except Exception:  # noqa: BLE001  # float64 does not fit this program (a cast of bits), or a check failed: no evidence
        return None
    best: tuple[float, Counterexample] | None = None
    for q in range(len(question.programs[0].outs)):
        ours, theirs = [np.stack([np.asarray(outs[q]) for outs in runs_of_program]) for runs_of_program in runs]
        if not ours.size:
            continue
        if ours.dtype.kind in "fc":
            ours, theirs = [np.asarray(x).astype(np.complex128) for x in (ours, theirs)]
            with np.errstate(all="ignore"):
                noise = np.abs(ours - ours[0]).max(0) + np.abs(theirs - theirs[0]).max(0)
                size = np.maximum(np.abs(ours[0]), np.abs(theirs[0]))
                gap = np.abs(ours[0] - theirs[0])
                ratio = gap / (_BEYOND_NOISE * (noise + 2.0**-52 * size) + _ABOVE_ZERO)
            finite = np.isfinite(ours).all(0) & np.isfinite(theirs).all(0)
            ratio = np.where(finite, ratio, 0.0)
        else:
            is_stable = (ours == ours[0]).all(0) & (theirs == theirs[0]).all(0)
            ratio = np.where(is_stable & (ours[0] != theirs[0]), 2.0, 0.0)
        large = (ratio > 1) & (ratio >= ratio.max() / _ABOUT_AS_LARGE)
        index = np.unravel_index(int(np.argmax(large)), ratio.shape)  # the first of those that differ most
        if ratio[index] > 1 and (best is None or ratio[index] > best[0]):
            pair = [np.asarray(runs_of_program[0][q])[index].item() for runs_of_program in runs]
            best = float(ratio[index]), Counterexample(tuple(args), q, tuple(map(int, index)), *pair)
    return None if best is None else best[1]


@final
class _Rounding:
    """Draws directions of rounding: for each element of a result, or in every second run one for all elements. If the
    results of three comparisons are added, they seldom go all one way by themselves."""

    def __init__(self, seed: int) -> None:
        self.source: Final = np.random.default_rng(seed)
        self.one_for_all: Final = seed % 2 == 0

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return integers from `low` to below `high`, of the shape, or one."""
        return np.asarray(self.source.integers(low, high, () if self.one_for_all else shape), np.int64)


def _run_rounded(jaxpr: Jaxpr, args: Sequence[NDArray], seed: int) -> list[NDArray]:
    rounding = _Rounding(seed) if seed else None
    with np.errstate(all="ignore"):
        return _wide(jaxpr, [_widened_value(x) for x in args], rounding)


def _widened_value(x: NDArray) -> NDArray:
    return x.astype(dtype_in(dtypes.float64, x.dtype), copy=False)


def _wide(jaxpr: Jaxpr, args: Sequence[NDArray], rounding: _Rounding | None) -> list[NDArray]:
    """Run a program in float64. If there is a `rounding`, results of equations are rounded up or down at random, and
    those that are no numbers are any numbers."""
    return _bounded(jaxpr, args, dtypes.float64, lambda eqn, operands: _wide_results(eqn, operands, rounding), rounding)


def _bounded(
    jaxpr: Jaxpr,
    args: Sequence[NDArray],
    dtype: DType | None,
    results_of: Callable[[Eqn, list[NDArray]], list[NDArray]],
    rounding: _Rounding | None = None,
) -> list[NDArray]:
    """Run a program whose inexact values have `dtype`, by the results of its equations without bodies. For operands
    that were drawn, a loop may have no end.

    Raises: ValueError after `_MAX_STEPS` steps of loops, of all together.
    """
    step_numbers = itertools.count(1)

    def body(jaxpr: Jaxpr, values: list[NDArray]) -> list[NDArray]:
        if next(step_numbers) > _MAX_STEPS:
            raise ValueError("the loops do not end")
        return run_body(jaxpr, values)

    def apply(_: int, eqn: Eqn, operands: list[NDArray]) -> list[NDArray]:
        layout = eqn.prim.layout if isinstance(eqn.prim, HigherOrder) else None
        if layout is None or not layout.states_results:
            return results_of(eqn, operands)
        outs = [v.aval.with_dtype(dtype_in(dtype, v.aval.dtype)) for v in eqn.outs]
        found = run_by_layout(layout, operands, outs, lambda k, _, values: body(layout.bodies[k].jaxpr, values))
        assert found is not None, "each body has results"
        return found

    def run_body(jaxpr: Jaxpr, values: Sequence[NDArray]) -> list[NDArray]:
        return run_with(jaxpr, values, apply, lambda a: a.array if dtype is None else _literal(a, rounding))

    return run_body(jaxpr, args)


def _wide_results(eqn: Eqn, operands: list[NDArray], rounding: _Rounding | None) -> list[NDArray]:
    outs = [_widened_value(np.asarray(y)) for y in _wide_impl(eqn, operands)]
    if rounding is None:
        return outs
    if not isinstance(eqn.prim, _EXACT):
        finite = all([np.isfinite(x).all() for x in operands if x.dtype.kind in "fc"])
        outs = [_rounded(y, finite, rounding) for y in outs]
        if isinstance(eqn.prim, (*_FACTORS, *_POSITIVE)) and eqn.outs[0].aval.inexact:
            outs = [_not_zero(eqn, y, operands, rounding) for y in outs]
    if isinstance(eqn.prim, Compare) and eqn.ins[0].aval.inexact:
        outs = [_compared_near(y, operands, eqn.ins[0].aval.dtype, rounding) for y in outs]
    return outs


def _not_zero(eqn: Eqn, y: NDArray, operands: OperandArrays, rounding: _Rounding) -> NDArray:
    """Return a result of which those too small for a float are about zero, and not zero: exp(-1000) is positive."""
    small = np.abs(y) < np.finfo(np.float64).smallest_normal
    for x in operands:
        usual = np.isfinite(x)
        if isinstance(eqn.prim, _FACTORS):  # a product is zero if a factor is
            usual &= x != 0
        small &= usual if x.shape == y.shape and not isinstance(eqn.prim, CumProd) else usual.all()
    if not small.any():
        return y
    if y.dtype.kind == "c":
        return np.where(small, np.add(y, _LEAST * (2 * rounding.integers(0, 2, y.shape) - 1)), y)
    size = np.maximum(np.abs(y) + _LEAST * rounding.integers(0, 3, y.shape), _LEAST)
    return np.where(small, np.copysign(size, y), y)  # a float keeps the sign of what is too small for it


def _literal(a: Lit, rounding: _Rounding | None) -> NDArray:
    """Return a constant. One that its dtype has rounded, such as 0.1, is off by a little: in float32, `x * 0.1 * 0.3`
    and `x * 0.03` are the same function."""
    wide, dtype = _widened_value(a.array), a.aval.dtype
    if rounding is None or wide.dtype == dtype:
        return wide
    spacing = float(np.spacing(np.ones((), dtypes.real_part(dtype))))
    parts = np.array([np.real(a.value), np.imag(a.value)], np.float64)
    # 0.5 and integers are exact. A number whose second half of binary digits is zero is taken for exact, as a rounded
    # one has all digits but by chance: in float32, 0.5 and 0.8125 have at most 11, and 0.1 has 24.
    half = round(-np.log2(spacing)) // 2
    first_half = np.ldexp(np.frexp(parts)[0], half)
    if ((first_half == np.rint(first_half)) | (parts == np.rint(parts))).all():
        return wide
    return np.asarray(np.multiply(wide, 1 + spacing / _OF_LITERALS * int(rounding.integers(-1, 2, ()))))


def _wide_impl(eqn: Eqn, operands: Sequence[NDArray]) -> Sequence[NDArray]:
    prim = eqn.prim
    if isinstance(prim, Check):  # its operands: the predicate, the values of its message, and its results
        return operands[1 + prim.n_fields :]
    if prim.effects:
        raise ValueError("an effect is not repeated")
    return apply_in(dtypes.float64, eqn, operands)


def _rounded(y: NDArray, finite: bool, rounding: _Rounding) -> NDArray:
    """Return a result, rounded at random. An infinity or a nan of finite operands is no number, as a quotient by zero:
    in its place is any number, so that a result that depends on it is not steady."""
    if y.dtype.kind not in "fc" or not y.size:
        return y
    made = np.asarray(np.multiply(y, 1 + 2.0**-52 * rounding.integers(-1, 2, y.shape)))
    if finite and not np.isfinite(y).all():
        draw = rounding.source
        made = np.where(np.isfinite(y), made, draw.normal(0, 1.0, y.shape) * 10.0 ** draw.uniform(-3, 3, y.shape))
    return made


def _compared_near(y: NDArray, operands: OperandArrays, dtype: DType, rounding: _Rounding) -> NDArray:
    """Return a comparison. Of values nearer to each other than the floats of their dtype it has any result: constants
    of the dtype are rounded, and 0.1 + 0.2 may be 0.3."""
    a, b = [np.asarray(x).astype(np.complex128) for x in operands]
    spacing = float(np.spacing(np.ones((), dtypes.real_part(dtype))))
    with np.errstate(all="ignore"):
        near = (a != b) & (np.abs(a - b) <= spacing * np.maximum(np.abs(a), np.abs(b)))
    return np.asarray(np.where(near, rounding.integers(0, 2, y.shape).astype(np.bool_), y))


def _shrunk(question: Question, found: Counterexample) -> Counterexample:
    """Return a counterexample with simpler operands: zeros, ones, small integers, as far as the programs differ."""
    trials = 0
    for k, (aval, known) in enumerate(zip(question.avals, question.known, strict=True)):
        for simpler in _simpler(found.args[k], aval) if known is None else ():
            trials += 1
            if trials > _MAX_TRIALS or np.array_equal(simpler, found.args[k]):
                continue
            other = _compared(question, (*found.args[:k], simpler, *found.args[k + 1 :]))
            if other is not None:
                found = other
                break
    return found


def _simpler(x: NDArray, aval: Aval) -> Iterator[NDArray]:
    yield np.zeros(aval.shape, aval.dtype)
    yield np.ones(aval.shape, aval.dtype)
    if aval.dtype != dtypes.bool_:
        yield np.arange(aval.size).reshape(aval.shape).astype(aval.dtype)
    if aval.inexact:
        with np.errstate(all="ignore"):
            wide: Any = x.astype(dtype_in(dtypes.float64, aval.dtype))
            yield (np.round(wide * 4) / 4).astype(aval.dtype)
            yield (np.round(wide * 256) / 256).astype(aval.dtype)


def difference_in_bits(question: Question) -> Counterexample | None:
    """Return operands where the interpreted results have other bits."""
    for args in itertools.chain(_draws(question), _special(question)):
        try:
            with np.errstate(all="ignore"):
                runs = [
                    _bounded(p, [*bound, *args], None, _own_results)
                    for p, bound in zip(question.programs, question.bound, strict=True)
                ]
        except Exception:  # noqa: BLE001  # a check failed, a loop has no end, a function of the host raised: no evidence
            continue
        for q, (a, b) in enumerate(zip(*runs, strict=True)):
            differ = bytes_differ(a, b)
            if a.dtype in dtypes.INEXACT:
                differ = np.logical_and(
                    differ, ~(np.isnan(a) & np.isnan(b))
                )  # no operation says which nan its result is
            if differ.any():
                at = np.unravel_index(int(np.argmax(differ)), differ.shape)
                return Counterexample(tuple(args), q, tuple(map(int, at)), a[at].item(), b[at].item(), "bits")
    return None


def _own_results(eqn: Eqn, operands: list[NDArray]) -> list[NDArray]:
    if eqn.prim.effects:
        raise ValueError("an effect is not repeated")
    return list(map(np.asarray, eqn.prim.impl(*operands)))
