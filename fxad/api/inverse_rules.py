"""`definverse` and `defivjp`: the rules of functions with a custom inverse, as users give them.

`fxad.api.custom_function` adds the methods to `CustomFunction`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, ParamSpec, TypeVar, final

from fxad.api.custom.function import FunctionWithRules
from fxad.api.custom.rule_signature import (
    ExpectedResults,
    Signature,
    UserRule,
    call_rule,
    check_takes,
    inexact,
    pair,
    traced_rule,
    with_none,
)
from fxad.api.custom.traced_rules import TracedRule, UserTransformRule, cotangents
from fxad.api.lift import check_function
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce, prune
from fxad.core.flags import select_by_flags
from fxad.core.trees import tree
from fxad.errors import ArgumentError, NotInvertibleError, TreeError
from fxad.ir import Flags, Jaxpr, Zero
from fxad.operations.arguments import argument_keys
from fxad.primitives.control.bodies import reorder_operands
from fxad.primitives.custom_rules import Derivative, Rules
from fxad.tracing.program import function_name
from fxad.tracing.static_args import ArgumentNames
from fxad.tracing.trace import parameter_names
from fxad.transforms.ad.linear_rule import cotangent_maps
from fxad.transforms.inversion.call_rules import INVERSE, inverse_rule

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


class DefinesInverse(FunctionWithRules[P, R]):
    """The methods of `CustomFunction` that define an inverse."""

    def definverse(self, inverse: F, keep: ArgumentNames = ()) -> F:
        """Define the inverse: `inverse(*nondiff, results, *kept) -> the other argument`, or a tuple of the others.

        `keep`: the arguments, by number or name, that the inverse takes.
        """
        return self._inverse(inverse, keep, False)

    def defivjp(self, ivjp: F, keep: ArgumentNames = ()) -> F:
        """Define inverse and gradient together: `ivjp(*nondiff, results, cotangents, *kept) -> (the other argument, or a
        tuple of the others; a tuple with the cotangent of each argument)`.

        It is the inverse, and the derivative if no other is defined. It must be linear in the cotangents, and the
        arguments that it reconstructs must not depend on them. Both are checked when it is traced.
        """
        return self._inverse(ivjp, keep, True)

    def _inverse(self, rule: F, keep: ArgumentNames, fused: bool) -> F:
        role = "defivjp" if fused else "definverse"
        check_function(role, rule)
        self.define(UserInverse(rule, _kept_positions(role, self.fun, keep), fused))
        return rule


@final
@dataclass(frozen=True, slots=True, eq=False)
class UserInverse(UserTransformRule):
    """A user's rule, and the positions of the arguments that it takes beside the results. `fused`: it also gives the
    cotangents."""

    whole: ClassVar[bool] = True
    takes_arrays: ClassVar[bool] = True  # it may return an int

    rule: UserRule
    keep: tuple[int, ...]
    fused: bool

    @property
    def transformation(self) -> str:
        return INVERSE

    @property
    def role(self) -> str:
        return "defivjp" if self.fused else "definverse"

    @property
    def kind(self) -> str:
        return "ivjp" if self.fused else "inverse"

    @property
    def gives_derivative(self) -> bool:
        return self.fused

    def check(self, sig: Signature) -> None:
        nondiff = [sig.names[k] for k in sig.nondiff]
        cts = ["cotangents"] if self.fused else []
        kept = [sig.names[k] for k in self.keep if k < len(sig.names)]
        check_takes(self.role, sig, self.rule, [*nondiff, "results", *cts, *kept])

    def trace(self, sig: Signature) -> TracedRule:
        return _traced_inverse(sig, self)


def _kept_positions(role: str, fun: object, keep: ArgumentNames) -> tuple[int, ...]:
    """Return the positions of the arguments that an inverse takes. Raises: ArgumentError."""
    names, keys = parameter_names(fun), argument_keys(keep)
    unknown = [keep] if keys is None else [k for k in keys if (k not in names if isinstance(k, str) else k < 0)]
    if keys is None or unknown:
        raise ArgumentError(
            f"{role} of {function_name(fun)}: keep has {unknown[0]!r}, which is no argument of it",
            remedy="name arguments, or number them from 0",
        )
    return tuple([names.index(k) if isinstance(k, str) else k for k in keys])


def _traced_inverse(sig: Signature, inverse: UserInverse) -> TracedRule:
    """Trace `rule(results, [cotangents,] *kept) -> others`, or with cotangents `(others, cotangents of arguments)`.

    Raises: TreeError, ShapeError, DTypeError for a result that does not fit the function, naming the path and both
            types; ArgumentError for a position to keep that the call does not have; from `finish`, NotLinearError for an
            ivjp that is not linear in the cotangents, NotInvertibleError if the reconstructed arguments depend on them.
    """
    what, n = f"{inverse.role} of {sig.name}: {function_name(inverse.rule)}", len(sig.out_avals)
    for k in inverse.keep:
        if k not in sig.positions:
            raise ArgumentError(
                f"{inverse.role} of {sig.name}: keep has {k}, and its rules are about arguments {', '.join(map(str, sig.positions))}",
                remedy="number positional arguments from 0; those in nondiff_argnums are given to the rule anyway",
            )
    tree_of = dict(zip(sig.positions, sig.in_tree.children(), strict=True))
    kept_tree = tree.tuple_structure(*[t for k, t in tree_of.items() if k in inverse.keep])
    others = [t for k, t in tree_of.items() if k not in inverse.keep]
    others_tree = others[0] if len(others) == 1 else tree.tuple_structure(*others)
    is_kept = tuple([k in inverse.keep for k, t in tree_of.items() for _ in range(t.num_leaves)])
    is_other = tuple([not kept for kept in is_kept])
    n_known = n + sum(is_kept)  # results and kept leaves

    def flat(*leaves: object) -> object:
        results, kept = tree.unflatten(sig.out_tree, leaves[:n]), tree.unflatten(kept_tree, leaves[n:n_known])
        cts = [with_none(sig.out_tree, sig.out_avals, leaves[n_known:])] if inverse.fused else []
        value = call_rule(what, inverse.rule, *sig.nondiff_values, results, *cts, *kept)
        value, bars = pair(what, "(arguments, cotangents)", value) if inverse.fused else (value, None)
        reconstructed, actual = tree.flatten(value)
        if actual != others_tree:
            raise TreeError(
                f"{what} returns {tree.shape_text(actual)}, {sig.name} takes {tree.shape_text(others_tree)}",
                remedy="return the argument that is not kept, or a tuple of them in order",
            )
        return reconstructed + (cotangents(what, sig, bars) if inverse.fused else [])

    cts = inexact(sig.out_avals) if inverse.fused else ()
    takes = (*sig.out_avals, *select_by_flags(sig.in_avals, is_kept), *cts)
    returns = [ExpectedResults("for", select_by_flags(sig.in_paths, is_other), select_by_flags(sig.in_avals, is_other))]
    if inverse.fused:
        has_cotangent = [a.inexact for a in sig.in_avals]
        paths = select_by_flags(sig.in_paths, has_cotangent)
        returns.append(ExpectedResults("as cotangent of", paths, inexact(sig.in_avals)))
    body = traced_rule(what, inverse.rule, flat, takes, *returns)

    def finish(function: Jaxpr, programs: Sequence[Jaxpr]) -> Rules:
        n_captured = len(function.ins) - len(is_kept)
        order = (*range(n_captured, n_captured + n), *range(n_captured), *range(n_captured + n, len(programs[0].ins)))
        ordered = reorder_operands(programs[0], order)  # results, captured, kept, cotangents
        kept = (True,) * n_captured + is_kept
        if not inverse.fused:
            return Rules(further=(inverse_rule(function, kept, ordered),))
        perturbed = sig.marks(function, [a.inexact for a in sig.in_avals])
        return _rules_of_ivjp(what, function, ordered, kept, perturbed)

    return TracedRule((body,), finish)


def _rules_of_ivjp(what: str, body: Jaxpr, ivjp: Jaxpr, kept: Flags, perturbed: Flags) -> Rules:
    """Return the inverse and the derivative that an ivjp gives: (results, kept operands, cotangents) -> (other
    operands, cotangents of the perturbed ones)."""
    n_out, n_others = len(body.outs), len(kept) - sum(kept)
    n_known = n_out + sum(kept)
    read = prune(ivjp, tuple([k < n_others for k in range(len(ivjp.outs))]))[1]
    if any(read[n_known:]):
        raise NotInvertibleError(
            f"{what}: what it reconstructs depends on the cotangents",
            remedy="return (arguments, cotangents of all arguments), in this order",
        )
    b = Builder()
    known = b.inputs(ivjp.in_avals[:n_known])
    zeros = [Zero(a).instantiate() for a in ivjp.in_avals[n_known:]]
    inverse = dce(b.build(b.inline(ivjp, [*known, *zeros])[:n_others], f"inverse_{body.name}"))
    # the residuals of the derivative are the results and the kept operands
    forward = body.with_outs((*body.outs, *body.outs, *select_by_flags(body.ins, kept)))
    backward = reorder_operands(ivjp, (*range(n_known, len(ivjp.ins)), *range(n_known)))
    maps = cotangent_maps(backward.with_outs(backward.outs[n_others:]), len(ivjp.ins) - n_known, what)
    rule = inverse_rule(body, kept, inverse, ivjp, perturbed)
    return Rules(vjp=(Derivative(perturbed, forward, *maps),), further=(rule,))
