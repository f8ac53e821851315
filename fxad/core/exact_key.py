"""Keys of static values, which tell apart values that Python takes for equal: 1, 1.0 and True; 0.0 and -0.0; dicts in
which the keys have another order.

A program may depend on their difference, so two of them must not have one program.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import fields
from types import BuiltinFunctionType, FunctionType
from typing import Final, cast, final

import numpy as np
import optree

_COMPARED_BY_BITS: Final = frozenset({float, complex, np.float16, np.float32, np.float64, np.complex64, np.complex128})
# Values of these types may be equal and yet differ, or contain such values: 0.0 and -0.0, (1,) and (True,).
NEEDS_EXACT_KEY: Final = _COMPARED_BY_BITS | {tuple}
# Values of one of these types are equal exactly if they have equal bits, or are one object.
COMPARED_BY_EQUALITY: Final = frozenset(
    {
        int,
        str,
        bool,
        bytes,
        type(None),
        type,
        FunctionType,
        BuiltinFunctionType,
        *[type(np.dtype(c)) for c in "?bBhHiIlLqQefdFD"],
    }
)


def exact_key(static: Hashable) -> Hashable:
    """Return a key for a static value. Keys of numbers are equal exactly if the numbers have equal bits and equal
    types.

    Keys of tuples, frozensets and dataclasses (with the equality of `dataclasses`, in the fields that it compares) are
    equal exactly if the types are equal and the keys of the elements are. Those of structures of trees are if the dicts
    in them have equal keys in one order. Other values are compared by their types and their own equality: two of them
    that are equal have one key, whatever they contain. The key of a value that is not hashable is not hashable.
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
    """Return the part of a key beside the type, for a value that is no tuple and has none of the types above."""
    kind = type(static)
    if hasattr(kind, "__dataclass_fields__"):
        if _has_generated_equality(kind):
            try:
                compared = [f.name for f in fields(kind) if f.compare]  # type: ignore[arg-type]  # mypy does not narrow by the attribute
                key = tuple([exact_key(getattr(static, name)) for name in compared])
                hash(key)
            except (TypeError, AttributeError):  # a field is not hashable, and the class has its own hash
                return _ByOwnHash(static)
            return key
    elif isinstance(static, frozenset):
        return frozenset([exact_key(s) for s in static])
    elif isinstance(static, float | complex):  # of a subclass, which may compare more
        return (float if isinstance(static, float) else complex).__repr__(static), static
    elif isinstance(static, np.generic):
        padded = isinstance(static, np.longdouble | np.clongdouble)  # its bytes beside the bits may differ
        return static.dtype, repr(static) if padded else static.tobytes()
    elif isinstance(static, range | slice):  # equal ranges may have other ends
        return exact_key((static.start, static.stop, static.step))
    elif kind.__module__ in ("decimal", "_decimal"):  # 1.0 and 1.00 are equal, and no nan is equal to another
        return repr(static)
    elif isinstance(static, optree.PyTreeSpec):
        return static, tuple(_keys_of_mappings(static))
    return _ByOwnHash(static) if isinstance(kind.__eq__, FunctionType) else static


@final
class _ByOwnHash:
    """A value of a class with its own hash, and an equality that may not tell whether two arrays are equal. Then two
    instances differ, so each has its program."""

    __slots__ = ("value",)

    def __init__(self, value: Hashable) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if type(other) is not _ByOwnHash:
            return NotImplemented
        try:
            return self.value is other.value or bool(self.value == other.value)
        except ValueError:  # the truth value of an array
            return False

    def __hash__(self) -> int:
        return hash(self.value)


def exact_keys_of_mapping(mapping: Mapping[object, object]) -> Hashable:
    """Return a key for the keys of a mapping: their values, types and order."""
    keys = tuple(mapping)
    kinds = tuple(map(type, keys))
    return (kinds, keys) if COMPARED_BY_EQUALITY.issuperset(kinds) else exact_key(keys)


def _keys_of_mappings(structure: optree.PyTreeSpec) -> list[Hashable]:
    """Return the keys of the dicts in a structure, in their order, which the equality of structures leaves out."""
    below = [keys for child in structure.children() for keys in _keys_of_mappings(child)]
    kind: object = structure.type
    if kind not in (dict, OrderedDict, defaultdict):
        return below
    outer = structure.one_level()
    assert outer is not None, "a dict is no leaf"
    mapping = cast("Mapping[object, object]", outer.unflatten(range(structure.num_children)))  # by its type
    return [exact_keys_of_mapping(mapping), *below]


def unhashable_part(value: object) -> object:
    """Return the innermost part of a value that is not hashable; None if the key of the value is hashable."""
    try:
        hash(exact_key(value))
    except Exception:  # noqa: BLE001  # the user's code
        parts: list[object] = []
        if isinstance(value, tuple | frozenset):
            parts = list(value)
        elif hasattr(type(value), "__dataclass_fields__") and _has_generated_equality(type(value)):
            parts = [getattr(value, f.name, None) for f in fields(value) if f.compare]  # type: ignore[arg-type]
        return next((part for p in parts if (part := unhashable_part(p)) is not None), value)
    return None


def _has_generated_equality(cls: type) -> bool:
    """Return True if the equality of a dataclass is the one that `dataclasses` generates, or that of fxad's own."""
    if getattr(cls.__eq__, "__module__", None) == "fxad.core.dataclasses":
        return True
    code = getattr(cls.__eq__, "__code__", None)
    # the file of a method in `exec` or `python -c` has the same name, "<string>"
    return code is not None and code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.")
