"""Memory of `invertible`: temporaries of the compiled gradient of unrolled networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import Jaxpr
from fxad.primitives.control.remat import Remat, is_opaque
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import Derivative
from fxad.testing import Case, cases, inversions
from fxad.testing.derivative_laws import check_same_derivatives
from fxad.testing.inversions import Inversion
from fxad.transforms.inversion.invertible import invertible
from fxad.transforms.memory.segments import in_segments
from tests.laws.budget import share

Layer: TypeAlias = Callable[[Any, Any, Any], Any]  # (a, b, w) -> (a, b)

N = 128
RNG = np.random.default_rng(0)
A, B = (0.1 * RNG.normal(size=(2, N, N))).astype(np.float32)
W = (0.05 * RNG.normal(size=(N, N))).astype(np.float32)


def sums(a: Any, b: Any, w: Any) -> Any:
    a = a + fnp.tanh(b)
    return a, b + fnp.sin(a)


def matrices(a: Any, b: Any, w: Any) -> Any:
    a = a + fnp.tanh(b @ w)
    return a, b + fnp.tanh(a @ w)


def real_nvp(a: Any, b: Any, w: Any) -> Any:
    a = a * fnp.exp(0.1 * fnp.tanh(b @ w)) + b @ w
    return a, b * fnp.exp(0.1 * fnp.tanh(a @ w)) + a @ w


def factors(a: Any, b: Any, w: Any) -> Any:
    a = a * (1.0 + 0.1 * fnp.sin(b))
    return a, b * (1.0 + 0.1 * fnp.cos(a))


def squashed(a: Any, b: Any, w: Any) -> Any:
    return fnp.tanh(a) * 2 + w, b


def stretched(a: Any, b: Any, w: Any) -> Any:
    return fnp.sinh(a) / 2 + w, b


def columns(a: Any, b: Any, w: Any) -> Any:
    a = a.at[:, ::2].add(fnp.tanh(a[:, 1::2]))
    return a.at[:, 1::2].add(fnp.sin(a[:, ::2])), b


def halves(a: Any, b: Any, w: Any) -> Any:
    u, v = a[:, : N // 2], a[:, N // 2 :]
    u = u + fnp.tanh(v)
    return fnp.concatenate([v + fnp.sin(u), u], axis=1), b


LAYERS = (sums, matrices, real_nvp, factors, squashed, stretched, columns, halves)


def unrolled(layer: Layer, depth: int) -> Callable[..., Any]:
    def chain(x: Any, w: Any) -> Any:
        return reduce(lambda x, _: layer(x[0], x[1], w), range(depth), x)

    return chain


def slope(f: Callable[..., Any]) -> fx.Program[..., Any]:
    """Returns the gradient of a scalar with respect to the state and the weights."""

    def loss(x: Any, w: Any) -> Any:
        a, b = f(x, w)
        return fnp.sum(a * b)

    return fx.trace(fx.grad(loss, (0, 1)), (A, B), W)


def temp_bytes(program: fx.Program[..., Any], units: Any = "auto") -> int:
    return fx.lower(program, units=units).compile().memory().temp_bytes


def computed_bytes(layer: Layer) -> int:
    """Returns the bytes of all values of one layer."""
    return sum([v.aval.nbytes for e in fx.trace(layer, A, B, W).jaxpr.eqns for v in e.outs])


def check_memory(layer: Layer, depth: int) -> None:
    few, many = [temp_bytes(slope(fx.invertible(unrolled(layer, d), keep="w"))) for d in (4, depth)]
    tables = 128 * depth  # of pointers, two a layer, of 64 bytes: XLA keeps one for each tuple that a call returns
    assert many <= few + computed_bytes(layer) + tables, f"{few} bytes with 4 layers, {many} with {depth}"


@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_temporaries_do_not_grow_with_depth(layer: Layer) -> None:
    check_memory(layer, 12)


@pytest.mark.deep
@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_temporaries_do_not_grow_to_64_layers(layer: Layer) -> None:
    check_memory(layer, 64)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_the_plain_program(layer: Layer) -> None:
    plain = unrolled(layer, 3)
    program = slope(fx.invertible(plain, keep="w"))
    assert is_opaque(program.jaxpr)
    want = fx.tree.leaves(fx.jit(slope(plain))((A, B), W))
    for found, right in zip(fx.tree.leaves(fx.jit(program)((A, B), W)), want, strict=True):
        tolerance = 1e-3 * float(np.max(np.abs(np.asarray(right))))
        np.testing.assert_allclose(found, right, rtol=0, atol=tolerance)


def test_second_derivatives_and_examples() -> None:
    def twice(f: Callable[..., Any]) -> Any:
        def inner(x: Any) -> Any:
            a, b = f(x, W)
            return fnp.sum(a * b)

        return fx.vmap(fx.grad(lambda x: fnp.sum(fx.grad(inner)(x)[0] * x[1])))

    plain, pair = unrolled(sums, 3), (np.stack([A, B]), np.stack([B, A]))
    want = fx.tree.leaves(fx.jit(twice(plain))(pair))
    for found, right in zip(fx.tree.leaves(fx.jit(twice(fx.invertible(plain, keep="w")))(pair)), want, strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-4 * float(np.max(np.abs(np.asarray(right)))))


# ------------------------------------------------------------------------------------------- loops, branches and chains


def in_a_loop(f: Callable[..., Any]) -> Callable[..., Any]:
    lean = fx.invertible(f, keep="w")
    return lambda x, w: lax.scan(lambda c, _: (lean(c, w), None), x, None, length=3)[0]


def around_a_loop(f: Callable[..., Any]) -> Callable[..., Any]:
    return fx.invertible(lambda x, w: lax.scan(lambda c, _: (f(c, w), None), x, None, length=3)[0], keep="w")


def around_a_branch(f: Callable[..., Any]) -> Callable[..., Any]:
    return fx.invertible(lambda x, w: lax.cond(w[0, 0] > 0, f, f, x, w), keep="w")


def twice(f: Callable[..., Any]) -> Callable[..., Any]:
    lean = fx.invertible(f, keep="w")
    return lambda x, w: lean(lean(x, w), w)


@pytest.mark.parametrize("place", [in_a_loop, around_a_loop, around_a_branch, twice], ids=lambda f: f.__name__)
def test_in_loops_branches_and_chains(place: Callable[..., Any]) -> None:
    few, many = [temp_bytes(slope(place(unrolled(sums, d))), "none") for d in (4, 12)]
    assert many <= few + computed_bytes(sums)


def test_gradients_of_weights_are_written_once() -> None:
    """Each layer has its own weights. Their gradients are results, and need no temporaries."""

    def chain(x: Any, ws: Any) -> Any:
        return reduce(lambda x, w: matrices(x[0], x[1], w), ws, x)

    def needs(depth: int) -> int:
        lean = fx.invertible(chain, keep="ws")
        energy = fx.grad(lambda ws, x: fnp.sum(lean(x, ws)[0]))
        return temp_bytes(fx.trace(energy, [W] * depth, (A, B)))

    assert needs(16) <= needs(4) + A.nbytes


# ----------------------------------------------------------------------------------------------------------- generated

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "tanh": lambda x, w: fnp.tanh(x),
    "sin": lambda x, w: 0.5 * fnp.sin(x),
    "product": lambda x, w: fnp.tanh(x @ w),
    "weighted": lambda x, w: fnp.cos(x) * w,
    "shifted": lambda x, w: 0.1 * fnp.roll(x, 1, axis=1),
}
MOVES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda a, g, w: a + g,
    "subtract": lambda a, g, w: w - a - g,
    "scale": lambda a, g, w: a * fnp.exp(0.1 * g) + g,
    "divide": lambda a, g, w: a / (2.0 + g),
    "arcsinh": lambda a, g, w: fnp.arcsinh(a) + g,
    "columns": lambda a, g, w: a.at[:, ::2].add(fnp.sin(a[:, 1::2])) + g,
}


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Draws a layer of one to three couplings of the two halves of the state."""
    couplings = st.tuples(st.sampled_from(sorted(MOVES)), st.sampled_from(sorted(FUNCTIONS)))
    moves = draw(st.lists(couplings, min_size=1, max_size=3))

    def layer(a: Any, b: Any, w: Any) -> Any:
        for move, function in moves:
            a, b = b, MOVES[move](a, FUNCTIONS[function](b, w), w)
        return a, b

    layer.__name__ = "_".join([f"{m}_{f}" for m, f in moves])
    return layer


@pytest.mark.deep
@settings(deadline=None, max_examples=12)
@given(layers())
def test_generated_couplings(layer: Layer) -> None:
    check_memory(layer, 64)


# ------------------------------------------------------------------------------------------------------------ segments


def check_in_segments(program: Jaxpr, args: Sequence[Any]) -> Jaxpr:
    """Divides a program into the shortest segments. The results are the same, bit for bit."""
    found = in_segments(program, (True,) * len(program.ins), 1)
    typecheck(found)
    for x, y in zip(run(found, args), run(program, args), strict=True):
        np.testing.assert_array_equal(x, y)
    return found


@share(4)
@given(cases(differentiable=True))
def test_any_program_in_segments(case: Case) -> None:
    check_same_derivatives(case, check_in_segments(case.program, case.args), 1e-6)


@share(2)
@given(inversions(depth=1, size=3))
def test_backward_programs_in_segments(case: Inversion) -> None:
    (call,) = [e.prim for e in invertible(case.program, case.kept).eqns if isinstance(e.prim, CallWithRules)]
    rng = np.random.default_rng(case.seed)
    (rule,) = call.rules.vjp
    assert isinstance(rule, Derivative)
    for program in (rule.forward, rule.push, *([] if rule.pull is None else [rule.pull])):
        check_in_segments(program, [np.asarray(rng.uniform(0.2, 0.8, a.shape), a.dtype) for a in program.in_avals])


def test_what_a_segment_computes() -> None:
    """A segment computes at most four times the bytes that are live at its start. It ends where the fewest bytes are
    live."""
    program = fx.trace(unrolled(sums, 6), (A, B), W).jaxpr
    found = in_segments(program, (True, True, False))
    bodies = [e.prim.body for e in found.eqns if isinstance(e.prim, Remat)]
    assert len(bodies) == len(found.eqns)
    assert [len(body.eqns) for body in bodies] == [8, 8, 8]
    assert {len(body.outs) for body in bodies} == {2}


def test_a_small_program_is_left_as_it_is() -> None:
    small = fx.trace(unrolled(sums, 8), (A[:1], B[:1]), W).jaxpr
    assert in_segments(small, (True,) * 3) is small
    (call,) = [e.prim for e in invertible(small, (False, False, True)).eqns if isinstance(e.prim, CallWithRules)]
    assert not any(map(is_opaque, call.bodies))
