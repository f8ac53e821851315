"""The requirements of the Python array API standard 2025.12, as data: names, parameters, dtypes.

Source: https://data-apis.org/array-api/2025.12/API_specification. Parameters are in Python's notation, which the tests
parse. `kind` names the dtypes that a function must accept for its first argument, or for both of two arrays.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGER = (*SIGNED, *UNSIGNED)
REAL_FLOATING = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATING = (*REAL_FLOATING, *COMPLEX)
REAL = (*INTEGER, *REAL_FLOATING)
NUMERIC = (*INTEGER, *FLOATING)
ALL = (*BOOL, *NUMERIC)
KINDS = {
    "all": ALL,
    "bool": BOOL,
    "integer": INTEGER,
    "bool or integer": (*BOOL, *INTEGER),
    "real": REAL,
    "numeric": NUMERIC,
    "real floating": REAL_FLOATING,
    "complex": COMPLEX,
    "floating": FLOATING,
    "": (),  # takes no array, or one whose dtype does not matter
}

# The common dtype of two arrays: the wider one of a kind; for signed with unsigned the next wider signed one; for
# floating with complex. Other pairs (uint64 with signed integers, different kinds) are undefined in the standard.
_WIDTH = {**{d: int(d[3:]) for d in SIGNED}, **{d: int(d[4:]) for d in UNSIGNED}}


def promoted(a: str, b: str) -> str | None:
    """Returns the dtype of an operation between arrays of two dtypes, or None if the standard does not define it."""
    if a == b:
        return a
    if a in FLOATING and b in FLOATING:
        double = "64" in a.removeprefix("complex64") or "64" in b.removeprefix("complex64") or "128" in a + b
        if a in COMPLEX or b in COMPLEX:
            return "complex128" if double else "complex64"
        return "float64"
    if a in INTEGER and b in INTEGER:
        if (a in SIGNED) == (b in SIGNED):
            return a if _WIDTH[a] > _WIDTH[b] else b
        signed, unsigned = (a, b) if a in SIGNED else (b, a)
        width = max(_WIDTH[signed], 2 * _WIDTH[unsigned])
        return f"int{width}" if width <= 64 else None
    return None


@dataclass(frozen=True)
class Function:
    """A function of the standard."""

    extension: str  # "" for the namespace itself, "linalg" or "fft" for an extension
    group: str
    name: str
    parameters: str
    kind: str

    @property
    def signature(self) -> inspect.Signature:
        scope: dict[str, object] = {"inf": float("inf")}
        exec(f"def f({self.parameters}): ...", scope)  # text of this file, below
        return inspect.signature(scope["f"])  # type: ignore[arg-type]

    @property
    def id(self) -> str:
        return f"{self.extension}.{self.name}" if self.extension else self.name


_NEW = "*, dtype=None, device=None"
_ONE = "x, /"
_TWO = "x1, x2, /"
_REDUCE = "x, /, *, axis=None, keepdims=False"
_TOTAL = "x, /, *, axis=None, dtype=None, keepdims=False"
_MOMENT = "x, /, *, axis=None, correction=0.0, keepdims=False"
_CUMULATIVE = "x, /, *, axis=None, dtype=None, include_initial=False"
_SORT = "x, /, *, axis=-1, descending=False, stable=True"
_FFT = "x, /, *, n=None, axis=-1, norm='backward'"
_FFTN = "x, /, *, s=None, axes=None, norm='backward'"
_FREQ = "n, /, *, d=1.0, dtype=None, device=None"
_SHIFT = "x, /, *, axes=None"

# extension, group: {name: (parameters, kind)}
_TABLE: dict[tuple[str, str], dict[str, tuple[str, str]]] = {
    ("", "creation"): {
        "arange": ("start, /, stop=None, step=1, *, dtype=None, device=None", ""),
        "asarray": ("obj, /, *, dtype=None, device=None, copy=None", ""),
        "empty": (f"shape, {_NEW}", ""),
        "empty_like": (f"x, /, {_NEW}", "all"),
        "eye": ("n_rows, n_cols=None, /, *, k=0, dtype=None, device=None", ""),
        "from_dlpack": ("x, /, *, device=None, copy=None", ""),
        "full": (f"shape, fill_value, {_NEW}", ""),
        "full_like": (f"x, /, fill_value, {_NEW}", "all"),
        "linspace": ("start, stop, /, num, *, dtype=None, device=None, endpoint=True", ""),
        "meshgrid": ("*arrays, indexing='xy'", "all"),
        "ones": (f"shape, {_NEW}", ""),
        "ones_like": (f"x, /, {_NEW}", "all"),
        "tril": ("x, /, *, k=0", "all"),
        "triu": ("x, /, *, k=0", "all"),
        "zeros": (f"shape, {_NEW}", ""),
        "zeros_like": (f"x, /, {_NEW}", "all"),
    },
    ("", "dtypes"): {
        "astype": ("x, dtype, /, *, copy=True, device=None", "all"),
        "can_cast": ("from_, to, /", ""),
        "finfo": ("type, /", ""),
        "iinfo": ("type, /", ""),
        "isdtype": ("dtype, kind", ""),
        "result_type": ("*arrays_and_dtypes", ""),
    },
    ("", "unary"): {
        **dict.fromkeys(("abs", "negative", "positive", "sign", "square", "conj", "real", "round"), (_ONE, "numeric")),
        **dict.fromkeys(("isfinite", "isinf", "isnan"), (_ONE, "numeric")),
        **dict.fromkeys(("ceil", "floor", "trunc"), (_ONE, "real")),
        **dict.fromkeys(
            ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log1p")
            + ("log2", "log10", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"),
            (_ONE, "floating"),
        ),
        "signbit": (_ONE, "real floating"),
        "imag": (_ONE, "complex"),
        "bitwise_invert": (_ONE, "bool or integer"),
        "logical_not": (_ONE, "bool"),
    },
    ("", "binary"): {
        **dict.fromkeys(("add", "subtract", "multiply", "pow"), (_TWO, "numeric")),
        "divide": (_TWO, "floating"),
        **dict.fromkeys(("floor_divide", "remainder", "maximum", "minimum"), (_TWO, "real")),
        **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), (_TWO, "real floating")),
        **dict.fromkeys(("equal", "not_equal"), (_TWO, "all")),
        **dict.fromkeys(("greater", "greater_equal", "less", "less_equal"), (_TWO, "real")),
        **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), (_TWO, "bool or integer")),
        **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), (_TWO, "integer")),
        **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (_TWO, "bool")),
    },
    ("", "clip"): {"clip": ("x, /, min=None, max=None", "real")},
    ("", "indexing"): {
        "take": ("x, indices, /, *, axis=None", "all"),
        "take_along_axis": ("x, indices, /, *, axis=-1", "all"),
    },
    ("", "linear algebra"): {
        "matmul": (_TWO, "numeric"),
        "matrix_transpose": (_ONE, "all"),
        "tensordot": ("x1, x2, /, *, axes=2", "numeric"),
        "vecdot": ("x1, x2, /, *, axis=-1", "numeric"),
    },
    ("", "manipulation"): {
        "broadcast_arrays": ("*arrays", "all"),
        "broadcast_shapes": ("*shapes", ""),
        "broadcast_to": ("x, /, shape", "all"),
        "concat": ("arrays, /, *, axis=0", "all"),
        "expand_dims": ("x, /, axis", "all"),
        "flip": ("x, /, *, axis=None", "all"),
        "moveaxis": ("x, source, destination, /", "all"),
        "permute_dims": ("x, /, axes", "all"),
        "repeat": ("x, repeats, /, *, axis=None", "all"),
        "reshape": ("x, /, shape, *, copy=None", "all"),
        "roll": ("x, /, shift, *, axis=None", "all"),
        "squeeze": ("x, /, axis", "all"),
        "stack": ("arrays, /, *, axis=0", "all"),
        "tile": ("x, repetitions, /", "all"),
        "unstack": ("x, /, *, axis=0", "all"),
    },
    ("", "searching"): {
        "argmax": (_REDUCE, "real"),
        "argmin": (_REDUCE, "real"),
        "count_nonzero": (_REDUCE, "all"),
        "nonzero": (_ONE, "all"),
        "searchsorted": ("x1, x2, /, *, side='left', sorter=None", "real"),
        "where": ("condition, x1, x2, /", "all"),
    },
    ("", "sets"): {
        "isin": ("x1, x2, /, *, invert=False", "integer"),
        **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse", "unique_values"), (_ONE, "all")),
    },
    ("", "sorting"): {"argsort": (_SORT, "real"), "sort": (_SORT, "real")},
    ("", "statistics"): {
        "cumulative_prod": (_CUMULATIVE, "numeric"),
        "cumulative_sum": (_CUMULATIVE, "numeric"),
        "max": (_REDUCE, "real"),
        "mean": (_REDUCE, "floating"),
        "min": (_REDUCE, "real"),
        "prod": (_TOTAL, "numeric"),
        "std": (_MOMENT, "real floating"),
        "sum": (_TOTAL, "numeric"),
        "var": (_MOMENT, "real floating"),
    },
    ("", "utility"): {
        "all": (_REDUCE, "all"),
        "any": (_REDUCE, "all"),
        "diff": ("x, /, *, axis=-1, n=1, prepend=None, append=None", "numeric"),
    },
    ("linalg", "linalg"): {
        "cholesky": ("x, /, *, upper=False", "floating"),
        "cross": ("x1, x2, /, *, axis=-1", "numeric"),
        "det": (_ONE, "floating"),
        "diagonal": ("x, /, *, offset=0", "all"),
        "eig": (_ONE, "floating"),
        "eigh": (_ONE, "floating"),
        "eigvals": (_ONE, "floating"),
        "eigvalsh": (_ONE, "floating"),
        "inv": (_ONE, "floating"),
        "matmul": (_TWO, "numeric"),
        "matrix_norm": ("x, /, *, keepdims=False, ord='fro'", "floating"),
        "matrix_power": ("x, n, /", "floating"),
        "matrix_rank": ("x, /, *, rtol=None", "floating"),
        "matrix_transpose": (_ONE, "all"),
        "outer": (_TWO, "numeric"),
        "pinv": ("x, /, *, rtol=None", "floating"),
        "qr": ("x, /, *, mode='reduced'", "floating"),
        "slogdet": (_ONE, "floating"),
        "solve": (_TWO, "floating"),
        "svd": ("x, /, *, full_matrices=True", "floating"),
        "svdvals": (_ONE, "floating"),
        "tensordot": ("x1, x2, /, *, axes=2", "numeric"),
        "trace": ("x, /, *, offset=0, dtype=None", "numeric"),
        "vecdot": ("x1, x2, /, *, axis=-1", "numeric"),
        "vector_norm": ("x, /, *, axis=None, keepdims=False, ord=2", "floating"),
    },
    ("fft", "fft"): {
        **dict.fromkeys(("fft", "ifft", "hfft", "irfft"), (_FFT, "complex")),
        **dict.fromkeys(("rfft", "ihfft"), (_FFT, "real floating")),
        **dict.fromkeys(("fftn", "ifftn", "irfftn"), (_FFTN, "complex")),
        "rfftn": (_FFTN, "real floating"),
        **dict.fromkeys(("fftfreq", "rfftfreq"), (_FREQ, "")),
        **dict.fromkeys(("fftshift", "ifftshift"), (_SHIFT, "floating")),
    },
}

FUNCTIONS: tuple[Function, ...] = tuple(
    Function(extension, group, name, parameters, kind)
    for (extension, group), functions in _TABLE.items()
    for name, (parameters, kind) in functions.items()
)
CONSTANTS = {"e": 2.718281828459045, "inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793, "newaxis": None}
INSPECTION = {
    "capabilities": "",
    "default_device": "",
    "default_dtypes": "*, device=None",
    "devices": "",
    "dtypes": "*, device=None, kind=None",
}

ATTRIBUTES = ("dtype", "device", "mT", "ndim", "shape", "size", "T")
# method: the parameters after self
METHODS = {
    **dict.fromkeys(
        ("__abs__", "__bool__", "__complex__", "__dlpack_device__", "__float__", "__index__", "__int__")
        + ("__invert__", "__neg__", "__pos__"),
        "",
    ),
    **dict.fromkeys(
        ("__add__", "__and__", "__eq__", "__floordiv__", "__ge__", "__gt__", "__le__", "__lshift__", "__lt__")
        + ("__matmul__", "__mod__", "__mul__", "__ne__", "__or__", "__pow__", "__rshift__", "__sub__", "__truediv__")
        + ("__xor__", "__radd__", "__rand__", "__rfloordiv__", "__rlshift__", "__rmatmul__", "__rmod__", "__rmul__")
        + ("__ror__", "__rpow__", "__rrshift__", "__rsub__", "__rtruediv__", "__rxor__"),
        "other, /",
    ),
    "__array_namespace__": "*, api_version=None",
    "__dlpack__": "*, stream=None, max_version=None, dl_device=None, copy=None",
    "__getitem__": "key, /",
    "__setitem__": "key, value, /",
    "to_device": "device, /, *, stream=None",
}

# The function that an operator must agree with.
OPERATORS = {
    "__add__": "add",
    "__sub__": "subtract",
    "__mul__": "multiply",
    "__truediv__": "divide",
    "__floordiv__": "floor_divide",
    "__mod__": "remainder",
    "__pow__": "pow",
    "__matmul__": "matmul",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__eq__": "equal",
    "__ne__": "not_equal",
    "__lt__": "less",
    "__le__": "less_equal",
    "__gt__": "greater",
    "__ge__": "greater_equal",
}
UNARY_OPERATORS = {"__abs__": "abs", "__neg__": "negative", "__pos__": "positive", "__invert__": "bitwise_invert"}


def group(*names: str) -> list[Function]:
    """Returns the functions of some groups."""
    return [f for f in FUNCTIONS if f.group in names]
