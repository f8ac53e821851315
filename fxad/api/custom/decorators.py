"""`custom_jvp`, `custom_vjp`, `custom_vmap`: functions with custom derivatives and batching rules.

All three make the same kind of object, so a function may have rules of every kind. Rules are traced when the function
is called in a trace, and are then part of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from types import MappingProxyType, MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, SupportsIndex, TypeVar, final, overload

from fxad.api.custom.traced_call import TracedCall
from fxad.api.custom.traced_rules import (
    ArgumentRules,
    GivenInverse,
    GivenRules,
    UserRule,
    kept_positions,
    nondiff_positions,
)
from fxad.api.decorator_form import NoFunction, decorator_form
from fxad.api.lift import check_function, importable_name
from fxad.errors import ArgumentError, ParameterError, described
from fxad.operations.arguments import plain_ints
from fxad.tracing.program import check_signature, function_name
from fxad.tracing.static_args import Argnames, ArgumentNames
from fxad.tracing.tracer import active_trace

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])

# For each decorator: rules, one of which it needs, and the call that gives one. A rule for derivatives serves forward
# and reverse mode.
_DERIVATIVES: Final = frozenset({"jvp", "vjp", "ivjp"})
_INVERSES: Final = frozenset({"inverse", "ivjp"})
_REQUIRED_RULES: Final[Mapping[str, tuple[frozenset[str], str]]] = MappingProxyType(
    {
        "custom_jvp": (_DERIVATIVES, "{}.defjvp(jvp)"),
        "custom_vjp": (_DERIVATIVES, "{}.defvjp(fwd, bwd)"),
        "custom_vmap": (frozenset({"vmap"}), "{}.def_vmap(rule)"),
        "custom_inverse": (_INVERSES, "{}.definverse(inverse)"),
        "custom_ivjp": (_INVERSES, "{}.defivjp(ivjp)"),
    }
)
_WHAT_VANISHES: Final = "symbolic_zeros=True tells the rule what vanishes, False gives it zeros"


@final
class CustomFunction(Generic[P, R]):
    """A function with rules of its own. Made by `custom_jvp`, `custom_vjp` and `custom_vmap`.

    Arguments are pytrees of arrays, except those in `nondiff_argnums`, which may be any values. Integer and bool leaves
    have no tangent: the trees that rules take and return contain None for them. A value that the function or a rule
    closes over is an operand of the program. A derivative with respect to it is an error.
    Outside of a trace, a call runs the function without its rules.
    """

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), decorators: tuple[str, ...] = ()
    ) -> None:
        self.fun = fun
        self._decorators = decorators
        self._given = GivenRules(fun, nondiff_positions(fun, nondiff_argnums))
        update_wrapper(self, fun, updated=())

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        return importable_name(self) or super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"<{function_name(self.fun)} with rules for {', '.join(self.rules) or 'nothing'}>"

    @property
    def rules(self) -> tuple[str, ...]:
        """The kinds of rules that the function has: "jvp", "vjp", "vmap", and "inverse" or "ivjp"."""
        return self._given.names

    @property
    def nondiff_argnums(self) -> tuple[int, ...]:
        """The positions of the arguments that rules are not about, in order."""
        return self._given.nondiff_argnums

    @property
    def axis_sizes(self) -> tuple[int, ...] | None:
        """The axis sizes of `def_vmap`; None if the rule is for any size."""
        return self._given.vmap[1] if self._given.vmap else ()

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
        self._given = replace(self._given, jvp=jvp, jvp_zeros=symbolic_zeros)
        return jvp

    def _check_bool(self, what: str, option: str, value: object, remedy: str) -> None:
        if not isinstance(value, bool):
            raise ParameterError(
                f"{what} of {function_name(self.fun)}: {option} is {described(value)}, not a bool: {value!r:.60}",
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

        self._given = replace(self._given, jvp=ArgumentRules(self, jvps), jvp_zeros=False)

    def defvjp(
        self,
        fwd: Callable[..., tuple[R, object]],
        bwd: UserRule,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Define the cotangents: `fwd(*args) -> (results, residuals)`, and `bwd(*nondiff, residuals, cotangents)` returns
        a tuple with the cotangent of each argument that is not in `nondiff_argnums`; as in JAX.

        `bwd` may return None for a cotangent that is zero. It must be linear in the cotangents. This is checked when it
        is traced, except for loops without a bound and functions of the host that take cotangents. Forward mode applies
        the transpose of `bwd`; that of such loops and functions is found by applying them to unit vectors.

        Where they are used, `fwd` and `bwd` are specialised to the cotangents that are needed and to those that are not
        zero: values that these do not need are neither computed nor stored. With `symbolic_zeros`, the arguments of
        `fwd` are `CustomVJPPrimal`, which tell if a cotangent is needed, and `fwd` is traced for sets of arguments as
        in `defjvp`. The cotangents that `bwd` takes are arrays.

        `residuals` is any pytree. Its arrays are residuals of the program. Other leaves (numbers, strings, sizes,
        functions) are passed to `bwd` unchanged, and must be hashable.
        """
        remedy = "leave it out: what fwd computes for residuals alone is always dropped"
        self._check_bool("defvjp", "optimize_remat", optimize_remat, remedy)
        check_function("defvjp", fwd)
        check_function("defvjp", bwd)
        self._check_bool("defvjp", "symbolic_zeros", symbolic_zeros, _WHAT_VANISHES)
        self._given = replace(self._given, vjp=(fwd, bwd), vjp_zeros=symbolic_zeros)

    @overload
    def def_vmap(self, rule: F, /) -> F: ...
    @overload
    def def_vmap(self, *axis_sizes: int) -> Callable[[F], F]: ...
    def def_vmap(self, *args: Any) -> Any:
        """Define the function of a stack: `rule(axis_size, in_batched, *args) -> (results, out_batched)`; as in JAX.

        All array arguments are stacked along their first axis. So are the results for which `out_batched` (a tree
        prefix) is True. `@f.def_vmap` is for any size: it is traced for the sizes of the `vmap`s around the call, and
        once with a symbolic `axis_size`, for a Program that is mapped later. A symbolic size is equal to no int; a rule
        that needs the number is not used there. `@f.def_vmap(32, 128)` is for the sizes given. For any other size, or if
        a value that the function closes over is mapped, the batched function is derived.

        If a function has only this rule, its derivative is that of the function, and the derivative of a stack is that
        of the rule: in `vmap(jvp(f))` and `vmap(grad(f))` as in `grad(vmap(f))`. The values of a rule do not belong to
        single examples, so reverse mode stores the arguments and runs the rule again. If that costs too much, define
        `defjvp` or `defvjp` too.
        """
        if len(args) == 1 and callable(args[0]):
            self._given = replace(self._given, vmap=(args[0], None))
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
            self._given = replace(self._given, vmap=(rule, tuple(dict.fromkeys(args))))
            return rule

        return register

    def definverse(self, inverse: F, keep: ArgumentNames = ()) -> F:
        """Define the inverse: `inverse(*nondiff, results, *kept) -> the other argument`, or a tuple of the others.

        `keep`: the arguments, by number or name, that the inverse takes.
        """
        return self._inverse(inverse, keep, False)

    def defivjp(self, ivjp: F, keep: ArgumentNames = ()) -> F:
        """Define the inverse and the gradient by one rule, `ivjp(*nondiff, results, cotangents, *kept)`.

        The rule returns a pair: the arguments that are not kept (one value, or a tuple of several), and a tuple with
        the cotangent of each argument. For `f(x, w) = x * w` with `keep="w"`:

            def f_ivjp(y, y_bar, w):
                x = y / w
                return x, (y_bar * w, y_bar * x)

        The rule is the inverse of the function, and its derivative if no other is defined. It must be linear in the
        cotangents, and the arguments that it reconstructs must not depend on them. Both are checked when it is traced.
        """
        return self._inverse(ivjp, keep, True)

    def _inverse(self, rule: F, keep: ArgumentNames, fused: bool) -> F:
        role = "defivjp" if fused else "definverse"
        check_function(role, rule)
        inverse = GivenInverse(rule, kept_positions(role, self.fun, keep), fused)
        self._given = replace(self._given, inverse=inverse)
        return rule

    def add_decorator(self, decorator: str) -> None:
        """Require a rule of this decorator by the time of the first call."""
        self._decorators = tuple(dict.fromkeys((*self._decorators, decorator)))

    # ------------------------------------------------------------------------------------------------------- calls

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_given()
        if active_trace() is None or not self.rules:
            return self.fun(*args, **kwargs)
        result: R = TracedCall(self._given, self._positional(args, kwargs)).run()
        return result

    def _check_given(self) -> None:
        """Check that each decorator has its rule. Raises: ArgumentError, because otherwise the rule would be derived."""
        for decorator in self._decorators:
            required, how = _REQUIRED_RULES[decorator]
            if required.isdisjoint(self.rules):
                name, has = function_name(self.fun), ", ".join(self.rules) or "nothing"
                raise ArgumentError(
                    f"{decorator} of {name}: it is called before its rule is given; it has rules for {has}",
                    remedy=f"{how.format(name)} first, or call {name} without {decorator}: then all is derived",
                )

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> CustomFunction[P, R]: ...
    @overload
    def __get__(
        self: CustomFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
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
        if any(bound.kwargs):
            raise ArgumentError(
                f"{name}: has arguments that are given by keyword only: {', '.join(bound.kwargs)}",
                remedy="rules know arguments by position: make them positional",
            )
        return bound.args


def decorate(
    what: str, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> CustomFunction[P, R]:
    """Return the function with rules that the decorator `what` makes; another decorator of the same function adds to
    it."""
    check_function(what, fun)
    decorated = fun if isinstance(fun, CustomFunction) else None
    function = fun if decorated is None else decorated.fun
    positions = nondiff_positions(function, nondiff_argnums, nondiff_argnames, what)
    if decorated is None:
        return CustomFunction(fun, positions, (what,))
    if positions and positions != decorated.nondiff_argnums:
        raise ArgumentError(
            f"{what}: nondiff_argnums {positions} differs from {decorated.nondiff_argnums}, "
            f"which {function_name(function)} has already",
            remedy="all rules of a function see the same arguments: give nondiff_argnums once",
        )
    decorated.add_decorator(what)
    return decorated


@overload
def custom_jvp(fun: NoFunction, *args: Any, **options: Any) -> CustomFunction[..., Any]: ...
@overload
def custom_jvp(
    fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_jvp(
    *, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
@decorator_form
def custom_jvp(
    fun: Callable[..., object], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> object:
    """Return a function whose derivative `defjvp` defines, for forward mode and, transposed, for reverse mode.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> @fx.custom_jvp
    ... def log1pexp(x):
    ...     return fnp.log(1 + fnp.exp(x))
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(primals, tangents):
    ...     (x,), (x_dot,) = primals, tangents
    ...     return log1pexp(x), (1 - 1 / (1 + fnp.exp(x))) * x_dot
    >>> float(fx.grad(log1pexp)(100.0))
    1.0

    Law:    with correct rules, every transformation has the results that it has without them, within rounding.
    Raises: where it is called: TreeError, ShapeError, DTypeError naming rule, path and both types; NotLinearError
            naming the equation; where it is differentiated: NotDifferentiableError for captured values.
    """
    return decorate("custom_jvp", fun, nondiff_argnums, nondiff_argnames)


@overload
def custom_vjp(fun: NoFunction, *args: Any, **options: Any) -> CustomFunction[..., Any]: ...
@overload
def custom_vjp(
    fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_vjp(
    *, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
@decorator_form
def custom_vjp(
    fun: Callable[..., object], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Argnames = ()
) -> object:
    """Return a function whose derivative `defvjp` defines, for reverse mode and, transposed, for forward mode.

    Law:    with correct rules, every transformation has the results that it has without them, within rounding.
    Raises: as `custom_jvp`.
    """
    return decorate("custom_vjp", fun, nondiff_argnums, nondiff_argnames)


def custom_vmap(fun: Callable[P, R]) -> CustomFunction[P, R]:
    """Return a function whose batching `def_vmap` defines.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> @fx.custom_vmap
    ... def solve(a, b):
    ...     return fnp.linalg.solve(a, b)
    >>> @solve.def_vmap
    ... def solve_stack(axis_size, in_batched, a, b):
    ...     return fnp.linalg.solve(a, b[..., None])[..., 0], True
    >>> fx.vmap(solve)(fnp.ones((3, 1, 1)), fnp.ones((3, 1))).shape
    (3, 1)

    Law:    with a correct rule, `vmap` has the results that it has without it, within rounding.
    Raises: as `custom_jvp`.
    """
    return decorate("custom_vmap", fun)
