"""The interpreter: operands and results are checked, and values are dropped after their last use."""

from __future__ import annotations

import weakref
from typing import ClassVar, final

import numpy as np
import pytest

from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, DTypeError, FxadError, ShapeError, TypecheckError
from fxad.ir import Aval, Eqn, Jaxpr, Lit, NDArray, Primitive, SourceLocation, primitive
from fxad.primitives.control.call import Call
from fxad.primitives.elementwise import ADD, DIV, MUL
from fxad.text import parse
from tests.ir.strategies import Inert

F3 = Aval((3,), "float32")
X = np.arange(3, dtype=np.float32)


class Same(Inert):
    """A primitive whose type rule returns its operand's type."""

    __slots__ = ()

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return avals


def applied(prim: Primitive, aval: Aval = F3) -> Jaxpr:
    b = Builder()
    b.source = SourceLocation("model.py", 42, "attend")
    return b.build(b(prim, b.input(aval)), "f")


def test_values() -> None:
    b = Builder()
    x, y = b.inputs([F3, F3])
    j = b.build([b.one(ADD, b.one(MUL, x, y), Lit.of(1, F3)), Lit.of(7, F3), y])
    for have, want in zip(run(j, [X, X + 1]), [X * (X + 1) + 1, np.full(3, 7), X + 1], strict=True):
        np.testing.assert_array_equal(have, want.astype(np.float32), strict=True)


def test_bodies_and_arrays_without_axes() -> None:
    j = parse(
        "fn @half(%x: f32[]) -> (f32[]) {\n  %y: f32[] = mul %x, 0.5:f32[]\n  return %y\n}\n"
        "main @f(%x: f32[]) -> (f32[]) {\n  %y: f32[] = call[body=@half] %x\n  return %y\n}"
    )
    (y,) = run(j, [np.float32(3)])  # type: ignore[list-item]  # a NumPy scalar is an array without axes
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, np.array(1.5, np.float32), strict=True)


def test_ieee_values_are_values() -> None:
    b = Builder()
    j = b.build([b.one(DIV, b.input(F3), Lit.of(0, F3))])
    np.testing.assert_array_equal(run(j, [X])[0], [np.nan, np.inf, np.inf])


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ([], ArgumentError, "interpret: f takes 1 operand, got 0"),
        ([X, X], ArgumentError, "interpret: f takes 1 operand, got 2"),
        ([X.astype(np.float64)], DTypeError, "interpret: operand 0 of f is f32[3], got f64[3]"),
        ([np.array(["a", "b", "c"])], DTypeError, "interpret: operand 0 of f is f32[3], got <U1[3]"),
        ([X[:2]], ShapeError, "interpret: operand 0 of f is f32[3], got f32[2]"),
        ([X[:, None]], ShapeError, "interpret: operand 0 of f is f32[3], got f32[3,1]"),
    ],
)
def test_operands_are_checked(args: list[NDArray], error: type[FxadError], message: str) -> None:
    b = Builder()
    program = b.build([b.input(F3)], "f")
    with pytest.raises(error) as e:
        run(program, args)
    # an equal program that is alive would keep its own name
    assert e.value.message == message.replace(" f ", f" {program.name} ")


def test_results_are_checked() -> None:
    @final
    @primitive
    class Widens(Same):
        name: ClassVar[str] = "widens"

        def impl(self, *args: NDArray) -> tuple[NDArray, ...]:  # type: ignore[override]  # Inert says it never returns
            return (args[0].astype(np.float64),)

    @final
    @primitive
    class Forgets(Same):
        name: ClassVar[str] = "forgets"

        def impl(self, *args: NDArray) -> tuple[NDArray, ...]:  # type: ignore[override]  # as above
            return ()

    with pytest.raises(
        TypecheckError, match=r"^interpret: equation 0 \(widens\) gave f64\[3\], its type rule says f32"
    ):
        run(applied(Widens()), [X])
    with pytest.raises(
        TypecheckError, match=r"^interpret: equation 0 \(forgets\) gave nothing, its type rule says f32"
    ):
        run(applied(Forgets()), [X])


def test_operands_cannot_be_written() -> None:
    @final
    @primitive
    class Writes(Same):
        name: ClassVar[str] = "writes"

        def impl(self, *args: NDArray) -> tuple[NDArray, ...]:  # type: ignore[override]  # as above
            args[0][...] = 0
            return args

    mine = X.copy()
    with pytest.raises(ValueError, match="read-only"):
        run(applied(Writes()), [mine])
    np.testing.assert_array_equal(mine, X)
    assert mine.flags.writeable


def test_errors_of_an_equation_say_where() -> None:
    @final
    @primitive
    class Refuses(Same):
        name: ClassVar[str] = "refuses"

        def impl(self, *args: NDArray) -> tuple[NDArray, ...]:  # type: ignore[override]  # as above
            raise ShapeError("refuses: these values")

    with pytest.raises(ShapeError) as e:
        run(applied(Refuses()), [X])
    assert str(e.value) == (
        "refuses: these values\n  equation      equation 0 (refuses)\n  traced at     model.py:42 in attend"
    )


def test_observe_sees_every_equation_of_the_program_itself() -> None:
    b = Builder()
    inner = Builder()
    x = inner.input(F3)
    body = inner.build([inner.one(ADD, inner.one(MUL, x, x), x)])
    j = b.build(b(Call(body), b.one(ADD, b.input(F3), Lit.of(1, F3))))
    seen: list[tuple[int, str, float]] = []

    def observe(i: int, eqn: Eqn, outs: tuple[NDArray, ...]) -> None:
        seen.append((i, eqn.prim.name, float(np.sum(outs[0]))))

    run(j, [X], observe)
    assert seen == [(0, "add", 6.0), (1, "call", 20.0)]


def test_a_value_is_dropped_after_its_last_use() -> None:
    alive: list[weakref.ref[NDArray]] = []
    most = 0

    def observe(i: int, eqn: Eqn, outs: tuple[NDArray, ...]) -> None:
        nonlocal most
        alive[:] = [ref for ref in alive if ref() is not None]
        alive.extend(map(weakref.ref, outs))
        most = max(most, len(alive))

    b = Builder()
    x = b.input(F3)
    for _ in range(20):
        x = b.one(ADD, x, x)
    run(b.build([x]), [X], observe)
    assert most <= 3
