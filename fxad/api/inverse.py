"""`inverse` and `invertible`: inverse functions, and gradients that reconstruct values instead of storing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, overload

import numpy as np

from fxad.api.chosen_arguments import ChosenArguments, operand_flags
from fxad.api.custom.function import Decorator
from fxad.api.custom.traced_rules import UserRules
from fxad.api.custom_function import CustomFunction, decorate
from fxad.api.decorator_form import NoFunction, Rewrite, decorator_form
from fxad.api.lift import bind_static_arguments, check_function, lift, select_outs
from fxad.core.trees import parts as tree_parts, tree
from fxad.errors import ArgumentError, shown
from fxad.operations.arguments import argument_keys, flag, plain_ints
from fxad.primitives.control.bodies import reorder_operands
from fxad.tracing.array import binder
from fxad.tracing.program import Program, function_name
from fxad.tracing.spec import aval_of_example
from fxad.tracing.static_args import Argnames, Argnums, ArgumentNames, static_arguments
from fxad.tracing.trace import trace_for_call
from fxad.transforms.inversion.call_rules import INVERSE
from fxad.transforms.inversion.inverse import inverse as inverse_of
from fxad.transforms.inversion.invertible import invertible as invertible_of

P = ParamSpec("P")
R = TypeVar("R")

# ------------------------------------------------------------------------------------------------------------ inverse


@overload
def inverse(f: Program[..., object], argnums: ArgumentNames = 0, *, log_det: bool = False) -> Program[..., Any]: ...
@overload
def inverse(f: Callable[..., object], argnums: ArgumentNames = 0, *, log_det: bool = False) -> Callable[..., Any]: ...
@overload
def inverse(
    *, argnums: ArgumentNames = 0, log_det: bool = False
) -> Callable[[Callable[..., object]], Callable[..., Any]]: ...
@decorator_form
def inverse(f: Callable[..., object], argnums: ArgumentNames = 0, *, log_det: bool = False) -> Callable[..., Any]:
    """Return the function from results to the chosen arguments: `inverse(f)(f(x, w), w)` is x.

    It takes the results of `f` as one argument, then the other arguments of `f`. `argnums` are numbers or names; one
    gives that argument, a sequence a tuple of them. With `log_det` it returns (arguments, log|det J|), where J is the
    Jacobian of the results with respect to the arguments. This is known for elementwise functions, for permutations of
    elements, and for couplings, loops and branches of these. For a callable, the chosen arguments must have the types
    of the results. If they have other types, trace it first: `inverse(trace(f, *examples))`.

    Law:    inverse(f)(f(x)) = x within the rounding of the inverse steps; nan where f loses x (a factor 0, tanh
            saturated).
    Rule:   a search on the dataflow graph: from the known values, equations are run forward and backward in any order.
            `m * x + (1 - m) * g` is read as where(m, x, g) if this makes it solvable; then it is nan where m is not 0
            or 1.
    Raises: NotInvertibleError naming the equation of `trace(f, ...)` that cannot be inverted, the bodies that contain
            it, and the user's line; ArgumentError. These are not invertible:
            - operations that map several operands to one result (abs, sin, max, sort, a comparison, floor, integers
              multiplied): hold the argument, or wrap the function in a `custom_inverse`;
            - operations with two unknown operands (x + y, x * y, also x * x) if no other result determines one of them:
              hold one of them, return one of them too, or write a coupling (x + g(y), y);
            - systems that can only be solved jointly (x + y, x - y): multiply a stacked array by a known matrix, which
              is inverted by its factors;
            - results that determine only some elements (x[1:], a sum): return the others too;
            - reads and writes at places given by arrays: use slices or `where`. A mask that is multiplied into the
              exponent and the shift (x * exp(s * (1 - m)) + t * (1 - m)): the same;
            - a branch chosen by an unknown value, and `while_loop`: choose by kept values; use `fori_loop` or `scan`;
            - the matrix of a `custom_linear_solve`: hold it. A `custom_root` is inverted as its equation;
            - `log_det` where no rule defines it (factorisations, solutions of equations, a `custom_inverse`), or where
              the results and the wanted arguments differ in their number of elements: omit `log_det`.
    """
    log_det = flag("inverse", "log_det", log_det)
    if isinstance(f, Program):
        return _inverse(f, argnums, log_det)
    check_function("inverse", f)

    @wraps(f, updated=())
    def inverted(results: object, /, *others: object, **kwargs: object) -> object:
        program, others, kwargs = _trace_from_results(f, argnums, results, others, kwargs)
        return _inverse(program, argnums, log_det)(results, *others, **kwargs)

    inverted.__name__ = f"inverse_{function_name(f)}"
    return inverted


def _trace_from_results(
    f: Callable[..., object],
    argnums: ArgumentNames,
    results: object,
    others: tuple[object, ...],
    kwargs: dict[str, object],
) -> tuple[Program[..., object], tuple[object, ...], dict[str, Any]]:
    """Trace a function, with chosen arguments of the types of `results` and the other arguments `others`. Return the
    program, and its other arguments, with None for static ones.

    Raises: ArgumentError if the results of the function have other types.
    """
    argnums = plain_ints(argnums)
    numbers, alone = argument_keys(argnums, int), isinstance(argnums, int)
    examples = list(results) if isinstance(results, tuple | list) and not alone else [results]
    n_args = len(others) + len(numbers or ())
    remedy = f"trace it on examples first: inverse(trace({function_name(f)}, *examples), ...)"
    if numbers is None or len(examples) != len(numbers) or not all([0 <= k < n_args for k in numbers]):
        raise ArgumentError(
            f"inverse: the types of arguments {argnums!r} of {function_name(f)} cannot be told from its results",
            remedy=remedy,
        )
    chosen, remaining = dict(zip(numbers, examples, strict=True)), iter(others)
    args = tuple([chosen[k] if k in chosen else next(remaining) for k in range(n_args)])
    statics = static_arguments(f"inverse of {function_name(f)}", f)
    g, args, kwargs = bind_static_arguments("inverse", f, statics, args, kwargs, numbers)
    program = trace_for_call(g, args, kwargs)
    leaves, structure = tree.flatten(results)
    if structure != program.out_tree or [aval_of_example(x, "inverse") for x in leaves] != list(program.out_avals):
        raise ArgumentError(
            f"inverse: {function_name(f)} gives results of other types than it takes as arguments {argnums!r}",
            remedy=remedy,
        )
    return program, tuple([a for k, a in enumerate(args) if k not in chosen]), kwargs


def _inverse(program: Program[..., object], argnums: ArgumentNames, log_det: bool) -> Program[..., object]:
    """Return the inverse of a program.

    Its trees are those of the program, in another arrangement. To arrange them, leaves are numbered: the arguments,
    then the results, then the log-determinant. For example, of f(x, w, y) = (x * w, y + w), x, w, y are the leaves 0,
    1, 2, and the results are 3, 4. With argnums (2, 0), the jaxpr of `inverse_of` takes the leaves 3, 4, 1 and returns
    0, 2. The program takes ((3, 4), 1) and returns (2, 0).
    """
    chosen = ChosenArguments.by_number_or_name("inverse", "argnums", program, argnums)
    is_chosen = chosen.leaf_flags
    n_bound, n_out, n_args = len(program.bound), len(program.out_avals), len(is_chosen)
    flags, names_of_operands = operand_flags(program, chosen.leaves), operand_labels(program)
    jaxpr = inverse_of(program.jaxpr, flags, log_det, names_of_operands, program.name)
    leaf_of_log_det = n_args + n_out

    def arranged(values: Sequence[object], result: object, log_det_value: object) -> tuple[object, object]:
        """Return the arguments and the results of the inverse, with a value for each argument of the program."""
        n = len(program.positional_arguments)
        args, kwargs = tuple(values[:n]), {a.name: x for a, x in zip(program.arguments[n:], values[n:], strict=True)}
        other_args, other_kwargs = chosen.others_of_call(args, kwargs)
        reconstructed = chosen.of_call(args, kwargs)
        out = reconstructed[0] if chosen.alone else tuple(reconstructed)
        return ((result, *other_args), other_kwargs), (out, log_det_value) if log_det else out

    # Arranged twice: the numbers of the leaves give the order of the leaves. The trees, each of which is a leaf of the
    # arrangement, give its structure: in ((results, x), {}) the tree of each part is put in its place.
    numbers = [list(a.leaves) for a in program.arguments], list(range(n_args, leaf_of_log_det)), leaf_of_log_det
    in_leaves, out_leaves = map(tree.leaves, arranged(*numbers))
    trees = [a.tree for a in program.arguments], program.out_tree, tree.LEAF
    in_tree, out_tree = [tree_parts.with_subtrees(outer, inner) for inner, outer in map(tree.flatten, arranged(*trees))]
    # the jaxpr: results, bound constants, other arguments -> wanted arguments in their order, log|det J|
    other_leaves = [k for k, w in enumerate(is_chosen) if not w]
    operand_of_leaf = {n_args + k: k for k in range(n_out)}
    operand_of_leaf.update({k: n_out + n_bound + j for j, k in enumerate(other_leaves)})
    result_of_leaf = {k: j for j, k in enumerate([*sorted(chosen.leaves), leaf_of_log_det])}
    jaxpr = reorder_operands(jaxpr, (*range(n_out, n_out + n_bound), *[operand_of_leaf[k] for k in in_leaves]))
    jaxpr = select_outs(jaxpr, [result_of_leaf[k] for k in out_leaves])
    names, _ = chosen.others_of_call(program.names, {})
    return Program(jaxpr, in_tree, out_tree, program.bound, ("results", *names), f"inverse_{program.name}")


def operand_labels(program: Program[..., object]) -> tuple[str, ...]:
    """Return the names of a program's operands in messages."""
    closed_over = [f"a value closed over by {program.name}"] * len(program.bound)
    return (*closed_over, *[f"argument {p} of {program.name}" for p in program.paths])


# --------------------------------------------------------------------------------------------------------- invertible


@overload
def invertible(f: NoFunction, **options: Any) -> Callable[..., Any]: ...
@overload
def invertible(f: Program[P, R], *, keep: ArgumentNames = (), tolerance: float | None = None) -> Program[P, R]: ...
@overload
def invertible(
    f: Callable[P, R],
    *,
    keep: ArgumentNames = (),
    tolerance: float | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Callable[P, R]: ...
@overload
def invertible(
    *,
    keep: ArgumentNames = (),
    tolerance: float | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> Rewrite: ...
@decorator_form
def invertible(
    f: Callable[..., object],
    *,
    keep: ArgumentNames = (),
    tolerance: float | None = None,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
) -> object:
    """Return the same function; reverse mode stores its results, and reconstructs from them what the gradient needs.

    Arguments are reconstructed. Arguments named in `keep` (by number or by name) and values that the function closes
    over are kept in memory: they are weights, which exist anyway. Integers and bools that the results do not determine
    are kept too. A chain of steps stores one state, whether `invertible` wraps the chain or each step of it: consecutive
    calls are merged before differentiation, and so is a loop over such a call (the pass `merge_invertible`).
    `invertible(keep=...)` alone is a decorator.

    A value that is lost (a factor 0, tanh saturated) becomes nan. A loss of digits is detected at run time: up to 64
    signed sums of the values reconstructed last are stored and compared. If they differ by more than `tolerance`,
    relative to the largest magnitude, the first element of each derivative is nan. By default a third of the digits of
    the dtype must be correct: 5e-6 in float64, 4e-3 in float32, 0.08 in float16, 0.16 in bfloat16.

    Law:    same value; the gradient of the plain function, within the error that `reconstruction_error` measures, or
            nan; forward mode is that of the plain function. Memory does not grow with the number of steps. For second
            and higher orders it does if the function contains custom derivatives, as without `invertible`.
    Cost:   about one more forward computation in the backward program.
    Raises: NotInvertibleError for a value that the gradient needs and the results do not determine, naming the equation
            that cannot be inverted, the user's line and the argument; ArgumentError for an invalid `keep`. The cases
            are those of `inverse`, for values that the gradient needs. The remedy `keep` has an alternative: close over
            the values, which are then kept. NotDifferentiableError for a second derivative with respect to the mask m
            of `m * x + (1 - m) * g`: take `stop_gradient` of it, or use a mask of bools.
    """
    if tolerance is not None and (not isinstance(tolerance, float | int) or tolerance is True or not tolerance > 0):
        raise ArgumentError(
            f"invertible: tolerance must be a positive number, got {shown(tolerance)}",
            remedy="give the relative error that gradients may be made from; infinity, and none is looked for",
        )

    def transform(program: Program[..., object]) -> Program[..., object]:
        kept_arguments = ChosenArguments.by_number_or_name("invertible", "keep", program, keep)
        flags = (True,) * len(program.bound) + kept_arguments.leaf_flags
        jaxpr = invertible_of(program.jaxpr, flags, operand_labels(program), float(tolerance or 0))
        return program.replace(jaxpr)

    return lift("invertible", f, transform, static_argnums=static_argnums, static_argnames=static_argnames)


def reconstruction_error(
    f: Program[..., object] | Callable[..., object], /, *args: object, keep: ArgumentNames = (), **kwargs: object
) -> float:
    """Measure the error of the values that `invertible` reconstructs: the largest difference in an argument, relative
    to its largest magnitude; the maximum over the arrays of the arguments; nan if a value is lost.

    Raises: as `invertible`.
    """
    if not isinstance(f, Program):
        statics = static_arguments(f"reconstruction_error of {function_name(f)}", f)
        f, args, kwargs = bind_static_arguments("reconstruction_error", f, statics, args, kwargs)
    program = f if isinstance(f, Program) else trace_for_call(f, args, kwargs)
    kept = ChosenArguments.by_number_or_name("reconstruction_error", "keep", program, keep).leaf_flags
    wanted = tuple([a.inexact and not k for a, k in zip(program.in_avals, kept, strict=True)])
    marks = (False,) * len(program.bound) + wanted
    inverted = inverse_of(program.jaxpr, marks, False, operand_labels(program))
    leaves = tree.leaves((args, kwargs))
    results = tree.leaves(program(*args, **kwargs))
    others = [*program.bound, *[x for x, w in zip(leaves, wanted, strict=True) if not w]]
    reconstructed = binder().call(inverted, [*results, *others])
    exact = [np.asarray(x, np.complex128) for x, w in zip(leaves, wanted, strict=True) if w]
    errors = [np.abs(np.asarray(y, np.complex128) - x) for x, y in zip(exact, reconstructed, strict=True)]
    largest = [np.max(np.abs(x), initial=0) for x in exact]
    return float(np.max([np.max(e, initial=0) / (m or 1.0) for e, m in zip(errors, largest, strict=True)], initial=0))


def _has_inverse(rules: UserRules) -> bool:
    return any([rule.transformation == INVERSE for rule in rules.transform_rules])


_CUSTOM_INVERSE: Final = Decorator("custom_inverse", _has_inverse, "{}.definverse(inverse)")
_CUSTOM_IVJP: Final = Decorator("custom_ivjp", _has_inverse, "{}.defivjp(ivjp)")


@overload
def custom_inverse(fun: NoFunction, *args: Any, **options: Any) -> CustomFunction[..., Any]: ...
@overload
def custom_inverse(
    fun: Callable[P, R], inverse: Callable[..., object] | None = None, *, keep: ArgumentNames = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_inverse(
    *, inverse: Callable[..., object] | None = None, keep: ArgumentNames = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
@decorator_form
def custom_inverse(
    fun: Callable[..., Any], inverse: Callable[..., object] | None = None, *, keep: ArgumentNames = ()
) -> Any:
    """Return a function with a custom inverse: `inverse` and `invertible` use `inverse(results, *kept)`; see
    `definverse`.

    Law:    inverse(fun(x, w), w) = x, within rounding; `fxad.testing.check_inverse` tests this.
    Raises: when it is called: TreeError, ShapeError, DTypeError naming rule, path and both types.
    """
    function = decorate(_CUSTOM_INVERSE, fun)
    if inverse is not None:
        function.definverse(inverse, keep)
    return function


@overload
def custom_ivjp(fun: NoFunction, *args: Any, **options: Any) -> CustomFunction[..., Any]: ...
@overload
def custom_ivjp(
    fun: Callable[P, R], ivjp: Callable[..., object] | None = None, *, keep: ArgumentNames = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_ivjp(
    *, ivjp: Callable[..., object] | None = None, keep: ArgumentNames = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
@decorator_form
def custom_ivjp(fun: Callable[..., Any], ivjp: Callable[..., object] | None = None, *, keep: ArgumentNames = ()) -> Any:
    """Return a function whose arguments and cotangents are computed together by `ivjp(results, cotangents, *kept)`; see
    `defivjp`.

    Raises: as `custom_inverse`; NotLinearError, NotInvertibleError if the reconstructed arguments depend on cotangents
            or the cotangents are not linear in them.
    """
    function = decorate(_CUSTOM_IVJP, fun)
    if ivjp is not None:
        function.defivjp(ivjp, keep)
    return function
