"""Convolution as functions."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from fxad.core.sizes.size import maximum
from fxad.errors import ParameterError, ShapeError, shown
from fxad.ir import Shape
from fxad.lax.shapes import rev
from fxad.operations import windows
from fxad.operations.arguments import flag, to_int, to_ints, to_tuple
from fxad.operations.precision import PrecisionLike, to_precision
from fxad.operations.promotion import optional_dtype
from fxad.primitives.conv import ConvGeneralDilated
from fxad.primitives.sliding import Padding, SlidingWindow, dilated_size
from fxad.tracing.array import Array, ArrayLike, aval_of, binder


class ConvDimensionNumbers(NamedTuple):
    """The axis order of arrays: (batch, feature, *spatial) for lhs and out, (output feature, input feature, *spatial)
    for rhs."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


ConvGeneralDilatedDimensionNumbers: TypeAlias = "ConvDimensionNumbers | tuple[str, str, str] | None"
ConvPadding: TypeAlias = "str | Sequence[tuple[int, int]]"

_TRANSPOSED_LAYOUTS: Final = MappingProxyType(
    {n: (f"N{s}C", f"{s}IO", f"N{s}C") for n, s in ((2, ""), (3, "H"), (4, "HW"), (5, "HWD"))}
)


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: ConvGeneralDilatedDimensionNumbers
) -> ConvDimensionNumbers:
    """Return dimension numbers for a triple of strings like `("NHWC", "HWIO", "NHWC")`; None: `NCHW, OIHW, NCHW`.

    Type:   the letters N and C are batch and feature, O and I are output and input feature; any other letters are
            spatial axes, the same ones in all three.
    Raises: ShapeError, ParameterError.
    """
    x, w = to_ints("conv", "lhs_shape", lhs_shape), to_ints("conv", "rhs_shape", rhs_shape)
    n = len(x)
    if len(w) != n or n < 2:
        raise ShapeError(f"conv: lhs {x} and rhs {w} must have one number of axes, at least 2")
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if dimension_numbers is None:
        axes = tuple(range(n))
        return ConvDimensionNumbers(axes, axes, axes)
    triple = to_tuple("conv", "dimension_numbers", dimension_numbers)
    if len(triple) != 3 or not all([isinstance(s, str) for s in triple]):
        raise ParameterError(
            f"conv: dimension_numbers {shown(dimension_numbers)} is not a triple of strings",
            remedy='write ("NHWC", "HWIO", "NHWC"), or ConvDimensionNumbers of axes',
        )
    lhs, rhs, out = triple
    letters_of = (lhs, "NC"), (rhs, "OI"), (out, "NC")
    for text, letters in letters_of:
        if len(text) != n or len({*text}) != n or not {*letters} <= {*text}:
            raise ParameterError(
                f"conv: {text!r} does not name {n} axes, {letters[0]} and {letters[1]} among them, once each"
            )
    space = [c for c in rhs if c not in "OI"]  # in the order of the kernel
    if {*space} != {*lhs} - {*"NC"} or {*space} != {*out} - {*"NC"}:
        raise ParameterError(f"conv: the spatial axes of {lhs!r}, {rhs!r} and {out!r} have different names")
    return ConvDimensionNumbers(*[tuple([text.index(c) for c in (*letters, *space)]) for text, letters in letters_of])


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """Return pairs of padding. `SAME` gives ceil(size / stride) results, with odd padding at the end (`SAME_LOWER`: at
    the start); `VALID` pads nothing."""
    kind = padding.upper() if isinstance(padding, str) else ""
    if kind not in ("SAME", "SAME_LOWER", "VALID"):
        raise ParameterError(f"conv: padding {shown(padding)} is not one of SAME, SAME_LOWER, VALID")
    pairs = []
    shape, window, strides = [
        to_ints("padtype_to_pads", what, values)
        for what, values in (("in_shape", in_shape), ("window_shape", window_shape), ("window_strides", window_strides))
    ]
    if not len(shape) == len(window) == len(strides):
        raise ShapeError(f"conv: sizes {shape}, window {window} and strides {strides} are not of one number of axes")
    for n, w, s in zip(shape, window, strides, strict=True):
        total = maximum(0, (-(-n // s) - 1) * s + w - n) if kind != "VALID" else 0
        low = total - total // 2 if kind == "SAME_LOWER" else total // 2
        pairs.append((low, total - low))
    return pairs


def padding_pairs(op: str, padding: ConvPadding, n: int) -> Padding | None:
    """Return the user's pairs, for `n` axes; None for a string."""
    if isinstance(padding, str):
        return None
    pairs = [to_ints(op, "padding", p) for p in to_tuple(op, "padding", padding)]
    if len(pairs) != n or any([len(p) != 2 for p in pairs]):
        raise ParameterError(f"{op}: padding {shown(padding)} is not one (low, high) pair for each of {n} axes")
    return tuple([(p[0], p[1]) for p in pairs])


def ints_per_axis(op: str, what: str, values: Sequence[int] | None, n: int) -> tuple[int, ...]:
    """Return one int, such as a stride or a dilation, for each of `n` axes; 1 for None. Raises: ArgumentError,
    ShapeError."""
    if values is None:
        return (1,) * n
    ints = to_ints(op, what, values)
    if len(ints) != n:
        raise ShapeError(f"{op}: {what} {ints} has {len(ints)} entries for {n} axes")
    return ints


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: ConvPadding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the sum of products of a window of lhs and the kernel rhs, for each position of the window.

    Type:   lhs (batch, feature, *spatial) and rhs (output feature, input feature, *spatial), in the axis order of
            `dimension_numbers` (see `conv_dimension_numbers`), of one dtype.
    Raises: ShapeError, ParameterError, DTypeError.
    """
    op = "conv_general_dilated"
    x, w = aval_of(lhs, f"{op}: lhs").shape, aval_of(rhs, f"{op}: rhs").shape
    specs = conv_dimension_numbers(x, w, dimension_numbers)
    n = len(x) - 2
    strides, base, dilation = _steps_and_dilations(op, n, window_strides, lhs_dilation, rhs_dilation)
    pads = padding_pairs(op, padding, n)
    if pads is None:
        pads = _named_padding(op, str(padding), x, w, specs, strides, base, dilation)
    preferred = optional_dtype(preferred_element_type)
    groups = to_int(op, "feature_group_count", feature_group_count)
    batch_groups = to_int(op, "batch_group_count", batch_group_count)
    how = to_precision(op, precision)
    prim = ConvGeneralDilated(strides, pads, base, dilation, *specs, groups, batch_groups, preferred, how)
    return binder().bind(prim, (lhs, rhs))[0]


def _steps_and_dilations(
    op: str, n: int, strides: Sequence[int], lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the strides, the dilation of lhs and that of rhs for `n` spatial axes. Raises: ArgumentError,
    ShapeError."""
    return (
        ints_per_axis(op, "window_strides", strides, n),
        ints_per_axis(op, "lhs_dilation", lhs_dilation, n),
        ints_per_axis(op, "rhs_dilation", rhs_dilation, n),
    )


def _named_padding(
    op: str,
    padding: str,
    x: Shape,
    w: Shape,
    specs: ConvDimensionNumbers,
    strides: tuple[int, ...],
    base: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Padding:
    if any([b != 1 for b in base]) and padding.upper() != "VALID":
        raise ParameterError(
            f"{op}: padding {shown(padding)} has no meaning with lhs_dilation {base}",
            remedy="give (low, high) pairs, or use conv_transpose",
        )
    window = [dilated_size(w[a], d) for a, d in zip(specs.rhs_spec[2:], dilation, strict=True)]
    return tuple(padtype_to_pads([x[a] for a in specs.lhs_spec[2:]], window, strides, padding))


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return `conv_general_dilated` of arrays in the order `NCHW, OIHW`, without dilation."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: ConvPadding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return `conv_general_dilated` of arrays in the order `NCHW, OIHW`."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
        precision,
        preferred_element_type,
    )


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: ConvPadding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
    use_consistent_padding: bool = False,
) -> Array:
    """Return a convolution with fractional strides: lhs is dilated by the strides, so the result is larger.

    Type: by default in the order `NHWC, HWIO`. `SAME` gives size times stride, `VALID` every place that a window
          reaches; pairs are the padding of the dilated lhs, or with `use_consistent_padding` that of the convolution
          that this one transposes.
    Rule: with `transpose_kernel` the kernel is mirrored and its features swapped: the transpose of a convolution.
    """
    use_consistent_padding = flag("conv_transpose", "use_consistent_padding", use_consistent_padding)
    transpose_kernel = flag("conv_transpose", "transpose_kernel", transpose_kernel)
    op = "conv_transpose"
    x, w = aval_of(lhs, f"{op}: lhs").shape, aval_of(rhs, f"{op}: rhs").shape
    n = len(x) - 2
    if dimension_numbers is None:
        if len(x) not in _TRANSPOSED_LAYOUTS:
            raise ParameterError(f"{op}: lhs {x} has no order of axes by default", remedy="give dimension_numbers")
        dimension_numbers = _TRANSPOSED_LAYOUTS[len(x)]
    specs = conv_dimension_numbers(x, w, dimension_numbers)
    steps, dilation = ints_per_axis(op, "strides", strides, n), ints_per_axis(op, "rhs_dilation", rhs_dilation, n)
    window = [dilated_size(w[a], d) for a, d in zip(specs.rhs_spec[2:], dilation, strict=True)]
    pads = padding_pairs(op, padding, n)
    if pads is None:
        pads = tuple([_transposed_padding(str(padding), k, s) for k, s in zip(window, steps, strict=True)])
    elif use_consistent_padding:
        pads = tuple([(k - 1 - low, k - 1 - high) for k, (low, high) in zip(window, pads, strict=True)])
    if transpose_kernel:
        o, i, *space = specs.rhs_spec
        rhs = rev(rhs, sorted(space))
        specs = ConvDimensionNumbers(specs.lhs_spec, (i, o, *space), specs.out_spec)
    return conv_general_dilated(
        lhs, rhs, (1,) * n, pads, steps, dilation, specs, 1, 1, precision, preferred_element_type
    )


def _transposed_padding(padding: str, window: int, stride: int) -> tuple[int, int]:
    """Return the padding of an axis that is dilated by `stride`."""
    total = window + stride - 2
    match padding.upper():
        case "SAME":
            low = window - 1 if stride > window - 1 else -(-total // 2)
        case "VALID":
            low, total = window - 1, total + max(window - stride, 0)
        case _:
            raise ParameterError(f"conv_transpose: padding {shown(padding)} is not one of SAME, VALID")
    return low, total - low


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: ConvPadding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: object = None,
) -> Array:
    """Return the windows of a convolution as features: all places of the first feature, in the order of the kernel's
    axes, then those of the second, and so on; in the dtype `preferred_element_type`. No element is rounded, whatever
    the `precision`."""
    op = "conv_general_dilated_patches"
    to_precision(op, precision)
    preferred = optional_dtype(preferred_element_type)
    x, window = aval_of(lhs, f"{op}: lhs").shape, to_ints(op, "filter_shape", filter_shape)
    n = len(x) - 2
    specs = conv_dimension_numbers(x, (1, 1, *window), dimension_numbers)
    order = sorted(range(n), key=specs.rhs_spec[2:].__getitem__)  # filter_shape is in the order of the kernel's axes
    window = tuple([window[order.index(k)] for k in range(n)])
    strides, base, dilation = _steps_and_dilations(op, n, window_strides, lhs_dilation, rhs_dilation)
    pads = padding_pairs(op, padding, n)
    if pads is None:
        kernel = [1] * len(x)
        for k, a in enumerate(specs.rhs_spec[2:]):
            kernel[a] = window[k]
        pads = _named_padding(op, str(padding), x, tuple(kernel), specs, strides, base, dilation)
    axes = specs.lhs_spec[2:]

    def placed(values: Sequence[int]) -> tuple[int, ...]:
        at = dict(zip(axes, values, strict=True))
        return tuple([at.get(a, 1) for a in range(len(x))])

    at = dict(zip(axes, pads, strict=True))
    padded = tuple([at.get(a, (0, 0)) for a in range(len(x))])
    sliding = SlidingWindow(placed(window), placed(strides), padded, placed(base), placed(dilation))
    (out,) = binder().apply(
        windows.patches, (lhs,), (sliding, specs.lhs_spec, specs.out_spec, tuple([axes[k] for k in order]))
    )
    return out if preferred is None else out.astype(preferred)
