"""Lowering: the text of small programs, purity, exact constants, source locations, regions, errors."""
# ruff: noqa: E501  (MLIR prints an operation on one line)

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.core.builder import Builder
from fxad.errors import CompileError, ParameterError
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Hlo,
    HloValue,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Primitive,
    SourceLocation,
    Tangent,
    primitive,
    source_location,
)
from fxad.lower import lower_jaxpr
from fxad.lowering.mlir_text import dense_attribute, string_literal, tensor_type
from fxad.primitives.control.call import Call
from fxad.primitives.control.remat import Remat
from fxad.primitives.elementwise import ADD, LT, MUL, SIN, TANH
from fxad.primitives.reduce import ReduceMax
from tests.processes import run_python

pytestmark = pytest.mark.smoke

F4 = Aval((4,), "float32")


def chain(n: int, name: str = "main") -> Jaxpr:
    b = Builder()
    x, y = b.inputs([F4, F4])
    for _ in range(n):
        x = b.one(ADD, b.one(SIN, x), y)
    return b.build([x], name)


def test_text_of_a_program() -> None:
    b = Builder()
    x, y = b.inputs([F4, F4])
    z = b.one(ADD, x, Lit.of(1.5, F4))
    less = b.one(LT, z, y)
    jaxpr = b.build([less, b.one(ReduceMax((0,)), z), Lit.of(-0.0, Aval((), "bfloat16")), x])
    assert (
        lower_jaxpr(jaxpr).pretty()
        == """\
module {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> (tensor<4xi1>, tensor<f32>, tensor<bf16>, tensor<4xf32>) {
    %cst = stablehlo.constant dense<1.500000e+00> : tensor<4xf32>
    %0 = stablehlo.add %arg0, %cst : tensor<4xf32>
    %1 = stablehlo.compare LT, %0, %arg1, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %2 = stablehlo.reduce(%0 init: %cst_0) applies stablehlo.maximum across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<-0.000000e+00> : tensor<bf16>
    return %1, %2, %cst_1, %arg0 : tensor<4xi1>, tensor<f32>, tensor<bf16>, tensor<4xf32>
  }
}
"""
    )


def test_one_function_per_distinct_sub_program() -> None:
    inner = chain(1, "inner")
    b = Builder()
    x, y = b.inputs([F4, F4])
    for _ in range(3):
        (x,) = b(Call(inner), x, y)
    (x,) = b(Call(chain(2)), x, y)
    assert (
        lower_jaxpr(b.build([x])).pretty()
        == """\
module {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @f0(%arg0, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %1 = call @f0(%0, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2 = call @f0(%1, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %3 = call @f1(%2, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
  }
  func.func private @f0(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.sine %arg0 : tensor<4xf32>
    %1 = stablehlo.add %0, %arg1 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  func.func private @f1(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.sine %arg0 : tensor<4xf32>
    %1 = stablehlo.add %0, %arg1 : tensor<4xf32>
    %2 = stablehlo.sine %1 : tensor<4xf32>
    %3 = stablehlo.add %2, %arg1 : tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}
"""
    )


def test_deep_nests_do_not_recurse() -> None:
    body = chain(1)
    for _ in range(2 * sys.getrecursionlimit()):
        b = Builder()
        x, y = b.inputs([F4, F4])
        body = b.build(b(Call(body), x, y))
    assert lower_jaxpr(body).source().count("func.func private") == 2 * sys.getrecursionlimit()


def test_equal_programs_give_the_same_text_under_any_name() -> None:
    """Names are not part of the value, so the text may not contain them; also after the first program was freed."""

    def text(name: str) -> str:
        b = Builder()
        x, y = b.inputs([F4, F4])
        return lower_jaxpr(b.build(b(Call(chain(3, name)), x, y), name)).pretty()

    first = text("attend")
    assert text("another") == first
    assert "attend" not in first


def test_same_text_in_another_process() -> None:
    here = lower_jaxpr(chain(3)).pretty()
    program = (
        "from fxad.core.builder import Builder; from fxad.ir import Aval; from fxad.lower import lower_jaxpr\n"
        "from fxad.primitives.elementwise import ADD, SIN\n"
        "b = Builder(); F4 = Aval((4,), 'float32'); x, y = b.inputs([F4, F4])\n"
        "for _ in range(3): x = b.one(ADD, b.one(SIN, x), y)\n"
        "print(lower_jaxpr(b.build([x], 'other')).pretty(), end='')"
    )
    for seed in ("1", "2"):
        assert run_python(program, PYTHONHASHSEED=seed) == here


def test_lowered_once_per_value() -> None:
    assert lower_jaxpr(chain(2)) is lower_jaxpr(chain(2))


def test_threads_lower_and_print_together() -> None:
    texts: list[str] = []
    programs = [chain(k % 5 + 20) for k in range(16)]
    threads = [threading.Thread(target=lambda p=p: texts.append(lower_jaxpr(p).pretty())) for p in programs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(texts) == sorted(lower_jaxpr(p).pretty() for p in programs)


def test_source_locations_are_in_the_module_and_not_in_the_text() -> None:
    b = Builder()
    x = b.input(F4)
    code = test_source_locations_are_in_the_module_and_not_in_the_text.__code__
    b.source = (code, 0)
    x = b.one(SIN, x)
    b.source = SourceLocation('a "quoted"\\path.py', 7, "layer.<locals>.λ")
    x = b.one(TANH, x)
    b.source = None
    lowered = lower_jaxpr(b.build([b.one(SIN, x)], "attend"))
    at = source_location((code, 0))
    assert at is not None
    assert f'#L0 = loc("attend/sin"("{at.function}"("{at.file}":{at.line}:0)))' in lowered.locations
    assert '#L1 = loc("attend/tanh"("layer.<locals>.λ"("a \\22quoted\\22\\5Cpath.py":7:0)))' in lowered.locations
    assert '#L2 = loc("attend/sin")' in lowered.locations
    assert "loc(" not in lowered.text()


def test_many_places_of_one_function_agree_with_place() -> None:
    code = test_text_of_a_program.__code__
    b = Builder()
    x = b.input(F4)
    offsets = range(0, len(code.co_code), 2)
    for k in reversed(offsets):
        b.source = (code, k)
        x = b.one(SIN, x)
    lines = lower_jaxpr(b.build([x])).locations.splitlines()
    for row, k in zip(lines, reversed(offsets), strict=False):
        at = source_location((code, k))
        assert at is not None
        assert f":{at.line}:0" in row


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_types(dtype: dtypes.DType) -> None:
    assert lower_jaxpr(_identity(Aval((2, 0, 3), dtype))).pretty().count(tensor_type(Aval((2, 0, 3), dtype))) == 3


def _identity(aval: Aval) -> Jaxpr:
    b = Builder()
    return b.build([b.input(aval)])


@pytest.mark.parametrize(
    ("lit", "text"),
    [
        (Lit.of(True, Aval((2,), "bool")), "dense<true> : tensor<2xi1>"),
        (Lit.of(-3, Aval((), "int8")), "dense<-3> : tensor<i8>"),
        (Lit.of(2**64 - 1, Aval((), "uint64")), "dense<18446744073709551615> : tensor<ui64>"),
        (Lit.of(1.0, Aval((3,), "float32")), "dense<0x3F800000> : tensor<3xf32>"),
        (Lit(b"\x01\x00\xa0\x7f", Aval((), "float32")), "dense<0x7FA00001> : tensor<f32>"),
        (Lit.of(-0.0, Aval((), "bfloat16")), "dense<0x8000> : tensor<bf16>"),
        (Lit.of(1.0, Aval((0, 2), "float8_e4m3fn")), "dense<0x38> : tensor<0x2xf8E4M3FN>"),
        (Lit.of(1 - 2j, Aval((), "complex64")), "dense<(0x3F800000, 0xC0000000)> : tensor<complex<f32>>"),
    ],
)
def test_constants_are_exact(lit: Lit, text: str) -> None:
    assert dense_attribute(lit) == text


def test_quoted() -> None:
    assert string_literal('a"b\\c\nd é λ \udcff') == '"a\\22b\\5Cc\\0Ad é λ \\ED\\B3\\BF"'


def test_one_constant_per_literal() -> None:
    b = Builder()
    x = b.input(F4)
    for _ in range(3):
        x = b.one(MUL, b.one(ADD, x, Lit.of(0.0, F4)), Lit.of(-0.0, F4))
    assert lower_jaxpr(b.build([x])).source().count("stablehlo.constant") == 2


def test_donated_operands_are_marked() -> None:
    lowered = lower_jaxpr(chain(1))
    assert "%arg1: tensor<4xf32> {tf.aliasing_output = 0 : i32}" in lowered.source((1,))
    with pytest.raises(ParameterError, match=r"(?m)^compile: donate: operand 2 does not exist, the program has 2$"):
        lowered.source((2,))


def test_recomputation_is_opaque() -> None:
    b = Builder()
    x, y = b.inputs([F4, F4])
    text = lower_jaxpr(b.build(b(Remat(chain(1), True), x, y))).pretty()
    assert "stablehlo.popcnt" in text
    assert "stablehlo.optimization_barrier" in text
    assert '"stablehlo.if"' in text
    b = Builder()
    empty = Aval((0,), "float32")
    assert "stablehlo.if" not in lower_jaxpr(b.build(b(Remat(_identity(empty), True), b.input(empty)))).pretty()


@final
@primitive
class Bad(Primitive):
    """A primitive whose lowering is not valid."""

    name: ClassVar[str] = "bad"
    op: str

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return avals

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return args

    def lower(
        self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]
    ) -> Sequence[HloValue]:
        return hlo.op(self.op, args, outs)

    def batch(
        self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]
    ) -> tuple[tuple[Atom, ...], tuple[int | None, ...]]:
        return args, dims

    def jvp(
        self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]
    ) -> tuple[tuple[Atom, ...], tuple[Tangent, ...]]:
        return primals, tangents


@pytest.mark.parametrize("op", ["stablehlo.nonsense", "stablehlo.transpose", "stablehlo"])
def test_an_invalid_lowering_is_named(op: str) -> None:
    b = Builder()
    jaxpr = b.build(b(Bad(op), b.input(F4)))
    with pytest.raises(CompileError, match=r"^lower: MLIR refuses the module: ") as e:
        lower_jaxpr(jaxpr).pretty()
    assert op in str(e.value)
    assert "remedy        correct `lower` of the primitive" in str(e.value)


def test_every_constant_survives_printing() -> None:
    """MLIR reads each constant back with the same bits; for a nan with a payload, through MLIR's own printer."""
    b = Builder()
    b.input(F4)
    lit = Lit(np.uint32(0x7FC0BEEF).tobytes(), Aval((), "float32"))
    assert "dense<0x7FC0BEEF>" in lower_jaxpr(b.build([lit])).pretty()


def test_values_that_a_program_compares_are_computed_once() -> None:
    """A product that is computed again, and fused with a sum, may differ in a bit from the first one. Then the gradient
    of a maximum loses rows, and a square root of a difference gives nan. See docs/adr/0097."""
    rng = np.random.default_rng(0)
    b, x, c = [fnp.asarray(rng.standard_normal((512, 64)), np.float32) for _ in range(3)]
    w = rng.standard_normal((64, 64)).astype(np.float32) / 8

    def large(y: fx.Array) -> fx.Array:  # the peak of memory
        return fnp.sum(fnp.concatenate([fnp.sin(y @ w)] * 6) @ w)

    def loss(b: fx.Array, x: fx.Array, c: fx.Array) -> fx.Array:
        y = x * c
        return fnp.sum(fnp.max(y + b, axis=1)) * fx.stop_gradient(large(y))

    def root(x: fx.Array, c: fx.Array) -> fx.Array:
        y = x * c
        return fnp.sqrt(y - fnp.min(y, axis=1, keepdims=True)) * large(y)

    assert np.all(np.any(np.asarray(fx.jit(fx.grad(loss))(b, x, c)) != 0, axis=1))
    assert not np.any(np.isnan(np.asarray(fx.jit(root)(x, c))))


# ------------------------------------------------------------------------------------------- values that are stored

LARGE, SMALL = fx.Spec((1024,)), fx.Spec((64,))


def _powers(f: Any, n: int) -> Any:
    """Return a function that stacks products of a value of `f` with powers of another operand."""
    return lambda x, v: fnp.stack([fx.jit(f)(x) * v**k for k in range(n)])


@pytest.mark.parametrize(
    ("f", "specs", "stored"),
    [
        (_powers(fnp.sin, 3), (LARGE, LARGE), 1),
        (_powers(fnp.sin, 3), (SMALL, SMALL), 0),  # a kernel more takes longer
        (_powers(fnp.sin, 2), (LARGE, LARGE), 0),
        (_powers(fnp.exp, 4), (LARGE, LARGE), 1),
        (_powers(fnp.exp, 3), (LARGE, LARGE), 0),
        (_powers(fnp.square, 8), (LARGE, LARGE), 0),
        (lambda x, v: (fnp.cos(x) * v, fnp.cos(x) + v), (LARGE, LARGE), 1),
        (lambda x, v: (fnp.exp(x) * v, fnp.exp(x) + v), (LARGE, LARGE), 0),  # XLA stores it
        (lambda x, v: fnp.sin(x) * v + fnp.sin(x), (LARGE, LARGE), 0),
        (lambda x, v: (fnp.sin(x) @ v, v @ fnp.sin(x)), (fx.Spec((64, 64)),) * 2, 0),  # it is in memory anyway
        (lambda x, v: (fnp.sin(x) @ v, fnp.sin(x) * v), (fx.Spec((64, 64)),) * 2, 1),
        (lambda x, v: ((fnp.sin(x) * x).sum(), fnp.sin(x).max()), (LARGE, LARGE), 1),
        (lambda x, v: lax.fori_loop(0, 3, lambda _, c: (c[0] * fnp.sin(c[1]), fnp.sin(c[1])), (x, v)), (LARGE,) * 2, 1),
    ],
)
def test_a_value_that_kernels_would_repeat_is_stored(f: Any, specs: Any, stored: int) -> None:
    program = fx.cse(fx.inline(fx.trace(f, *specs)))
    module = lower_jaxpr(program.jaxpr)
    assert module.text().count('inlineable = "false"') == stored
    assert lower_jaxpr(program.jaxpr, "gpu").text().count("inlineable") == 0
    args = [np.linspace(-3, 3, s.shape[0] * (s.shape + (1,))[1], dtype=np.float32).reshape(s.shape) for s in specs]
    executable: Any = fx.lower(program).compile()
    for a, b in zip(fx.tree.leaves(executable(*args)), fx.tree.leaves(fx.interpret(program, *args)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)
    if stored:
        assert len(re.findall(r"(?:sine|cosine|exponential)\(", executable.as_text())) == 1


def test_values_of_calls_are_stored_where_their_readers_are_outside() -> None:
    @fx.jit
    def f(x: Any, v: Any) -> Any:
        s = fnp.sin(x)
        return s * v, s + v

    assert 'inlineable = "false"' in lower_jaxpr(fx.trace(lambda x, v: f(x, v), LARGE, LARGE).jaxpr).text()
    together = fx.trace(lambda x, v: sum(f(x, v)), LARGE, LARGE)
    assert "inlineable" not in lower_jaxpr(together.jaxpr).text()
