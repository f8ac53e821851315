"""The programs of `grad`, `value_and_grad`, `jacfwd`, `jacrev` and `hessian`: from a jaxpr with flags to arguments and trees.

The jaxpr of a derivative returns the results of the program, and then derivatives in the order of its operands. The
programs here select results and derivatives, put these into the order of `argnums`, and give them their trees.
"""

from __future__ import annotations

from typing import Literal

from fxad import transforms
from fxad.api.chosen_arguments import ChosenArguments
from fxad.api.differentiated_arguments import (
    DifferentiatedArguments,
    check_complex,
    check_complex_result,
    check_results,
)
from fxad.api.directional import result_and_aux, vjp
from fxad.api.lift import select_outs
from fxad.core.trees import parts as tree_parts, tree
from fxad.dtypes import COMPLEX, FLOATING
from fxad.errors import NotDifferentiableError
from fxad.tracing.array import asarray
from fxad.tracing.program import Program
from fxad.tracing.static_args import Argnums
from fxad.tracing.trace import trace_for_call


def value_and_gradient_program(
    program: Program[..., object], argnums: Argnums, has_aux: bool, allow_int: bool = False
) -> Program[..., object]:
    """Return the program of (results, gradient)."""
    arguments = DifferentiatedArguments("value_and_grad", program, argnums, allow_int)
    check_results("value_and_grad", program, has_aux)
    jaxpr = transforms.value_and_grad(program.jaxpr, arguments.mask)
    n = len(program.out_avals)
    jaxpr = select_outs(jaxpr, [*range(n), *[n + k for k in arguments.order]])
    return program.replace(
        jaxpr, out_tree=tree.tuple_structure(program.out_tree, arguments.tree), name=f"value_and_grad_{program.name}"
    )


def gradient_program(
    program: Program[..., object], argnums: Argnums, has_aux: bool, allow_int: bool = False
) -> Program[..., object]:
    """Return the program of the gradient, or of (gradient, auxiliary results)."""
    arguments = DifferentiatedArguments("grad", program, argnums, allow_int)
    aux = check_results("grad", program, has_aux)
    jaxpr = transforms.grad(program.jaxpr, arguments.mask)
    n = len(program.out_avals) - 1  # its results are the auxiliary ones
    jaxpr = select_outs(jaxpr, [*[n + k for k in arguments.order], *range(n)])
    return program.replace(
        jaxpr,
        out_tree=arguments.tree if aux is None else tree.tuple_structure(arguments.tree, aux),
        name=f"grad_{program.name}",
    )


def holomorphic_gradient_program(
    what: str, with_value: bool, program: Program[..., object], argnums: Argnums, has_aux: bool, allow_int: bool
) -> Program[..., object]:
    """Return the derivative of a holomorphic function: its vjp, applied to 1. Raises: as `grad`."""
    chosen = ChosenArguments.by_number(what, program, argnums)
    check_complex(what, program, chosen.inexact_leaves if allow_int else chosen.leaves)
    check_results(what, program, has_aux, holomorphic=True)

    def derivative(*args: object, **kwargs: object) -> object:
        results = vjp(chosen.function(args, kwargs), *chosen.of_call(args, kwargs), has_aux=has_aux)
        out, pullback, *aux = results
        gradients = pullback(asarray(1, out.dtype))
        gradient = gradients[0] if chosen.alone else gradients
        if with_value:
            return ((out, aux[0]) if has_aux else out), gradient
        return (gradient, aux[0]) if has_aux else gradient

    args, kwargs = program.args_info
    return trace_for_call(derivative, args, kwargs)


def jacobian_program(
    what: str,
    mode: Literal["jacfwd", "jacrev"],
    program: Program[..., object],
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool = False,
    real_arguments: bool = False,
) -> Program[..., object]:
    """Return the program of the Jacobian, or of (Jacobian, auxiliary results), by forward or reverse mode.

    At each leaf of the result it has the tree of the arguments; the jaxpr returns the blocks result by result.
    """
    arguments = DifferentiatedArguments(what, program, argnums, allow_int, holomorphic, real_arguments)
    out, aux = result_and_aux(what, program) if has_aux else (program.out_tree, None)
    for aval, path in zip(program.out_avals, tree.paths(out, "result"), strict=False):
        if holomorphic:
            check_complex_result(what, program, aval, path)
        # forward mode takes real arguments: a tangent of a complex result is its derivative
        if not holomorphic and aval.dtype not in FLOATING and not (mode == "jacfwd" and aval.dtype in COMPLEX):
            raise NotDifferentiableError(
                f"{what}: {path} of {program.name} has type {aval}, not real floating",
                remedy="give holomorphic=True for a holomorphic function, or use jacfwd, jvp or vjp"
                if aval.inexact
                else "return it as auxiliary: has_aux=True",
            )
    n_all, n_out, n_in = len(program.out_avals), out.num_leaves, len(arguments.leaves)
    make = transforms.jacfwd if mode == "jacfwd" else transforms.jacrev
    jaxpr = make(program.jaxpr, arguments.mask, n_out, holomorphic)
    order = [n_all + i * n_in + k for i in range(n_out) for k in arguments.order]
    jacobian_tree = tree_parts.with_subtrees(out, [arguments.tree] * n_out)
    jaxpr = select_outs(jaxpr, [*order, *range(n_out, n_all)])
    return program.replace(
        transforms.dce(jaxpr),
        out_tree=jacobian_tree if aux is None else tree.tuple_structure(jacobian_tree, aux),
        name=f"{mode}_{program.name}",
    )
