"""Primitives that cannot be masked, and the reasons. A reason completes the sentence "fft is not masked: ..."."""

from __future__ import annotations

from typing import Final

from fxad.transforms.mask.contract import MaskRule

REFUSED: Final[tuple[MaskRule, ...]] = ()
