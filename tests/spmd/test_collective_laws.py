"""Collectives in generated programs: vmap over a named axis equals runs of all indices in lockstep that exchange
values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

import fxad as fx
from fxad import lax
from fxad.core.interpreter import run
from fxad.core.typecheck import typecheck
from fxad.ir import HigherOrder, Jaxpr, Linear, Primitive
from fxad.primitives.collectives import COLLECTIVES, Collective, Grouped
from fxad.primitives.meshes import MeshAxes
from fxad.testing import Application, Case, calls, cases, check_text
from fxad.testing.collective_steps import COLLECTIVE_STEPS, collective_steps
from fxad.testing.compare import differ, inner_product_error, random_tangents, step_along, tangent_error
from fxad.testing.control_steps import branch_step, scan_step, while_step
from fxad.testing.derivative_laws import differentiable_flags
from fxad.testing.draw_collectives import MESHES
from fxad.testing.spmd_laws import (
    check_collective_gradients,
    check_collectives,
    check_devices,
    in_lockstep,
    mesh_of,
    over_axes,
    stacked_operands,
)
from fxad.testing.steps import GROWTH_STEPS
from fxad.transforms import jvp, transpose, vjp_fused
from fxad.transforms.vmap import vmap
from tests.laws.budget import share

every = pytest.mark.parametrize("kind", COLLECTIVES, ids=lambda kind: kind.name)
linear = pytest.mark.parametrize("kind", [k for k in COLLECTIVES if issubclass(k, Linear)], ids=lambda kind: kind.name)


def case_of(application: Application, seed: int = 0) -> Case:
    return Case(application.program, application.args, seed, application.smooth)


@every
def test_vmap(kind: type[Primitive]) -> None:
    @given(calls(kind))
    def law(application: Application) -> None:
        typecheck(application.program)
        check_text(application)
        assert check_collectives(case_of(application))

    law()


@every
def test_beside_another_axis(kind: type[Primitive]) -> None:
    """A batch axis, which the collective does not reduce, at any place."""

    @share(2)
    @given(calls(kind), st.integers(0, 2))
    def law(application: Application, dim: int) -> None:
        program = application.program
        if not program.ins:
            return
        at = min(dim, program.ins[0].aval.ndim)
        batched, (to,) = vmap(program, 2, (at,))
        args = stacked_operands(case_of(application))
        mesh = mesh_of(program)
        n = len(mesh)
        twice = [np.stack([a, a[::-1]], at + n) for a in args]
        (found,) = in_lockstep(batched, twice, mesh)
        for k in range(2):
            (want,) = in_lockstep(program, [np.take(a, k, at + n) for a in twice], mesh)
            assert to is not None
            assert not differ([np.take(found, k, to + n)], [want])

    law()


@linear
def test_transpose(kind: type[Primitive]) -> None:
    """<y_bar, A x_dot> = <A^T y_bar, x_dot> over the stacks of all indices; transposing twice is the identity."""

    @given(calls(kind, smooth=True), st.integers(0, 9))
    def law(application: Application, seed: int) -> None:
        program = application.program
        adjoint = transpose(program, (True,))
        assert transpose(adjoint, (True,)) is program
        mesh = mesh_of(program)
        whole, back = over_axes(program, mesh), over_axes(adjoint, mesh)
        dots, cts = random_tangents(whole.in_avals, seed), random_tangents(whole.out_avals, seed + 1)
        assert not inner_product_error(cts, run(whole, dots), run(back, cts), dots)

    law()


@every
def test_jvp(kind: type[Primitive]) -> None:
    @share(2)
    @given(calls(kind, smooth=True), st.integers(0, 9))
    def law(application: Application, seed: int) -> None:
        program = application.program
        if not any(a.inexact for a in program.in_avals):
            return
        args = stacked_operands(case_of(application))
        mesh = mesh_of(program)
        whole, forward = over_axes(program, mesh), over_axes(jvp(program, (True,))[0], mesh)
        dots = random_tangents(whole.in_avals, seed)
        found = run(forward, [*args, *dots])
        every = (True,) * len(dots)
        assert not tangent_error(lambda t: run(whole, step_along(args, dots, every, t)), found[1:])

    law()


on_meshes = pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: "x".join([str(n) for _, n in mesh]))


@pytest.mark.law
@on_meshes
def test_generated_programs(mesh: MeshAxes) -> None:
    @share(3)
    @given(cases(steps=collective_steps(mesh), size=6))
    def law(case: Case) -> None:
        check_collectives(case, mesh)

    law()


@pytest.mark.law
@on_meshes
def test_gradients_of_generated_programs(mesh: MeshAxes) -> None:
    @share(3)
    @given(cases(differentiable=True, steps=collective_steps(mesh), size=6))
    def law(case: Case) -> None:
        check_collective_gradients(case, mesh)

    law()


def test_few_generated_programs_are_refused() -> None:
    """Most generated programs have collectives, also in bodies, and vmap rejects few of them."""
    seen: list[tuple[bool, bool]] = []

    @settings(max_examples=40, derandomize=True, database=None, phases=[Phase.generate])
    @given(cases(steps=COLLECTIVE_STEPS, size=6))
    def look(case: Case) -> None:
        seen.append((check_collectives(case), bool(case.program.free_axes)))

    look()
    assert sum([done for done, _ in seen]) > 0.7 * len(seen)
    assert sum([done and free for done, free in seen]) > 0.4 * len(seen)


def _branch(x: Any) -> Any:
    return lax.cond(x > 0, lambda u: lax.psum(u, "i"), lambda u: u, x)


def _ring(x: Any) -> Any:
    """The number of steps is the same along axis i. A ppermute in XLA waits for the devices along j too."""
    steps = lax.axis_index("j")
    return lax.while_loop(lambda c: c[0] < steps, lambda c: (c[0] + 1, lax.ppermute(c[1], "i", [(0, 1)])), (0, x))[1]


@pytest.mark.parametrize("f", [_branch, _ring])
def test_programs_whose_devices_would_wait_are_not_run(f: Any) -> None:
    """XLA ends the process if devices wait for 40 s."""
    x: Any = np.array(1.0, np.float32)
    mesh: MeshAxes = (("i", 2), ("j", 2))
    case = Case(fx.trace(f, x, axis_env=dict(mesh)).jaxpr, (x,), 0, smooth=False)
    assert not check_devices(case, mesh, compiled=True)


def _roles(jaxpr: Jaxpr, inside: frozenset[str] = frozenset()) -> set[tuple[str, str]]:
    """Returns each collective of a program and its bodies with its roles: the primitives around it, several axes,
    groups."""
    found = set[tuple[str, str]]()
    for eqn in jaxpr.eqns:
        prim = eqn.prim
        if isinstance(prim, COLLECTIVES):
            found |= {(prim.name, role) for role in inside or {"program"}}
            if isinstance(prim, Collective) and len(prim.names) > 1:
                found.add((prim.name, "several axes"))
            if isinstance(prim, Grouped) and prim.groups:
                found.add((prim.name, "groups"))
        elif isinstance(prim, HigherOrder):
            for body in prim.bodies:
                found |= _roles(body, inside | {prim.name})
    return found


def test_the_generator_reaches_every_collective_in_every_role() -> None:
    """Only steps for collectives and control flow are drawn, so that few programs are enough."""
    found = set[tuple[str, str]]()
    steps = [*[step for step in COLLECTIVE_STEPS if step not in GROWTH_STEPS][:6], branch_step, scan_step, while_step]

    @settings(max_examples=90, derandomize=True, database=None, phases=[Phase.generate])
    @given(cases(steps=steps, size=12, depth=1), cases(differentiable=True, steps=steps, size=8, depth=0))
    def look(case: Case, smooth: Case) -> None:
        found.update(_roles(case.program))
        flags = differentiable_flags(smooth)
        if any(flags):
            found.update([(name, "transposed") for name, _ in _roles(vjp_fused(smooth.program, flags))])

    look()
    roles = {kind: ["program", "scan", "while", "cond", "call"] for kind in COLLECTIVES}
    for kind in COLLECTIVES:
        roles[kind] += ["several axes"] * issubclass(kind, Collective)
        roles[kind] += ["groups"] * issubclass(kind, Grouped)
        roles[kind] += ["transposed"] * issubclass(kind, Linear)
    assert not [(kind.name, role) for kind in COLLECTIVES for role in roles[kind] if (kind.name, role) not in found]


# For x of shape (n, n, ...): the expected results over axis 0, stacked; and the arguments of the collective.
IN_NUMPY: dict[str, tuple[Callable[[Any], Any], Callable[[int], dict[str, Any]]]] = {
    "psum": (lambda x: np.broadcast_to(np.sum(x, 0, x.dtype), x.shape), lambda n: {}),
    "pmax": (lambda x: np.broadcast_to(np.max(x, 0), x.shape), lambda n: {}),
    "pmin": (lambda x: np.broadcast_to(np.min(x, 0), x.shape), lambda n: {}),
    "all_gather": (lambda x: np.broadcast_to(x, (len(x), *x.shape)), lambda n: {}),
    "psum_scatter": (lambda x: np.sum(x, 0, x.dtype), lambda n: {}),
    "all_to_all": (lambda x: np.swapaxes(x, 0, 1), lambda n: {"split_axis": 0, "concat_axis": 0}),
    "ppermute": (lambda x: np.roll(x, 1, 0), lambda n: {"perm": [(k, (k + 1) % n) for k in range(n)]}),
}
SHAPES = st.lists(st.integers(0, 3), max_size=2)


@pytest.mark.parametrize("name", IN_NUMPY)
def test_a_collective_is_an_operation_of_numpy(name: str) -> None:
    want, arguments = IN_NUMPY[name]

    @given(st.integers(1, 8), SHAPES, st.sampled_from(["int32", "float64"]), st.integers(0, 1 << 20))
    def law(n: int, rest: list[int], dtype: str, seed: int) -> None:
        x = np.random.default_rng(seed).integers(-9, 9, (n, n, *rest)).astype(dtype)
        have = fx.vmap(lambda v: getattr(lax, name)(v, "i", **arguments(n)), axis_name="i")(x)
        np.testing.assert_array_equal(np.asarray(have), want(x))

    law()
