"""`custom_rule`: a function with a rule for a transformation of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar, final

from fxad.api.custom.rule_signature import (
    ExpectedResults,
    Signature,
    UserRule,
    call_rule,
    check_takes,
    results_in_order,
    traced_rule,
)
from fxad.api.custom.traced_rules import TracedRule, UserTransformRule
from fxad.api.custom_function import CustomFunction
from fxad.api.lift import check_function
from fxad.core.dataclasses import dataclass
from fxad.core.trees import tree
from fxad.errors import ArgumentError, TreeError, described, shown
from fxad.ir import Jaxpr
from fxad.operations.arguments import to_count
from fxad.primitives.custom_rules import DeclaredProgram, Rules, TransformRule
from fxad.tracing.program import function_name

P = ParamSpec("P")
R = TypeVar("R")


def custom_rule(fun: Callable[P, R], transformation: str, rule: UserRule, *, copies: int = 1) -> CustomFunction[P, R]:
    """Return the function with a rule for a transformation of your own; a function with rules keeps the others.

    `rule(*nondiff, *arguments) -> results` is a function of `copies` tuples of the arguments, and returns a tuple of
    `copies` results, all of the types that the function has. With two copies, they may be bounds, or a value and an
    error. The rule is traced with the function, and is part of the value of the program: `extend.rule_for` gives it to
    the transformation. It is batched with the function, and loses results that are not used.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> from fxad import extend
    >>> exp = extend.custom_rule(fnp.exp, "bounds", lambda low, high: (fnp.exp(*low), fnp.exp(*high)), copies=2)
    >>> (eqn,) = fx.trace(exp, fx.Spec((), "float32")).jaxpr.eqns
    >>> (program,) = extend.rule_for(eqn.prim, "bounds").programs
    >>> program.takes, program.gives  # the operand and the result, twice each
    ((0, 0), (1, 1))

    Raises: ArgumentError for a name of another form; ParameterError for `copies` below 1; where the function is called: TreeError,
            ShapeError, DTypeError naming the rule, the path and both types.
    """
    check_function("custom_rule", fun)
    named = isinstance(transformation, str) and all([part.isidentifier() for part in transformation.split(".")])
    if not named or transformation.startswith("fxad."):  # the names of fxad's own transformations
        raise ArgumentError(
            f"custom_rule of {function_name(fun)}: the name of the transformation is {described(transformation)}: "
            f"{shown(transformation)}",
            remedy='give identifiers with dots between them, and not in "fxad.": "bounds"',
        )
    check_function("custom_rule", rule)
    number = to_count(f"custom_rule of {function_name(fun)}", "copies", copies, 1)
    function = fun if isinstance(fun, CustomFunction) else CustomFunction(fun)
    function.define(UserForwardRule(transformation, rule, number))
    return function


@final
@dataclass(frozen=True, slots=True, eq=False)
class UserForwardRule(UserTransformRule):
    """A user's rule from `copies` tuples of the arguments to `copies` results."""

    name: str
    rule: UserRule
    copies: int

    @property
    def transformation(self) -> str:
        return self.name

    @property
    def role(self) -> str:
        return f"rule for {self.name}"

    @property
    def kind(self) -> str:
        return self.name

    def check(self, sig: Signature) -> None:
        nondiff = [sig.names[k] for k in sig.nondiff]
        check_takes(self.role, sig, self.rule, [*nondiff, *[f"arguments {k}" for k in range(self.copies)]])

    def trace(self, sig: Signature) -> TracedRule:
        """Trace the rule. Raises: TreeError, ShapeError, DTypeError for a result that does not fit the function."""
        what, n = f"{self.role} of {sig.name}: {function_name(self.rule)}", len(sig.in_avals)

        def flat(*leaves: object) -> object:
            arguments = [sig.primals(leaves[k * n : (k + 1) * n]) for k in range(self.copies)]
            value = call_rule(what, self.rule, *sig.nondiff_values, *arguments)
            if not isinstance(value, tuple | list) or len(value) != self.copies:
                raise TreeError(
                    f"{what} returns {tree.shape_text(tree.structure(value))}, not a tuple of {self.copies} results",
                    remedy="return the results once for each tuple of arguments",
                )
            return [x for results in value for x in results_in_order(what, sig, results)]

        expected = [ExpectedResults("for", sig.out_paths, sig.out_avals) for _ in range(self.copies)]
        body = traced_rule(what, self.rule, flat, sig.in_types * self.copies, *expected)

        def finish(function: Jaxpr, programs: Sequence[Jaxpr]) -> Rules:
            n_in, captured = len(function.ins), len(function.ins) - n
            takes = (*range(captured), *[k for _ in range(self.copies) for k in range(captured, n_in)])
            gives = tuple(range(n_in, n_in + len(function.outs))) * self.copies
            declared = DeclaredProgram(self.role, programs[0], takes, gives)
            return Rules(further=(TransformRule(self.name, (declared,)),))

        return TracedRule((body,), finish)
