"""The versions and XLA flags that the bits of a result depend on. Nothing else of the environment is read."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from fxad import runtime

FLAGS: Final = "XLA_FLAGS"
_KEYS: Final = ("fxad", "python", "numpy", "jaxlib", "machine", "device", "devices", FLAGS)


def versions() -> dict[str, str]:
    """Return the versions of this process: of packages, of the machine, of its devices, and XLA's flags."""
    device = runtime.default_device()
    values = (
        sys.modules["fxad"].__version__,  # the package is above its modules, which do not import it
        platform.python_version(),
        version("numpy"),
        version("jaxlib"),
        f"{platform.system()} {platform.machine()}",
        device.platform,
        str(runtime.device_count()),
        os.environ.get(FLAGS, ""),
    )
    return dict(zip(_KEYS, values, strict=True))


def differences(recorded: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return what differs, as texts: `jaxlib 0.10.2 there, 0.12.0.1 here`."""
    return tuple(
        [
            f"{key} {recorded.get(key, '') or 'none'} there, {now[key] or 'none'} here"
            for key in _KEYS
            if recorded.get(key, "") != now[key]
        ]
    )
