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
- Complex numbers are ordered by real, then by imaginary parts in comparisons, extrema, sorts and searches. `argmax`,
  `clip`, quantiles and histograms take real numbers only, and a cast from complex to real is an error.

The standard is version 2025.12 (tests/conformance contains it as data). Where it leaves a choice: `//` and `%` of
infinities follow Python; int64 with uint64 is float32; operators mix kinds as above; the maximum of no elements is
an error; functions whose result size depends on values work outside traced functions, or with a `size`. As an
extension, `x.T` reverses the axes of any array.

Arrays are immutable, and functions return new ones; there is no `out` argument. `x.at[index].set(value)` is x with the
indexed elements replaced (also `add`, `max`, ...). Every `axis` may be negative. Lists are not arrays: `asarray`
converts them.

These names of NumPy do not exist here:

- functions that write into an array (`putmask`, `copyto`): use `x.at[index].set(value)` or `where`;
- `ufunc` and `frompyfunc`: use `vectorize`;
- `int_`, `uint`, `longlong`, ...: a dtype states its width;
- dtypes that programs do not have: `object_`, `character`, `flexible`, integers below 8 bits, floats of 4 and 6 bits,
  and the float8 formats that this module does not name;
- `set_printoptions` and similar: NumPy prints arrays, and its options apply.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
