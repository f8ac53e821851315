"""Exact conversion of one element to text and back: a decimal if that is exact, else the bits in hex.

It implements the formats in integer arithmetic. So the text of a program, and its digest, do not depend on the machine
or on the version of NumPy or ml_dtypes. Bits are little-endian bytes.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import Final, final

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.dtypes import DType


@final
@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format: widths of its exponent and fraction, its bias, and its kind.

    `ieee`: the highest exponent encodes infinities and nans. The other kinds use it for numbers, and have one nan: all
    ones (`fn`), or the bits of -0.0 (`fnuz`, which has no negative zero).
    """

    exponent: int
    fraction: int
    bias: int
    kind: str = "ieee"

    @property
    def nan(self) -> int:
        """The nan that prints as `nan`: quiet, positive if nans have a sign, without payload."""
        if self.kind == "fnuz":
            return 1 << (self.exponent + self.fraction)
        if self.kind == "fn":
            return (1 << (self.exponent + self.fraction)) - 1
        return ((1 << (self.exponent + 1)) - 1) << (self.fraction - 1)

    @property
    def top(self) -> int:
        """Bits of the largest finite number."""
        everything = (1 << (self.exponent + self.fraction)) - 1
        if self.kind == "fnuz":
            return everything
        return everything - (1 if self.kind == "fn" else 1 << self.fraction)

    def decode(self, bits: int) -> float | None:
        """Return the number, infinities included; None for every nan."""
        negative, magnitude = divmod(bits, 1 << (self.exponent + self.fraction))
        if self.kind == "fnuz" and bits == self.nan:
            return None
        if magnitude > self.top:
            if self.kind != "ieee" or magnitude != self.top + 1:
                return None
            value = math.inf
        else:
            e, f = divmod(magnitude, 1 << self.fraction)
            value = math.ldexp(f if e == 0 else f + (1 << self.fraction), max(e, 1) - self.bias - self.fraction)
        return -value if negative else value

    def encode(self, value: float) -> int | None:
        """Return bits of the number nearest to `value`, ties to even; None when the format has none (nan, too
        large)."""
        if math.isnan(value):
            return None
        sign = int(math.copysign(1.0, value) < 0) << (self.exponent + self.fraction)
        if math.isinf(value):
            return sign | (self.top + 1) if self.kind == "ieee" else None
        _, e = math.frexp(value)  # |value| in [2**(e-1), 2**e)
        e = max(e - 1 + self.bias, 1) if value else 1
        steps = round(math.ldexp(abs(value), self.fraction + self.bias - e))
        magnitude = ((e - 1) << self.fraction) + steps  # a carry out of the fraction lands in the exponent
        if magnitude > self.top or (self.kind == "fnuz" and sign and magnitude == 0):
            return None
        return sign | magnitude


FORMATS: Final = MappingProxyType(
    {
        dtypes.float8_e4m3fn: Format(4, 3, 7, "fn"),
        dtypes.float8_e5m2: Format(5, 2, 15),
        dtypes.float8_e4m3b11fnuz: Format(4, 3, 11, "fnuz"),
        dtypes.float8_e4m3fnuz: Format(4, 3, 8, "fnuz"),
        dtypes.float8_e5m2fnuz: Format(5, 2, 16, "fnuz"),
        dtypes.float16: Format(5, 10, 15),
        dtypes.bfloat16: Format(8, 7, 127),
        dtypes.float32: Format(8, 23, 127),
        dtypes.float64: Format(11, 52, 1023),
    }
)

_DIGITS: Final = 9  # enough to tell any two float32 apart
_DECIMAL: Final = re.compile(r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf)", re.ASCII)
_WHOLE: Final = 1e16  # where repr begins to write exponents
_LONGEST: Final = 1000  # an exact float64 has at most 767 digits; float() is slow on longer text
_INTEGER: Final = re.compile(r"-?\d{1,20}", re.ASCII)  # enough for int64 and uint64; int() raises beyond 4300 digits


def show(bits: bytes, dtype: DType) -> str:
    """Return the element as text: `1.5`, `-0.0`, `nan`, `0x7fc00001`, `3`, `true`, `complex(1.0, nan)`."""
    if dtype in dtypes.COMPLEX:
        half, part = len(bits) // 2, dtypes.real_part(dtype)
        return f"complex({show(bits[:half], part)}, {show(bits[half:], part)})"
    if dtype == dtypes.bool_:
        return "true" if bits == b"\1" else "false"
    if dtype not in FORMATS:
        return str(int.from_bytes(bits, "little", signed=dtypes.is_signed(dtype)))
    return _show_float(int.from_bytes(bits, "little"), FORMATS[dtype], len(bits))


def _show_float(bits: int, form: Format, size: int) -> str:
    if bits == form.nan:
        return "nan"
    value = form.decode(bits)
    if value is not None and (form.fraction == 52 or (value.is_integer() and abs(value) < _WHOLE)):
        return repr(value)  # Python's floats are float64; whole numbers are printed in full for readability
    if value is not None:
        for digits in range(1, _DIGITS + 1):
            near = float(f"{value:.{digits}g}")
            if form.encode(near) == bits:
                return repr(near)
    return f"0x{bits:0{2 * size}x}"


def read(text: str, dtype: DType) -> bytes | None:
    """Return bits of an element of a real dtype, from its text; None if the text is not a value of the dtype.

    Law: `read(show(bits, dtype), dtype) == bits`. Decimals that `show` never prints are accepted too.
    """
    size = dtype.itemsize
    if dtype == dtypes.bool_:
        return {"false": b"\0", "true": b"\1"}.get(text)
    if dtype in FORMATS:
        bits = _read_float(text, FORMATS[dtype], size)
        return None if bits is None else bits.to_bytes(size, "little")
    if not _INTEGER.fullmatch(text):
        return None
    try:
        return int(text).to_bytes(size, "little", signed=dtypes.is_signed(dtype))
    except OverflowError:
        return None


def _read_float(text: str, form: Format, size: int) -> int | None:
    if text == "nan":
        return form.nan
    if text.startswith("0x"):
        digits = text[2:]
        return int(digits, 16) if re.fullmatch(f"[0-9a-f]{{{2 * size}}}", digits) else None
    if not _DECIMAL.fullmatch(text) or len(text) > _LONGEST:
        return None
    value = float(text)
    return None if math.isinf(value) and "inf" not in text else form.encode(value)
