"""The programs under a stack of transformations, and the pattern of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fxad.errors import NotDifferentiableError, NotLinearError
from fxad.ir import Jaxpr
from fxad.testing import STEPS, Case
from fxad.testing.sparse_laws import as_mask
from fxad.transforms.sparse.pattern import pattern_of
from fxad.transforms.vmap import vmap


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


def check_batch(jaxpr: Jaxpr, wrt: tuple[bool, ...], *, exact: bool = True) -> None:
    """The pattern of a batch is block-diagonal, and each block is the pattern of the program, or contains it."""
    one = as_mask(pattern_of(jaxpr, wrt))
    batched = vmap(jaxpr, 2, (0,) * len(wrt), (0,) * len(jaxpr.outs))[0]
    two = pattern_of(batched, wrt)
    rows = np.concatenate([np.repeat(np.arange(2), np.prod(s[1:], dtype=int)) for s in two.row_shapes])
    columns = np.concatenate([np.repeat(np.arange(2), np.prod(s[1:], dtype=int)) for s in two.column_shapes])
    both = as_mask(two)
    assert not both[rows[:, None] != columns].any(), jaxpr
    for k in range(2):
        block = both[rows == k][:, columns == k]
        assert (block == one).all() if exact else (block >= one).all(), jaxpr
