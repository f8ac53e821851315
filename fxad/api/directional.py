"""`jvp`, `linearize`, `vjp`, `transpose`: directional derivatives and their adjoints.

Tangents have the tree of the arguments, with None for a leaf without a tangent (integers, bools). So do cotangents and
the tangents of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Final, Generic, Literal, ParamSpec, TypeVar, final, overload

import numpy as np

from fxad import transforms
from fxad.api.chosen_arguments import ChosenArguments, operand_flags, ranks
from fxad.api.lift import (
    before_differentiation,
    bind_static_arguments,
    check_function,
    check_no_statics,
    select_outs,
    tangent_tree,
    trace_at_values,
)
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.trees import classes as tree_classes, tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, DTypeError, described
from fxad.ir import Aval, Jaxpr, Zero
from fxad.operations.arguments import flag
from fxad.primitives.control.bodies import instantiate_outs, reorder_operands
from fxad.tracing.array import Array, asarray
from fxad.tracing.program import CotangentName, Program, TangentsName, function_name
from fxad.tracing.spec import aval_of_example
from fxad.tracing.static_args import Argnames, Argnums, StaticArguments, static_arguments
from fxad.tracing.trace import trace
from fxad.tracing.traced_numbers import dtype_of_number, is_number

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X")
Aux = TypeVar("Aux")

Primals = tuple[Any, ...]

_TANGENTS: Final = TangentsName("tangents")
_COTANGENT: Final = CotangentName("cotangent")
_EXAMPLE: Final = "jvp(f, (x, y), (x_dot, y_dot))"


def inexact_positional(program: Program[..., object]) -> list[int]:
    """Return the leaves of positional arguments that have tangents."""
    return [k for k, a in enumerate(program.in_avals[: program.args_tree.num_leaves]) if a.inexact]


# ----------------------------------------------------------------------------------------------------------- jvp


@overload
def jvp(f: Program[P, R], /) -> Program[[Primals, Primals], tuple[R, R]]: ...
@overload
def jvp(
    f: Callable[P, R], /, *, static_argnums: Argnums = (), static_argnames: Argnames = ()
) -> Callable[..., tuple[R, R]]: ...
@overload
def jvp(
    f: Callable[P, R],
    /,
    primals: Primals,
    tangents: Primals,
    has_aux: Literal[False] = False,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> tuple[R, R]: ...
@overload
def jvp(
    f: Callable[..., tuple[X, Aux]],
    /,
    primals: Primals,
    tangents: Primals,
    has_aux: Literal[True],
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> tuple[X, X, Aux]: ...
def jvp(
    f: Callable[..., object],
    /,
    primals: Primals | None = None,
    tangents: Primals | None = None,
    has_aux: bool = False,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> object:
    """Forward mode: a function of (primals, tangents) that gives (results, tangents of results).

    `jvp(f, primals, tangents)` calls it at once, as in JAX. Tangents have the tree of the arguments, None where a leaf
    has no tangent; so have the tangents of results. With `has_aux`, `f` returns (results, auxiliary) and a third value
    is the auxiliary. Keyword arguments go to `f`, and have no tangents.
    Static arguments, by number or by name, are hashable values that are passed to `f` unchanged; so are those that `f`
    declares static; their tangents are None.

    Law:    `jvp f(x, x_dot)` is linear in `x_dot`; chain rule.
    Raises: NotDifferentiableError; TreeError, ShapeError, DTypeError when a tangent does not fit its primal.
    """
    has_aux = flag("jvp", "has_aux", has_aux)
    if isinstance(f, Program):
        check_no_statics("jvp", f, static_argnums, static_argnames)
        if has_aux:
            raise ArgumentError(
                "jvp: a Program is transformed without has_aux", remedy="its result has the tangents of all results"
            )
        transformed: Callable[..., object] = _jvp(before_differentiation(f))
    else:
        check_function("jvp", f)
        statics = static_arguments(f"jvp of {function_name(f)}", f, static_argnums, static_argnames)
        transformed = _jvp_of_function(f, statics, has_aux)
    if primals is None and tangents is None and not kwargs:
        return transformed
    return transformed(
        as_tuple("jvp", "primals", primals, _EXAMPLE), as_tuple("jvp", "tangents", tangents, _EXAMPLE), **kwargs
    )


def _jvp_of_function(f: Callable[..., object], statics: StaticArguments | None, has_aux: bool) -> Callable[..., object]:
    def transformed(primals: Primals, tangents: Primals, /, **kwargs: object) -> object:
        primals = as_tuple("jvp", "primals", primals, _EXAMPLE)
        tangents = as_tuple("jvp", "tangents", tangents, _EXAMPLE)
        program, primals, kwargs = trace_at_values("jvp", f, statics, primals, kwargs)
        if has_aux:
            result_and_aux("jvp", program)
        tangents = with_number_tangents(program, primals, tangents)
        out, out_tangents = _jvp(program)(primals, tangents, **kwargs)
        return (out[0], out_tangents[0], out[1]) if has_aux else (out, out_tangents)

    return transformed


def with_number_tangents(program: Program[..., object], primals: Primals, tangents: Primals) -> Primals:
    """Return the tangents, with those of Python numbers in the dtypes of the operands: a number has no dtype, so its
    tangent may be an array of float32 beside arrays of any dtype."""
    leaves, structure = tree.flatten(primals)
    tangent_leaves = tree.flatten_up_to(structure, tangents) if any(map(is_number, leaves)) else None
    if tangent_leaves is None:
        return tangents
    fitted = [
        asarray(t, a.dtype)
        if is_number(x)
        and isinstance(t, Array | np.ndarray | np.generic)
        and t.dtype == dtype_of_number(x, None)
        and not t.shape
        else t
        for x, t, a in zip(leaves, tangent_leaves, program.in_avals, strict=False)
    ]
    result: Primals = tree.unflatten(structure, fitted)
    return result


def as_tuple(what: str, name: str, value: object, example: str) -> Primals:
    """Return primals, or a direction, as a tuple. Raises: ArgumentError, with an example of a call."""
    if not isinstance(value, tuple | list):
        raise ArgumentError(
            f"{what}: {name} is {described(value)}, not a tuple with an entry per argument", remedy=example
        )
    return tuple(value)


def _jvp(program: Program[..., object]) -> Program[..., Any]:
    args, kwargs = program.args_tree, program.kwargs_tree
    n_args = args.num_leaves
    fused, out_nonzero = transforms.jvp(program.jaxpr, operand_flags(program, inexact_positional(program)))
    # operands: bound, args, kwargs, tangents -> bound, args, tangents, kwargs
    n_bound, n_in = len(program.bound), len(program.jaxpr.ins)
    first, last = range(n_bound + n_args), range(n_bound + n_args, n_in)
    fused = reorder_operands(fused, (*first, *range(n_in, len(fused.ins)), *last))
    n_out = len(program.out_avals)
    tangents = instantiate_outs(
        fused.outs[n_out:], out_nonzero, program.out_avals, [a.inexact for a in program.out_avals]
    )
    jaxpr = fused.with_outs((*fused.outs[:n_out], *tangents))
    return Program(
        jaxpr,
        tree.call_structure(tree.tuple_structure(args, tangent_tree(args, program.in_avals[:n_args])), kwargs),
        tree.tuple_structure(program.out_tree, tangent_tree(program.out_tree, program.out_avals)),
        program.bound,
        ("primals", _TANGENTS),
        f"jvp_{program.name}",
    )


# ------------------------------------------------------------------------------------------------------- linearize


@final
@dataclass(frozen=True, slots=True)
class Linearized(Generic[P, R]):
    """A linearized program: a primal program and a linear program.

    `primal(*args)` returns (results, residuals). `linear(tangents, residuals)` returns the tangents of results;
    `tangents` is a tuple with one entry per chosen argument. `transpose(linear, argnums=0)` is the backward program.
    """

    primal: Program[P, tuple[R, tuple[Array, ...]]]
    linear: Program[[Primals, tuple[Array, ...]], R]

    @property
    def residuals(self) -> tuple[Aval, ...]:
        """Types of the residuals, which are stored between the two programs."""
        return self.primal.out_avals[len(self.primal.out_avals) - self.primal.out_tree.children()[1].num_leaves :]

    @property
    def residual_bytes(self) -> int:
        """Bytes of the residuals, including those that are arguments."""
        return sum([a.nbytes for a in self.residuals])


@overload
def linearize(f: Program[P, R], /, *, argnums: Argnums | None = None) -> Linearized[P, R]: ...  # type: ignore[overload-overlap]  # a Program is callable
@overload
def linearize(
    f: Callable[..., R],
    /,
    *primals: object,
    has_aux: Literal[False] = False,
    argnums: Argnums | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> tuple[R, Callable[..., R]]: ...
@overload
def linearize(
    f: Callable[..., tuple[X, Aux]],
    /,
    *primals: object,
    has_aux: Literal[True],
    argnums: Argnums | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> tuple[X, Callable[..., X], Aux]: ...
def linearize(
    f: Callable[..., object],
    /,
    *primals: object,
    has_aux: bool = False,
    argnums: Argnums | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> object:
    """Split a program into a primal program with residuals and a linear program of the tangents.

    For a callable, `linearize(f, *primals)` gives (results, function of tangents), as in JAX. The function is a pytree
    of residuals. With `has_aux`, `f` returns (results, auxiliary) and a third value is the auxiliary. Keyword arguments
    go to `f`, and have no tangents. The tangents are in the order of the arguments, not of `argnums`: with `argnums=(1, 0)`
    the first one is that of argument 0.
    Static arguments, by number or by name, are hashable values that are passed to `f` unchanged; so are those that `f`
    declares static; their tangents are None.

    Law:    `linear(x_dot, residuals)` is the tangent of `jvp`; each of its equations is linear in `x_dot`.
    Raises: NotDifferentiableError; ArgumentError for argnums that do not exist.
    """
    has_aux = flag("linearize", "has_aux", has_aux)
    if isinstance(f, Program):
        check_no_statics("linearize", f, static_argnums, static_argnames)
        if primals or kwargs or has_aux:
            raise ArgumentError(
                "linearize: a Program is split without values", remedy="call the two parts of the result with them"
            )
        return _linearize(before_differentiation(f), argnums)
    check_function("linearize", f)
    statics = static_arguments(f"linearize of {function_name(f)}", f, static_argnums, static_argnames)
    program, primals, kwargs = trace_at_values("linearize", f, statics, primals, kwargs, argnums)
    if has_aux:
        result_and_aux("linearize", program)
    split = _linearize(program, argnums)
    out, residuals = split.primal(*primals, **kwargs)
    linear = split.linear
    if has_aux:  # the tangents of auxiliary results are left out
        first = linear.out_tree.children()[0]
        linear = linear.replace(select_outs(linear.jaxpr, range(first.num_leaves)), out_tree=first)
    bound = bind_trailing(linear, residuals)
    # called with the tangents one by one, as in JAX
    (tangents,) = bound.args_tree.children()
    names = tuple([TangentsName(f"tangents[{k}]") for k in range(tangents.num_children)])
    f_jvp: ResidualProgram[..., Any] = ResidualProgram.of(bound, in_tree=tree.call_structure(tangents), names=names)
    return (out[0], f_jvp, out[1]) if has_aux else (out, f_jvp)


def _linearize(program: Program[..., object], argnums: Argnums | None) -> Linearized[..., Any]:
    arguments = program.positional_arguments
    if argnums is not None:  # tangents are in the order of the arguments
        keys = ChosenArguments.by_number("linearize", program, argnums).keys
        arguments = [a for a in arguments if a.key in keys]
    chosen = ChosenArguments(program, arguments)
    split = transforms.linearize(program.jaxpr, operand_flags(program, chosen.inexact_leaves))
    residuals = tree.structure((0,) * split.n_res)
    primal = program.replace(split.primal, out_tree=tree.tuple_structure(program.out_tree, residuals))
    tangents = instantiate_outs(
        split.linear.outs, split.out_nonzero, program.out_avals, [a.inexact for a in program.out_avals]
    )
    linear = split.linear.with_outs(tangents)
    return Linearized(
        primal,
        Program(
            linear,
            tree.call_structure(tree.tuple_structure(chosen.tangent_tree, residuals)),
            tangent_tree(program.out_tree, program.out_avals),
            (),
            (_TANGENTS, "residuals"),
            f"linear_{program.name}",
        ),
    )


@final
@dataclass(frozen=True, slots=True, eq=False)
class ResidualProgram(Program[P, R]):
    """A program that is a pytree: its leaves are the arrays that it closes over, such as the residuals of `vjp`.

    So it can be returned from a jitted function, mapped and stored in a carry.
    """

    __repr__ = Program.__repr__


_STATIC: Final = tuple([f.name for f in fields(Program) if f.name != "bound"])


def _flatten_program(p: ResidualProgram[..., object]) -> tuple[Sequence[object], tuple[object, ...], Sequence[object]]:
    return p.bound, tuple([getattr(p, name) for name in _STATIC]), range(len(p.bound))


def _unflatten_program(static: tuple[object, ...], bound: Iterable[object]) -> ResidualProgram[..., object]:
    given: dict[str, Any] = dict(zip(_STATIC, static, strict=True))
    return ResidualProgram(**given, bound=tuple(bound))


tree_classes.register(ResidualProgram, _flatten_program, _unflatten_program)


def bind_trailing(program: Program[..., object], values: Sequence[object]) -> ResidualProgram[..., object]:
    """Return the program with its last positional argument, a tuple, bound to values."""
    *others, last = program.args_tree.children()
    n, n_last = len(program.jaxpr.ins), last.num_leaves
    jaxpr = reorder_operands(program.jaxpr, (*range(n - n_last, n), *range(n - n_last)))
    in_tree = tree.call_structure(tree.tuple_structure(*others), program.kwargs_tree)
    return ResidualProgram.of(program, jaxpr=jaxpr, in_tree=in_tree, bound=(*values, *program.bound))


# ------------------------------------------------------------------------------------------------------------- vjp


@overload
def vjp(f: Program[P, R], /) -> Program[[Primals, R], tuple[R, Primals]]: ...  # type: ignore[overload-overlap]  # a Program is callable
@overload
def vjp(
    f: Callable[..., R],
    /,
    *primals: object,
    has_aux: Literal[False] = False,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> tuple[R, Callable[[R], Primals]]: ...
@overload
def vjp(
    f: Callable[..., tuple[X, Aux]],
    /,
    *primals: object,
    has_aux: Literal[True],
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> tuple[X, Callable[[X], Primals], Aux]: ...
@overload
def vjp(
    f: Callable[..., object],
    /,
    *primals: object,
    has_aux: bool,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> tuple[Any, ...]: ...
def vjp(
    f: Callable[..., object],
    /,
    *primals: object,
    has_aux: bool = False,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    **kwargs: object,
) -> object:
    """Reverse mode.

    For a program: a program of (primals, cotangent) that gives (results, cotangents of the primals).
    For a callable, `vjp(f, *primals)` gives (results, function of the cotangent), as in JAX; with `has_aux`, `f`
    returns (results, auxiliary) and a third value is the auxiliary. Keyword arguments go to `f`, and have no cotangents.
    Static arguments, by number or by name, are hashable values that are passed to `f` unchanged; so are those that `f`
    declares static; their cotangents are None.

    Law:    `<y_bar, jvp f(x, x_dot)> = <f_vjp(y_bar), x_dot>`.
    Rule:   complex cotangents are not conjugated.
    Raises: NotDifferentiableError; TreeError, ShapeError, DTypeError for a cotangent that does not fit the results.
    """
    has_aux = flag("vjp", "has_aux", has_aux)
    if isinstance(f, Program):
        check_no_statics("vjp", f, static_argnums, static_argnames)
        if primals or has_aux or kwargs:
            raise ArgumentError(
                "vjp: a Program is transformed without values, and without has_aux",
                remedy="call the result with (primals, cotangent)",
            )
        return _vjp_program(before_differentiation(f))
    check_function("vjp", f)
    statics = static_arguments(f"vjp of {function_name(f)}", f, static_argnums, static_argnames)
    program, primals, kwargs = trace_at_values("vjp", f, statics, primals, kwargs)
    return _vjp_call(program, primals, kwargs, has_aux)


def result_and_aux(what: str, program: Program[..., object]) -> tuple[Structure, Structure]:
    """Return the trees of the result and of the auxiliary results. Raises: ArgumentError."""
    if program.out_tree.type is not tuple or program.out_tree.num_children != 2:
        raise ArgumentError(
            f"{what}: has_aux=True, but {program.name} returns {tree.shape_text(program.out_tree)}",
            remedy="return a pair (result, auxiliary results)",
        )
    result, aux = program.out_tree.children()
    return result, aux


def _grads_tree(program: Program[..., object]) -> Structure:
    args = program.args_tree
    return tangent_tree(args, program.in_avals[: args.num_leaves])


def _vjp_program(program: Program[..., object]) -> Program[..., object]:
    args, kwargs = program.args_tree, program.kwargs_tree
    jaxpr = transforms.vjp_fused(program.jaxpr, operand_flags(program, inexact_positional(program)))
    # operands: bound, args, kwargs, cotangents -> bound, args, cotangents, kwargs
    n_bound, n_args, n_in = len(program.bound), args.num_leaves, len(program.jaxpr.ins)
    cts = range(n_in, len(jaxpr.ins))
    jaxpr = reorder_operands(jaxpr, (*range(n_bound + n_args), *cts, *range(n_bound + n_args, n_in)))
    return Program(
        jaxpr,
        tree.call_structure(tree.tuple_structure(args, tangent_tree(program.out_tree, program.out_avals)), kwargs),
        tree.tuple_structure(program.out_tree, _grads_tree(program)),
        program.bound,
        ("primals", _COTANGENT),
        f"vjp_{program.name}",
    )


def _vjp_call(
    program: Program[..., object], primals: Primals, kwargs: dict[str, object], has_aux: bool
) -> tuple[object, ...]:
    """Return the results, the function of their cotangent, and the auxiliary results if there are any."""
    ct_tree = result_and_aux("vjp", program)[0] if has_aux else program.out_tree
    n_ct = ct_tree.num_leaves
    halves = transforms.vjp(program.jaxpr, operand_flags(program, inexact_positional(program)))
    residual_tree = tree.structure((0,) * halves.n_res)
    forward = program.replace(halves.forward, out_tree=tree.tuple_structure(program.out_tree, residual_tree))
    out, residuals = forward(*primals, **kwargs)
    ct_avals, aux_avals = program.out_avals[:n_ct], program.out_avals[n_ct:]
    backward: Program[..., Any] = Program(
        _with_zero_cotangents(halves.backward, ct_avals, aux_avals),
        tree.call_structure(tree.tuple_structure(tangent_tree(ct_tree, ct_avals), residual_tree)),
        _grads_tree(program),
        (),
        (_COTANGENT,),
        f"vjp_{program.name}",
    )
    pullback = bind_trailing(backward, residuals)
    return (out[0], pullback, out[1]) if has_aux else (out, pullback)


def _with_zero_cotangents(backward: Jaxpr, ct_avals: Sequence[Aval], aux_avals: Sequence[Aval]) -> Jaxpr:
    """Return the backward program (cotangents, residuals) -> cotangents of operands, with zeros for the cotangents of
    auxiliary results, which are the last ones."""
    if not aux_avals:
        return backward
    b = Builder()
    cts = b.inputs([a for a in ct_avals if a.inexact])
    zeros = [Zero(a).instantiate() for a in aux_avals if a.inexact]
    residuals = b.inputs(backward.in_avals[len(cts) + len(zeros) :])
    return b.build(b.inline(backward, [*cts, *zeros, *residuals]), backward.name)


# ------------------------------------------------------------------------------------------------------- transpose


def transpose(f: Callable[..., object], *examples: object, argnums: Argnums | None = None) -> Program[..., Any]:
    """Return the adjoint of a program that is linear in the chosen arguments (all of them by default).

    A program of (cotangent of the results, the other arguments) that gives the cotangents: the tree of the argument for
    an int `argnums`, a tuple of trees otherwise. A callable is traced on examples of its arguments (values or `Spec`s):
    `transpose(f, x)(ct)`, as `jax.linear_transpose`. A program needs none. For arguments that the callable declares
    static stands None.

    Law:    `<y_bar, A x_dot> = <transpose(A)(y_bar), x_dot>`; complex numbers are not conjugated.
    Raises: NotLinearError that names the equation; DTypeError for an argument that has no tangent; ArgumentError for a
            callable without examples.
    """
    if isinstance(f, Program):
        if examples and not _has_types(f, examples):
            raise ArgumentError(
                "transpose: the examples do not have the types of the Program's arguments",
                remedy="leave them out; linear arguments are named by keyword: transpose(program, argnums=0)",
            )
        return _transpose(f, argnums)
    check_function("transpose", f)
    if not examples:
        raise ArgumentError(
            f"transpose: {function_name(f)} is a function whose argument types are not known",
            remedy="give examples of its arguments: transpose(f, *examples)",
        )
    g, examples, _ = bind_static_arguments(
        "transpose", f, static_arguments(f"transpose of {function_name(f)}", f), examples, {}, argnums
    )
    return _transpose(trace(g, *examples), argnums)


def _has_types(program: Program[..., object], examples: tuple[object, ...]) -> bool:
    leaves, in_tree = tree.flatten((examples, {}))
    return in_tree == program.in_tree and program.in_avals == tuple(
        [aval_of_example(x, "transpose: example") for x in leaves]
    )


def _transpose(program: Program[..., object], argnums: Argnums | None) -> Program[..., Any]:
    chosen = (
        ChosenArguments(program, program.positional_arguments)
        if argnums is None
        else ChosenArguments.by_number("transpose", program, argnums)
    )
    leaves, avals = chosen.leaves, program.in_avals
    for k in sorted(leaves):
        if not avals[k].inexact:
            raise DTypeError(
                f"transpose: argument {program.paths[k]} of {program.name} has type {avals[k]},"
                " in which nothing is linear",
                remedy="choose the arguments that are floating or complex: argnums=...",
            )
    jaxpr = transforms.dce(program.jaxpr)  # an unused result may be nonlinear
    adjoint = transforms.transpose(jaxpr, operand_flags(program, leaves))
    # operands: cotangents, then bound and other arguments -> bound, cotangents, other arguments
    n_ct, n_bound = len(program.out_avals), len(program.bound)
    others = range(n_ct + n_bound, len(adjoint.ins))
    adjoint = reorder_operands(adjoint, (*range(n_ct, n_ct + n_bound), *range(n_ct), *others))
    adjoint = select_outs(adjoint, ranks(leaves))
    rest, _ = chosen.others_of_call([a.tree for a in program.positional_arguments], {})
    names, _ = chosen.others_of_call(program.names, {})
    return Program(
        adjoint,
        tree.call_structure(tree.tuple_structure(program.out_tree, *rest), program.kwargs_tree),
        chosen.tree,
        program.bound,
        (_COTANGENT, *names),
        f"transpose_{program.name}",
    )


__all__ = ["Linearized", "jvp", "linearize", "transpose", "vjp"]
