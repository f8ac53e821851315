"""What fxad uses of opt_einsum: the order of contractions."""

from collections.abc import Sequence
from typing import Literal

def get_symbol(i: int) -> str: ...
def contract_path(
    subscripts: str,
    *operands: Sequence[int],
    shapes: Literal[True],
    optimize: str | Sequence[tuple[int, ...]] = ...,
) -> tuple[list[tuple[int, ...]], object]: ...
