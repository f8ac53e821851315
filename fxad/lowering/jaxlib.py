"""The first import of jaxlib, without log output.

jaxlib reads its log level from the environment when its shared library is loaded. By default it writes three lines to
stderr whenever a client is made. Unless the user has set a level, this module loads it with the level "warnings and
errors" (as jax does), and then restores the environment.
"""

from __future__ import annotations

import os
from typing import Final

_VARIABLE: Final = "TF_CPP_MIN_LOG_LEVEL"

_user_has_level: Final = _VARIABLE in os.environ
if not _user_has_level:
    os.environ[_VARIABLE] = "1"
try:
    from jaxlib import _jax, xla_client
    from jaxlib.version import __version__ as jaxlib_version
finally:
    if not _user_has_level:
        del os.environ[_VARIABLE]

__all__ = [
    "_jax",
    "jaxlib_version",
    "xla_client",
]
