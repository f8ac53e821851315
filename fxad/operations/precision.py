"""The precision of products, as users name it, and operations whose products have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Concatenate, Final, NamedTuple, TypeAlias, cast

from fxad import dtypes
from fxad.dtypes import DType, as_dtype
from fxad.errors import DTypeError, ParameterError, shown
from fxad.ir import Atom, Atoms, Emit, Primitive, Var
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.dot import DotGeneral, product_dtype
from fxad.primitives.elementwise.convert import emit_convert


class Precision(Enum):
    """The precision of the products of float32 numbers on an accelerator. On a CPU all are the same.

    `DEFAULT` is the fastest: tensor cores may round operands to 19 bits or fewer. `HIGHEST` is float32.
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


class DotAlgorithmPreset(Enum):
    """How a product is computed: the types to which both operands are rounded, and the type of the sums.

    `X3`, `X6` and `X9` multiply parts of numbers, so they are nearly as precise as float32. An algorithm means the same
    on all devices, but for `BF16_BF16_BF16`, `F16_F16_F16` and those of `FAST_ACCUM`, which allow sums of fewer bits
    and do not demand them. The result is converted to `preferred_element_type`, or the dtype of the operands.
    """

    DEFAULT = 1
    ANY_F8_ANY_F8_F32 = 2
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 3
    ANY_F8_ANY_F8_ANY = 4
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 5
    F16_F16_F16 = 6
    F16_F16_F32 = 7
    BF16_BF16_BF16 = 8
    BF16_BF16_F32 = 9
    BF16_BF16_F32_X3 = 10
    BF16_BF16_F32_X6 = 11
    BF16_BF16_F32_X9 = 12
    TF32_TF32_F32 = 13
    TF32_TF32_F32_X3 = 14
    F32_F32_F32 = 15
    F64_F64_F64 = 16


class DotAlgorithm(NamedTuple):
    """The `DotAlgorithmPreset` with these types; the last three fields are those of `BF16_BF16_F32_X3` and the like."""

    lhs_precision_type: object
    rhs_precision_type: object
    accumulation_type: object
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


PrecisionLike: TypeAlias = (
    "Precision | str | tuple[Precision, Precision] | tuple[str, str] | DotAlgorithmPreset | DotAlgorithm | None"
)


class _Algorithm(NamedTuple):
    """The dtypes that operands may have, the first of which others are converted to, the `precision` of a `DotGeneral`
    of float32, and the dtype of its sums; None for that of the operands."""

    takes: tuple[DType, ...]
    precision: str
    sums: DType | None


_FLOAT8: Final = tuple(sorted(dtypes.FLOAT8, key=lambda d: d.name))
_SINGLE: Final = (dtypes.float32,)
ALGORITHMS: Final = MappingProxyType({
    "ANY_F8_ANY_F8_F32": _Algorithm(_FLOAT8, "", dtypes.float32),
    "ANY_F8_ANY_F8_F32_FAST_ACCUM": _Algorithm(_FLOAT8, "", dtypes.float32),
    "ANY_F8_ANY_F8_ANY": _Algorithm(_FLOAT8, "", None),
    "ANY_F8_ANY_F8_ANY_FAST_ACCUM": _Algorithm(_FLOAT8, "", None),
    "F16_F16_F16": _Algorithm((dtypes.float16,), "", None),
    "F16_F16_F32": _Algorithm((dtypes.float16,), "", dtypes.float32),
    "BF16_BF16_BF16": _Algorithm((dtypes.bfloat16,), "", None),
    "BF16_BF16_F32": _Algorithm((dtypes.bfloat16, dtypes.float32), "bf16", dtypes.float32),
    "BF16_BF16_F32_X3": _Algorithm(_SINGLE, "bf16_x3", None),
    "BF16_BF16_F32_X6": _Algorithm(_SINGLE, "bf16_x6", None),
    "BF16_BF16_F32_X9": _Algorithm(_SINGLE, "bf16_x9", None),
    "TF32_TF32_F32": _Algorithm(_SINGLE, "tf32", None),
    "TF32_TF32_F32_X3": _Algorithm(_SINGLE, "tf32_x3", None),
    "F32_F32_F32": _Algorithm(_SINGLE, "highest", None),
    "F64_F64_F64": _Algorithm((dtypes.float64,), "highest", None),
})  # fmt: skip
# by the types of `DotAlgorithm` and the number of products
_BY_TYPES: Final = MappingProxyType({
    ("float16", "float16", 1): "F16_F16_F16", ("float16", "float32", 1): "F16_F16_F32",
    ("bfloat16", "bfloat16", 1): "BF16_BF16_BF16", ("bfloat16", "float32", 1): "BF16_BF16_F32",
    ("bfloat16", "float32", 3): "BF16_BF16_F32_X3", ("bfloat16", "float32", 6): "BF16_BF16_F32_X6",
    ("bfloat16", "float32", 9): "BF16_BF16_F32_X9", ("float32", "float32", 1): "F32_F32_F32",
    ("float64", "float64", 1): "F64_F64_F64",
})  # fmt: skip

_NAMES: Final = MappingProxyType({
    None: "", Precision.DEFAULT: "", Precision.HIGH: "high", Precision.HIGHEST: "highest", "default": "", "fastest": "",
    "bfloat16": "", "high": "high", "bfloat16_3x": "high", "tensorfloat32": "high", "highest": "highest",
    "float32": "highest",
})  # fmt: skip


_BY_DIGITS: Final = ("", "high", "highest")


def to_precision(op: str, precision: PrecisionLike, *, algorithms: bool = False) -> str:
    """Return a `precision` argument as a parameter of primitives, or the name of an algorithm if `algorithms`. Of two
    precisions, one for each operand, the higher one holds for both.

    Raises: ParameterError.
    """
    algorithm = _algorithm(op, precision)
    if algorithm == "DEFAULT":
        return ""
    if algorithm:
        if not algorithms:
            raise ParameterError(
                f"{op}: precision {algorithm} is an algorithm of dot_general",
                remedy='use "default", "high" or "highest", or convert the operands',
            )
        return algorithm
    both = precision if isinstance(precision, tuple | list) else (precision, precision)
    pair = cast("tuple[Precision | str | None, ...]", both)
    try:
        left, right = [_NAMES[p] for p in pair]
    except (KeyError, TypeError, ValueError):
        raise ParameterError(
            f"{op}: precision {shown(precision)}", remedy='use "default", "high" or "highest", or lax.Precision'
        ) from None
    return max(left, right, key=_BY_DIGITS.index)


def _algorithm(op: str, precision: PrecisionLike) -> str:
    """Return the name of an algorithm; empty for another precision. Raises: ParameterError."""
    if isinstance(precision, DotAlgorithmPreset):
        return precision.name
    if isinstance(precision, DotAlgorithm):
        left, right, sums, *parts, n, _ = precision
        types = [as_dtype(d).name for d in (left, right, sums)]
        name = _BY_TYPES.get((types[0], types[2], n)) if types[0] == types[1] and parts == [1, 1] else None
        if name is None:
            raise ParameterError(
                f"{op}: there is no algorithm of {', '.join(types)} with {n} products of {tuple(parts)} parts",
                remedy="use one of DotAlgorithmPreset",
            )
        return name
    return precision if isinstance(precision, str) and precision in ALGORITHMS else ""


def precise(emit: Emit, *args: object) -> Atoms:
    """Run another operation, with a precision for its products.

    `args` are those of the other operation, then two more static values: the operation and the precision.
    """
    *given, operation, precision = args
    op = cast("Callable[Concatenate[Emit, ...], Atoms]", operation)
    return op(_Precise(emit, cast("str", precision)), *given)


class _Precise:
    """Adds equations to a builder, with the precision of their products."""

    def __init__(self, emit: Emit, precision: str) -> None:
        self._emit, self._precision = emit, precision

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        if isinstance(prim, DotGeneral) and self._precision in ALGORITHMS:
            return (product(self._emit, replace(prim, precision=self._precision), *args),)
        if isinstance(prim, DotGeneral | ConvGeneralDilated):
            prim = replace(prim, precision=self._precision)
        return self._emit(prim, *args)

    def one(self, prim: Primitive, *args: Atom) -> Var:
        return self(prim, *args)[0]


def product(emit: Emit, dot: DotGeneral, lhs: Atom, rhs: Atom) -> Var:
    """Return a product. Its `precision` may be the name of an algorithm. Raises: DTypeError."""
    algorithm = ALGORITHMS.get(dot.precision)
    if algorithm is None:
        return emit.one(dot, lhs, rhs)
    product_dtype("dot_general", lhs.aval, rhs.aval, None)
    dtype = lhs.aval.dtype
    if dtype not in dtypes.FLOATING or (algorithm.takes is _FLOAT8 and dtype not in _FLOAT8):
        takes = "float8" if algorithm.takes is _FLOAT8 else "floating"
        raise DTypeError(
            f"dot_general: precision {dot.precision} takes {takes} operands, got {lhs.aval} and {rhs.aval}",
            remedy="convert the operands, or give another precision",
        )
    used = dtype if dtype in algorithm.takes else algorithm.takes[0]
    precision = algorithm.precision if used in (dtypes.float32, dtypes.float64) else ""
    sums = algorithm.sums if algorithm.sums != used else None
    if algorithm.takes is _FLOAT8 and algorithm.sums is None:
        sums = dot.preferred
    plain = replace(dot, precision=precision, preferred=sums)
    x, y = [emit_convert(emit, a, used) for a in (lhs, rhs)]
    return cast("Var", emit_convert(emit, emit.one(plain, x, y), dot.preferred or dtype))
