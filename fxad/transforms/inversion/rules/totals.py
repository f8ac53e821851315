"""Building blocks of log-determinants: sums over all elements, in the real dtype of the operand; and digits of dtypes.

A complex number counts as a pair of real numbers: a map z -> c z has the determinant |c|^2.
"""

from __future__ import annotations

from collections.abc import Iterable

from fxad import dtypes
from fxad.dtypes import DType
from fxad.ir import Atom, Aval, Emit, Lit
from fxad.primitives.elementwise.arithmetic import ADD
from fxad.primitives.elementwise.complex_parts import REAL
from fxad.primitives.elementwise.exponential import LOG
from fxad.primitives.elementwise.powers import ABS
from fxad.primitives.shape import ReduceSum


def significand_bits(dtype: DType, other: int) -> int:
    """Return the number of bits up to which a dtype represents all integers exactly; `other` for dtypes of 8
    bits and for integers."""
    return dtypes.SIGNIFICAND_BITS.get(dtype, other) if dtype.itemsize > 1 else other


def total(emit: Emit, x: Atom) -> Atom:
    """Return the sum of all elements. For complex elements, which are logarithms of slopes, twice the sum of the
    real parts."""
    real = _doubled(emit, emit.one(REAL, x)) if x.aval.dtype in dtypes.COMPLEX else x
    return emit.one(ReduceSum(tuple(range(x.aval.ndim))), real) if x.aval.ndim else real


def log_sizes(emit: Emit, x: Atom) -> Atom:
    """Return log |x|, element by element; twice that for complex elements."""
    size = emit.one(LOG, emit.one(ABS, x))
    return _doubled(emit, size) if x.aval.dtype in dtypes.COMPLEX else size


def _doubled(emit: Emit, x: Atom) -> Atom:
    return emit.one(ADD, x, x)


def constant(value: float, like: Atom) -> Atom:
    """Return a number as a literal in the real dtype of an atom."""
    return Lit.of(value, like.aval.with_shape(()).with_dtype(dtypes.real_part(like.aval.dtype)))


def real_numbers(avals: Iterable[Aval]) -> int:
    """Return how many real numbers the values of these types contain: the rows or columns of a Jacobian."""
    return sum([a.size * (2 if a.dtype in dtypes.COMPLEX else 1) for a in avals if a.inexact])


def not_square(rows: int, columns: int) -> str:
    """Return the reason why a map with these numbers of results and operands has no log-determinant."""
    return f"its Jacobian is {rows} x {columns}, which has no determinant"
