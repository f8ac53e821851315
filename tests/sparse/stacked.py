"""The programs under a stack of transformations."""

from __future__ import annotations

from collections.abc import Iterator

from fxad.errors import NotDifferentiableError, NotLinearError
from fxad.testing import STEPS, Case


def programs_of(case: Case, stack: tuple[str, ...]) -> Iterator[Case]:
    """Yield a case, and what each transformation of the stack makes of the one before, as far as it applies."""
    yield case
    for name in stack:
        try:
            after = STEPS[name].apply(case)
        except (NotDifferentiableError, NotLinearError):
            return
        if after is None:
            return
        yield (case := after)
