"""Checks that every refusal must pass. Tests that pin a message use them."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from fxad import trace
from fxad.errors import FxadError
from fxad.tracing.tracer import active_trace

X = np.arange(3, dtype=np.float32)


def refused(fn: Callable[[], object], error: type[FxadError], message: str) -> FxadError:
    """`fn` raises exactly `error` with exactly `message`. The error names a line of the test and a remedy, and leaves
    no trace active."""
    with pytest.raises(FxadError) as e:
        fn()
    found = e.value
    assert type(found) is error, found
    assert found.message == message
    assert found.remedy
    assert (found.where or found.caller).startswith(fn.__code__.co_filename + ":"), str(found)
    clean()
    return found


def check_refused(fn: Callable[[], object], error: type[Exception], message: str, remedy: str | None) -> FxadError:
    """`fn` raises `error` with exactly this message and this remedy. Returns the error."""
    with pytest.raises(error) as e:
        fn()
    assert isinstance(e.value, FxadError)
    assert (e.value.message, e.value.remedy) == (message, remedy)
    return e.value


def clean() -> None:
    """No trace is active, and the next trace in this thread works."""
    assert active_trace() is None
    assert gc.isenabled()
    assert np.asarray(trace(lambda x: x + 1, X)(X)).tolist() == [1, 2, 3]
