"""How many examples a law gets, as a share of the profile's (20 by default, 2,000 in `make deep`).

`FXAD_EXAMPLES` is a number for every law, shares or not: `make deep-laws`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")


def share(of: int) -> settings:
    """The profile with 1/`of` of its examples: for laws that compile, or that are tried on every primitive."""
    profile = settings()
    if "FXAD_EXAMPLES" in os.environ:
        return profile
    return settings(profile, max_examples=max(2, profile.max_examples // of))


def some(cases: Sequence[T], of: int, key: str) -> list[T]:
    """1/`of` of some cases: with CI=1 a fixed choice by the key, otherwise another one each time, and all of them in
    `make deep`."""
    profile = settings()
    draw = random.Random(key) if profile.derandomize else random.Random()
    return draw.sample(cases, max(2, len(cases) // of)) if profile.max_examples < 200 else list(cases)


def quick() -> bool:
    """Returns True in ordinary runs, and False in `make deep`."""
    return settings().max_examples < 200


def part(cases: Sequence[T], of: int) -> list[T]:
    """1/`of` of the parameters of a test, the same in every process; all of them in `make deep`. The choice is random:
    each value of each parameter is in it."""
    if not quick():
        return list(cases)
    chosen = random.Random(len(cases)).sample(range(len(cases)), -(-len(cases) // of))
    return [cases[k] for k in sorted(chosen)]
