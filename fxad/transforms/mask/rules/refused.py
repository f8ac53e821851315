"""Primitives that are not masked, and the reasons. A reason completes the sentence "host_call is not masked: ..."."""

from __future__ import annotations

from typing import Final

from fxad.primitives.host_call import HostCall
from fxad.transforms.mask.contract import MaskRow, refused

REFUSED: Final[tuple[MaskRow, ...]] = (
    refused(HostCall, "the host takes arrays of the true size, which a padded program does not have"),
)
