"""Chains of `invertible` blocks: only values that leave the chain are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.primitives.custom import CallWithRules
from fxad.testing import check_stack, stacks
from fxad.testing.derivative_laws import check_same_derivatives
from fxad.testing.inverse_state import Move
from fxad.testing.inversions import Inversion, inversion, inversions
from fxad.testing.programs import Case
from fxad.transforms import merge_invertible
from tests.laws.budget import share

POINTERS = 1024  # bytes for each layer: XLA stores a table of pointers for each segment
STATE = (np.ones((64, 16), np.float32), np.ones((64, 16), np.float32))
X = np.linspace(0.25, 1.0, 4)
W = np.linspace(-1.0, 0.5, 4)


def layer(x: Any, w: Any) -> Any:
    a, b = x
    a = a + fnp.tanh(b @ w)
    return a, b + fnp.tanh(a @ w)


def temp_bytes(f: Callable[..., Any], ws: Any) -> int:
    def loss(ws: Any, x: Any) -> Any:
        a, b = f(x, ws)
        return fnp.sum(a * b)

    return fx.lower(fx.trace(fx.grad(loss), ws, STATE)).compile().memory().temp_bytes


def block_by_block(x: Any, ws: Any) -> Any:
    for w in ws:
        x = fx.invertible(layer, keep="w")(x, w)
    return x


@pytest.mark.parametrize("most", [48, pytest.param(256, marks=pytest.mark.deep)])
def test_memory_does_not_grow_with_blocks(most: int) -> None:
    needs = {depth: temp_bytes(block_by_block, [np.eye(16, dtype=np.float32)] * depth) for depth in (8, 32, most)}
    assert needs[most] <= needs[32] + (most - 32) * POINTERS
    assert needs[32] < needs[8] + 2 * STATE[0].nbytes + 24 * POINTERS


def test_memory_does_not_grow_with_the_steps_of_a_loop_over_a_block() -> None:
    def looped(x: Any, ws: Any) -> Any:
        return lax.scan(lambda c, w: (fx.invertible(layer, keep="w")(c, w), None), x, ws)[0]

    def counted(x: Any, ws: Any) -> Any:
        return lax.fori_loop(0, len(ws), lambda i, c: fx.invertible(layer, keep="w")(c, ws[i]), x)

    for f in (looped, counted):
        few, many = [temp_bytes(f, np.ones((depth, 16, 16), np.float32)) for depth in (8, 256)]
        assert many - few <= (248 * 1024 if f is counted else 0)  # the gradient by `ws` is a carry


# ------------------------------------------------------------------------------------------------------------ gradients


def coupled(x: Any, w: Any) -> Any:
    return fnp.sinh(x * 0.5) + fnp.sin(w)


def step(x: Any, w: Any) -> Any:
    return fx.invertible(coupled, keep="w")(x, w)


def read_between(x: Any, w: Any) -> Any:
    y = step(x, w)
    z = step(y, w * 2)
    return step(z, fnp.cos(w)), fnp.sum(y)


def weights_between(x: Any, w: Any) -> Any:
    for k in range(3):
        w = fnp.sin(w) * (k + 1.0)
        x = step(x, w)
    return x


def around(x: Any, w: Any) -> Any:
    """The second block depends on the first one through an equation that is not inverted."""
    y = step(x, w)
    return step(y, fnp.sum(y**2) * w)


def crossed(x: Any, w: Any) -> Any:
    """Two chains. Each reads a value from the middle of the other."""
    a, b = step(x, w), step(x + 1.0, w)
    c = step(b, fnp.sin(a))
    return step(a, fnp.sin(c)), step(c, w)


def forked(x: Any, w: Any) -> Any:
    y = step(x, w)
    return step(y, w) + step(y, -w)


def half_used(x: Any, w: Any) -> Any:
    one = fx.invertible(lambda x, w: (x[0] + fnp.sin(x[1]) * w, x[1] * 2.0), keep="w")
    return one(one((x, x + w), w), w)[0]


def own_rule(x: Any, w: Any) -> Any:
    def root(y: Any, ct: Any) -> Any:
        x = fnp.arcsinh(y)
        return x, (ct * fnp.cosh(x),)

    f: Any = fx.custom_ivjp(fnp.sinh, root)
    return f(f(f(x * 0.25))) + w


def looped(x: Any, w: Any) -> Any:
    rows = fnp.stack([w, -w, w * 2])
    x, ys = lax.scan(lambda c, r: (step(c, r), fnp.sum(r)), x, rows)
    return step(lax.fori_loop(0, 3, lambda i, c: step(c, rows[i]), x), w), ys


def branched(x: Any, w: Any) -> Any:
    return lax.cond(w[0] > 0, lambda x: step(step(x, w), w), lambda x: step(x, -w), step(x, w))


def segmented(x: Any, w: Any) -> Any:
    return fx.remat(lambda x: step(step(x, w), w))(step(x, w))


def tolerant(x: Any, w: Any) -> Any:
    return step(fx.invertible(coupled, keep="w", tolerance=0.5)(x, w), w)


CHAINS = (
    read_between,
    weights_between,
    around,
    crossed,
    forked,
    half_used,
    own_rule,
    looped,
    branched,
    segmented,
    tolerant,
)


def plain(f: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> fx.Program[..., Any]:
    with monkeypatch.context() as m:
        m.setattr(fx, "invertible", lambda f, **_: f)
        return fx.trace(f, X, W)


@pytest.mark.parametrize("f", CHAINS, ids=lambda f: f.__name__)
def test_same_values_and_derivatives(f: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    program = fx.trace(f, X, W).jaxpr
    joined = merge_invertible(program)
    typecheck(joined)
    assert merge_invertible(joined) is joined
    for found, want in zip(run(joined, (X, W)), run(program, (X, W)), strict=True):
        np.testing.assert_array_equal(found, want)
    check_same_derivatives(Case(plain(f, monkeypatch).jaxpr, (X, W), 0, True), joined, 1e-7)


@pytest.mark.parametrize(
    ("f", "calls"),
    [(read_between, 1), (weights_between, 1), (around, 2), (crossed, 3), (forked, 1), (own_rule, 1), (tolerant, 2)],
)
def test_the_number_of_calls_after_merging(f: Callable[..., Any], calls: int) -> None:
    joined = merge_invertible(fx.trace(f, X, W).jaxpr)
    assert len([e for e in joined.eqns if isinstance(e.prim, CallWithRules)]) == calls


def test_a_program_without_chains_is_left_alone() -> None:
    program = fx.trace(lambda x, w: lax.scan(lambda c, r: (fnp.sin(c) * r, None), x, fnp.stack([w, w]))[0], X, W).jaxpr
    assert merge_invertible(program) is program


def test_the_values_that_are_stored() -> None:
    def loss(x: Any, w: Any) -> Any:
        return fnp.sum(weights_between(x, w))

    def states(program: fx.Program[..., Any]) -> list[str]:
        """Returns the stored results of blocks: each is made by a sum, or by the one call for all blocks."""
        return [r.made_by for r in fx.residuals(program) if r.made_by in ("add", "call_with_rules")]

    assert states(fx.trace(loss, X, W)) == ["call_with_rules"]


# ----------------------------------------------------------------------------------------------------- generated chains


def _wrapped(case: Inversion) -> Inversion:
    """Returns the same chain with an `invertible` around each link."""
    links = tuple([Move("invertible", bodies=((link,),)) for link in case.chain])
    return inversion(links, case.args, case.kept.count(False), case.turn, case.seed)


@share(4)
@given(inversions(depth=1))
def test_generated(case: Inversion) -> None:
    """A chain whose links are wrapped one by one has the derivatives of the plain chain."""
    joined = merge_invertible(_wrapped(case).program)
    typecheck(joined)
    check_same_derivatives(case.case, joined, 1e-6)


@share(4)
@given(inversions(depth=1, size=3), stacks(2))
def test_generated_stacks(case: Inversion, stack: tuple[str, ...]) -> None:
    links = _wrapped(case)
    check_stack(stack, links.over(merge_invertible(links.program), links.args))


def test_a_chain_over_arrays_without_elements() -> None:
    """Regression: their known values were literal zeros, which reverse over reverse took for zero cotangents."""
    args = (*[np.zeros(0)] * 3, np.zeros((0, 0)), np.asarray(False))
    case = inversion((Move("add", 0, 1), Move("add", 0, 1)), args, 2)
    check_same_derivatives(case.case, merge_invertible(_wrapped(case).program), 1e-6)


@pytest.mark.parametrize("inside", [Move("scale"), Move("call", bodies=((Move("scale"),),))], ids=["scale", "call"])
def test_a_zero_that_comes_back_as_a_rounding_error(inside: Move) -> None:
    """Regression: forward mode in a chain compared the zero with its reconstruction, which is a rounding error."""
    x, w = np.float32(0.0), np.float32(-1.2575278)
    args = tuple(map(np.asarray, (x, False, w, np.zeros((3, 3), np.float32), False)))
    case = inversion((Move("softplus"), Move("add"), inside, Move("add")), args, 2)
    check_same_derivatives(case.case, merge_invertible(_wrapped(case).program), 1e-6)


def test_effects_between_blocks_stay_in_order() -> None:
    """An effect that reads a value from inside of the chain stays before effects that do not."""
    said: list[str] = []

    def say(what: str, x: Any) -> None:
        fx.io_callback(lambda _: said.append(what), None, x, ordered=True)

    def f(x: Any, y: Any) -> Any:
        x = fx.invertible(block)(x)
        say("inside", x)
        say("beside", y)
        x = fx.invertible(block)(x)
        say("behind", x)
        y = y + x
        say("beside again", y)
        return fnp.sum(fx.invertible(block)(x) * y)

    def block(x: Any) -> Any:
        return fnp.sinh(x)

    want = ["inside", "beside", "behind", "beside again"]
    program = fx.trace(fx.grad(f), X, W)
    assert sum([isinstance(e.prim, CallWithRules) for e in merge_invertible(fx.trace(f, X, W).jaxpr).eqns]) == 1
    fx.lower(program).compile()(X, W)
    assert said == want
