"""Keys of static values, which tell apart values that Python takes for equal: 1, 1.0 and True; 0.0 and -0.0.

A program may depend on their difference, so two of them must not have one program.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields
from types import BuiltinFunctionType, FunctionType
from typing import Final

import numpy as np

_COMPARED_BY_BITS: Final = frozenset({float, complex, np.float16, np.float32, np.float64, np.complex64, np.complex128})
# Values of these types may be equal and yet differ, or contain such values: 0.0 and -0.0, (1,) and (True,).
NEEDS_EXACT_KEY: Final = _COMPARED_BY_BITS | {tuple}
# Values of one of these types are equal exactly if they have equal bits, or are one object.
COMPARED_BY_EQUALITY: Final = frozenset({int, str, bool, bytes, type(None), type, FunctionType, BuiltinFunctionType})


def exact_key(static: Hashable) -> Hashable:
    """A key for a static value. Keys of numbers are equal exactly if the numbers have equal bits and equal types.

    Keys of tuples, frozensets and dataclasses (with the equality of `dataclasses`, in the fields that it compares) are
    equal exactly if the types are equal and the keys of the elements are. Other values are compared by their types and
    their own equality: two of them that are equal have one key, whatever they contain.
    """
    kind = type(static)
    if kind in COMPARED_BY_EQUALITY:
        return kind, static
    if isinstance(static, tuple):
        if COMPARED_BY_EQUALITY.issuperset(kinds := tuple(map(type, static))):  # the usual case, in one frame
            return kind, kinds, tuple(static)
        return kind, tuple([exact_key(s) for s in static])
    return kind, np.array(static).tobytes() if kind in _COMPARED_BY_BITS else _exact_value(static)


def _exact_value(static: Hashable) -> Hashable:
    """The part of a key beside the type, for a value that is no tuple and has none of the types above."""
    kind = type(static)
    if hasattr(kind, "__dataclass_fields__"):
        if _has_generated_equality(kind):
            try:
                compared = [f.name for f in fields(kind) if f.compare]  # type: ignore[arg-type]  # mypy does not narrow by the attribute
                key = tuple([exact_key(getattr(static, name)) for name in compared])
                hash(key)
            except (TypeError, AttributeError):  # a field is not hashable, and the class has its own hash
                return static
            return key
    elif isinstance(static, frozenset):
        return frozenset([exact_key(s) for s in static])
    elif isinstance(static, float | complex):  # of a subclass, which may compare more
        return (float if isinstance(static, float) else complex).__repr__(static), static
    elif isinstance(static, np.generic):
        padded = isinstance(static, np.longdouble | np.clongdouble)  # its bytes beside the bits may differ
        return static.dtype, repr(static) if padded else static.tobytes()
    return static


def _has_generated_equality(cls: type) -> bool:
    """Returns True if the equality of a dataclass is the one that `dataclasses` generates."""
    code = getattr(cls.__eq__, "__code__", None)
    return code is not None and code.co_filename == "<string>"
