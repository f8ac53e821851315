"""`custom_linear_solve`: derivatives of a solution by any solver, against a dense solve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, random
from fxad.ir import HigherOrder, Jaxpr
from fxad.primitives.implicit import LinearSolve
from tests.laws.budget import share

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 4)) + 4 * np.eye(4)  # not symmetric
B = RNG.normal(size=4)


def richardson(matvec: Callable[[Any], Any], b: Any) -> Any:
    """Richardson's iteration over trees, a loop without a bound: a solver without reverse mode."""

    def left(x: Any) -> Any:
        return fx.tree.map(lambda p, q: p - q, b, matvec(x))

    def going(x: Any) -> Any:
        return sum([fnp.sum(fnp.abs(r)) for r in fx.tree.leaves(left(x))]) > 1e-13

    return lax.while_loop(
        going, lambda x: fx.tree.map(lambda p, r: p + 0.2 * r, x, left(x)), fx.tree.map(fnp.zeros_like, b)
    )


def by_loop(a: Any, b: Any) -> Any:
    return lax.custom_linear_solve(lambda x: a @ x, b, richardson, richardson)


def by_library(a: Any, b: Any) -> Any:
    """Without `transpose_solve`: it is derived from `solve`."""
    return lax.custom_linear_solve(lambda x: a @ x, b, lambda _, b: fnp.linalg.solve(a, b))


def dense(a: Any, b: Any) -> Any:
    return fnp.linalg.solve(a, b)


def scalar(f: Any, a: Any, b: Any) -> Any:
    return fnp.sum(fnp.sin(f(a, b)))


def third_order(f: Any) -> Any:
    def g(a: Any, b: Any) -> Any:
        return scalar(f, a * (1 + b[0] / 9), b)

    return fx.jacfwd(fx.jacrev(fx.grad(g, argnums=1), argnums=1), argnums=1)


def count(jaxpr: Jaxpr, name: str) -> int:
    """Counts the equations of a primitive that run, in bodies too, without bodies that only transformations use."""
    found = 0
    for eqn in jaxpr.eqns:
        found += eqn.prim.name == name
        if isinstance(eqn.prim, LinearSolve):
            found += count(eqn.prim.solve, name)
        elif isinstance(eqn.prim, HigherOrder):
            found += sum([count(body, name) for body in eqn.prim.bodies])
    return found


def close(have: Any, want: Any, tolerance: float = 1e-9) -> None:
    pairs = zip(fx.tree.leaves(have), fx.tree.leaves(want), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def interpreted(f: Callable[..., Any], *args: Any) -> Any:
    """Returns the result of a function, interpreted. Compilations of solvers under derivatives would take most of the
    time of these tests, and another law compares compiled with interpreted programs."""
    return fx.interpret(fx.trace(f, *args), *args)


USES: dict[str, Callable[[Any], Callable[[Any, Any], Any]]] = {
    "value": lambda f: f,
    "jacfwd": lambda f: fx.jacfwd(f, argnums=(0, 1)),
    "jacrev": lambda f: fx.jacrev(f, argnums=(0, 1)),
    "hessian": lambda f: fx.hessian(lambda a, b: fnp.sum(fnp.sin(f(a, b))), argnums=(0, 1)),
    "reverse over reverse": lambda f: fx.jacrev(fx.grad(lambda a, b: fnp.sum(f(a, b) ** 3))),
    "forward over forward": lambda f: fx.jacfwd(fx.jacfwd(f, argnums=1), argnums=0),
    "third": third_order,
    "jvp of vjp": lambda f: lambda a, b: fx.jvp(lambda a, b: fx.vjp(f, a, b)[1](b), (a, b), (a, b))[1],
    "vmap over b": lambda f: lambda a, b: fx.vmap(f, in_axes=(None, 0))(a, fnp.stack([b, 2 * b, b**2])),
    "vmap over a": lambda f: lambda a, b: fx.vmap(f, in_axes=(0, None))(fnp.stack([a, 2 * a]), b),
    "vmap over both": lambda f: (
        lambda a, b: fx.vmap(f, in_axes=(2, 1), out_axes=1)(fnp.stack([a, 2 * a], axis=2), fnp.stack([b, b**2], axis=1))
    ),
    "vmap of grad": lambda f: (
        lambda a, b: fx.vmap(fx.grad(lambda a, b: fnp.sum(f(a, b) ** 2)), (0, None))(fnp.stack([a, 2 * a]), b)
    ),
    "grad of vmap": lambda f: fx.grad(lambda a, b: scalar(fx.vmap(f, (None, 0)), a, fnp.stack([b, b**2]))),
    "jit(grad(vmap))": lambda f: fx.jit(fx.grad(lambda a, b: scalar(fx.vmap(f, (None, 0)), a, fnp.stack([b, b**2])))),
    "remat": lambda f: fx.grad(lambda a, b: fnp.sum(fx.remat(f)(a, b) ** 2)),
    "in scan": lambda f: fx.grad(lambda a, b: fnp.sum(lax.scan(lambda c, _: (f(a, c), c), b, None, 3)[0])),
    "in cond": lambda f: fx.grad(lambda a, b: fnp.sum(lax.cond(b[0] < 0, f, lambda a, b: 2 * f(a, b), a, b))),
    "in while": lambda f: fx.jacfwd(lambda a, b: lax.while_loop(lambda c: fnp.sum(c**2) > 1e-4, lambda c: f(a, c), b)),
}


COMPILED = ("jacrev", "jit(grad(vmap))", "in while")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("solve", [by_loop, by_library])
def test_derivatives_are_those_of_the_solution(solve: Any, use: str) -> None:
    have, want = USES[use](solve), USES[use](dense)
    if solve is by_library and use in COMPILED:
        close(have(A, B), interpreted(want, A, B))
    else:
        close(interpreted(have, A, B), interpreted(want, A, B))


def test_the_solver_is_not_differentiated() -> None:
    """A value runs one loop, a gradient two, a second derivative four. No loop carries a tangent."""
    program = fx.trace(lambda a, b: fnp.sum(by_loop(a, b) ** 2), A, B)
    assert count(program.jaxpr, "while") == 1
    assert count(fx.grad(program).jaxpr, "while") == 2
    assert count(fx.jvp(program).jaxpr, "while") == 2
    twice = fx.trace(lambda a, b: fx.jvp(fx.grad(lambda a: fnp.sum(by_loop(a, b) ** 2)), (a,), (a,))[1], A, B)
    assert count(fx.dce(twice).jaxpr, "while") == 4
    solvers = {b for p in (program, fx.grad(program), fx.jvp(program)) for b in solvers_of(p.jaxpr)}
    assert len(solvers) == 2, "the solver and that of the transpose, whatever the transformation"


def solvers_of(jaxpr: Jaxpr) -> set[Jaxpr]:
    return {eqn.prim.solve for eqn in jaxpr.eqns if isinstance(eqn.prim, LinearSolve)}


def test_it_is_linear_in_b_and_transposing_twice_gives_it_back() -> None:
    program = fx.trace(lambda b: by_loop(A, b), B)
    (eqn,) = [e for e in program.jaxpr.eqns if isinstance(e.prim, LinearSolve)]
    back = fx.transpose(program)
    close(back(B), np.linalg.solve(A.T, B))
    (again,) = [e for e in fx.transpose(back).jaxpr.eqns if isinstance(e.prim, LinearSolve)]
    assert again.prim == eqn.prim
    split = fx.linearize(program)
    assert [e.prim for e in split.linear.jaxpr.eqns] == [eqn.prim]


def test_trees_and_auxiliary_results_of_any_dtype() -> None:
    b = {"u": B, "v": (B[:2] * 2).reshape(1, 2)}

    def matvec(a: Any) -> Callable[[Any], Any]:
        return lambda x: {"u": a @ x["u"] + fnp.sum(x["v"]), "v": 3 * x["v"] - x["u"][1]}

    def solve(mv: Any, b: Any) -> Any:
        return richardson(mv, b), {"n": 3, "on": True, "key": random.key(0), "z": fnp.sum(b["u"]) * 1j, "x": b["u"]}

    def f(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(matvec(a), b, solve, solve, has_aux=True)

    def whole(a: Any, b: Any) -> Any:
        flat, unravel = fx.tree.ravel(b)
        m = fx.jacfwd(lambda v: fx.tree.ravel(matvec(a)(unravel(v)))[0])(flat)
        return unravel(fnp.linalg.solve(m, flat))

    x, aux = f(A, b)
    close(x, whole(A, b))
    assert int(aux["n"]) == 3
    assert bool(aux["on"])
    modes: list[Any] = [fx.jacfwd, fx.jacrev]
    for mode in modes:
        close(interpreted(mode(lambda a: f(a, b)[0]), A), interpreted(mode(lambda a: whole(a, b)), A))
        close(interpreted(mode(lambda b: f(A, b)[0]), b), interpreted(mode(lambda b: whole(A, b)), b))

    def besides(b: Any) -> Any:
        return f(A, b)[1]

    def pushed(b: Any) -> Any:
        return fx.jvp(besides, (b,), (b,))[1]

    dots = interpreted(pushed, b)
    close([dots["x"], dots["z"]], [np.zeros(4), np.zeros(())])
    assert dots["n"] is None

    def scaled(s: Any) -> Any:
        return f(A, fx.tree.map(lambda v: s * v, b))

    both = interpreted(fx.vmap(scaled), np.array([1.0, 2.0]))
    close(both[0], fx.tree.map(lambda v: np.stack([np.asarray(v), 2 * np.asarray(v)]), x))
    assert both[1]["n"].shape == (2,)


def test_complex_systems_are_transposed_not_conjugated() -> None:
    a, b = A + 1j * RNG.normal(size=(4, 4)), B + 1j
    close(by_library(a, b), np.linalg.solve(a, b))
    close(fx.transpose(lambda b: by_library(a, b), b)(b), np.linalg.solve(a.T, b))
    close(fx.jvp(by_library, (a, b), (a, b))[1], np.zeros(4))


def test_symmetric_takes_the_solver_for_its_transpose() -> None:
    s = A @ A.T

    def f(a: Any, b: Any) -> Any:
        def solve(mv: Any, b: Any) -> Any:
            return lax.cg(mv, b, tol=1e-13)[0]

        return lax.custom_linear_solve(lambda x: a @ x, b, solve, symmetric=True)

    close(interpreted(fx.jacrev(f, argnums=(0, 1)), s, B), interpreted(fx.jacrev(dense, argnums=(0, 1)), s, B))


def test_solvers_may_close_over_differentiated_values() -> None:
    """Closed-over tracers that are differentiated: in the solver only, such as a guess; in all functions."""

    def f(s: Any) -> Any:
        m = s * A

        def solve(mv: Any, b: Any) -> Any:
            return fnp.linalg.solve(m + 0 * s, b)

        def back(mv: Any, c: Any) -> Any:
            return fnp.linalg.solve(m.T, c * s) / s

        return lax.custom_linear_solve(lambda x: m @ x, fnp.sin(s) * B, solve, back)

    def plain(s: Any) -> Any:
        return fnp.linalg.solve(s * A, fnp.sin(s) * B)

    for derive in (fx.jacfwd, fx.jacrev, lambda f: fx.jacrev(fx.jacfwd(f))):
        close(interpreted(derive(f), 1.3), interpreted(derive(plain), 1.3), 1e-5)


def test_numbers_and_zero_sizes() -> None:
    assert float(fx.grad(lambda b: lax.custom_linear_solve(lambda x: 4 * x, b, lambda mv, b: b / mv(1.0)))(2.0)) == 0.25
    empty = np.zeros((0,), np.float32)
    assert lax.custom_linear_solve(lambda x: 2 * x, empty, lambda mv, b: b).shape == (0,)


NAMES = ("jvp", "grad", "vmap", "remat")


@st.composite
def systems(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draws trees of arrays, and well-conditioned matrices over all of their elements, far from symmetric."""
    shapes = draw(st.lists(st.sampled_from([(), (1,), (3,), (2, 2), (0,), (1, 3)]), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    b = {f"leaf{k}": rng.normal(size=s) for k, s in enumerate(shapes)}
    n = sum(x.size for x in b.values())
    q = np.linalg.qr(rng.normal(size=(n, n)))[0] if n else np.zeros((0, 0))
    return q @ np.diag(rng.uniform(1, 3, n)) + np.triu(rng.normal(size=(n, n)), 1) * 0.3, b


@given(
    systems(),
    st.lists(st.sampled_from(["jvp", "grad", "vmap", "remat"]), max_size=3),
    st.sampled_from(["gmres", "bicgstab", "library"]),
)
@share(6)
def test_any_system_under_any_stack(system: tuple[Any, Any], stack: list[str], how: str) -> None:
    a, b = system

    def solved(given: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        def f(s: Any) -> Any:
            flat, unravel = fx.tree.ravel(fx.tree.map(lambda x: fnp.sin(s) * x, b))
            m = a * (1 + 0.1 * s)

            def matvec(x: Any) -> Any:
                return unravel(m @ fx.tree.ravel(x)[0])

            x = given(matvec, unravel(flat)) if given is not dense else unravel(fnp.linalg.solve(m, flat))
            return sum([fnp.sum(fnp.cos(v)) for v in fx.tree.leaves(x)])

        g = f
        for name in stack:
            g = STACK[name](g)
        return g

    def library(matvec: Any, b: Any) -> Any:
        flat, unravel = fx.tree.ravel(b)

        def solve(mv: Any, b: Any) -> Any:
            m = fx.jacfwd(lambda v: fx.tree.ravel(mv(unravel(v)))[0])(flat)
            return unravel(fnp.linalg.solve(m, fx.tree.ravel(b)[0]))

        return lax.custom_linear_solve(matvec, b, solve)

    ways: dict[str, Any] = {
        "library": library,
        "gmres": lambda mv, b: lax.gmres(mv, b, tol=1e-13)[0],
        "bicgstab": lambda mv, b: lax.bicgstab(mv, b, tol=1e-13)[0],
    }
    close(interpreted(solved(ways[how]), 0.7), interpreted(solved(dense), 0.7), 1e-7)


def _pushed(f: Any) -> Any:
    return lambda s: fx.jvp(f, (s,), (1.0 + s,))[1]


def _mapped(f: Any) -> Any:
    return lambda s: fnp.sum(fx.vmap(f)(fnp.stack([s, 2 * s])))


STACK: dict[str, Callable[[Any], Any]] = {"jvp": _pushed, "grad": fx.grad, "vmap": _mapped, "remat": fx.remat}
