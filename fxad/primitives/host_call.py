"""Calls of Python functions at run time: pure functions of arrays, or effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.host_functions import HOST
from fxad.errors import (
    ArgumentError,
    ExecutionError,
    NotDifferentiableError,
    ParameterError,
    ShapeError,
    described,
    exception_text,
)
from fxad.ir import (
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Hlo,
    HloValues,
    JvpCtx,
    NDArray,
    Primitive,
    Tangents,
    Zero,
    primitive,
)
from fxad.primitives.shape import move_axis
from fxad.primitives.stablehlo import bool_attribute

NUMBER: Final = Aval((), dtypes.uint64)
TOKEN: Final = Aval((), dtypes.uint32)

PURE: Final = "pure"
IO: Final = "io"
ORDERED: Final = "ordered"
_EFFECTS: Final = MappingProxyType({PURE: frozenset[str](), IO: frozenset({IO}), ORDERED: frozenset({IO, ORDERED})})


@final
@primitive
class HostCall(Primitive):
    """The results of a Python function of the operands; `label` is its name and `results` are its declared result
    types.

    `sizes` are the sizes of the mapped axes from the outside in. For each of them `mapped` has flags for the operands,
    True for those that have the axis. A vmap of 3 examples of a, within a vmap of 2 examples of a and b, gives

        host_call[sizes=(2, 3), mapped=((False, True, True), (False, True, False)), ...] number, a, b

    with number: u64[], a: f32[2,3] and b: f32[2]. It calls f(f32[], f32[]) six times; with `whole`, it calls
    f(f32[2,3], f32[2,3]) once.

    Type:   operands: u64[], the number of the function (`core.host_functions`), then arrays; results: `results`, with
            the mapped axes in front.
    Rule:   no derivative: a tangent is an error if there are floating results, and is dropped if there are none.
            `effect` is "pure" (may be dropped, merged, repeated), "io" (happens once), or "ordered" (once, after the
            preceding ordered calls). Under vmap the function is called for one example after the other; with `whole`,
            once with the stack.
    Source: XLA's `xla_ffi_python_cpu_callback` and `xla_ffi_python_gpu_callback`, which jaxlib and its plugin have.
    """

    name: ClassVar[str] = "host_call"
    label: str
    results: tuple[Aval, ...]
    effect: str
    sizes: tuple[int, ...] = ()
    mapped: tuple[tuple[bool, ...], ...] = ()
    whole: bool = False
    token: bool = False  # with a further u32[] operand and result, by which lowering orders the calls

    @property
    def refusal(self) -> tuple[str, str]:
        """The subject and the remedy of the message for a place where this equation is not allowed."""
        return f"{self.label}, a function of this process", "leave it out of what does not run here, on a CPU"

    @property
    def effects(self) -> frozenset[str]:
        self._check_effect()
        return _EFFECTS[self.effect]

    def _check_effect(self) -> None:
        if self.effect not in _EFFECTS:
            raise ParameterError(
                f"host_call: effect must be pure, io or ordered, got {self.effect!r}",
                remedy="pure: it may be left out; io: it may not; ordered: nor change places with another",
            )

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        operands = max(len(avals) - self.token, 1)
        if len(self.mapped) != len(self.sizes) or any([len(flags) != operands for flags in self.mapped]):
            raise ParameterError(
                f"host_call: mapped of {self.label} is {self.mapped} for sizes {self.sizes} and {operands} operands",
                remedy="give a tuple for each size, with a flag for each operand, that of the number first",
            )
        if not avals or avals[0].dtype != NUMBER.dtype or avals[0].ndim != sum(self._has_axes(0)):
            got = ", ".join(map(str, avals)) or "nothing"
            raise ArgumentError(
                f"host_call: the first operand is the number of a function, {NUMBER}, got {got}",
                remedy="use pure_callback, io_callback or debug_print, which number their function",
            )
        self._check_effect()
        for k, aval in enumerate((avals[0], *avals[1 + self.token :])):
            axes = [size for size, has_axis in zip(self.sizes, self._has_axes(k), strict=True) if has_axis]
            if list(aval.shape[: len(axes)]) != axes:
                raise ShapeError(
                    f"host_call: operand {k} of {self.label} has mapped axes {axes}, got {aval}",
                    remedy="mapped axes come first, in the order of sizes",
                )
        return self.out_avals

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """The types of the results."""
        outs = tuple([a.with_shape(self.sizes + a.shape) for a in self.results])
        return (TOKEN, *outs) if self.token else outs

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        # copy the operands: their memory is valid only during the call, and the function may store them
        operands = [np.array(x) for x in (args[0], *args[1 + self.token :])]
        for x in operands:
            x.flags.writeable = False
        outs = self._call_once(operands) if self.whole else self._call_each(operands)
        return (args[1], *outs) if self.token else tuple(outs)

    def _has_axes(self, k: int) -> tuple[bool, ...]:
        """Return flags for the mapped axes that operand `k` has."""
        return tuple([operands[k] for operands in self.mapped])

    def _call_once(self, operands: list[NDArray]) -> list[NDArray]:
        stacks = []
        for k, x in enumerate(operands):
            has_axes = self._has_axes(k)
            example_shape = x.shape[sum(has_axes) :]
            lead = [n if has_axis else 1 for n, has_axis in zip(self.sizes, has_axes, strict=True)]
            stacks.append(np.broadcast_to(x.reshape((*lead, *example_shape)), self.sizes + example_shape))
        number, *arrays = stacks
        return self._checked(HOST.call(number.flat[0], self.label, arrays), self.sizes)

    def _call_each(self, operands: list[NDArray]) -> list[NDArray]:
        if not self.sizes:
            return self._checked(HOST.call(operands[0], self.label, operands[1:]), ())
        outs = [np.zeros(self.sizes + a.shape, a.dtype) for a in self.results]
        for example in np.ndindex(*self.sizes):
            number, *arrays = [
                x[tuple([i for i, has_axis in zip(example, self._has_axes(k), strict=True) if has_axis])]
                for k, x in enumerate(operands)
            ]
            for out, x in zip(outs, self._checked(HOST.call(number, self.label, arrays), ()), strict=True):
                out[example] = x
        return outs

    def _checked(self, returned: Sequence[object], sizes: tuple[int, ...]) -> list[NDArray]:
        """Return the function's results if they have the declared types. Raises: ExecutionError."""
        if len(returned) != len(self.results):
            raise ExecutionError(
                f"host_call: {self.label} gave {len(returned)} results, it was declared to give {len(self.results)}",
                remedy="correct the result types, or what the function returns",
            )
        outs = []
        for x, aval in zip(returned, self.results, strict=True):
            if isinstance(x, np.ma.MaskedArray):
                raise ExecutionError(
                    f"host_call: {self.label} gave a masked array, whose mask would be lost",
                    remedy="fill it: x.filled(0)",
                )
            try:
                out = np.asarray(x)
            except Exception as e:
                raise ExecutionError(
                    f"host_call: {self.label} gave {described(x)}, which makes no array: {exception_text(e)}",
                    remedy="return arrays or numbers: what was raised is the cause of this error, with its own lines",
                ) from e
            if isinstance(x, bool | int | float | complex) and _can_hold(aval.dtype, x):
                out = out.astype(aval.dtype)
            if out.shape != sizes + aval.shape or out.dtype != aval.dtype:
                raise ExecutionError(
                    f"host_call: {self.label} gave {out.dtype}{list(out.shape)}, it was declared to give"
                    f" {aval.with_shape(sizes + aval.shape)}",
                    remedy="correct the result types, or convert what the function returns",
                )
            outs.append(np.ascontiguousarray(out).reshape(out.shape))
        return outs

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return call_host(self, hlo, args, outs)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        has_axis = tuple([d is not None for d in dims])
        stacks = [a if d is None else move_axis(ctx, a, d, 0) for a, d in zip(args, dims, strict=True)]
        # a stack of functions is called one by one
        whole = self.whole and not has_axis[0]
        outs = ctx(replace(self, sizes=(ctx.size, *self.sizes), mapped=(has_axis, *self.mapped), whole=whole), *stacks)
        return outs, (0,) * len(outs)

    def jvp(self, ctx: JvpCtx, primals: Atoms, tangents: Tangents) -> tuple[Atoms, Tangents]:
        if any([a.inexact for a in self.results]):
            raise NotDifferentiableError(
                f"host_call: {self.label} has no derivative: it runs outside of the program",
                remedy="give it one with custom_jvp or custom_vjp, or pass its arguments through stop_gradient",
            )
        outs = ctx(self, *primals)
        return outs, tuple([Zero(v.aval) for v in outs])


def _can_hold(dtype: dtypes.DType, x: complex) -> bool:
    """Return True if a dtype can represent a Python number, up to rounding."""
    match x:
        case bool():
            return True
        case int() if dtypes.is_integer(dtype):
            least, most = dtypes.RANGES[dtype]
            return least <= x <= most
        case int() | float():
            return dtypes.is_inexact(dtype)
        case _:
            return dtypes.is_complex(dtype)


def call_host(call: Primitive, hlo: Hlo, args: HloValues, outs: Avals) -> HloValues:
    """Emit the custom call through which XLA calls `impl` of an equation on the host. On several devices it has one
    more operand: the number of the device."""
    if prod([size for _, size in hlo.mesh]) > 1:
        args = (*args, *hlo.op("stablehlo.partition_id", (), (Aval((), dtypes.uint32),)))
    attrs = {
        "call_target_name": f'"xla_ffi_python_{"cpu" if hlo.platform == "cpu" else "gpu"}_callback"',
        "has_side_effect": bool_attribute(bool(call.effects)),
        "api_version": "4 : i32",
        "backend_config": f"{{index = {hlo.host(call)} : ui64}}",
    }
    return hlo.op("stablehlo.custom_call", args, outs, attrs)


HOST_CALLS: Final = (HostCall,)
