"""The rules that users give: traced, and made the records of `call_with_rules`.

`UserRules` are those of one function. Then one section for each kind of rule: tangents, cotangents, stacks. The rules
of transformations outside the core are subclasses of `UserTransformRule`, which stand with these transformations. `rule_signature` has
what all kinds are traced with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, Concatenate, Final, NamedTuple, ParamSpec, final

import numpy as np

from fxad.api.custom.rule_signature import (
    ExpectedResults,
    RuleError,
    Signature,
    UserRule,
    call_rule,
    check_takes,
    check_types,
    directions,
    inexact,
    pair,
    results_in_order,
    traced_rule,
    with_none,
)
from fxad.api.symbolic_zeros import CustomVJPPrimal, SymbolicZero
from fxad.core.dataclasses import dataclass
from fxad.core.flags import select_by_flags
from fxad.core.frames import Scoped
from fxad.core.sizes.size import bound_size
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, FxadError, ShapeError, SizeError, TreeError, described, shown
from fxad.ir import Flags, Jaxpr
from fxad.lax.control.traced_functions import TracedFunction
from fxad.numpy.binary import add
from fxad.numpy.shapes import broadcast_to
from fxad.operations.arguments import argument_keys, plain_ints
from fxad.operations.number_types import NumberType
from fxad.primitives.control.bodies import reorder_operands
from fxad.primitives.custom_rules import VMAP, BatchRule, Derivative, Refusal, Rules, TransformRule
from fxad.runtime import SupportsDLPack
from fxad.tracing.array import Array, ArrayLike, aval_of, is_scalar
from fxad.tracing.context import stacked_axis_sizes
from fxad.tracing.program import count_text, function_name
from fxad.tracing.static_args import Argnames
from fxad.tracing.trace import parameter_names
from fxad.tracing.traced_numbers import TracedNumber
from fxad.transforms.ad.linear_rule import cotangent_maps, split_tangents

Q = ParamSpec("Q")


@final
@dataclass(frozen=True, slots=True, eq=False)
class TracedRule:
    """A traced rule. `finish(body, programs)` makes its record from the program of the function and those of `bodies`,
    all over the same captured operands."""

    bodies: tuple[TracedFunction, ...]
    finish: Callable[[Jaxpr, Sequence[Jaxpr]], Rules]


class UserTransformRule(ABC):
    """A user's rule for a transformation that is not part of the core. A subclass is a frozen dataclass, which the
    transformation defines beside its public functions.

    A function has one rule for each `transformation`. `takes_arrays`: ints and bools among the arguments are arrays for
    it. `whole` is that of `TransformRule`.
    """

    __slots__ = ()

    whole: ClassVar[bool] = False
    takes_arrays: ClassVar[bool] = False

    @property
    @abstractmethod
    def transformation(self) -> str:
        """The name of the transformation."""

    @property
    @abstractmethod
    def role(self) -> str:
        """The name of the method that the user called."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of the rule in `CustomFunction.rules`."""

    @property
    def gives_derivative(self) -> bool:
        """Return True if it also gives the derivative in reverse mode, which is taken if the user gave no other."""
        return False

    @abstractmethod
    def check(self, sig: Signature) -> None:
        """Raise ArgumentError for a rule that cannot be called with its arguments."""

    @abstractmethod
    def trace(self, sig: Signature) -> TracedRule:
        """Trace the rule. Its record has the derivative, if it gives one, and one `TransformRule`."""

    def refused(self, error: Refusal) -> Rules:
        """Return the record of the rule if it raised an error while it was traced."""
        rule = TransformRule(self.transformation, whole=self.whole, error=error.message, remedy=error.remedy)
        return Rules(further=(rule,))


@final
@dataclass(frozen=True, slots=True, eq=False)
class UserRules:
    """A function, and the rules that a user gave for it, by transformation."""

    fun: Callable[..., object]
    nondiff_argnums: tuple[int, ...] = ()
    jvp: UserRule | None = None
    vjp: tuple[UserRule, UserRule] | None = None
    vmap: tuple[UserRule, tuple[int, ...] | None] | None = None  # with the axis sizes that it is for; None: any
    transform_rules: tuple[UserTransformRule, ...] = ()  # one for each transformation
    jvp_zeros: bool = False  # the rule gets symbolic zeros
    vjp_zeros: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of "jvp", "vjp", "vmap", and the kinds of the other rules."""
        rules = (("jvp", self.jvp), ("vjp", self.vjp), ("vmap", self.vmap))
        return (*[name for name, rule in rules if rule], *[rule.kind for rule in self.transform_rules])

    @property
    def have_derivative(self) -> bool:
        """Return True if a rule gives the derivative."""
        return bool(self.jvp or self.vjp) or any([rule.gives_derivative for rule in self.transform_rules])

    def with_transform_rule(self, rule: UserTransformRule) -> UserRules:
        """Return these rules, with one for a transformation in place of any that it has."""
        others = [r for r in self.transform_rules if r.transformation != rule.transformation]
        return replace(self, transform_rules=tuple(sorted([*others, rule], key=lambda r: r.transformation)))

    def check(self, sig: Signature) -> None:
        """Raise ArgumentError for a rule that cannot be called with its arguments."""
        nondiff = [sig.names[k] for k in sig.nondiff]
        if isinstance(self.jvp, ArgumentRules) and len(self.jvp.rules) != len(sig.names):
            raise ArgumentError(
                f"defjvps of {sig.name}: has {len(self.jvp.rules)} rules for {len(sig.names)} arguments",
                remedy="give one for each argument, None where its tangent has no effect",
            )
        if self.jvp:
            check_takes("defjvp", sig, self.jvp, [*nondiff, "primals", "tangents"])
        if self.vjp:
            check_takes("defvjp", sig, self.vjp[0], sig.names)
            check_takes("defvjp", sig, self.vjp[1], [*nondiff, "residuals", "cotangents"])
        if self.vmap:
            check_takes("def_vmap", sig, self.vmap[0], ["axis_size", "in_batched", *sig.names])
        for rule in self.transform_rules:
            rule.check(sig)

    def traced(self, sig: Signature, perturbed_sets: Callable[[], Sequence[Flags]]) -> Iterator[TracedRule]:
        """Trace the rules. A rule that raises an error is a refusal, because the program may not need the rule.

        Each derivative is traced for all arguments, and a rule with `symbolic_zeros` also for `perturbed_sets()`, sets of
        arguments with tangents, and, if it is one of cotangents, for sets of results.
        """
        self.check(sig)
        every = tuple([a.inexact for a in sig.in_avals])

        def sets(symbolic_zeros: bool) -> Sequence[Flags]:
            # no derivative rule is traced if no argument has a tangent
            return list(dict.fromkeys([every, *(perturbed_sets() if symbolic_zeros else ())])) if any(every) else ()

        if self.jvp:
            for perturbed in sets(self.jvp_zeros):
                yield _or_refused(sig, perturbed, lambda rule: Rules(jvp=(rule,)), tangent_rule, self.jvp, perturbed)
        if self.vjp:
            zeros, rule = self.vjp_zeros, self.vjp
            for perturbed in sets(zeros):
                for of_results in sig.sets_of_results if zeros else (None,):
                    refused = _refused_cotangents(of_results)
                    yield _or_refused(sig, perturbed, refused, cotangent_rule, rule, perturbed, zeros, of_results)
        if self.vmap:
            yield from stacked_rules(sig, *self.vmap)
        for other in self.transform_rules:
            yield _or_refused(sig, (False,) * len(every), other.refused, other.trace)


def _or_refused(
    sig: Signature,
    perturbed: Sequence[bool],
    rules: Callable[[Refusal], Rules],
    trace: Callable[Concatenate[Signature, Q], TracedRule],
    *args: Q.args,
    **kwargs: Q.kwargs,
) -> TracedRule:
    """Return the traced rule, or `rules` of a refusal if the rule raises an error. `perturbed` marks the leaves with
    tangents."""
    try:
        return trace(sig, *args, **kwargs)
    except RuleError as e:
        message, remedy = e.message, e.remedy
    return TracedRule((), lambda body, _: rules(Refusal(sig.marks(body, perturbed), message, remedy)))


def _refused_cotangents(results: Flags | None) -> Callable[[Refusal], Rules]:
    """Return the function from the refusal of a rule of cotangents, which is for these results, to its record."""
    return lambda refusal: Rules(vjp=(replace(refusal, results=results),))


# ------------------------------------------------------------------------------------------------------------ tangents


def tangent_rule(sig: Signature, rule: UserRule, perturbed: Flags) -> TracedRule:
    """Trace a rule (primals, tangents) -> (results, tangents of results). `perturbed` marks the leaves whose tangents do
    not vanish.

    Raises: TreeError, ShapeError, DTypeError for a result that does not fit the function, naming the path and both
            types; NotLinearError from `finish`.
    """
    what, n = f"defjvp of {sig.name}: {function_name(rule)}", len(sig.in_avals)

    def flat(*leaves: object) -> object:
        primals, dots = leaves[:n], with_none(sig.in_tree, sig.in_avals, leaves[n:], perturbed)
        returned = call_rule(what, rule, *sig.nondiff_values, sig.primals(primals), dots)
        out, dot = pair(what, "(results, tangents)", returned)
        results = results_in_order(what, sig, out)
        if isinstance(rule, ArgumentRules):
            dot = _added_tangents(sig, dot)
        return results + directions(what, "tangent", sig.out_tree, sig.out_avals, sig.out_paths, dot, "the results")

    has_tangent = [a.inexact for a in sig.out_avals]
    results = ExpectedResults("for", sig.out_paths, sig.out_avals)
    dots = ExpectedResults("as tangent of", select_by_flags(sig.out_paths, has_tangent), inexact(sig.out_avals))
    body = traced_rule(what, rule, flat, (*sig.in_types, *select_by_flags(sig.in_avals, perturbed)), results, dots)

    def finish(function: Jaxpr, programs: Sequence[Jaxpr]) -> Rules:
        forward, push = split_tangents(programs[0], len(sig.out_avals), sum(perturbed), what)
        return Rules(jvp=(Derivative(sig.marks(function, perturbed), forward, push),))

    return TracedRule((body,), finish)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ArgumentRules:
    """The rules of `defjvps` for the arguments of `fun`, as a rule that returns the tangents of results by argument."""

    __name__: ClassVar[str] = "defjvps"
    fun: Callable[..., object]
    rules: tuple[UserRule | None, ...]

    def __call__(self, primals: Sequence[object], tangents: Sequence[object]) -> tuple[object, object]:
        """Return the results, and (rule, tangents of results) for each argument whose tangent has an effect."""
        out = self.fun(*primals)
        pairs = [(f, t) for f, t in zip(self.rules, tangents, strict=True) if f is not None and tree.leaves(t)]
        return out, [(f, f(t, out, *primals)) for f, t in pairs]


def _added_tangents(sig: Signature, parts: Sequence[tuple[UserRule, object]]) -> Any:
    """Return the sum of the tangents of results that rules give, one for each argument; None where all of them vanish.

    Raises: TreeError, ShapeError, DTypeError for a tangent that does not fit the results, naming the rule.
    """
    has_tangent = [a.inexact for a in sig.out_avals]
    total: list[ArrayLike | None] = [None] * len(has_tangent)
    for rule, value in parts:
        what = f"defjvps of {sig.name}: {function_name(rule)}"
        dots = directions(what, "tangent", sig.out_tree, sig.out_avals, sig.out_paths, value, "the results")
        wants = inexact(sig.out_avals)
        types = [a if is_scalar(x) else aval_of(x) for x, a in zip(dots, wants, strict=True)]
        check_types(what, "as tangent of", select_by_flags(sig.out_paths, has_tangent), wants, types)
        for k, x in enumerate(tree.flatten_up_to(sig.out_tree, value) or ()):
            if has_tangent[k] and x is not None and not isinstance(x, SymbolicZero):
                so_far = total[k]
                total[k] = x if so_far is None else add(so_far, x)
    return tree.unflatten(sig.out_tree, total)


# ---------------------------------------------------------------------------------------------------------- cotangents


class _ForwardResiduals(NamedTuple):
    """The residuals that `fwd` has returned. `constants` has the value of each leaf, or `_ARRAY`; `numbers` the type of
    each array that is a number, else None."""

    structure: Structure
    constants: tuple[object, ...]
    numbers: tuple[NumberType | None, ...]


def cotangent_rule(
    sig: Signature, rule: tuple[UserRule, UserRule], perturbed: Flags, wrapped: bool, of_results: Flags | None
) -> TracedRule:
    """Trace a rule of `fwd(*args) -> (results, residuals)`, and `bwd(residuals, cotangents) -> cotangents of args`.

    `perturbed` marks the leaves whose cotangents are needed. If `wrapped`, `fwd` takes its leaves as `CustomVJPPrimal`.
    `of_results` marks the results whose cotangents are not symbolic zeros; None: all results.
    Raises: TreeError, ShapeError, DTypeError for a result that does not fit the function, naming the path and both
            types.
    """
    fwd, bwd = rule
    fwd_name, bwd_name = [f"defvjp of {sig.name}: {function_name(fn)}" for fn in (fwd, bwd)]
    found: _ForwardResiduals | None = None  # `traced_rule` calls `flat_forward`, once, and `flat_backward` after that

    def flat_forward(*leaves: object) -> object:
        nonlocal found
        args = [CustomVJPPrimal(x, m) for x, m in zip(leaves, perturbed, strict=True)] if wrapped else leaves
        returned = call_rule(fwd_name, fwd, *sig.arguments(args))
        out, residuals = pair(fwd_name, "(results, residuals)", returned)
        leaves_of_residuals, structure = tree.flatten(residuals)
        constants = _residual_constants(fwd_name, leaves_of_residuals, structure)
        arrays = [x for x, c in zip(leaves_of_residuals, constants, strict=True) if c is _ARRAY]
        numbers = [x.number_type if type(x) is TracedNumber else None for x in arrays]
        found = _ForwardResiduals(structure, tuple(constants), tuple(numbers))
        arrays = [x.in_base() if type(x) is TracedNumber else x for x in arrays]
        return results_in_order(fwd_name, sig, out) + arrays

    results = ExpectedResults("for", sig.out_paths, sig.out_avals)
    forward_body = traced_rule(fwd_name, fwd, flat_forward, sig.in_types, results)
    assert found is not None
    res_tree, constants, numbers = found
    res_avals = forward_body.jaxpr.out_avals[len(sig.out_avals) :]
    n_res = len(res_avals)

    about = (True,) * len(sig.out_avals) if of_results is None else of_results
    has_cotangent = tuple([a.inexact and m for a, m in zip(sig.out_avals, about, strict=True)])
    ct_avals = select_by_flags(sig.out_avals, has_cotangent)

    def flat_backward(*leaves: object) -> object:
        arrays = iter(leaves[:n_res])
        residuals = tree.unflatten(res_tree, [next(arrays) if c is _ARRAY else c for c in constants])
        cts = with_none(sig.out_tree, sig.out_avals, leaves[n_res:], has_cotangent)
        bars = call_rule(bwd_name, bwd, *sig.nondiff_values, residuals, cts)
        wanted = [m for a, m in zip(sig.in_avals, perturbed, strict=True) if a.inexact]
        return list(select_by_flags(cotangents(bwd_name, sig, bars), wanted))

    paths, avals = select_by_flags(sig.in_paths, perturbed), select_by_flags(sig.in_avals, perturbed)
    res_types = [a if n is None else n.with_operand(a.dtype) for a, n in zip(res_avals, numbers, strict=True)]
    backward_ins = (*res_types, *ct_avals)
    backward_body = traced_rule(
        bwd_name, bwd, flat_backward, backward_ins, ExpectedResults("as cotangent of", paths, avals)
    )

    def finish(function: Jaxpr, programs: Sequence[Jaxpr]) -> Rules:
        forward, backward = programs
        n = len(function.ins) - len(sig.in_avals)
        # values that `bwd` closes over are residuals too
        forward = forward.with_outs((*forward.outs, *forward.ins[:n]))
        order = (*range(n + n_res, len(backward.ins)), *range(n, n + n_res), *range(n))  # cotangents, then residuals
        maps = cotangent_maps(reorder_operands(backward, order), len(ct_avals), bwd_name)
        return Rules(vjp=(Derivative(sig.marks(function, perturbed), forward, *maps, of_results),))

    return TracedRule((forward_body, backward_body), finish)


_ARRAY: Final = object()  # in place of a residual that is an array, and so an operand of the backward program


def _residual_constants(what: str, leaves: Sequence[object], res_tree: Structure) -> list[object]:
    """Return the residuals that `bwd` gets unchanged (numbers, strings, sizes, functions), and `_ARRAY` for arrays.

    Raises: ArgumentError for a residual that is neither an array nor hashable.
    """
    out: list[object] = []
    for x, path in zip(leaves, tree.paths(res_tree, "residual"), strict=True):
        if not is_scalar(x) and isinstance(x, Array | np.ndarray | np.generic | SupportsDLPack):
            out.append(_ARRAY)
            continue
        try:
            hash(x)
        except TypeError:
            raise ArgumentError(
                f"{what} returns {described(x)} as {path}, which is no array and can change: {shown(x)}",
                remedy="store arrays, or values that are hashable, such as a frozenset for a set",
            ) from None
        out.append(x)
    return out


def cotangents(what: str, sig: Signature, bars: object) -> list[object]:
    """Return the leaves of a tuple with a cotangent for each argument. Raises: TreeError, DTypeError."""
    parts = sig.in_tree.children()
    if isinstance(bars, tuple | list):
        without_numbers = list(bars)
        for at, (k, bar) in enumerate(zip(sig.positions, bars, strict=False)):
            if k in sig.passed_numbers:
                without_numbers[at] = sig.passed_numbers[k].without_cotangents(what, sig.names[k], bar)
        bars = without_numbers if isinstance(bars, list) else tuple(without_numbers)
    if not isinstance(bars, tuple | list) or len(bars) != len(parts):
        raise TreeError(
            f"{what} returns {tree.shape_text(tree.structure(bars))}, {sig.name} has "
            f"{count_text(len(parts), 'argument')} that its rule is about",
            remedy="return a tuple with a cotangent for each argument, None where it has none",
        )
    avals, paths = iter(sig.in_avals), iter(sig.in_paths)
    out: list[object] = []
    for part, bar in zip(parts, bars, strict=True):
        n = part.num_leaves
        out += directions(what, "cotangent", part, list(islice(avals, n)), list(islice(paths, n)), bar, "the argument")
    return out


# ------------------------------------------------------------------------------------------------------------ batching


# The number of enclosing rules for any size that are being traced.
_bound_sizes: Final[Scoped[int]] = Scoped("fxad_bound_sizes", 0)


def stacked_rules(sig: Signature, rule: UserRule, sizes: Sequence[int] | None) -> list[TracedRule]:
    """Trace the rule for stacks of `sizes`. None: the sizes of the enclosing maps, and any size unless it needs the
    number."""
    if sizes is not None:
        return [stacked_rule(sig, rule, size) for size in dict.fromkeys(sizes)]
    of_any_size = _rule_of_any_size(sig, rule)
    of_sizes = [stacked_rule(sig, rule, size) for size in dict.fromkeys(stacked_axis_sizes())]
    return [of_any_size, *of_sizes] if of_any_size else of_sizes


def _rule_of_any_size(sig: Signature, rule: UserRule) -> TracedRule | None:
    """Trace the rule with a symbolic size: any size, or else any size but 0. None if it needs the number. Any other
    error is that of its uses, because it may hold for this size alone."""
    depth, error = _bound_sizes.get(), None
    for least in (0, 1):
        try:
            with _bound_sizes(depth + 1):
                return stacked_rule(sig, rule, bound_size(depth, least), any_size=True)
        except (RuleError, FxadError) as e:
            error = e
    assert error is not None
    # the cause of a `RuleError` is what the rule raised; other errors are raised by the checks of its results
    if isinstance(error.__cause__ or error, SizeError):
        return None
    named = f"{sig.name}.def_vmap(3)({function_name(rule)})"
    remedy = f"{error.remedy}; a rule that needs the number is for the sizes that it names: {named}"
    failed = TransformRule(VMAP, error=error.message, remedy=remedy)
    return TracedRule((), lambda _body, _programs: Rules(further=(failed,)))


def stacked_rule(sig: Signature, rule: UserRule, size: int, *, any_size: bool = False) -> TracedRule:
    """Trace a rule (size, which leaves are mapped, stacked arguments) -> (results, which of them are mapped).

    Raises: TreeError, ShapeError, DTypeError for a result that does not fit the function, naming the path and both
            types.
    """
    what = f"def_vmap of {sig.name}: {function_name(rule)}"

    def flat(*leaves: object) -> object:
        mapped = [k not in sig.nondiff and part for k, part in enumerate(sig.arguments([True] * len(leaves)))]
        args = (size, mapped, *sig.arguments(leaves))
        # A symbolic size is an attempt: an error of the rule may be due to it, and is caught as a `RuleError`. A number is
        # that of a map, or one that the user named: then the error is the user's, and is raised as it is.
        returned = call_rule(what, rule, *args) if any_size else rule(*args)
        out, out_batched = pair(what, "(results, out_batched)", returned)
        marks = tree.broadcast_prefix(out_batched, sig.out_tree, f"{what}: out_batched", lambda x: isinstance(x, bool))
        results = results_in_order(what, sig, out)
        for k, (x, is_stack) in enumerate(zip(results, marks, strict=True)):
            if not is_stack:
                have, want = aval_of(x), sig.out_avals[k]
                if have.shape != want.shape and not is_scalar(x):
                    raise ShapeError(
                        f"{what} returns {have} for {sig.out_paths[k]}, which is {want}, and is no stack by out_batched",
                        remedy=f"return {want} there, or say True for it in out_batched if it is a stack",
                    )
                results[k] = broadcast_to(x, (size, *want.shape))
        return results

    in_avals, out_avals = [[a.stacked(size) for a in avals] for avals in (sig.in_avals, sig.out_avals)]
    body = traced_rule(what, rule, flat, in_avals, ExpectedResults("as stack of", sig.out_paths, out_avals))
    return TracedRule((body,), lambda _, programs: Rules(batch=(BatchRule(size, programs[0], any_size),)))


# -------------------------------------------------------------------------------------- arguments that rules are not about


def nondiff_positions(
    fun: object, argnums: Sequence[int], argnames: Argnames = (), what: str = "custom rules"
) -> tuple[int, ...]:
    """Return the positions of the arguments without a derivative, in order, each once. Raises: ArgumentError."""
    name, names = function_name(fun), parameter_names(fun)
    argnums, by_name = plain_ints(argnums), argument_keys(argnames, str)
    if not isinstance(argnums, Sequence):
        raise ArgumentError(
            f"custom rules of {name}: nondiff_argnums is {shown(argnums)}, not a sequence of numbers",
            remedy="nondiff_argnums=(0,)",
        )
    for k in argnums:
        if not isinstance(k, int) or isinstance(k, bool) or k < 0:
            raise ArgumentError(
                f"custom rules of {name}: nondiff_argnums {argnums!r} has {k!r}",
                remedy="number positional arguments from 0",
            )
    if by_name is None:
        raise ArgumentError(
            f"{what} of {name}: nondiff_argnames is {shown(argnames)}, not a name or a sequence of them",
            remedy="name parameters of the function",
        )
    for argname in by_name:
        if argname not in names:
            raise ArgumentError(
                f"{what} of {name}: nondiff_argnames has {argname!r}, its parameters are {', '.join(names) or 'not known'}",
                remedy="name parameters of the function",
            )
    return tuple(sorted({*argnums, *[names.index(argname) for argname in by_name]}))
