"""The law of mask: what a masked program computes from padded operands, at one program of symbolic shape.

@given(ragged_cases())
def test_mask(case):
    check_mask(case)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.errors import FxadError, NotMaskedError, SizeError, UnknownSizeError
from fxad.ir import Jaxpr, Primitive, distinct_jaxprs
from fxad.primitives.fft import Fft
from fxad.primitives.linalg import LINALG
from fxad.testing.compare import HostArrays, differ, fail, program_tolerance, xla
from fxad.testing.ragged_cases import RaggedCase, masked_operands, with_infinities
from fxad.testing.transform_laws import check_transform
from fxad.transforms.mask.mask import mask
from fxad.transforms.specialize import size_names, specialize
from fxad.transforms.vmap import vmap

# an infinity becomes nan in other elements of their results, in some algorithms and sizes and not in others
_SPREADING: Final[frozenset[type[Primitive]]] = frozenset([Fft, *LINALG])


def check_mask(case: RaggedCase, *, compiled: bool = False) -> bool:
    """Check the laws of `mask` on one program.

    - the valid part of the results is that of the program at the sizes, whatever the padding holds; the padding of
      results is zero;
    - the same with infinities and nan among the valid elements, but for Fourier transforms and linear algebra;
    - sizes masked one after the other, and at once, give the same;
    - a batch over sizes gives the results of its examples.

    Return False for a program that mask refuses. `compiled`: compare in XLA too.
    """
    program = case.program
    try:
        masked = check_transform(lambda f: mask(f, case.own), program)
    except SizeError as e:
        raise_unless_refused(e)
        return False
    args = case.operands(program.in_avals)
    fixed = check_transform(lambda f: specialize(f, tuple(sorted(case.sizes.items()))), program)
    expected = run(fixed, args)
    tolerance = program_tolerance(fixed, args)
    given = masked_operands(case, args, masked)
    check_valid_part("mask", case, masked, run(masked, given), expected, tolerance)
    if not _SPREADING & {type(e.prim) for body in distinct_jaxprs(program) for e in body.eqns}:
        odd = with_infinities(case, args)
        hostile = masked_operands(case, odd, masked)
        tolerance_of_odd = program_tolerance(fixed, odd)
        check_valid_part("mask, with infinities", case, masked, run(masked, hostile), run(fixed, odd), tolerance_of_odd)
    if compiled:
        check_valid_part("mask in XLA", case, masked, xla(masked, given), expected, tolerance)
    if len(case.own) > 1:
        inner, outer = case.own[1:], case.own[:1]
        nested = mask(mask(program, inner), outer)
        typecheck(nested)
        check_valid_part(
            "mask of mask",
            case,
            nested,
            run(nested, [*given[: len(args)], *case.own_sizes[1:], *case.own_sizes[:1]]),
            expected,
            tolerance,
        )
    _check_batch_of_sizes(case, masked)
    return True


def raise_unless_refused(error: FxadError) -> None:
    """Raise an error again, unless mask may refuse a program by it: an equation has no padded form, or needs a size
    that is not known, and the error says where."""
    unknown = isinstance(error, UnknownSizeError) and (error.equation or error.where)
    if not (isinstance(error, NotMaskedError) or unknown):
        raise error


def check_valid_part(
    law: str, case: RaggedCase, masked: Jaxpr, actual: HostArrays, expected: HostArrays, tolerance: float
) -> None:
    """Raise AssertionError for results whose valid part is not `want`, or whose padding is not zero."""
    for k, (x, y) in enumerate(zip(actual, expected, strict=True)):
        inside = tuple([slice(n) for n in y.shape])
        if problem := differ([x[inside]], [y], slack=tolerance, signs=False):
            fail(
                f"{law} of {dict(case.sizes)} in {dict(case.padding)}, seed {case.seed}: result {k}: {problem}",
                case.program,
                (),
                masked,
            )
        rest = np.array(x)
        rest[inside] = 0
        if rest.any():
            fail(
                f"{law} of {dict(case.sizes)}, seed {case.seed}: the padding of result {k} is not zero: {x.tolist()}",
                case.program,
                (),
                masked,
            )


def _check_batch_of_sizes(case: RaggedCase, masked: Jaxpr) -> None:
    """Check a ragged batch: each example has sizes of its own."""
    least = {n.name: n.at_least for n in size_names(case.program)}
    sizes = [case.sizes, {**dict(case.padding)}, {n: least.get(n, 0) for n in case.sizes}]
    examples = [replace(case, sizes=values, seed=case.seed + k) for k, values in enumerate(sizes)]
    rows = []
    for e in examples:
        args = e.operands(case.program.in_avals)
        rows.append((args, masked_operands(e, args, masked)))
    stacks = [np.stack([given[k] for _, given in rows]) for k in range(len(masked.ins))]
    batched, _ = vmap(masked, len(rows), (0,) * len(masked.ins), (0,) * len(masked.outs))
    typecheck(batched)
    actual = run(batched, stacks)
    for k, (e, (args, _)) in enumerate(zip(examples, rows, strict=True)):
        fixed = specialize(case.program, tuple(sorted(e.sizes.items())))
        tolerance = program_tolerance(fixed, args)
        check_valid_part(f"row {k} of a ragged batch", e, batched, [y[k] for y in actual], run(fixed, args), tolerance)
