"""Static arguments: which of a function's arguments are values that its program is made for, not operands of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, final

from fxad.errors import ArgumentError, ParameterError, described
from fxad.tracing.array import _exact

Argnums = int | Sequence[int]
Argnames = str | Sequence[str]
_PLACED: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@final
class Statics:
    """The static arguments of a function, given by number, by name, or either way where its signature says both.

    `what` is who asks, for messages, as in `jit of f`. Raises: ParameterError for a number or name that `fn` has not.
    """

    __slots__ = ("fn", "known", "names", "numbers", "placed", "what")

    def __init__(self, what: str, fn: Callable[..., Any], argnums: Argnums, argnames: Argnames) -> None:
        self.what, self.fn = what, fn
        self.placed, known = parameters(fn)
        self.known = known
        numbers = set(self._checked(argnums, int, "static_argnums", "an int"))
        names = set(self._checked(argnames, str, "static_argnames", "a name"))
        n = len(self.placed)
        if known is None and min(numbers, default=0) < 0:
            raise ParameterError(
                f"{what}: static_argnums has {min(numbers)}, and the function takes any number of arguments",
                remedy="number them from 0",
            )
        if known is not None:
            for k in sorted(numbers):
                if not -n <= k < n:
                    raise ParameterError(
                        f"{what}: static_argnums has {k}, the function takes {n} positional arguments",
                        remedy="number them from 0, or give static_argnames",
                    )
            for name in sorted(names - known):
                raise ParameterError(
                    f"{what}: static_argnames has {name!r}, which is no parameter of the function",
                    remedy=f"its parameters are {', '.join([*self.placed, *sorted(known - {*self.placed})])}",
                )
            numbers = {k % n for k in numbers}
        names |= {self.placed[k] for k in numbers if k < n}
        numbers |= {k for k, name in enumerate(self.placed) if name in names}
        self.numbers, self.names = frozenset(numbers), frozenset(names)

    def _checked(self, given: Any, kind: type[Any], role: str, one: str) -> Sequence[Any]:
        out = (given,) if isinstance(given, kind) else given
        if not isinstance(out, tuple | list) or not all(isinstance(k, kind) and not isinstance(k, bool) for k in out):
            raise ParameterError(
                f"{self.what}: {role} is {given!r:.60}, not {one} or a sequence of them",
                remedy="static_argnums takes ints, static_argnames takes strings",
            )
        return out

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Hashable, dict[int | str, Any], tuple[Any, ...], dict[str, Any]]:
        """A name for the static values of a call, the values, and the arguments without them.

        Raises: ArgumentError for a static value that is not hashable.
        """
        fixed: dict[int | str, Any] = {k: args[k] for k in sorted(self.numbers) if k < len(args)}
        fixed.update({k: kwargs[k] for k in sorted(self.names) if k in kwargs})
        key = tuple([(k, self._key(k, v)) for k, v in fixed.items()])
        rest = tuple([a for k, a in enumerate(args) if k not in fixed])
        return key, fixed, rest, {k: v for k, v in kwargs.items() if k not in fixed}

    def described(self, fixed: dict[int | str, Any]) -> str:
        """Static values for a message: `n=3, mode='full'`."""
        return ", ".join([f"{self._name(k)}={v!r:.40}" for k, v in fixed.items()])

    def _name(self, k: int | str) -> str:
        return k if isinstance(k, str) else self.placed[k] if k < len(self.placed) else f"args[{k}]"

    def _key(self, k: int | str, value: object) -> Hashable:
        try:
            hash(value)
        except TypeError:
            what = f"{self.what}: static argument {self._name(k)}"
            raise ArgumentError(
                f"{what} is {described(value)}, which is not hashable: {value!r:.60}",
                remedy="give a tuple in place of a list; an array is no static argument: leave it traced",
            ) from None
        return _exact(value)  # 1, 1.0 and True are three values, as are 0.0 and -0.0

    def bound(self, fixed: dict[int | str, Any]) -> Callable[..., Any]:
        """The function of the arguments that are left, with these static values; named as the function."""
        fn, named = self.fn, {k: v for k, v in fixed.items() if isinstance(k, str)}
        places = [k for k in fixed if isinstance(k, int)]

        @functools.wraps(fn, updated=())
        def of_the_rest(*args: Any, **kwargs: Any) -> Any:
            whole = list(args)
            for k in places:  # in increasing order: each is in its place when those before it are
                whole.insert(k, fixed[k])
            return fn(*whole, **named, **kwargs)

        gone = {*named, *[self.placed[k] for k in places if k < len(self.placed)]}
        signature = _signature(fn)
        if signature is not None:
            left = [p for p in signature.parameters.values() if p.name not in gone]
            of_the_rest.__dict__["__signature__"] = signature.replace(parameters=left)
        return of_the_rest


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


def parameters(fn: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[str] | None]:
    """Names by position; all names, None when a function may take others or cannot be asked."""
    signature = _signature(fn)
    if signature is None:
        return (), None
    found = signature.parameters.values()
    open_ended = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found)
    return tuple([p.name for p in found if p.kind in _PLACED]), None if open_ended else frozenset(signature.parameters)
