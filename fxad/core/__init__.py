"""Programs as values, and the tools that read and build them: types, printing, meaning, memoisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from fxad.core import absent

if not TYPE_CHECKING:  # names of `jax.core`

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(absent.absent(__name__, name), name=name)
