"""Inverse rules reconstruct the operands, or give nan. An operand that results do not determine is refused with a
reason."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings

from fxad import dtypes
from fxad.core.interpreter import run
from fxad.ir import HigherOrder, NDArray, Primitive
from fxad.primitives import ALL
from fxad.testing import calls
from fxad.testing.applications import Application
from fxad.transforms.inversion.rules import INVERSE_RULES, REASONS
from fxad.transforms.inversion.rules.contract import Refused
from fxad.transforms.inversion.rules.totals import significand_bits
from tests.invertible.rules import backward
from tests.laws.budget import share

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
            for (x, was), box in zip(found.run(args, outs), found.boxes, strict=True):
                right = close(x, was, rounding(was.dtype))
                if kind.name in ILL_CONDITIONED and was.dtype in dtypes.INEXACT:
                    unknown_operands = iter([x])
                    again = run(
                        application.program,
                        [next(unknown_operands) if u else a for a, u in zip(args, marks, strict=True)],
                    )
                    right |= same_digits(again[0], outs[0])
                if kind.name in PARTLY and box is None and was.dtype not in dtypes.INEXACT:
                    continue  # lost elements of dtypes without nan look like others
                may_be_lost = (kind.name in PARTLY and box is None) or not smooth
                fine = right | np.isnan(x.astype(np.complex128)) if may_be_lost else right
                assert fine.all(), f"{application}\nunknown {marks}: {x} was {was}"

    law()
