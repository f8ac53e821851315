"""How many examples a law gets, as a share of the profile's (20 by default, 2,000 in `make deep`).

`FXAD_EXAMPLES` is a number for every law, shares or not: `make deep-laws`.
"""

from __future__ import annotations

import os

from hypothesis import settings


def share(of: int) -> settings:
    """The profile with 1/`of` of its examples: for laws that compile, or that are tried on every primitive."""
    profile = settings()
    if "FXAD_EXAMPLES" in os.environ:
        return profile
    return settings(profile, max_examples=max(2, profile.max_examples // of))
