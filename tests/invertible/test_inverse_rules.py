"""Inverse rules reconstruct the operands, or give nan. An operand that results do not determine is refused with a
reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings

from fxad import dtypes
from fxad.core.builder import Builder, single_equation
from fxad.core.interpreter import run
from fxad.errors import NotInvertibleError
from fxad.ir import Aval, Flags, HigherOrder, Jaxpr, Lit, NDArray, Primitive
from fxad.primitives import ALL
from fxad.primitives.elementwise.complex_parts import Imag, Real
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.family import Binary, Unary
from fxad.primitives.elementwise.logic import Not, Xor
from fxad.primitives.elementwise.powers import IntegerPow
from fxad.testing import calls
from fxad.testing.applications import Application
from fxad.transforms.inversion.inverse import inverse
from fxad.transforms.inversion.rules import INVERSE_RULES, REASONS
from fxad.transforms.inversion.rules.contract import Refused
from fxad.transforms.inversion.rules.elementwise import rounding as unit_roundoff, smallest
from fxad.transforms.inversion.rules.totals import significand_bits
from tests.invertible.rules import backward
from tests.laws.budget import share, some

INVERTED = [c for c in ALL if c in INVERSE_RULES.rows and c not in REASONS and not issubclass(c, HigherOrder)]
Bools = npt.NDArray[np.bool_]
MANY = 6  # all sets of the first six operands are unknown in turn
# A base near 1 has almost the same power for all exponents. So an exponent may be inexact, if the power is exact.
ILL_CONDITIONED = {"pow"}
# These determine parts of an operand, which are known only when the program runs.
PARTLY = {"real", "imag", "select_n", "gather", "scatter", "dynamic_slice", "dynamic_update_slice", "index"}


def close(back: NDArray, was: NDArray, tolerance: float) -> Bools:
    """Returns True for elements that are equal up to rounding, relative to the largest element."""
    if was.dtype not in dtypes.INEXACT:
        return np.asarray(back == was, np.bool_)
    wide = np.complex128 if was.dtype in dtypes.COMPLEX else np.float64
    a, b = back.astype(wide), was.astype(wide)
    with np.errstate(all="ignore"):
        finite = np.abs(b[np.isfinite(b)])
        size = np.maximum(np.abs(b), finite.max() if finite.size else 1.0)
        near = (a == b) | (np.abs(a - b) <= tolerance * np.maximum(size, 1.0))
    return np.asarray(near | (np.isnan(a) & np.isnan(b)), np.bool_)


def rounding(dtype: np.dtype[np.generic]) -> float:
    return {1: 0.3, 2: 0.06}.get(dtype.itemsize, 2e-3 if dtypes.real_part(dtype) == dtypes.float32 else 1e-6)


def same_digits(back: NDArray, was: NDArray) -> Bools:
    """Returns True for elements that are equal but for the last two bits."""
    a, b = back.astype(np.float64), was.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= 2.0 ** (3 - significand_bits(was.dtype, 4)) * np.abs(b)
    return np.asarray(near, np.bool_)


@pytest.mark.parametrize("kind", INVERTED, ids=lambda c: c.name)
@pytest.mark.parametrize("smooth", [True, False])
def test_rules_reconstruct_the_operands(kind: type[Primitive], smooth: bool) -> None:
    """For each set of unknown operands. Within the domain of the primitive no element becomes nan."""

    @settings(share(2), suppress_health_check=list(HealthCheck))
    @given(calls(kind, smooth=smooth))
    def law(application: Application) -> None:
        args, prim = application.args, application.prim
        outs = run(application.program, args)
        for unknown in [m for m in product((False, True), repeat=min(len(args), MANY)) if any(m)]:
            marks = unknown + (False,) * (len(args) - len(unknown))
            found = backward(prim, application.avals, marks)
            if isinstance(found, Refused):
                continue
            for (x, was), window in zip(found.run(args, outs), found.windows, strict=True):
                right = close(x, was, rounding(was.dtype))
                if kind.name in ILL_CONDITIONED and was.dtype in dtypes.INEXACT:
                    unknown_operands = iter([x])
                    again = run(
                        application.program,
                        [next(unknown_operands) if u else a for a, u in zip(args, marks, strict=True)],
                    )
                    right |= same_digits(again[0], outs[0])
                if kind.name in PARTLY and window is None and was.dtype not in dtypes.INEXACT:
                    continue  # lost elements of dtypes without nan look like others
                may_be_lost = (kind.name in PARTLY and window is None) or not smooth
                fine = right | np.isnan(x.astype(np.complex128)) if may_be_lost else right
                assert fine.all(), f"{application}\nunknown {marks}: {x} was {was}"

    law()


# operands from all parts of the range: a dtype has those that it represents
_SIZES = [m * 10.0**e for m, e in product((0.7, 1.3), (-300, -160, -44, -39, -37, -30, -19, -7, -5, -3, -2, -1))]
SIZES = [0.0, 0.3, 1.0, 3.0, np.inf, *_SIZES, *[1 / x for x in _SIZES]]
POWERS = (-31, -3, -1, 3, 5, 7, 31)
EXPONENTS = (-2.5, -1.0, -0.5, 0.5, 2.5, 3.0, 31.0, 40.5)
# these lose no operand at the ends
EXACT = (ConvertElementType, Not, Xor, Real, Imag)
AtEnds = tuple[Jaxpr, list[NDArray], Flags]


def at_the_ends(prim: Primitive, dtype: np.dtype[np.generic]) -> Iterator[AtEnds]:
    """Yields programs of one equation with operands from all parts of the range, and marks the unknown operand. The
    known one is an operand of the program or a literal."""
    with np.errstate(all="ignore"):
        values = np.unique(np.array([*SIZES, *[-x for x in SIZES]]).astype(dtypes.real_part(dtype))).astype(dtype)
        literals = [*values, *np.array(EXPONENTS).astype(dtype)]
    aval = Aval(values.shape, dtype)
    if isinstance(prim, Unary):
        yield single_equation(prim, (aval,), "f"), [values], (True,)
        return
    pairs = [np.ravel(x) for x in np.meshgrid(values, values)]
    program = single_equation(prim, [Aval(x.shape, dtype) for x in pairs], "f")
    yield from [(program, pairs, unknown) for unknown in ((True, False), (False, True))]
    for known, k in some([*product(literals, (0, 1))], 8, f"{prim} {dtype}"):
        b = Builder()
        x = b.input(aval)
        literal = Lit.of(known, aval)
        yield b.build(b(prim, *((literal, x) if k else (x, literal))), "f"), [values], (True,)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_an_overflow_or_underflow_is_never_a_plausible_number(dtype: str) -> None:
    """Where a result is 0 or infinite, the operand comes back within the rounding of 1, or as nan; or as infinity, if
    infinity has this result. Results are also those of XLA, where subnormal numbers are 0."""
    kinds = [c for c in INVERTED if issubclass(c, Unary | Binary) and c not in EXACT]
    prims = [c() for c in kinds if c is not IntegerPow] + [IntegerPow(n) for n in POWERS]
    for prim in [p for p in prims if np.dtype(dtype) in p.takes]:
        for program, args, unknown in at_the_ends(prim, np.dtype(dtype)):
            try:
                inverted = inverse(program, unknown)
            except NotInvertibleError:
                continue
            with np.errstate(all="ignore"):
                (exact,) = run(program, args)
                for y in (exact, np.where(abs(exact) < smallest(program.out_avals[0]), 0, exact).astype(exact.dtype)):
                    check_end(program, inverted, args, unknown, y)


def check_end(program: Jaxpr, inverted: Jaxpr, args: list[NDArray], unknown: Flags, y: NDArray) -> None:
    (was,) = [a for a, u in zip(args, unknown, strict=True) if u]
    (x,) = run(inverted, [y, *[a for a, u in zip(args, unknown, strict=True) if not u]])
    (again,) = run(program, [x if u else a for a, u in zip(args, unknown, strict=True)])
    eps = unit_roundoff(program.in_avals[0])
    near = (x == was) | (abs(x.astype(np.complex128) - was.astype(np.complex128)) <= 4 * eps * np.maximum(abs(was), 1))
    is_infinite = np.isinf(x) & ((again == y) | np.isnan(y))
    is_end = ((y == 0) | ~np.isfinite(y)) & ~np.isnan(was)
    wrong = is_end & ~(near | is_infinite | np.isnan(x))
    assert not wrong.any(), f"{program}\n{[a[wrong][:5] for a in (*args, y, x)]}"
