"""A function with custom derivatives and batching rules, as an object on which they are defined.

Rules are traced when the function is called in a trace, and are then part of the program. `fxad.api.custom_function` has
the class that users see, which also has the methods of transformations outside the core, and its decorators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, SupportsIndex, TypeVar, final, overload

from fxad.api.custom.rule_signature import UserRule
from fxad.api.custom.traced_call import TracedCall
from fxad.api.custom.traced_rules import ArgumentRules, UserRules, UserTransformRule, nondiff_positions
from fxad.api.lift import check_function
from fxad.api.pickling import importable_name
from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.operations.arguments import plain_ints
from fxad.tracing.program import function_name
from fxad.tracing.trace import check_signature
from fxad.tracing.tracer import active_trace

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decorator:
    """A decorator by its name: `has_rule` tells if a function has the rule that it announces, `how` gives that rule."""

    name: str
    has_rule: Callable[[UserRules], bool]
    how: str


_WHAT_VANISHES: Final = "symbolic_zeros=True tells the rule what vanishes, False gives it zeros"


class FunctionWithRules(Generic[P, R]):
    """A function with derivatives and batching rules of its own: the base of `CustomFunction`."""

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), decorators: tuple[Decorator, ...] = ()
    ) -> None:
        self.fun = fun
        self._decorators = decorators
        self._user_rules = UserRules(fun, nondiff_positions(fun, nondiff_argnums))
        update_wrapper(self, fun, updated=())

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        return importable_name(self) or super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"<{function_name(self.fun)} with rules for {', '.join(self.rules) or 'nothing'}>"

    @property
    def rules(self) -> tuple[str, ...]:
        """The kinds of rules that the function has: "jvp", "vjp", "vmap", and those of transformations outside the core."""
        return self._user_rules.names

    @property
    def nondiff_argnums(self) -> tuple[int, ...]:
        """The positions of the arguments that rules are not about, in order."""
        return self._user_rules.nondiff_argnums

    @property
    def axis_sizes(self) -> tuple[int, ...] | None:
        """The axis sizes of `def_vmap`: () without a batching rule, None if the rule is for any size."""
        return self._user_rules.vmap[1] if self._user_rules.vmap else ()

    # ------------------------------------------------------------------------------------------------------- rules

    def defjvp(self, jvp: F, symbolic_zeros: bool = False) -> F:
        """Define the tangents: `jvp(*nondiff, primals, tangents) -> (results, tangents of results)`; as in JAX.

        The rule must be linear in the tangents. This is checked when the rule is traced, except for loops without a
        bound and functions of the host that take tangents: reverse mode transposes these by applying them to unit
        vectors. Effects that depend on tangents happen in forward mode only.

        The rule is traced once, with a tangent for each argument. Where it is used, it is specialised to the tangents
        that are not zero. With `symbolic_zeros`, it is traced for each set of arguments (if there are more than three
        arguments: for each one, and for all), and the tangents of the others are `SymbolicZero`.
        """
        check_function("defjvp", jvp)
        self._check_bool("defjvp", "symbolic_zeros", symbolic_zeros, _WHAT_VANISHES)
        self._user_rules = replace(self._user_rules, jvp=jvp, jvp_zeros=symbolic_zeros)
        return jvp

    def _check_bool(self, what: str, option: str, value: object, remedy: str) -> None:
        if not isinstance(value, bool):
            raise ParameterError(
                f"{what} of {function_name(self.fun)}: {option} is {described(value)}, not a bool: {shown(value)}",
                remedy=remedy,
            )

    def defjvps(self, *jvps: Callable[..., object] | None) -> None:
        """Define the tangents for each argument: `jvps[k](tangent, results, *primals) -> tangents of results`.

        None means that the tangent of the argument has no effect.
        """
        if self.nondiff_argnums:
            raise ArgumentError(f"defjvps of {function_name(self.fun)}: not with nondiff_argnums", remedy="use defjvp")
        for jvp in jvps:
            if jvp is not None:
                check_function("defjvps", jvp)

        self._user_rules = replace(self._user_rules, jvp=ArgumentRules(self, jvps), jvp_zeros=False)

    def defvjp(
        self,
        fwd: Callable[..., tuple[R, object]],
        bwd: UserRule,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Define the cotangents: `fwd(*args) -> (results, residuals)`, and `bwd(*nondiff, residuals, cotangents)` returns
        a tuple with the cotangent of each argument that is not in `nondiff_argnums`; as in JAX.

        `bwd` may return None for a cotangent that is zero, and an array for an argument with one leaf. It must be linear
        in the cotangents. This is checked when it is traced, except for loops without a bound and functions of the host
        that take cotangents. Forward mode applies the transpose of `bwd`; that of such loops and functions is found by
        applying them to unit vectors.

        Where they are used, `fwd` and `bwd` are specialised to the cotangents that are needed and to those that are not
        zero: values that these do not need are neither computed nor stored. With `symbolic_zeros`, the arguments of
        `fwd` are `CustomVJPPrimal`, which tell if a cotangent is needed, and `fwd` is traced for sets of arguments as
        in `defjvp`. The cotangents of results that the program does not use are `SymbolicZero`: `bwd` is traced for all
        results, each alone, and each two of three. The cotangent of a result that is used without a derivative
        (`has_aux`, `stop_gradient`) is an array, and what `bwd` computes from it vanishes.

        `residuals` is any pytree. Its arrays are residuals of the program. Other leaves (numbers, strings, sizes,
        functions) are passed to `bwd` unchanged, and must be hashable.
        """
        remedy = "leave it out: what fwd computes for residuals alone is always dropped"
        self._check_bool("defvjp", "optimize_remat", optimize_remat, remedy)
        check_function("defvjp", fwd)
        check_function("defvjp", bwd)
        self._check_bool("defvjp", "symbolic_zeros", symbolic_zeros, _WHAT_VANISHES)
        self._user_rules = replace(self._user_rules, vjp=(fwd, bwd), vjp_zeros=symbolic_zeros)

    @overload
    def def_vmap(self, rule: F, /) -> F: ...
    @overload
    def def_vmap(self, *axis_sizes: int) -> Callable[[F], F]: ...
    def def_vmap(self, *args: Any) -> Any:
        """Define the function of a stack: `rule(axis_size, in_batched, *args) -> (results, out_batched)`; as in JAX.

        All array arguments are stacked along their first axis. So are the results for which `out_batched` (a tree
        prefix) is True. `@f.def_vmap` is for any size: it is traced for the sizes of the `vmap`s around the call, and
        once with a symbolic `axis_size`, for a Program that is mapped later. A symbolic size is equal to no int; a rule
        that asks for the number (a SizeError) is not used there, and any other error that it raises is raised where the
        Program is mapped. `@f.def_vmap(32, 128)` is for the sizes given. For any other size, or if a value that the
        function closes over is mapped, the batched function is derived.

        If a function has only this rule, its derivative is that of the function, and the derivative of a stack is that
        of the rule: in `vmap(jvp(f))` and `vmap(grad(f))` as in `grad(vmap(f))`. The values of a rule do not belong to
        single examples, so reverse mode stores the arguments and runs the rule again. If that costs too much, define
        `defjvp` or `defvjp` too.
        """
        if len(args) == 1 and callable(args[0]):
            self._user_rules = replace(self._user_rules, vmap=(args[0], None))
            return args[0]
        args = plain_ints(args)
        for size in args:
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise ParameterError(
                    f"def_vmap of {function_name(self.fun)}: {size!r} is not an axis size",
                    remedy="an axis size is an int >= 0: f.def_vmap(32, 128)(rule); f.def_vmap(rule) is for any size",
                )
        if not args:
            raise ParameterError(
                f"def_vmap of {function_name(self.fun)}: no axis size is given",
                remedy="f.def_vmap(rule) for any size, f.def_vmap(32, 128)(rule) for these",
            )

        def register(rule: F) -> F:
            check_function("def_vmap", rule)
            self._user_rules = replace(self._user_rules, vmap=(rule, tuple(dict.fromkeys(args))))
            return rule

        return register

    def define(self, rule: UserTransformRule) -> None:
        """Define the rule of a transformation outside the core, in place of any that the function has for it."""
        self._user_rules = self._user_rules.with_transform_rule(rule)

    def add_decorator(self, decorator: Decorator) -> None:
        """Require a rule of this decorator by the time of the first call."""
        self._decorators = tuple(dict.fromkeys((*self._decorators, decorator)))

    # ------------------------------------------------------------------------------------------------------- calls

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_decorators()
        if active_trace() is None or not self.rules:
            return self.fun(*args, **kwargs)
        result: R = TracedCall(self._user_rules, self._positional(args, kwargs)).run()
        return result

    def _check_decorators(self) -> None:
        """Check that each decorator has its rule. Raises: ArgumentError, because otherwise the rule would be derived."""
        for decorator in self._decorators:
            if not decorator.has_rule(self._user_rules):
                name, has = function_name(self.fun), ", ".join(self.rules) or "nothing"
                raise ArgumentError(
                    f"{decorator.name} of {name}: it is called before its rule is given; it has rules for {has}",
                    remedy=f"{decorator.how.format(name)} first, or call {name} without {decorator.name}: then all is"
                    " derived",
                )

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: FunctionWithRules[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind a method: the instance is the first argument of the function and of its rules.

        The instance is a pytree (`fxad.tree.dataclass`), or argument 0 is in `nondiff_argnums`.
        """
        return self if instance is None else MethodType(self, instance)

    def _positional(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """Return the arguments of a call in the order of the signature, defaults filled in."""
        name = function_name(self.fun)
        bound = check_signature(self.fun, name, args, kwargs)
        if bound is None:
            if not kwargs:
                return args
            raise ArgumentError(
                f"{name}: has no signature, so its arguments cannot be given by keyword: {', '.join(kwargs)}",
                remedy="give them by position",
            )
        bound.apply_defaults()
        by_keyword = [k for k in bound.kwargs if k in kwargs]  # others have the value that the function gives them
        if by_keyword:
            raise ArgumentError(
                f"{name}: has arguments that are given by keyword only: {', '.join(by_keyword)}",
                remedy="rules know arguments by position: make them positional, or give them by functools.partial",
            )
        return bound.args
