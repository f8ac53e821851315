"""What every refusal owes its user, checked wherever a message is pinned."""

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
    """`fn` raises exactly `error` with exactly `message`, names a line of the test and a remedy, leaves no state."""
    with pytest.raises(FxadError) as e:
        fn()
    found = e.value
    assert type(found) is error, found
    assert found.message == message
    assert found.remedy
    assert (found.where or found.caller).startswith(fn.__code__.co_filename + ":"), str(found)
    clean()
    return found


def clean() -> None:
    """The next trace in this thread works, and nothing of the last one is left."""
    assert active_trace() is None
    assert gc.isenabled()
    assert np.asarray(trace(lambda x: x + 1, X)(X)).tolist() == [1, 2, 3]
