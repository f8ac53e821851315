"""Use of rules: on methods, for any batch size, the number of traces, dead code in rules."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, transforms
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.sizes.size import bound_size
from fxad.core.typecheck import typecheck
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.primitives.custom import CallWithRules
from fxad.testing import Case, cases, check_rule, differ
from fxad.testing.compare import random_tangents
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.draw_custom import call_with_rule
from fxad.transforms.inversion.call_rules import tolerance_of
from fxad.transforms.vmap import vmap as vmap_jaxpr
from tests.laws.budget import share

Fun = Callable[..., Any]
X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.4, -0.7])


# ----------------------------------------------------------------------------------------------------------- methods


@fx.tree.dataclass
class Scale:
    """A pytree with a method that has rules, which take the instance as an argument."""

    factor: Any

    @fx.custom_vjp
    def apply(self, x: Any) -> Any:
        return self.factor * fnp.sin(x)

    def forward(self, x: Any) -> Any:
        return self.factor * fnp.sin(x), (self.factor, x)

    apply.defvjp(forward, lambda res, ct: (Scale(fnp.sum(ct * fnp.sin(res[1]))), 1000 * res[0] * fnp.cos(res[1]) * ct))


class Named:
    """A class that is no pytree: the instance is an argument that is no array."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: Any) -> Any:
        return self.factor * fnp.sin(x)

    def tangents(self, primals: Any, dots: Any) -> Any:
        return self.apply(*primals), 1000 * self.factor * fnp.cos(*primals) * dots[0]

    ruled = fx.custom_jvp(apply, nondiff_argnums=(0,))
    ruled.defjvp(tangents)


def test_methods() -> None:
    scale = Scale(np.float64(2.0))
    np.testing.assert_allclose(scale.apply(X), 2 * np.sin(X))
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(scale.apply(x)))(X), 2000 * np.cos(X))
    by_instance = fx.grad(lambda s: fnp.sum(s.apply(X)))(Scale(np.float64(2.0)))
    np.testing.assert_allclose(by_instance.factor, np.sum(np.sin(X)))
    unbound: Any = Scale.apply
    np.testing.assert_allclose(unbound(scale, X), 2 * np.sin(X))
    named: Any = Named(3.0)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(named.ruled(x)))(X), 3000 * np.cos(X))
    np.testing.assert_allclose(fx.vmap(fx.grad(named.ruled))(X), 3000 * np.cos(X))


def test_a_method_of_a_class_that_is_no_pytree_is_refused() -> None:
    class Plain:
        @fx.custom_jvp
        def f(self, x: Any) -> Any:
            return x

    Plain.f.defjvp(lambda primals, dots: (primals[1], dots[1]))
    with pytest.raises(fx.errors.FxadError, match="f: self") as caught:
        fx.grad(lambda x: fnp.sum(Plain().f(x)))(X)
    assert "nondiff_argnums" in caught.value.remedy


# ---------------------------------------------------------------------------------------------------------- any size


def counted_rule(number: bool = False) -> tuple[Any, list[int]]:
    """Returns a function whose batch rule adds 1000, and the sizes for which the rule was traced. With `number` the
    rule needs an int."""
    sizes: list[int] = []

    @fx.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    @f.def_vmap
    def f_vmap(axis_size: int, in_batched: Any, x: Any, y: Any) -> Any:
        assert in_batched == [True, True]
        sizes.append(int(axis_size) if number else axis_size)
        return fnp.sin(x) * y + 1000, True

    return f, sizes


@pytest.mark.parametrize("number", [True, False])
def test_a_batch_rule_for_any_size(number: bool) -> None:
    f, sizes = counted_rule(number)
    want = np.sin(X) * Y
    np.testing.assert_allclose(fx.vmap(f)(X, Y), want + 1000)
    np.testing.assert_allclose(fx.vmap(f)(X[:2], Y[:2]), want[:2] + 1000)
    np.testing.assert_allclose(fx.vmap(f, in_axes=(None, 0))(X[0], Y), np.sin(X[0]) * Y + 1000)
    np.testing.assert_allclose(fx.vmap(lambda x: f(x, 2.0), axis_size=3)(X), np.sin(X) * 2 + 1000)
    assert [n for n in sizes if type(n) is int] == [3, 2, 3, 3]
    assert len(sizes) == (4 if number else 8), "and once for a program that is mapped later"
    rows = fx.vmap(fx.vmap(f), in_axes=(1, None))(np.stack([X, X], 1), Y)
    np.testing.assert_allclose(rows, np.stack([want, want]) + 1000)
    np.testing.assert_allclose(fx.vmap(fx.grad(f), in_axes=(0, 0))(X, Y), np.cos(X) * Y)
    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(fx.vmap(f)(x, Y)))(X), np.cos(X) * Y)

    def looped(x: Any, y: Any) -> Any:
        return lax.scan(lambda c, _: (f(c, y), None), x, None, length=2)[0]

    np.testing.assert_allclose(fx.vmap(looped)(X, Y), np.sin(want + 1000) * Y + 1000)
    assert f.axis_sizes is None


def test_a_batch_rule_that_needs_an_int_is_not_traced_with_a_program() -> None:
    f, sizes = counted_rule(number=True)
    program = fx.trace(f, X[0], Y[0])
    np.testing.assert_allclose(fx.vmap(program, axis_size=3)(X, Y), np.sin(X) * Y)
    assert sizes == []


def nested_rules() -> Fun:
    """A function whose batch rule maps another function. The batch rule of that one closes over the stack and contains
    a loop."""
    outer: Any = fx.custom_vmap(lambda x, y: fnp.sin(x) * y)

    @outer.def_vmap  # type: ignore[untyped-decorator]
    def outer_rule(size: int, mapped: Any, x: Any, y: Any) -> Any:
        inner: Any = fx.custom_vmap(lambda a, b: fnp.sin(a) * b)

        @inner.def_vmap  # type: ignore[untyped-decorator]
        def inner_rule(n: int, mapped: Any, a: Any, b: Any) -> Any:
            return lax.map(lambda ab: fnp.sin(ab[0]) * ab[1], (a, b)) + n + 0.0 * fnp.sum(x) / size, True

        return fx.vmap(inner)(x, y) + size, True

    found: Fun = outer
    return found


def test_a_rule_that_needs_an_example() -> None:
    """Its largest element does not exist for an empty stack, so the rule is traced for sizes from 1."""
    f: Any = fx.custom_vmap(lambda x: fnp.sin(x))
    f.def_vmap(lambda size, mapped, x: (fnp.sin(x) + fnp.max(x), True))
    program = fx.trace(f, X[0])
    np.testing.assert_allclose(fx.vmap(program, axis_size=3)(X), np.sin(X) + 2.0)
    assert fx.vmap(program, axis_size=0)(X[:0]).shape == (0,)


def test_a_map_over_a_symbolic_size() -> None:
    f, _ = counted_rule()
    total = fx.mask(lambda x, y: fnp.sum(fx.vmap(f)(x, y)), in_shapes=["n", "n"])
    np.testing.assert_allclose(np.asarray(total(X, Y, sizes={"n": 2})), np.sum((np.sin(X) * Y + 1000)[:2]))


def test_sizes_of_nested_batch_rules_are_different() -> None:
    """Both rules bind a size with the same name. `g` is traced before, and its trace is used in the rule of `f`."""
    g: Any = fx.custom_vmap(lambda x: fnp.sin(x))
    g.def_vmap(lambda size, mapped, x: (fnp.sin(x) + 1000, True))
    once: Any = fx.jit(g)
    f: Any = fx.custom_vmap(lambda x: once(1.0) * x)
    f.def_vmap(lambda size, mapped, x: (once(1.0) * x + size, True))
    mapped: Any = fx.vmap(fx.trace(f, X[0]), axis_size=3)
    np.testing.assert_allclose(mapped(X), np.sin(1.0) * X + 3, rtol=1e-6)
    calls = [e.prim for j in distinct_jaxprs(mapped.jaxpr) for e in j.eqns if isinstance(e.prim, CallWithRules)]
    assert {rule.size for prim in calls for rule in prim.rules.batch} == {bound_size(0)}


def test_a_rule_that_maps_over_its_size() -> None:
    f: Any = fx.custom_vmap(lambda x, y: fnp.sin(x) * y)
    f.def_vmap(lambda size, mapped, x, y: (fx.vmap(lambda a, b: a * b, axis_size=size)(x, y) + 1000, True))
    for n in (0, 3):
        have: Any = fx.vmap(fx.trace(f, X[0], Y[0]), axis_size=n)
        np.testing.assert_allclose(have(X[:n], Y[:n]), X[:n] * Y[:n] + 1000)


def marked_rule() -> Fun:
    f: Any = fx.custom_vmap(lambda x: fnp.sum(fnp.sin(x)))
    f.def_vmap(lambda size, mapped, x: (fnp.sum(fnp.sin(x.reshape(-1)).reshape((size, -1)), 1) + 1000, True))
    found: Fun = f
    return found


@pytest.mark.parametrize("use", ["mapped", "of symbolic shape"])
def test_a_program_with_a_rule_in_the_rule_of_another(use: str) -> None:
    """Both rules bind a size with the same name. The other size is the batch size, or a dimension, of the program's
    rule."""
    inner: Any = fx.trace(marked_rule(), fx.Spec(() if use == "mapped" else "n", "float64"))
    of_stack: Any = fx.vmap(inner) if use == "mapped" else inner
    f: Any = fx.custom_vmap(lambda x: fnp.sin(x))
    f.def_vmap(lambda size, mapped, x: (of_stack(x) + size + fnp.cos(x), True))
    program, rows = fx.trace(f, X[0]), np.stack([X, 2 * X, X + 1, X - 1])
    once: Any = fx.vmap(program, axis_size=3)
    np.testing.assert_allclose(fx.interpret(once, X), fx.vmap(f)(X))
    for n in (3, 4):
        twice = fx.vmap(once, axis_size=n)
        np.testing.assert_allclose(fx.interpret(twice, rows[:n]), fx.vmap(fx.vmap(f))(rows[:n]))


def test_a_rule_of_any_size_is_masked() -> None:
    program = fx.trace(marked_rule(), fx.Spec("n"))
    x = np.arange(8, dtype="float32").reshape(2, 4)
    masked = fx.trace(lambda x, n: fx.mask(program)(x, sizes={"n": n}), x[0], np.int32(3))
    have = fx.interpret(fx.vmap(masked, (0, None), axis_size=2), x, np.int32(3))
    np.testing.assert_allclose(have, np.sin(x[:, :3]).sum(1) + 1000, rtol=1e-6)


def test_mask_drops_a_batch_rule_that_cannot_be_masked() -> None:
    f: Any = fx.custom_vmap(lambda x: fnp.sin(x))
    f.def_vmap(lambda size, mapped, x: (fx.pure_callback(lambda a: a, fx.Spec(x.shape, x.dtype), x), True))
    program = fx.trace(f, fx.Spec("n"))
    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose(fx.mask(program)(x, sizes={"n": 2}), [0, np.sin(x[1]), 0, 0])


def test_a_rule_that_branches_on_its_size() -> None:
    f: Any = fx.custom_vmap(lambda x: x)
    f.def_vmap(lambda size, mapped, x: ((x if size == 1 else x * size / (size - 1)), True))
    np.testing.assert_allclose(fx.vmap(f)(X[:1]), X[:1])
    np.testing.assert_allclose(fx.vmap(f)(X), X * 1.5)


MAPPED_LATER: dict[str, Callable[[Fun], Fun]] = {
    "alone": lambda f: f,
    "jit": fx.jit,
    "remat": fx.remat,
    "grad": lambda f: fx.grad(f, argnums=0),
    "jvp": lambda f: lambda x, y: fx.jvp(f, (x, y), (y, x))[1],
    "scan": lambda f: lambda x, y: lax.scan(lambda c, _: (f(c, y), None), x, None, length=2)[0],
    "branch": lambda f: lambda x, y: lax.cond(x > y, f, lambda x, y: x, x, y),
    "another map": lambda f: lambda x, y: fnp.sum(fx.vmap(f, in_axes=(None, 0))(x, fnp.stack([y, x]))),
    "beside a map": lambda f: lambda x, y: fnp.sum(fx.vmap(lambda z: f(x, y) + z)(fnp.stack([y, x]))),
}


@pytest.mark.parametrize("name", MAPPED_LATER)
@pytest.mark.parametrize("make", [lambda: counted_rule()[0], nested_rules], ids=["plain", "nested"])
def test_vmap_of_a_program_uses_the_batch_rule(name: str, make: Callable[[], Fun], tmp_path: Path) -> None:
    """vmap(trace(f)) equals vmap(f): nested, with unmapped arguments, after printing and parsing, and from a file."""
    f = MAPPED_LATER[name](make())
    program = fx.trace(f, X[0], Y[0])
    assert fx.text.parse(program.text()) is program.jaxpr
    fx.save(program, tmp_path / "f.fxad")
    read: Any = fx.load(tmp_path / "f.fxad")
    for in_axes in ((0, 0), (None, 0)):
        args = [a if at == 0 else a[0] for a, at in zip((X, Y), in_axes, strict=True)]
        want = fx.trace(fx.vmap(f, in_axes), *args)
        for p in (program, read):
            have = fx.vmap(p, in_axes, axis_size=3)
            np.testing.assert_allclose(fx.interpret(have, *args), fx.interpret(want, *args), rtol=1e-12)
    rows = np.stack([X, 2 * X])
    twice: Any = fx.vmap(fx.vmap(program, axis_size=3), (0, None), axis_size=2)
    np.testing.assert_allclose(
        fx.interpret(twice, rows, Y), fx.interpret(fx.trace(fx.vmap(fx.vmap(f), (0, None)), rows, Y), rows, Y)
    )


def triple(x: Any, y: Any) -> Any:
    return fnp.sin(x) * y * y, x * y * y, 2


def ruled_triple(factor: float = 3.0) -> Fun:
    """`triple` with a batch rule that multiplies by a factor, which shows where the rule is taken."""
    f: Any = fx.custom_vmap(triple)

    def rule(size: int, mapped: Any, x: Any, y: Any) -> Any:
        first, second, _ = triple(x, y)
        return (factor * first, factor * second, 2), (True, True, False)

    f.def_vmap(rule)
    found: Fun = f
    return found


def scaled(x: Any, y: Any) -> Any:
    first, second, _ = ruled_triple()(x, y)
    return first + 0.5 * second


def plainly(x: Any, y: Any) -> Any:
    first, second, _ = triple(x, y)
    return first + 0.5 * second


def along(f: Fun) -> Fun:
    return lambda x, y: fx.jvp(f, (x, y), (fnp.ones_like(x), 2.0 * fnp.ones_like(y)))[1]


DIFFERENTIATED: dict[str, Fun] = {
    "jvp": along,
    "jvp by one": lambda f: lambda x, y: fx.jvp(lambda x: f(x, y), (x,), (x,))[1],
    "grad": fx.grad,
    "grad by the other": lambda f: fx.grad(f, argnums=1),
    "linearize": lambda f: lambda x, y: fx.linearize(f, x, y)[1](x, y),
    "jit": lambda f: fx.jit(fx.grad(f)),
    "remat": lambda f: fx.grad(fx.remat(f)),
    "forward over reverse": lambda f: along(fx.grad(f)),
    "reverse over forward": lambda f: fx.grad(along(f)),
    "reverse over reverse": lambda f: fx.grad(fx.grad(f)),
    "transposed twice": lambda f: lambda x, y: fx.vjp(lambda t: fx.vjp(f, x, y)[1](t)[0], x)[1](y)[0],
    "forward twice": lambda f: along(along(f)),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
def test_derivatives_of_each_example_are_those_of_the_rule(name: str, in_axes: tuple[int | None, int | None]) -> None:
    args = [a if at == 0 else a[0] for a, at in zip((X, Y), in_axes, strict=True)]
    have, want = [fx.trace(fx.vmap(DIFFERENTIATED[name](f), in_axes), *args) for f in (scaled, plainly)]
    assert fx.text.parse(str(have.jaxpr)) is have.jaxpr
    typecheck(have.jaxpr)
    np.testing.assert_allclose(fx.interpret(have, *args), 3 * fx.interpret(want, *args), rtol=1e-12)
    twice = fx.trace(fx.vmap(fx.vmap(DIFFERENTIATED[name](scaled), in_axes), (None, None), axis_size=2), *args)
    np.testing.assert_allclose(fx.interpret(twice, *args)[1], 3 * fx.interpret(want, *args), rtol=1e-12)


def test_values_beside_derivatives_are_those_of_the_rule() -> None:
    f: Any = fx.custom_vmap(lambda x: x * x)
    f.def_vmap(lambda size, mapped, x: (3 * x * x, True))

    def grads(f: Any) -> Any:
        return fx.vmap(fx.grad(f))

    np.testing.assert_allclose(fx.grad(lambda x: fnp.sum(fx.vmap(f)(x)))(X), 6 * X)
    np.testing.assert_allclose(grads(f)(X), 6 * X)
    np.testing.assert_allclose(fx.vmap(fx.value_and_grad(f))(X)[0], 3 * X * X)
    f.defjvp(lambda primals, dots: (f(*primals), 5 * dots[0]))
    np.testing.assert_allclose(grads(f)(X), [5.0] * 3)


def test_a_batch_rule_that_calls_its_function_is_differentiated() -> None:
    f: Any = fx.custom_vmap(lambda x: fnp.sin(x))
    f.def_vmap(lambda size, mapped, x: (3.0 * lax.map(f, x), True))
    np.testing.assert_allclose(fx.vmap(fx.grad(f))(X), 3 * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(fx.vmap(fx.grad(fx.grad(f)))(X), -3 * np.sin(X), rtol=1e-12)


def test_a_batch_rule_that_closes_over_a_value() -> None:
    """The derivative of each example takes the rule of the example; the derivative by c differentiates the batch
    rule."""

    def slopes(c: Any) -> Any:
        f: Any = fx.custom_vmap(lambda x: fnp.sin(x) * c)
        f.def_vmap(lambda size, mapped, x: (3.0 * fnp.sin(x) * c, True))
        return fx.vmap(fx.grad(f))(X)

    two: Any = np.float64(2.0)
    np.testing.assert_allclose(fx.interpret(fx.trace(slopes, two), two), 6 * np.cos(X), rtol=1e-12)
    by_c = fx.trace(lambda c: fx.jvp(slopes, (c,), (c,))[1], two)
    np.testing.assert_allclose(fx.interpret(by_c, two), 6 * np.cos(X), rtol=1e-12)


def test_effects_happen_once_in_the_gradient_of_a_batched_function() -> None:
    seen: list[float] = []

    def noted(x: Any) -> Any:
        fx.debug_callback(lambda v: seen.append(float(np.sum(v))), x)
        return x * x

    f: Any = fx.custom_vmap(noted)
    f.def_vmap(lambda size, mapped, x: (noted(x), True))
    np.testing.assert_allclose(fx.jit(fx.vmap(fx.grad(f)))(X), 2 * X)
    assert seen == [pytest.approx(np.sum(X))]


def test_jit_under_vmap_is_traced_for_the_sizes_that_a_rule_needs() -> None:
    f, _ = counted_rule()
    traces: list[int] = []

    @fx.jit
    def g(x: Any, y: Any) -> Any:
        traces.append(1)
        return f(x, y)

    inner = fx.jit(lambda x, y: g(x, y))
    want = np.sin(X) * Y
    np.testing.assert_allclose(inner(X[0], Y[0]), want[0])
    for _ in range(2):
        np.testing.assert_allclose(fx.vmap(inner)(X, Y), want + 1000)
        np.testing.assert_allclose(fx.vmap(inner)(X[:2], Y[:2]), want[:2] + 1000)
        np.testing.assert_allclose(inner(X[0], Y[0]), want[0])
    assert len(traces) == 3, "once for each number of examples"

    traces.clear()

    @fx.jit
    def h(x: Any) -> Any:
        traces.append(1)
        return fnp.sin(x)

    for n in (1, 2, 3):
        fx.vmap(h)(X[:n])
    assert len(traces) == 1, "nothing asks"


def test_check_rule_checks_a_batch_rule_for_any_size() -> None:
    f, _ = counted_rule()
    with pytest.raises(AssertionError, match="of a stack of 3 differs"):
        check_rule(f, 0.3, 1.5)


# -------------------------------------------------------------------------------------------- how often it is traced


def test_rules_are_traced_where_the_function_is_called_and_once_under_jit() -> None:
    """A call of the function in a trace reads the values that its rule closes over; `jit` reads them once per types."""
    traced: list[str] = []

    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    @f.defjvp
    def f_jvp(primals: Any, dots: Any) -> Any:
        traced.append("jvp")
        return fnp.sin(*primals), fnp.cos(*primals) * dots[0]

    def three(g: Any) -> Any:
        return fx.trace(lambda x: g(g(g(x))), fx.Spec(()))

    each, once = three(f), three(fx.jit(f))
    assert traced == ["jvp"] * 4
    assert len({e.prim for e in each.jaxpr.eqns}) == 1, "equal rules are one program, transformed once"
    np.testing.assert_array_equal(fx.interpret(fx.grad(each), 0.5), fx.interpret(fx.grad(once), 0.5))


def test_a_rule_is_specialised_to_the_arguments_and_results_that_are_used() -> None:
    """The rule is traced once. A gradient runs and stores only the parts that its arguments and used results need."""

    @fx.custom_vjp
    def f(x: Any, y: Any, z: Any) -> Any:
        return fnp.sin(x) * y, fnp.tanh(z)

    def fwd(x: Any, y: Any, z: Any) -> Any:
        return f(x, y, z), (fnp.cos(x), fnp.sin(x), y, fnp.cosh(z))

    def bwd(res: Any, cts: Any) -> Any:
        cos, sin, y, cosh = res
        return cts[0] * y * cos, cts[0] * sin, cts[1] / cosh**2

    f.defvjp(fwd, bwd)

    def ops(argnums: Any, out: int) -> set[str]:
        program = fx.trace(lambda x, y, z: fnp.sum(f(x, y, z)[out]), X, X, X)
        jaxprs = fx.grad(program, argnums=argnums).jaxpr
        return {e.prim.name for j in fx.ir.distinct_jaxprs(jaxprs) for e in j.eqns} & {"sin", "cos", "tanh", "cosh"}

    assert ops(0, 0) == {"cos"}
    assert ops(1, 0) == {"sin"}
    assert ops((0, 1), 0) == {"sin", "cos"}
    assert ops(2, 1) == {"cosh"}


# -------------------------------------------------------------------------------------------------------- what is dead


def call_of(jaxpr: Jaxpr) -> CallWithRules:
    (prim,) = [e.prim for e in jaxpr.eqns if isinstance(e.prim, CallWithRules)]
    return prim


def test_dce_removes_unused_results_of_functions_with_rules() -> None:
    @fx.custom_vmap
    @fx.custom_jvp
    def f(x: Any, y: Any, k: Any) -> Any:
        return fnp.sin(x), fnp.exp(y) + k, k

    f.defjvp(lambda p, t: (f(*p), (fnp.cos(p[0]) * t[0], 2 * fnp.exp(p[1]) * t[1], None)))
    f.defvjp(lambda x, y, k: (f(x, y, k), (fnp.cos(x), fnp.exp(y))), lambda r, c: (c[0] * r[0], 2 * c[1] * r[1], None))
    f.def_vmap(3)(lambda size, mapped, *a: (f(*a), True))
    program = fx.trace(lambda x, y, k: f(x, y, k)[0], X[0], X[1], 2).jaxpr
    slim = transforms.dce(program)
    prim = call_of(slim)
    typecheck(slim)
    assert prim.body.in_avals == (program.ins[0].aval,)
    assert len(prim.body.outs) == 1
    assert [e.prim.name for p in prim.function.programs for e in p.jaxpr.eqns if e.prim.name == "exp"] == []
    assert transforms.dce(slim) is slim
    assert fx.text.parse(str(slim)) is slim
    second = transforms.dce(fx.trace(lambda x, y, k: f(x, y, k)[1], X[0], X[1], 2).jaxpr)
    assert call_of(second).function.perturbed == (True, False)
    tangent, _ = transforms.jvp(second, (False, True, False))
    args = [np.asarray(a) for a in (0.3, 1.5, np.int32(2), 1.0)]
    np.testing.assert_allclose(np.asarray(run(tangent, args)[1], np.float64), 2 * np.exp(1.5))


@share(2)
@given(cases(differentiable=True), st.sampled_from(["jvp", "vjp"]), st.lists(st.booleans(), max_size=6))
def test_dce_of_rules_changes_no_result_and_no_derivative(case: Case, kind: str, choose: list[bool]) -> None:
    b = Builder.like(case.program)
    outs = b(call_with_rule(case.program, kind), *b.ins)
    used = [v for v, c in zip(outs, [*choose, *[True] * len(outs)], strict=False) if c]
    whole = b.build(used, "ruled")
    slim = transforms.dce(whole)
    typecheck(slim)
    assert transforms.dce(slim) is slim
    assert differ(run(slim, case.args), run(whole, case.args), exact=True) == ""
    flags = differentiable_flags(case)
    inexact = [a for a in whole.out_avals if a.inexact]
    if any(flags) and inexact:
        operands = [*case.args, *random_tangents(inexact, case.seed)]
        found, want = [run(transforms.vjp_fused(j, flags), operands) for j in (slim, whole)]
        assert differ(found, want, exact=True, signs=False) == ""  # fewer zeros are added
        dots = [*case.args, *random_tangents([a for a, m in zip(whole.in_avals, flags, strict=True) if m], case.seed)]
        pairs = [transforms.jvp(j, flags) for j in (slim, whole)]
        assert pairs[0][1] == pairs[1][1]
        assert differ(run(pairs[0][0], dots), run(pairs[1][0], dots), exact=True) == ""
    typecheck(vmap_jaxpr(slim, 2, (0,) * len(slim.ins))[0])


# ------------------------------------------------------------------------------------------- arguments without tangents


def test_a_rule_for_tangents_is_not_traced_for_integers() -> None:
    """The same function takes floats and integers. Its rules multiply tangents, and integers have no tangents."""

    @fx.custom_jvp
    def twice(x: Any) -> Any:
        return 2 * x

    @fx.custom_vjp
    def thrice(x: Any) -> Any:
        return 3 * x

    twice.defjvp(lambda primals, tangents: (2 * primals[0], 2 * tangents[0]))
    thrice.defvjp(lambda x: (3 * x, None), lambda _, ct: (3 * ct,))
    for dtype in ("int32", "bool"):
        x = np.ones(3, dtype)
        np.testing.assert_array_equal(fx.jit(twice)(x), 2 * x)
        np.testing.assert_array_equal(fx.jit(fx.vmap(thrice))(x), 3 * x)
    np.testing.assert_array_equal(fx.jacfwd(twice)(X), 2 * np.eye(3))
    weighted = fx.grad(lambda x, n: fnp.sum(x * thrice(n)))
    np.testing.assert_array_equal(weighted(X, np.arange(3)), [0.0, 3.0, 6.0])


def test_a_call_of_invertible_keeps_its_tolerance_without_an_unused_result() -> None:
    f = fx.invertible(lambda x, y: (2 * x + 1, 3 * y), tolerance=0.25)
    program = fx.dce(fx.trace(lambda x, y: f(x, y)[0], X, Y)).jaxpr
    calls = [e.prim for body in distinct_jaxprs(program) for e in body.eqns if isinstance(e.prim, CallWithRules)]
    (call,) = calls
    assert len(call.body.outs) == 1
    assert tolerance_of(call) == 0.25


@pytest.mark.parametrize("n", [1, 2])
def test_a_result_that_does_not_vary_is_not_mapped(n: int) -> None:
    """The rule keeps a mapped residual for another operand. It does not affect the result."""
    f: Any = fx.custom_vjp(lambda x, y: (2 * y, x)[:n] if n > 1 else 2 * y)
    f.defvjp(lambda x, y: (f(x, y), x), lambda x, ct: (fnp.zeros_like(x), 2 * (ct[0] if n > 1 else ct)))
    out_axes = (None, 0) if n > 1 else None
    mapped = fx.vmap(f, (0, None), out_axes)

    def first(y: Any) -> Any:
        return mapped(X, y)[0] if n > 1 else mapped(X, y)

    np.testing.assert_array_equal(first(Y), 2 * Y)
    np.testing.assert_array_equal(fx.grad(lambda y: fnp.sum(first(y)))(Y), [2.0] * 3)


# --------------------------------------------------------------------------------------------------- pickles and copies


@fx.custom_jvp
def decorated(x: Any) -> Any:
    return 2 * x


@decorated.defjvp
def _decorated_jvp(primals: Any, tangents: Any) -> Any:
    return decorated(*primals), 3 * tangents[0]


def _plain(x: Any) -> Any:
    return 2 * x


def test_a_decorated_function_is_pickled_by_name() -> None:
    again = pickle.loads(pickle.dumps(decorated))
    assert again is copy.copy(decorated) is copy.deepcopy(decorated) is decorated


def test_another_function_with_rules_is_pickled_with_its_rules() -> None:
    custom = fx.custom_jvp(_plain)
    custom.defjvp(_decorated_jvp)
    for again in (pickle.loads(pickle.dumps(custom)), copy.copy(custom), copy.deepcopy(custom)):
        assert again is not custom
        assert fx.grad(again)(1.0) == 3.0


def test_arguments_without_derivative_are_told_apart_by_their_bits() -> None:
    """0.0 and -0.0, and (1,) and (True,), are equal in Python."""

    @partial(fx.custom_jvp, nondiff_argnums=(1,))
    def quotient(x: Any, by: float) -> Any:
        return x / fnp.full_like(x, by)

    @quotient.defjvp
    def tangent(by: float, primals: Any, tangents: Any) -> Any:
        return quotient(primals[0], by), tangents[0] * 0.0

    @fx.custom_jvp
    def both(x: Any) -> Any:
        return quotient(x, 0.0), quotient(x, -0.0)

    both.defjvp(lambda primals, tangents: (both(*primals), (tangents[0], tangents[0])))
    for f in (both, fx.jit(both)):
        assert [float(y) for y in f(fnp.ones(()))] == [np.inf, -np.inf]
