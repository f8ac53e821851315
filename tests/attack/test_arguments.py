"""Every public function with hostile arguments: a result or an error of fxad, and no flag that takes anything."""

from __future__ import annotations

import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import FxadError
from tests.attack.public import ROOMS, Function, P, functions
from tests.laws.budget import some

X = np.arange(12, dtype=np.float32).reshape(3, 4)
HOSTILE: Final[tuple[Any, ...]] = (
    "no", "", b"ab", object(), len, int, {}, {7}, [[1], [1, 2]], np.ones(2), np.datetime64("2020-01-01"), 2**80, 10**30,
    -1, float("nan"), 1j, (1, "a"), [None], np.array("a"), (), (1, 1, 1, 1, 1), ((1, 2),), np.ones((2, 0)), True,
)  # fmt: skip
HERE: Final = str(Path(__file__).parent)
SECONDS: Final = 30  # that a call which ends takes at most


class Hanging(BaseException):
    """The call does not end."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def traced(f: Function, /, **changed: object) -> None:
    """The call inside of a trace: nothing is compiled."""
    fx.trace(lambda: (f.run(**changed), None)[1])


def of_the_function_given(e: BaseException) -> bool:
    """Whether an error comes from a function that was an argument, or from the call of it."""
    frames = traceback.extract_tb(e.__traceback__)
    call = max(k for k, frame in enumerate(frames) if frame.name == "run" and frame.filename.startswith(HERE))
    return any(frame.filename.startswith(HERE) for frame in frames[call + 1 :]) or "<lambda>()" in str(e)


def flaw(f: Function, name: str, value: object) -> str:
    """What is wrong with a call of one hostile argument; empty when nothing is."""
    parameter = f.parameters[name]
    if "Callable" in str(parameter.annotation) and callable(value):
        return ""  # a function may do anything
    given = (value,) if parameter.kind is P.VAR_POSITIONAL else value
    try:
        with limited():
            traced(f, **{name: given})
    except FxadError:
        return ""
    except Hanging:
        return "does not end"
    except Exception as e:
        return "" if of_the_function_given(e) else f"raises {type(e).__name__}: {e}"
    flag = str(parameter.annotation) in ("bool", "bool | None")
    return "is taken as a flag" if flag and type(value) is not bool else ""


@pytest.mark.parametrize("room", ROOMS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("part", range(2))
def test_a_hostile_argument_meets_no_error_but_fxad_s(room: Any, part: int) -> None:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of the arguments
        for f in functions(room)[part::2]:
            for name in f.given:
                values = some(HOSTILE, 4, f"{f}({name})")
                found += [f"{f}({name}={w!r:.40}) {what}" for w in values if (what := flaw(f, name, w))]
    assert not found


# ------------------------------------------------------------------------- NumPy's integers and arrays for Python's


def others(value: object) -> list[object]:
    """The same value of other types, which NumPy and JAX take alike."""
    if type(value) is bool:
        return [np.bool_(value), np.array(value)]
    if type(value) is int:
        return [np.int64(value), np.array(value), fnp.asarray(value)]
    if isinstance(value, tuple) and value and {*map(type, value)} == {int}:
        return [list(value), np.array(value), tuple([np.int32(v) for v in value])]
    return []


STATIC: Final = ("int", "bool", "Axes", "Shape", "Size", "Parts")


@pytest.mark.parametrize("room", ROOMS, ids=lambda m: m.__name__)
def test_an_integer_is_whatever_has_an_index(room: Any) -> None:
    refused = []
    for f in functions(room):
        for name, value in f.given.items():
            kind = str(f.parameters[name].annotation)
            if f.parameters[name].kind is P.VAR_POSITIONAL or not any(part in kind for part in STATIC):
                continue
            for other in others(value):
                try:
                    traced(f, **{name: other})
                except FxadError as e:
                    refused.append(f"{f}({name}={other!r}): {e.message}")
    assert not refused
