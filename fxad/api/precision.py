"""`rounding_errors`: the digits that a program loses, by equation and line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from fxad.api.lift import check_program
from fxad.core import tree
from fxad.errors import NotDifferentiableError
from fxad.execution.executable import Executable, lower
from fxad.ir import Aval, Jaxpr, NDArray
from fxad.runtime import CompileOptions
from fxad.tracing.program import Program, numpy_operands
from fxad.transforms.precision.bounds import with_bounds
from fxad.transforms.precision.rounding import SUMS, weighted_errors, with_accumulators
from fxad.transforms.precision.shadow import Shadow, shadow as shadow_of_jaxpr
from fxad.transforms.precision.table import RoundingErrors, table_of

# without it, XLA may compute in float32 what a program computes in bfloat16
_AS_WRITTEN: Final = CompileOptions(flags=(("xla_allow_excess_precision", False),))


def rounding_errors(program: Program[..., object], /, *args: object, **kwargs: object) -> RoundingErrors:
    """Return the rounding errors of a program for some arguments: a table with a row for each equation that rounds.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> def root(b):
    ...     return fnp.sqrt(b * b - 4) - b
    >>> table = fx.rounding_errors(fx.trace(root, fx.Spec((), "float32")), 1000.0)
    >>> worst = table.worst[0]
    >>> worst.primitive, worst.line.line
    ('sqrt', 2)
    >>> [row.causes for row in table if row.causes]
    [('cancellation of 6 digits',)]

    The error of an equation is the difference between its result and that of the same equation in a wider dtype, over
    the same operands. Its effect on the results is that difference times the adjoint: the derivative of the results by
    the result of the equation, all of which one reverse pass computes. Arguments and literals count as exact. The
    equations are those of the program, also those in the bodies of calls, loops, branches and functions with custom
    rules, each rounded as `interpret` does: a compiler that fuses a product with a sum rounds less often.

    For one real result, `table.error` is the size of its error to first order. For several, or arrays, it is an
    estimate of their Euclidean norm, with the results weighted by random signs. An unbounded `while` counts with the
    steps that it takes for these arguments.

    An equation of 64 bits has no wider dtype. The errors of sums, products, quotients and square roots are computed by
    error-free transformations, others count as half a unit roundoff of the result.

    Raises: ArgumentError for a value that is not a Program, and what a call of it raises for arguments that do not fit;
            NotDifferentiableError for a program without a floating result, and for an equation without a derivative.
    Cost:   one gradient, each equation once more in the wider dtype, and one reading of each result; less than three
            times the gradient on the models of `benchmarks/precision.py`.
    Source: Langlois, Automatic linear correction of rounding errors (2001); Vassiliadis, Chassin, Menon, Towards
            automatic significance analysis (2016), for errors by adjoints.
    """
    check_program("rounding_errors", program)
    jaxpr, operands = numpy_operands(program, args, kwargs)
    inexact = [a for a in jaxpr.out_avals if a.inexact]
    if not inexact:
        raise NotDifferentiableError(
            f"rounding_errors: {program.name} has no floating result:"
            f" ({', '.join([str(a) for a in jaxpr.out_avals])})",
            remedy="return the floating values whose errors matter; integers and bools are exact",
        )
    bounded = with_bounds(jaxpr, operands)
    outs = executable(weighted_errors(bounded))(*operands, *_weights(inexact))
    results = [np.asarray(x) for x, a in zip(outs, jaxpr.out_avals, strict=False) if a.inexact]
    return table_of(jaxpr, with_accumulators(bounded).sites, np.asarray(outs[-1]), results, tuple(operands))


def shadow(program: Program[..., object], /, *args: object, **kwargs: object) -> Shadow:
    """Run a program beside one in higher precision, equation by equation, and return how far they are apart.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> program = fx.trace(lambda b: fnp.sqrt(b * b - 4) - b, fx.Spec((), "float32"))
    >>> [row.causes for row in fx.shadow(program, 1000.0) if row.causes]
    [('cancellation of 5 digits',)]

    The higher precision is float64 for programs of 32 bits and less, and pairs of float64 (106 bits) for programs in
    float64. Both runs are interpreted in NumPy, and take the same steps and branches. This is what `rounding_errors`
    estimates without a second run.

    Raises: ArgumentError for a value that is not a Program, and what a call of it raises for arguments that do not fit.
    Cost:   that of `interpret`, in both precisions.
    """
    check_program("shadow", program)
    jaxpr, operands = numpy_operands(program, args, kwargs)
    return shadow_of_jaxpr(jaxpr, operands)


def executable(jaxpr: Jaxpr) -> Executable[..., tuple[object, ...]]:
    """Return a program over flat operands, compiled so that each equation rounds to its dtype."""
    ins, outs = tree.structure(((0,) * len(jaxpr.ins), {})), tree.structure((0,) * len(jaxpr.outs))
    names = tuple([f"operand_{k}" for k in range(len(jaxpr.ins))])
    return lower(Program(jaxpr, ins, outs, (), names, jaxpr.name)).compile(_AS_WRITTEN)


def _weights(results: Sequence[Aval]) -> list[NDArray]:
    """Return the accumulator, and the weights of the floating results: 1 for one real number, random signs for more.

    With random signs the weighted sum of errors has their Euclidean norm as its root mean square.
    """
    accumulator = np.full(len(SUMS), -0.0)
    if len(results) == 1 and results[0].size == 1 and results[0].dtype.kind != "c":
        return [accumulator, np.ones(results[0].shape, results[0].dtype)]
    generator = np.random.default_rng(0)

    def signs(shape: tuple[int, ...]) -> NDArray:
        return generator.integers(0, 2, shape) * 2.0 - 1.0

    # a complex error is weighted by +-1 +-i, of which the real part is taken
    return [
        accumulator,
        *[(signs(a.shape) + (1j * signs(a.shape) if a.dtype.kind == "c" else 0)).astype(a.dtype) for a in results],
    ]
