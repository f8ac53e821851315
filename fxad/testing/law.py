"""Laws at a case: when one fails, the smallest program that violates it is a note of the error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

from hypothesis.control import current_build_context, currently_in_test_context

from fxad.testing.programs import Case
from fxad.testing.reduced_laws import note_reduced

P = ParamSpec("P")
R = TypeVar("R")

# Each is called with the error of a law, the law with its other arguments, and the case. It is a tuple because
# `tests/deletion.py`, which deletes the plug-in of reduction in a copy, takes its only member from this line.
_ON_FAILURE: Final = (note_reduced,)
_within: Final[ContextVar[bool]] = ContextVar("fxad_testing_within_a_law", default=False)


def law(check: Callable[P, R]) -> Callable[P, R]:
    """Decorate a law that takes a `Case`.

    If it fails in a test of hypothesis, at the example that hypothesis shows in the end, its error has a note with the
    smallest program that violates the law.
    """

    @wraps(check)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if _within.get():  # a law that is made of others
            return check(*args, **kwargs)
        token = _within.set(True)
        try:
            return check(*args, **kwargs)
        except Exception as error:
            at = next((k for k, a in enumerate(args) if isinstance(a, Case)), None)
            if at is not None and currently_in_test_context() and current_build_context().is_final:
                at_case: Callable[[object], object] = partial(_at, check, args, at, kwargs)
                case = args[at]
                assert isinstance(case, Case)
                for react in _ON_FAILURE:
                    react(error, check.__name__, at_case, case)
            raise
        finally:
            _within.reset(token)

    return checked


def _at(
    check: Callable[..., object], args: Sequence[object], at: int, kwargs: Mapping[str, object], case: object
) -> object:
    return check(*args[:at], case, *args[at + 1 :], **kwargs)
