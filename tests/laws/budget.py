"""The number of examples that a law gets, as a share of the profile's number (10 by default, 2,000 in `make deep`).

`FXAD_EXAMPLES` sets the number for every law and ignores shares. `make deep-laws` uses it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings

T = TypeVar("T")


def share(of: int) -> settings:
    """Returns the profile with 1/`of` of its examples: for laws that compile, or that run for every primitive."""
    profile = settings()
    if "FXAD_EXAMPLES" in os.environ:
        return profile
    return settings(profile, max_examples=max(2, profile.max_examples // of))


def sweep_of(programs: int) -> settings:
    """Return the settings of a sweep: so many examples, which are neither stored nor shrunk."""
    return settings(
        max_examples=programs,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


def some(cases: Sequence[T], of: int, key: str) -> list[T]:
    """Returns 1/`of` of the cases, and all of them in `make deep`. With CI=1 the key determines the choice; otherwise
    it is another one in each run."""
    profile = settings()
    draw = random.Random(key) if profile.derandomize else random.Random()
    return draw.sample(cases, max(2, len(cases) // of)) if profile.max_examples < 200 else list(cases)


def quick() -> bool:
    """Returns True in ordinary runs, and False in `make deep`."""
    return settings().max_examples < 200
