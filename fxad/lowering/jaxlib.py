"""The first import of jaxlib, without log output.

jaxlib reads its log level from the environment when its shared library is loaded, and a plugin reads it again. By
default they write some lines to stderr whenever a client is made. Unless the user has set a level, they are loaded with
the level "warnings and errors" (as jax does), and then the environment is restored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_VARIABLE: Final = "TF_CPP_MIN_LOG_LEVEL"


@contextmanager
def without_log_output() -> Iterator[None]:
    """Return a context in which libraries of XLA are loaded that log warnings and errors only."""
    user_has_level = _VARIABLE in os.environ
    if not user_has_level:
        os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if not user_has_level:
            os.environ.pop(_VARIABLE, None)


with without_log_output():
    from jaxlib import _jax, xla_client
    from jaxlib.version import __version__ as jaxlib_version

__all__ = [
    "_jax",
    "jaxlib_version",
    "without_log_output",
    "xla_client",
]
