"""NumPy's functions and those of the Python array API standard, over fxad arrays and tracers.

Dtypes are the same on every platform and under every setting:

- Arrays of one kind promote as in the array API standard. Of two kinds (bool, integer, floating, complex) the higher
  one decides: int32 with float32 is float32. A Python scalar takes the dtype of the array it meets if its kind fits;
  alone, and with an array of a lower kind, it is bool, int32, float32 or complex64. No result is float64 or complex128
  unless an operand is.
- The default dtype of creation functions is float32; `arange` of ints is int32. `asarray` of nested lists follows the
  rule for scalars and keeps the dtype of NumPy arrays.
- `sum` and `prod` of bools and of integers below 32 bits are int32 (uint32 for unsigned ones); wider integers and all
  floats keep their dtype. `count_nonzero`, `argmax` and `argmin` are int32.
- `mean`, `var` and `std` of integers are float32, the default dtype, as in the standard. So are `/` and every
  other floating function of integers and bools.
- Index arrays have any integer dtype. Indices known only at run time are not checked: negative ones count from the end,
  and indices out of range are clamped.
- Ordering comparisons of complex numbers are errors, and so is a cast from complex to real.

The standard is version 2025.12 (tests/conformance contains it as data). Where it leaves a choice: `//` and `%` of
infinities follow Python; int64 with uint64 is float32; operators mix kinds as above; the maximum of no elements is
an error; functions whose result size depends on values work outside traced functions, or with a `size`. As an
extension, `x.T` reverses the axes of any array.

Arrays are immutable, and functions return new ones; there is no `out` argument. `x.at[index].set(value)` is x with the
indexed elements replaced (also `add`, `max`, ...). Every `axis` may be negative. Lists are not arrays: `asarray`
converts them.

These names of NumPy do not exist here:

- functions that write into an array (`place`, `putmask`, `copyto`): use `x.at[index].set(value)` or `where`;
- `ufunc` and `frompyfunc`: use `vectorize`;
- `int_`, `uint`, `longlong`, ...: a dtype states its width;
- dtypes that programs do not have: `object_`, `character`, `flexible`, integers below 8 bits, floats of 4 and 6 bits,
  and the float8 formats that this module does not name;
- `set_printoptions` and similar: NumPy prints arrays, and its options apply.
"""

from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Final

from numpy import (
    complexfloating,
    dtype,
    floating,
    generic,
    inexact,
    integer,
    number,
    signedinteger,
    unsignedinteger,
)

# fmt: off
# isort: off
from fxad.tracing.array import Array
from fxad.numpy.scalar_types import (
    bfloat16, bool_, complex64, complex128, float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2,
    float8_e5m2fnuz, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)
from fxad.operations.conversions import API_VERSIONS
from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.numpy import fft, linalg
    from fxad.numpy.assembling import (
        atleast_3d, block, cross, diagflat, dsplit, dstack, einsum_path, hsplit, kron, mask_indices, matvec, resize,
        rollaxis, rot90, trim_zeros, vecmat, vsplit,
    )
    from fxad.numpy.binary import (
        add, allclose, arctan2, array_equal, atan2, bitwise_and, bitwise_left_shift, bitwise_or, bitwise_right_shift,
        bitwise_xor, clip, copysign, divide, divmod, equal, floor_divide, fmod, greater, greater_equal, heaviside,
        hypot, isclose, left_shift, less, less_equal, logaddexp, logical_and, logical_or, logical_xor, maximum,
        minimum, mod, multiply, nextafter, not_equal, pow, power, remainder, right_shift, subtract, true_divide,
    )
    from fxad.numpy.creation import (
        arange, array, asarray, copy, empty, empty_like, eye, from_dlpack, full, full_like, identity, linspace,
        meshgrid, ones, ones_like, tri, tril, triu, zeros, zeros_like,
    )
    from fxad.numpy.cumulative import cumprod, cumsum, cumulative_prod, cumulative_sum, ediff1d
    from fxad.numpy.value_dependent import repeat
    from fxad.numpy.functional import apply_along_axis, apply_over_axes, fromfunction, vectorize
    from fxad.numpy.grids import c_, geomspace, index_exp, logspace, mgrid, ogrid, r_, s_
    from fxad.numpy.histograms import bincount, digitize, histogram, histogram2d, histogram_bin_edges, histogramdd
    from fxad.numpy.indexing import (
        append, argwhere, choose, compress, delete, diag_indices, diag_indices_from, extract, fill_diagonal,
        flatnonzero, indices, insert, ix_, nonzero, piecewise, put, put_along_axis, ravel_multi_index, select,
        tril_indices, tril_indices_from, triu_indices, triu_indices_from, unravel_index, where,
    )
    from fxad.numpy.info import NamespaceInfo, __array_namespace_info__
    from fxad.numpy.nans import (
        nanargmax, nanargmin, nancumprod, nancumsum, nanmax, nanmean, nanmin, nanprod, nanstd, nansum, nanvar,
    )
    from fxad.numpy.numbers import (
        array_equiv, fabs, float_power, fmax, fmin, frexp, gcd, iscomplex, iscomplexobj, isneginf, isposinf, isreal,
        isrealobj, isscalar, iterable, lcm, ldexp, logaddexp2, modf, packbits, spacing, unpackbits,
    )
    from fxad.numpy.padding import pad
    from fxad.numpy.polynomials import (
        poly, polyadd, polyder, polydiv, polyfit, polyint, polymul, polysub, polyval, roots, vander,
    )
    from fxad.numpy.products import dot, einsum, inner, matmul, outer, tensordot, vdot, vecdot
    from fxad.numpy.reductions import (
        all, amax, amin, any, argmax, argmin, count_nonzero, max, mean, min, prod, ptp, std, sum, var,
    )
    from fxad.numpy.set_algebra import intersect1d, setdiff1d, setxor1d, union1d
    from fxad.numpy.sets import (
        UniqueAll, UniqueCounts, UniqueInverse, isin, unique, unique_all, unique_counts, unique_inverse,
        unique_values,
    )
    from fxad.lax.shapes import broadcast_shapes
    from fxad.numpy.shapes import (
        array_split, atleast_1d, atleast_2d, broadcast_arrays, broadcast_to, column_stack, concat,
        concatenate, diag, diagonal, diff, expand_dims, flip, fliplr, flipud, hstack, matrix_transpose, moveaxis,
        permute_dims, ravel, reshape, roll, split, squeeze, stack, swapaxes, take, take_along_axis, tile, trace,
        transpose, unstack, vstack,
    )
    from fxad.numpy.signal import (
        bartlett, blackman, convolve, correlate, gradient, hamming, hanning, interp, kaiser, trapezoid, unwrap,
    )
    from fxad.numpy.sorting import argpartition, argsort, lexsort, partition, searchsorted, sort, sort_complex
    from fxad.numpy.special import i0, sinc
    from fxad.numpy.statistics import (
        average, corrcoef, cov, median, nanmedian, nanpercentile, nanquantile, percentile, quantile,
    )
    from fxad.numpy.files import (
        array_repr, array_str, frombuffer, fromfile, fromiter, fromstring, load, save, savez,
    )
    from fxad.dtypes import issubdtype
    from fxad.numpy.types import (
        FloatInfo, IntInfo, can_cast, finfo, iinfo, isdtype, ndim, promote_types, result_type, shape,
        size,
    )
    from fxad.numpy.unary import (
        abs, absolute, acos, acosh, angle, arccos, arccosh, arcsin, arcsinh, arctan, arctanh, around, asin, asinh,
        astype, atan, atanh, bitwise_count, bitwise_invert, bitwise_not, cbrt, ceil, conj, conjugate, cos, cosh,
        deg2rad, degrees, exp, exp2, expm1, fix, floor, imag, invert, isfinite, isinf, isnan, log, log1p, log2, log10,
        logical_not, nan_to_num, negative, positive, rad2deg, radians, real, reciprocal, rint, round, sign, signbit,
        sin, sinh, sqrt, square, tan, tanh, trunc,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.numpy.assembling": (
                "atleast_3d block cross diagflat dsplit dstack einsum_path hsplit kron mask_indices matvec resize "
                "rollaxis rot90 trim_zeros vecmat vsplit"
            ),
            "fxad.numpy.binary": (
                "add allclose arctan2 array_equal atan2 bitwise_and bitwise_left_shift bitwise_or "
                "bitwise_right_shift bitwise_xor clip copysign divide divmod equal floor_divide fmod greater "
                "greater_equal heaviside hypot isclose left_shift less less_equal logaddexp logical_and "
                "logical_or logical_xor maximum minimum mod multiply nextafter not_equal pow power remainder "
                "right_shift subtract true_divide"
            ),
            "fxad.numpy.creation": (
                "arange array asarray copy empty empty_like eye from_dlpack full full_like identity linspace "
                "meshgrid ones ones_like tri tril triu zeros zeros_like"
            ),
            "fxad.numpy.cumulative": "cumprod cumsum cumulative_prod cumulative_sum ediff1d",
            "fxad.numpy.value_dependent": "repeat",
            "fxad.numpy.functional": "apply_along_axis apply_over_axes fromfunction vectorize",
            "fxad.numpy.grids": "c_ geomspace index_exp logspace mgrid ogrid r_ s_",
            "fxad.numpy.histograms": "bincount digitize histogram histogram2d histogram_bin_edges histogramdd",
            "fxad.numpy.indexing": (
                "append argwhere choose compress delete diag_indices diag_indices_from extract fill_diagonal "
                "flatnonzero indices insert ix_ nonzero piecewise put put_along_axis ravel_multi_index select "
                "tril_indices tril_indices_from triu_indices triu_indices_from unravel_index where"
            ),
            "fxad.numpy.info": "NamespaceInfo __array_namespace_info__",
            "fxad.numpy.nans": (
                "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar"
            ),
            "fxad.numpy.numbers": (
                "array_equiv fabs float_power fmax fmin frexp gcd iscomplex iscomplexobj isneginf isposinf isreal "
                "isrealobj isscalar iterable lcm ldexp logaddexp2 modf packbits spacing unpackbits"
            ),
            "fxad.numpy.padding": "pad",
            "fxad.numpy.polynomials": (
                "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots vander"
            ),
            "fxad.numpy.products": "dot einsum inner matmul outer tensordot vdot vecdot",
            "fxad.numpy.reductions": (
                "all amax amin any argmax argmin count_nonzero max mean min prod ptp std sum var"
            ),
            "fxad.numpy.set_algebra": "intersect1d setdiff1d setxor1d union1d",
            "fxad.numpy.sets": (
                "UniqueAll UniqueCounts UniqueInverse isin unique unique_all unique_counts unique_inverse "
                "unique_values"
            ),
            "fxad.lax.shapes": "broadcast_shapes",
            "fxad.numpy.shapes": (
                "array_split atleast_1d atleast_2d broadcast_arrays broadcast_to column_stack "
                "concat concatenate diag diagonal diff expand_dims flip fliplr flipud hstack matrix_transpose "
                "moveaxis permute_dims ravel reshape roll split squeeze stack swapaxes take take_along_axis tile "
                "trace transpose unstack vstack"
            ),
            "fxad.numpy.signal": (
                "bartlett blackman convolve correlate gradient hamming hanning interp kaiser trapezoid unwrap"
            ),
            "fxad.numpy.sorting": "argpartition argsort lexsort partition searchsorted sort sort_complex",
            "fxad.numpy.special": "i0 sinc",
            "fxad.numpy.statistics": (
                "average corrcoef cov median nanmedian nanpercentile nanquantile percentile quantile"
            ),
            "fxad.numpy.files": "array_repr array_str frombuffer fromfile fromiter fromstring load save savez",
            "fxad.dtypes": "issubdtype",
            "fxad.numpy.types": (
                "FloatInfo IntInfo can_cast finfo iinfo isdtype ndim promote_types result_type shape "
                "size"
            ),
            "fxad.numpy.unary": (
                "abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh around asin asinh "
                "astype atan atanh bitwise_count bitwise_invert bitwise_not cbrt ceil conj conjugate cos cosh "
                "deg2rad degrees exp exp2 expm1 fix floor imag invert isfinite isinf isnan log log10 log1p log2 "
                "logical_not nan_to_num negative positive rad2deg radians real reciprocal rint round sign signbit "
                "sin sinh sqrt square tan tanh trunc"
            ),
        },
        "fft linalg",
    )
# isort: on
# fmt: on

__array_api_version__ = API_VERSIONS[-1]
ndarray = Array
bool = bool_  # the standard's name
newaxis = None
single, double, csingle, cdouble = float32, float64, complex64, complex128  # NumPy's names from C
euler_gamma: Final = 0.57721566490153286

__all__ = [
    "FloatInfo", "IntInfo", "NamespaceInfo", "UniqueAll", "UniqueCounts", "UniqueInverse", "__array_api_version__",
    "__array_namespace_info__", "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "angle",
    "any", "append", "apply_along_axis", "apply_over_axes", "arange", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "argwhere", "around", "array",
    "array_equal", "array_equiv", "array_repr", "array_split", "array_str", "asarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "bfloat16", "bincount",
    "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "blackman", "block", "bool", "bool_", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "c_", "can_cast", "cbrt", "cdouble", "ceil", "choose", "clip", "column_stack", "complex128",
    "complex64", "complexfloating", "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy",
    "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "csingle", "cumprod", "cumsum",
    "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete", "diag", "diag_indices", "diag_indices_from",
    "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e",
    "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp", "exp2", "expand_dims",
    "expm1", "extract", "eye", "fabs", "fft", "fill_diagonal", "finfo", "fix", "flatnonzero", "flip", "fliplr",
    "flipud", "float16", "float32", "float64", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float_power", "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp",
    "from_dlpack", "frombuffer", "fromfile", "fromfunction", "fromiter", "fromstring", "full", "full_like", "gcd",
    "generic", "geomspace", "gradient", "greater", "greater_equal", "hamming", "hanning", "heaviside", "histogram",
    "histogram2d", "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo", "imag",
    "index_exp", "indices", "inexact", "inf", "inner", "insert", "int16", "int32", "int64", "int8", "integer", "interp",
    "intersect1d", "invert", "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_", "kaiser", "kron", "lcm",
    "ldexp", "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace", "load", "log", "log10", "log1p",
    "log2", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace",
    "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean", "median", "meshgrid", "mgrid",
    "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative", "newaxis", "nextafter", "nonzero", "not_equal",
    "number", "ogrid", "ones", "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "pi",
    "piecewise", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval",
    "positive", "pow", "power", "prod", "promote_types", "ptp", "put", "put_along_axis", "quantile", "r_", "rad2deg",
    "radians", "ravel", "ravel_multi_index", "real", "reciprocal", "remainder", "repeat", "reshape", "resize",
    "result_type", "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "s_", "save", "savez",
    "searchsorted", "select", "setdiff1d", "setxor1d", "shape", "sign", "signbit", "signedinteger", "sin", "sinc",
    "single", "sinh", "size", "sort", "sort_complex", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std",
    "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace", "transpose",
    "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices",
    "triu_indices_from", "true_divide", "trunc", "uint16", "uint32", "uint64", "uint8", "union1d", "unique",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unpackbits", "unravel_index", "unsignedinteger",
    "unstack", "unwrap", "vander", "var", "vdot", "vecdot", "vecmat", "vectorize", "vsplit", "vstack", "where", "zeros",
    "zeros_like",
]  # fmt: skip
