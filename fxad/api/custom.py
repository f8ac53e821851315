"""`custom_jvp`, `custom_vjp`, `custom_vmap`: functions whose derivatives and batching are given, not derived.

All three make one kind of object, so one function may carry rules of every kind, and each transformation takes the one
it needs. Rules are traced where the function is called in a trace, and are part of the program from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from types import MappingProxyType, MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast, final, overload

from fxad.api.custom_calls import GivenRules, TracedCall, UserRule
from fxad.api.custom_inverses import GivenInverse, places_of
from fxad.api.custom_rules import MisfitError, added_tangents, static_places
from fxad.api.lift import check_function
from fxad.core import tree
from fxad.errors import ArgumentError, FxadError, ParameterError, described
from fxad.tracing.program import function_name
from fxad.tracing.tracer import active_trace

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])

# A decorator keeps its word when one of these rules is given: one for derivatives serves either mode.
_DERIVATIVES: Final = frozenset({"jvp", "vjp", "ivjp"})
_INVERSES: Final = frozenset({"inverse", "ivjp"})
_KEPT_BY: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "custom_jvp": _DERIVATIVES,
        "custom_vjp": _DERIVATIVES,
        "custom_vmap": frozenset({"vmap"}),
        "custom_inverse": _INVERSES,
        "custom_ivjp": _INVERSES,
    }
)
_HOW_TO_GIVE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "custom_jvp": "{}.defjvp(jvp)",
        "custom_vjp": "{}.defvjp(fwd, bwd)",
        "custom_vmap": "{}.def_vmap(rule)",
        "custom_inverse": "{}.definverse(inverse)",
        "custom_ivjp": "{}.defivjp(ivjp)",
    }
)


@final
class CustomFunction(Generic[P, R]):
    """A function with rules of its own. Made by `custom_jvp`, `custom_vjp` and `custom_vmap`.

    Arguments are pytrees of arrays, but for those in `nondiff_argnums`, which are anything: functions, strings, sizes.
    Integer and bool leaves have no tangent: None stands for it in the trees that rules take and give. What the function
    or a rule closes over is an operand of the program; a derivative with respect to it is refused.
    Outside a trace a call is the plain function.
    """

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), promised: tuple[str, ...] = ()
    ) -> None:
        self.fun = fun
        self._promised = promised  # the decorators that it was made by, each of which announces a rule
        self.nondiff_argnums: tuple[int, ...] = static_places(function_name(fun), nondiff_argnums)
        self._given = GivenRules()
        update_wrapper(self, fun, updated=())

    def __repr__(self) -> str:
        return f"<{function_name(self.fun)} with rules for {', '.join(self.rules) or 'nothing'}>"

    @property
    def rules(self) -> tuple[str, ...]:
        """Which rules the function has: of "jvp", "vjp", "vmap", and "inverse" or "ivjp"."""
        return self._given.names

    @property
    def axis_sizes(self) -> tuple[int, ...] | None:
        """The axis sizes that `def_vmap` named; None when the rule is for any."""
        return self._given.vmap[1] if self._given.vmap else ()

    # ------------------------------------------------------------------------------------------------------- rules

    def defjvp(self, jvp: F, symbolic_zeros: bool = False) -> F:
        """Give the tangents: `jvp(*nondiff, primals, tangents) -> (results, tangents of results)`; as in JAX.

        It must be linear in the tangents, which is checked where it is traced. Where it runs a loop without a bound or
        a function of the host on tangents it is taken at its word, and reverse mode finds its transpose by applying it
        to unit vectors. What it prints of tangents happens in forward mode only. It is traced once, with a tangent for
        each argument; which of them vanish is known where it is used, and what they lead to is dropped from the program
        there, equation by equation. With `symbolic_zeros` it may look itself: it is traced for each set of arguments
        (of more than three: for each argument, and for all), and tangents of the others are a `SymbolicZero`.
        """
        check_function("defjvp", jvp)
        self._given = replace(self._given, jvp=jvp, symbolic_zeros=self._zeros("defjvp", "jvp", symbolic_zeros))
        return jvp

    def _zeros(self, what: str, kind: str, symbolic: bool) -> frozenset[str]:
        """The kinds of rules that are told what vanishes. Raises: ParameterError for what is not a bool."""
        if not isinstance(symbolic, bool):
            raise ParameterError(
                f"{what} of {function_name(self.fun)}: symbolic_zeros is {described(symbolic)}, not a bool: {symbolic!r:.60}",
                remedy="symbolic_zeros=True tells the rule what vanishes, False gives it zeros",
            )
        zeros = self._given.symbolic_zeros
        return zeros | {kind} if symbolic else zeros - {kind}

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Give the tangents argument by argument: `jvps[k](tangent, results, *primals) -> tangents of results`.

        None for an argument whose tangent has no effect.
        """
        if self.nondiff_argnums:
            raise ArgumentError(f"defjvps of {function_name(self.fun)}: not with nondiff_argnums", remedy="use defjvp")
        for jvp in jvps:
            if jvp is not None:
                check_function("defjvps", jvp)

        whole: Callable[..., Any] = self

        def defjvps(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                raise MisfitError(
                    ArgumentError(
                        f"defjvps of {function_name(self.fun)}: has {len(jvps)} rules for {len(primals)} arguments",
                        remedy="give one for each argument, None where its tangent has no effect",
                    )
                )
            out = whole(*primals)
            pairs = [(f, t) for f, t in zip(jvps, tangents, strict=True) if f is not None and tree.leaves(t)]
            parts = [(f, f(t, out, *primals)) for f, t in pairs]
            try:
                return out, added_tangents(self.fun, out, parts)
            except FxadError as e:
                raise MisfitError(e) from None

        self._given = replace(self._given, jvp=defjvps, symbolic_zeros=self._given.symbolic_zeros - {"jvp"})

    def defvjp(
        self,
        fwd: Callable[..., tuple[R, Any]],
        bwd: UserRule,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Give the cotangents: `fwd(*args) -> (results, residuals)`, `bwd(*nondiff, residuals, cotangents)` gives a
        tuple with the cotangent of each argument that is not in `nondiff_argnums`; as in JAX.

        None may stand for a cotangent that vanishes. `bwd` must be linear in the cotangents, which is checked where it
        is traced; its transpose serves forward mode. Where it runs a loop without a bound or a function of the host on
        cotangents it is taken at its word: reverse mode runs it as it is, and where the transpose is needed (forward
        mode, higher orders) it is found by applying it to unit vectors. `fwd` and `bwd` are specialised, equation by equation, to the
        cotangents that are asked for and to those of the results that are given; what is then not needed is neither
        computed nor stored. With `symbolic_zeros`, `fwd` may look itself which are asked for: its arguments are
        `CustomVJPPrimal`s, and it is traced for sets of them as in `defjvp`. The cotangents of the results that `bwd`
        is given are arrays: where they vanish is known when all is traced.

        What is stored between the two is any pytree. Arrays are residuals of the program; other leaves (numbers,
        strings, sizes, functions) are given to `bwd` as they are, and must be hashable. What `fwd` computes for residuals
        alone is dropped where it is not differentiated, so `optimize_remat` changes nothing.
        """
        if not isinstance(optimize_remat, bool):
            raise ParameterError(
                f"defvjp of {function_name(self.fun)}: optimize_remat is {described(optimize_remat)}, not a bool: "
                f"{optimize_remat!r:.60}",
                remedy="leave it out: what fwd computes for residuals alone is always dropped",
            )
        check_function("defvjp", fwd)
        check_function("defvjp", bwd)
        zeros = self._zeros("defvjp", "vjp", symbolic_zeros)
        self._given = replace(self._given, vjp=(fwd, bwd), symbolic_zeros=zeros)

    @overload
    def def_vmap(self, rule: F, /) -> F: ...
    @overload
    def def_vmap(self, *axis_sizes: int) -> Callable[[F], F]: ...
    def def_vmap(self, *args: Any) -> Any:
        """Give the function of a stack: `rule(axis_size, in_batched, *args) -> (results, out_batched)`; as in JAX.

        All array arguments are stacked along their first axis; so are the results, where `out_batched` (a tree prefix)
        says True. A program has its shapes when it is traced, so a rule is traced for a size: `@f.def_vmap` for those of
        the `vmap` that are being traced around the call, `@f.def_vmap(32, 128)` for the sizes named, which serves a
        Program that is mapped later. With any other size, or when what the function closes over is mapped, the batched
        function is derived.

        Where a function with this rule alone is differentiated, its derivative is that of the function, and that of a
        stack is the derivative of the rule: in `vmap(jvp(f))` and `vmap(grad(f))` as in `grad(vmap(f))`. What a rule
        computes of a stack has no parts that belong to one example, so there reverse mode stores the arguments and
        runs the rule again. Where that costs too much, give `defjvp` or `defvjp` too.
        """
        if len(args) == 1 and callable(args[0]):
            self._given = replace(self._given, vmap=(args[0], None))
            return args[0]
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

    def definverse(self, inverse: F, keep: int | str | Sequence[int | str] = ()) -> F:
        """Give the inverse: `inverse(*nondiff, results, *kept) -> the other argument`, or a tuple of the others.

        `keep`: which arguments, by number or name, are known when the function is run backwards, and are given to it.
        """
        check_function("definverse", inverse)
        given = GivenInverse(inverse, places_of("definverse", self.fun, keep), False)
        self._given = replace(self._given, inverse=given)
        return inverse

    def defivjp(self, ivjp: F, keep: int | str | Sequence[int | str] = ()) -> F:
        """Give inverse and gradient at once: `ivjp(*nondiff, results, cotangents, *kept) -> (the other argument, or a
        tuple of the others; a tuple with the cotangent of each argument)`.

        It serves as the inverse, and where no other derivative is given, as that. It must be linear in the cotangents,
        and what it reconstructs must not depend on them: both are checked where it is traced.
        """
        check_function("defivjp", ivjp)
        given = GivenInverse(ivjp, places_of("defivjp", self.fun, keep), True)
        self._given = replace(self._given, inverse=given)
        return ivjp

    def promise(self, decorator: str) -> None:
        """Say that a rule will be given by the time of the first call, as the decorators do."""
        self._promised = tuple(dict.fromkeys((*self._promised, decorator)))

    # ------------------------------------------------------------------------------------------------------- calls

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_given()
        if active_trace() is None or not self.rules:
            return self.fun(*args, **kwargs)
        call = TracedCall(self, self.fun, self.nondiff_argnums, self._given, self._positional(args, kwargs))
        return cast("R", call.run())

    def _check_given(self) -> None:
        """Raises: ArgumentError where a decorator announced a rule that was not given: it would be derived silently."""
        for decorator in self._promised:
            if _KEPT_BY[decorator].isdisjoint(self.rules):
                name, has = function_name(self.fun), ", ".join(self.rules) or "nothing"
                raise ArgumentError(
                    f"{decorator} of {name}: it is called before its rule is given; it has rules for {has}",
                    remedy=f"{_HOW_TO_GIVE[decorator].format(name)} first, or call {name} without {decorator}: "
                    "then all is derived",
                )

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> CustomFunction[P, R]: ...
    @overload
    def __get__(
        self: CustomFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method: the instance is the first argument, for rules too.

        It is a pytree (`fxad.tree.dataclass`), or argument 0 is in `nondiff_argnums`.
        """
        return self if instance is None else MethodType(self, instance)

    def _positional(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """The arguments of a call in the order of the signature, defaults filled in."""
        name = function_name(self.fun)
        try:
            signature = inspect.signature(self.fun)
        except (TypeError, ValueError):
            if not kwargs:
                return args
            raise ArgumentError(
                f"{name}: has no signature, so its arguments cannot be given by keyword: {', '.join(kwargs)}",
                remedy="give them by position",
            ) from None
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ArgumentError(f"{name}: {e}", remedy=f"its signature is {name}{signature}") from None
        bound.apply_defaults()
        if any(bound.kwargs):
            raise ArgumentError(
                f"{name}: has arguments that are given by keyword only: {', '.join(bound.kwargs)}",
                remedy="rules know arguments by position: make them positional",
            )
        return bound.args


def made(what: str, fun: Any, nondiff_argnums: Sequence[int], nondiff_argnames: Sequence[str] = ()) -> Any:
    """The function with rules that a decorator makes of a function, or adds to."""
    if fun is None:
        return partial(made, what, nondiff_argnums=nondiff_argnums, nondiff_argnames=nondiff_argnames)
    if nondiff_argnames:
        nondiff_argnums = (*nondiff_argnums, *_numbers(what, fun, nondiff_argnames))
    if isinstance(fun, CustomFunction):  # another decorator on the same function
        if nondiff_argnums and tuple(sorted(set(nondiff_argnums))) != fun.nondiff_argnums:
            raise ArgumentError(
                f"{what}: nondiff_argnums {tuple(nondiff_argnums)} differs from {fun.nondiff_argnums}, "
                f"which {function_name(fun.fun)} has already",
                remedy="all rules of a function see the same arguments: give nondiff_argnums once",
            )
        fun.promise(what)
        return fun
    check_function(what, fun)
    return CustomFunction(fun, nondiff_argnums, (what,))


def _numbers(what: str, fun: Any, names: Sequence[str]) -> list[int]:
    """The positions of parameters. Raises: ArgumentError for a name that is not one."""
    check_function(what, fun)
    whole = fun.fun if isinstance(fun, CustomFunction) else fun
    parameters = list(inspect.signature(whole).parameters)
    asked = [names] if isinstance(names, str) else list(names)
    for name in asked:
        if name not in parameters:
            raise ArgumentError(
                f"{what} of {function_name(whole)}: nondiff_argnames has {name!r}, its parameters are "
                f"{', '.join(parameters)}",
                remedy="name parameters of the function",
            )
    return [parameters.index(name) for name in asked]


@overload
def custom_jvp(
    fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_jvp(
    fun: None = None, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
def custom_jvp(fun: Any = None, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()) -> Any:
    """A function that takes the derivative given by `defjvp`, in forward mode and, transposed, in reverse mode.

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

    Law:    with right rules, every transformation gives what it gives without them, within rounding.
    Raises: where it is called: TreeError, ShapeError, DTypeError naming rule, path and both types; NotLinearError
            naming the equation; where it is differentiated: NotDifferentiableError for what is closed over.
    """
    return made("custom_jvp", fun, nondiff_argnums, nondiff_argnames)


@overload
def custom_vjp(
    fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
) -> CustomFunction[P, R]: ...
@overload
def custom_vjp(
    fun: None = None, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
) -> Callable[[Callable[P, R]], CustomFunction[P, R]]: ...
def custom_vjp(fun: Any = None, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()) -> Any:
    """A function that takes the derivative given by `defvjp`, in reverse mode and, transposed, in forward mode.

    Law:    with right rules, every transformation gives what it gives without them, within rounding.
    Raises: as `custom_jvp`.
    """
    return made("custom_vjp", fun, nondiff_argnums, nondiff_argnames)


def custom_vmap(fun: Callable[P, R]) -> CustomFunction[P, R]:
    """A function that is batched as `def_vmap` says.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> @fx.custom_vmap
    ... def solve(a, b):
    ...     return fnp.linalg.solve(a, b)
    >>> @solve.def_vmap
    ... def solve_stack(axis_size, in_batched, a, b):
    ...     return fnp.linalg.solve(a, b[..., None])[..., 0], True
    >>> fx.vmap(solve)(fnp.ones((3, 1, 1)), fnp.ones((3, 1))).shape
    (3, 1)

    Law:    with right rules, `vmap` gives what it gives without them, within rounding.
    Raises: as `custom_jvp`.
    """
    function: CustomFunction[P, R] = made("custom_vmap", fun, ())
    return function
