"""Static arguments: values to which the program of a function is specialized. They are not operands.

A transformed function has a `StaticDeclaration`. An outer transformation reads the static arguments from it, and passes
its own static arguments to the inner one: `jit(remat(f), static_argnums=0)` is `jit(remat(f, static_argnums=0))`.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import MethodType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, final

from fxad.core.dataclasses import dataclass
from fxad.core.exact_key import exact_key
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.operations.arguments import argument_keys, plain_ints

Argnums = int | Sequence[int]
Argnames = str | Sequence[str]
ArgumentNames = int | str | Sequence[int | str]  # by number or by name
# A function, and the positional and keyword arguments of a call.
FunctionCall: TypeAlias = tuple[Callable[..., object], tuple[object, ...], dict[str, object]]
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ATTRIBUTE: Final = "__fxad_static__"
K = TypeVar("K", int, str)


@final
@dataclass(frozen=True, slots=True)
class StaticDeclaration:
    """The static arguments of a transformed function: its own, and those of the original function.

    `declare(numbers, names)` transforms the function again with these static arguments. `of` returns the function.
    """

    numbers: frozenset[int]
    names: frozenset[str]
    declare: Callable[[Sequence[int], Sequence[str]], Callable[..., object]]
    of: Callable[[], object]

    def __reduce__(self) -> tuple[object, ...]:
        return _declaration_of, (self.numbers, self.names, self.declare, self.of())


def _declaration_of(
    numbers: frozenset[int],
    names: frozenset[str],
    declare: Callable[[Sequence[int], Sequence[str]], Callable[..., object]],
    fn: Callable[..., object],
) -> StaticDeclaration:
    return StaticDeclaration(numbers, names, declare, weakref.ref(fn))


def attach_declaration(
    transformed: Callable[..., object],
    statics: StaticArguments | None,
    declare: Callable[[Sequence[int], Sequence[str]], Callable[..., object]],
) -> None:
    """Store the static arguments of a transformed function on it."""
    numbers = frozenset[int]() if statics is None else statics.numbers
    names = frozenset[str]() if statics is None else statics.names
    transformed.__dict__[_ATTRIBUTE] = _declaration_of(numbers, names, declare, transformed)


def _declaration(fn: Callable[..., object]) -> StaticDeclaration | None:
    """Return the declaration of a function; of a method or a `functools.partial`, without the bound arguments."""
    if isinstance(fn, functools.partial):
        return _declaration_of_bound(fn.func, fn.args, fn.keywords)
    if isinstance(fn, MethodType):
        return _declaration_of_bound(fn.__func__, (fn.__self__,), {})
    declaration = getattr(fn, "__dict__", {}).get(_ATTRIBUTE)
    # `functools.wraps` copies a declaration to functions with other arguments
    return declaration if isinstance(declaration, StaticDeclaration) and declaration.of() is fn else None


def _declaration_of_bound(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> StaticDeclaration | None:
    inner, n = _declaration(fn), len(args)
    if inner is None:
        return None
    numbers, names = inner.numbers, inner.names

    def declare(more_numbers: Sequence[int], more_names: Sequence[str]) -> Callable[..., object]:
        redeclared = inner.declare(sorted(numbers | {k + n for k in more_numbers}), sorted(names | {*more_names}))
        return functools.partial(redeclared, *args, **kwargs)

    bound = {*kwargs, *parameters(fn).positional[:n]}
    return StaticDeclaration(frozenset([k - n for k in numbers if k >= n]), names - bound, declare, inner.of)


def _is_empty(argument: object) -> bool:
    return isinstance(argument, tuple | list) and not argument  # users give arrays too, which have no truth value


def static_arguments(
    what: str, fn: Callable[..., object], argnums: Argnums = (), argnames: Argnames = ()
) -> StaticArguments | None:
    """Return the static arguments of a function, including those that it declares itself; None if there are none."""
    argnums = plain_ints(argnums)
    if _is_empty(argnums) and _is_empty(argnames):
        declared = _declaration(fn)
        if declared is None or not (declared.numbers or declared.names):
            return None
    return StaticArguments(what, fn, argnums, argnames)


@final
class StaticArguments:
    """The static arguments of a function, by number and by name, including those that it declares itself.

    `what` is the caller in messages, as in `jit of f`. Raises: ParameterError for a number or name that `fn` lacks.
    """

    __slots__ = ("any_name", "fn", "names", "numbers", "positional", "what")

    def __init__(self, what: str, fn: Callable[..., object], argnums: Argnums, argnames: Argnames) -> None:
        self.what = what
        self.positional, all_names, any_number = parameters(fn)
        self.any_name = all_names is None  # then the function sees the order of its keyword arguments
        numbers = set(self._parsed(argnums, int, "static_argnums", "an int"))
        names = set(self._parsed(argnames, str, "static_argnames", "a name"))
        n = len(self.positional)
        if any_number and min(numbers, default=0) < 0:
            raise ParameterError(
                f"{what}: static_argnums has {min(numbers)}, and the function takes any number of arguments",
                remedy="number them from 0",
            )
        if not any_number:
            for k in sorted(numbers):
                if not -n <= k < n:
                    raise ParameterError(
                        f"{what}: static_argnums has {k}, the function takes {n} positional arguments",
                        remedy="number them from 0, or give static_argnames",
                    )
            numbers = {k % n for k in numbers}
        known = names if all_names is None else all_names
        for name in sorted(names - known):
            listed = [*self.positional, *sorted(known - {*self.positional})]
            raise ParameterError(
                f"{what}: static_argnames has {name!r}, which is no parameter of the function",
                remedy=f"its parameters are {', '.join(listed)}" if listed else "number its arguments",
            )
        declared = _declaration(fn)
        if declared is not None:
            numbers |= declared.numbers
            names |= declared.names
        names |= {self.positional[k] for k in numbers if k < n}
        numbers |= {k for k, name in enumerate(self.positional) if name in names}
        self.numbers, self.names = frozenset(numbers), frozenset(names)
        if declared is not None and (self.numbers, self.names) != (declared.numbers, declared.names):
            fn = declared.declare(sorted(numbers), sorted(names))
        self.fn = fn

    def _parsed(self, argument: object, kind: type[K], role: str, one: str) -> tuple[K, ...]:
        """Return numbers or names as a tuple. Raises: ParameterError for other values."""
        keys = argument_keys(argument, kind)
        if keys is None:
            raise ParameterError(
                f"{self.what}: {role} is {shown(plain_ints(argument))}, not {one} or a sequence of them",
                remedy="static_argnums takes ints, static_argnames takes strings",
            )
        return keys

    def split(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Hashable, dict[int | str, object], tuple[object, ...], dict[str, object]]:
        """Return a key for the static values of a call, the values, and the remaining arguments.

        Raises: ArgumentError for a static value that is not hashable.
        """
        static: dict[int | str, object] = {k: args[k] for k in sorted(self.numbers) if k < len(args)}
        static.update({k: kwargs[k] for k in sorted(self.names) if k in kwargs})
        key: Hashable = tuple([(k, self._key(k, v)) for k, v in static.items()])
        if self.any_name:
            key = key, tuple(kwargs)
        others = tuple([a for k, a in enumerate(args) if k not in static])
        return key, static, others, {k: v for k, v in kwargs.items() if k not in static}

    def with_placeholders(self, args: tuple[object, ...], kwargs: dict[str, object]) -> FunctionCall:
        """Return the function with its static values bound, and the arguments with None in place of static ones, so
        that the positions of the others do not change.

        Raises: ArgumentError for a static value that is not hashable.
        """
        _, static, _, named = self.split(args, kwargs)
        fn, keywords, order = self.fn, {k: v for k, v in static.items() if isinstance(k, str)}, tuple(kwargs)

        @functools.wraps(fn, updated=())
        def with_static_values(*args: object, **kwargs: object) -> object:
            return fn(*[static.get(k, a) for k, a in enumerate(args)], **_in_order({**keywords, **kwargs}, order))

        return with_static_values, tuple([None if k in static else a for k, a in enumerate(args)]), named

    def check_not_static(self, what: str, argnums: Argnums, n: int) -> None:
        """Check that `argnums`, of `n` arguments, select no static one. Raises: ArgumentError."""
        for k in argument_keys(argnums, int) or ():
            if -n <= k < n and k % n in self.numbers:
                raise ArgumentError(
                    f"{what}: argnums {plain_ints(argnums)!r} chooses {self._name(k % n)}, which is a static argument",
                    remedy="choose others: argnums=...; a static argument is a value that the program is made for",
                )

    def values_text(self, static: dict[int | str, object]) -> str:
        """Return static values for a message: `n=3, mode='full'`."""
        return ", ".join([f"{self._name(k)}={shown(v, 40)}" for k, v in static.items()])

    def _name(self, k: int | str) -> str:
        return k if isinstance(k, str) else self.positional[k] if k < len(self.positional) else f"args[{k}]"

    def _key(self, k: int | str, value: object) -> Hashable:
        try:
            hash(value)
        except TypeError:
            what = f"{self.what}: static argument {self._name(k)}"
            raise ArgumentError(
                f"{what} is {described(value)}, which is not hashable: {shown(value)}",
                remedy="give a tuple in place of a list; an array is no static argument: leave it traced",
            ) from None
        return exact_key(value)  # 1, 1.0 and True are three values, as are 0.0 and -0.0

    def bound(self, static: dict[int | str, object], kwargs: Iterable[str]) -> Callable[..., Any]:
        """Return the function of the remaining arguments, with the static values bound. It keeps the name.

        `kwargs` are the names of all keyword arguments of the call, in its order.
        """
        fn, named, order = self.fn, {k: v for k, v in static.items() if isinstance(k, str)}, tuple(kwargs)
        positions = [k for k in static if isinstance(k, int)]

        @functools.wraps(fn, updated=())
        def with_static_values(*args: object, **kwargs: object) -> object:
            all_args = list(args)
            for k in positions:  # in increasing order, so that each insertion position is final
                all_args.insert(k, static[k])
            return fn(*all_args, **_in_order({**named, **kwargs}, order))

        removed = {*named, *[self.positional[k] for k in positions if k < len(self.positional)]}
        signature = _signature(fn)
        if signature is not None:
            remaining = [p for p in signature.parameters.values() if p.name not in removed]
            with_static_values.__dict__["__signature__"] = signature.replace(parameters=remaining)
        return with_static_values


def _in_order(kwargs: dict[str, object], order: tuple[str, ...]) -> dict[str, object]:
    """Return keyword arguments in the order of a call: a function of `**kwargs` sees it."""
    return {**{k: kwargs[k] for k in order if k in kwargs}, **kwargs}


def _signature(fn: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


class Parameters(NamedTuple):
    """The parameters of a function: the names of positional ones; the names of all, but for `*args` (None if it takes
    any name); True if it takes any number of positional arguments."""

    positional: tuple[str, ...]
    names: frozenset[str] | None
    any_number: bool


def parameters(fn: Callable[..., object]) -> Parameters:
    """Return the parameters of a function. One without a signature takes all."""
    signature = _signature(fn)
    if signature is None:
        return Parameters((), None, True)
    declared = signature.parameters.values()
    kinds = {p.kind for p in declared}
    names = frozenset([p.name for p in declared if p.kind is not p.VAR_POSITIONAL])
    return Parameters(
        tuple([p.name for p in declared if p.kind in _POSITIONAL]),
        None if inspect.Parameter.VAR_KEYWORD in kinds else names,
        inspect.Parameter.VAR_POSITIONAL in kinds,
    )
