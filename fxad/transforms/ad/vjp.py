"""Reverse mode: linearize, then transpose the linear program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce
from fxad.core.flags import leading
from fxad.core.memo import by_value
from fxad.errors import NotDifferentiableError, ShapeError
from fxad.ir import Atom, Atoms, Cotangent, Flags, Jaxpr, LinearizedBody, Lit, Zero, instantiated
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import TransposeBuilder, backward


@final
@dataclass(frozen=True, slots=True)
class Vjp:
    """The two programs of reverse mode. `forward`: operands -> results, then residuals. `backward`: cotangents of the
    floating and complex results, then residuals -> cotangents of the differentiated operands."""

    forward: Jaxpr
    backward: Jaxpr
    n_res: int


def _pull_back(
    b: TransposeBuilder, lin: LinearizedBody, residuals: Sequence[Atom], cts: Mapping[int, Cotangent]
) -> Atoms:
    """Add the transpose of a linear program to a builder. Return the cotangents of its tangents. `cts` has the
    cotangents of the floating and complex results of the primal program, by the number of the result."""
    nonzero_cts = [cts[k] for k, nz in enumerate(lin.out_nonzero) if nz]
    return instantiated(backward(b, lin.linear, leading(lin.n_tangents, len(lin.linear.ins)), residuals, nonzero_cts))


@by_value
def vjp(jaxpr: Jaxpr, wrt: Flags) -> Vjp:
    """Reverse mode as two programs, with respect to the marked operands.

    Law:    <y_bar, J x_dot> = <backward(y_bar), x_dot>.
    Raises: NotDifferentiableError for a marked operand without a tangent, or an equation without a derivative.
    """
    lin = linearize(jaxpr, wrt)
    n_out = len(jaxpr.outs)
    b = TransposeBuilder()
    cts = {k: b.input(a) for k, a in enumerate(jaxpr.out_avals) if a.inexact}
    operand_cts = _pull_back(b, lin, b.inputs(lin.primal.out_avals[n_out:]), cts)
    return Vjp(lin.primal, b.build(operand_cts, f"backward_{jaxpr.name}"), lin.n_res)


@by_value
def vjp_fused(jaxpr: Jaxpr, wrt: Flags) -> Jaxpr:
    """Reverse mode as one program: (operands, cotangents of the floating and complex results) -> (results,
    cotangents of the marked operands)."""
    lin = linearize(jaxpr, wrt)
    n_out = len(jaxpr.outs)
    # the cotangents are operands after those of the primal program; its equations are shared, not copied
    b = TransposeBuilder.resume(lin.primal)
    cts = {k: b.input(a) for k, a in enumerate(jaxpr.out_avals) if a.inexact}
    operand_cts = _pull_back(b, lin, lin.primal.outs[n_out:], cts)
    return b.build([*lin.primal.outs[:n_out], *operand_cts], f"vjp_{jaxpr.name}")


@by_value
def value_and_grad(jaxpr: Jaxpr, wrt: Flags) -> Jaxpr:
    """Return the program operands -> (results, gradients of the first result with respect to the marked operands).

    The first result must be a real floating scalar; the others are auxiliary.

    Law:    the gradient is the transpose of the derivative, applied to 1.
    Raises: ShapeError when the first result is not a scalar; NotDifferentiableError when it is not real floating, for a
            marked operand without a tangent, or for an equation without a derivative.
    """
    if not jaxpr.outs:
        raise ShapeError(f"grad: {jaxpr.name} has no result", remedy="return the scalar to differentiate")
    aval = jaxpr.outs[0].aval
    if aval.shape != ():
        raise ShapeError(
            f"grad: {jaxpr.name} returns {aval}, not a scalar",
            remedy="reduce the result (sum, mean), or use jacrev, jacfwd or vjp",
        )
    if not aval.inexact or aval.dtype.kind == "c":
        raise NotDifferentiableError(
            f"grad: {jaxpr.name} returns {aval}, not a real floating scalar",
            remedy="convert the result to a floating dtype (take the real part of a complex one)",
        )
    lin = linearize(jaxpr, wrt)
    n_out = len(jaxpr.outs)
    b = TransposeBuilder.resume(lin.primal)
    cts: dict[int, Cotangent] = {
        0: Lit.of(1, aval),
        **{k: Zero(a) for k, a in enumerate(jaxpr.out_avals) if k and a.inexact},
    }
    gradients = _pull_back(b, lin, lin.primal.outs[n_out:], cts)
    # dce removes unused results of `remat`, which would be computed twice: forward, and again for the derivative
    return dce(b.build([*lin.primal.outs[:n_out], *gradients], f"value_and_grad_{jaxpr.name}"))


@by_value
def grad(jaxpr: Jaxpr, wrt: Flags) -> Jaxpr:
    """Return the program operands -> (all results but the first, gradients of the first result).

    The gradients are with respect to the marked operands.

    Law: the gradients of `value_and_grad`, without the equations that only the value needs.
    """
    with_value = value_and_grad(jaxpr, wrt)
    return dce(Jaxpr(with_value.ins, with_value.eqns, with_value.outs[1:], f"grad_{jaxpr.name}"))
