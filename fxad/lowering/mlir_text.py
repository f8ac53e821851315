"""Types, constants, strings and shardings as MLIR text. Plain string functions: no jaxlib, no context, no state."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from fxad import dtypes
from fxad.errors import SizeError
from fxad.ir import Aval, Lit
from fxad.primitives.meshes import OPEN, DimensionAxes, MeshAxes

ELEMENT: Final = MappingProxyType(
    {
        dtypes.bool_: "i1",
        dtypes.int8: "i8",
        dtypes.int16: "i16",
        dtypes.int32: "i32",
        dtypes.int64: "i64",
        dtypes.uint8: "ui8",
        dtypes.uint16: "ui16",
        dtypes.uint32: "ui32",
        dtypes.uint64: "ui64",
        dtypes.float8_e4m3fn: "f8E4M3FN",
        dtypes.float8_e5m2: "f8E5M2",
        dtypes.float8_e4m3b11fnuz: "f8E4M3B11FNUZ",
        dtypes.float8_e4m3fnuz: "f8E4M3FNUZ",
        dtypes.float8_e5m2fnuz: "f8E5M2FNUZ",
        dtypes.float16: "f16",
        dtypes.bfloat16: "bf16",
        dtypes.float32: "f32",
        dtypes.float64: "f64",
        dtypes.complex64: "complex<f32>",
        dtypes.complex128: "complex<f64>",
    }
)


def tensor_type(aval: Aval) -> str:
    """Return the type as MLIR text: `f32[3,4]` is `tensor<3x4xf32>`. Raises: SizeError for a symbolic shape."""
    if aval.symbolic:
        raise SizeError(
            f"lower: a value of type {aval} has no fixed size",
            remedy="specialize the program, or mask it, before it is lowered",
        )
    return f"tensor<{''.join([f'{n}x' for n in aval.shape])}{ELEMENT[aval.dtype]}>"


def element_text(lit: Lit) -> str:
    """Return the element of a literal as MLIR text, exact to the bit: floats are written as their bits in
    hexadecimal."""
    dtype = lit.aval.dtype
    if dtype is dtypes.bool_:
        return "true" if lit.bits == b"\1" else "false"
    if dtype in dtypes.INTEGER:
        return str(int.from_bytes(lit.bits, "little", signed=dtype in dtypes.SIGNED))
    if dtype in dtypes.COMPLEX:
        half = len(lit.bits) // 2
        return f"({_hex(lit.bits[:half])}, {_hex(lit.bits[half:])})"
    return _hex(lit.bits)


def _hex(bits: bytes) -> str:
    return "0x" + bits[::-1].hex().upper()


def dense_attribute(lit: Lit) -> str:
    """Return the whole constant as an MLIR attribute: `dense<0x3F800000> : tensor<3xf32>`."""
    return f"dense<{element_text(lit)}> : {tensor_type(lit.aval)}"


def string_literal(text: str) -> str:
    """Return a string literal of MLIR."""
    return '"' + "".join([c if c.isprintable() and c not in '"\\' else _escaped(c) for c in text]) + '"'


def _escaped(char: str) -> str:
    return "".join([f"\\{byte:02X}" for byte in char.encode("utf-8", "surrogatepass")])


# ------------------------------------------------------------------------------------------------------------ shardings


def sharding_attribute(mesh: int, spec: DimensionAxes, aval: Aval) -> str:
    """Return the attribute of a value that the axes of a mesh divide; meshes are numbered. If "i" of mesh 0 divides the
    first axis of an array of two axes, it is `#sdy.sharding<@mesh0, [{"i"}, {}]>`."""
    return f"#sdy.sharding<@mesh{mesh}, {dimension_shardings(spec, aval)}>"


def sharding_per_value(mesh: int, specs: Sequence[DimensionAxes], avals: Sequence[Aval]) -> str:
    """Return the attribute of several values that the axes of a mesh divide, as `sharding_attribute`."""
    divisions = [f"<@mesh{mesh}, {dimension_shardings(s, a)}>" for s, a in zip(specs, avals, strict=True)]
    return f"#sdy.sharding_per_value<[{', '.join(divisions)}]>"


def dimension_shardings(spec: DimensionAxes, aval: Aval) -> str:
    """Return the axes that divide each axis of an array, as MLIR text."""
    groups = [*spec, *[()] * (aval.ndim - len(spec))]
    return f"[{', '.join(['{?}' if group == (OPEN,) else axis_names_text(group) for group in groups])}]"


def axis_names_text(names: Sequence[str]) -> str:
    """Return names of axes, as MLIR text."""
    return f"{{{', '.join(map(_axis_name_text, names))}}}"


def _axis_name_text(name: str) -> str:
    """Return a name as a string of printable ASCII, with % and a number for each other character: XLA ends the process
    at an escape in it. Names have no meaning outside of the text."""
    return '"' + "".join([c if " " <= c <= "~" and c not in '"\\%' else f"%{ord(c):X}." for c in name]) + '"'


def mesh_text(mesh: MeshAxes) -> str:
    """Return a mesh, as MLIR text."""
    return f"<[{', '.join([f'{_axis_name_text(name)}={size}' for name, size in mesh])}]>"
