"""Budgets on generated programs: layers, loops, branches, functions with custom rules, nested functions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.testing import Case, cases, check_budgets, check_recomputations, repeated_cases
from tests.laws.budget import share
from tests.laws.nested_blocks import KINDS, Tree, case_of, nested_kinds, trees

W = (np.arange(48 * 48, dtype=np.float32).reshape(48, 48) % 7 - 3) / 64
X = (np.arange(48 * 48, dtype=np.float32).reshape(48, 48) % 11 - 5) / 16


def product(x: Any) -> Any:
    return fnp.tanh(x @ W) + x


def elementwise(x: Any) -> Any:
    return fnp.sin(x) * fnp.exp(-(x**2)) + x


def loop(x: Any) -> Any:
    return lax.scan(lambda h, _: (fnp.tanh(h @ W) + h, None), x, None, length=12)[0]


def slices(x: Any) -> Any:
    total, ys = lax.scan(lambda h, row: (h + fnp.sin(row) * h, fnp.tanh(h) * row), x[0], x, reverse=True)
    return ys + total


def branch(x: Any) -> Any:
    return lax.cond(fnp.sum(x) > 0, lambda x: elementwise(product(product(x))), lambda x: fnp.sin(loop(x)), x)


def squares(x: Any) -> Any:
    return lax.scan(lambda h, _: (fnp.sin(h @ h) * 0.5 + fnp.exp(-(h**2)), None), x, None, length=12)[0]


# a rule closes over no value: the law differentiates with respect to all operands
@fx.custom_jvp
def with_jvp(x: Any) -> Any:
    return squares(x)


@with_jvp.defjvp
def _with_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dot,) = primals, tangents
    return fx.jvp(squares, (x,), (0.5 * dot,))


@fx.custom_vjp
def with_vjp(x: Any) -> Any:
    return fnp.sin(elementwise(x) @ x)


with_vjp.defvjp(lambda x: (fnp.sin(elementwise(x) @ x), fnp.tanh(x)), lambda h, ct: (ct * (1 - h * h),))


@fx.jit
def nested(x: Any) -> Any:
    return fx.jit(product)(fx.jit(elementwise)(x))


SHARES = (0.9, 0.75, 0.5, 0.25, 0.12, 0.06)
BLOCKS = {f.__name__: f for f in (product, elementwise, loop, slices, branch)}
BLOCKS |= {"with_jvp": with_jvp, "with_vjp": with_vjp, "nested": nested}


def chain(names: list[str], times: int) -> Case:
    """A chain of repeated blocks."""

    def network(x: fx.Array) -> fx.Array:
        for _ in range(times):
            for name in names:
                x = BLOCKS[name](x) * 0.5
        return fnp.sum(x)

    program = fx.trace(network, X)
    return Case(program.jaxpr, (*map(np.asarray, program.bound), X))


@pytest.mark.parametrize("name", ["product", "with_jvp"])
def test_chains_keep_to_budgets(name: str) -> None:
    check_budgets(chain([name], 2), (0.5,))


@pytest.mark.deep
@share(10)
@given(st.lists(st.sampled_from(sorted(BLOCKS)), min_size=1, max_size=3), st.integers(2, 5))
def test_compiled_gradients_keep_to_budgets(names: list[str], times: int) -> None:
    check_budgets(chain(names, times))


@pytest.mark.parametrize("name", ["slices", "branch", "with_vjp"])
def test_recomputations_keep_results(name: str) -> None:
    check_recomputations(chain([name], 2), [True, False, True, True] * 8)


@share(2)
@given(cases(differentiable=True) | repeated_cases(differentiable=True), st.lists(st.booleans(), max_size=12))
def test_recomputations_and_edited_plans_keep_results(case: Case, choose: list[bool]) -> None:
    check_recomputations(case, choose)


NESTED: list[Tree] = [
    ("vjp", "kept", ("scan", 12, "product")),
    ("scan", 13, ("jvp", ("repeat", 4, "chain"))),
    ("cond", ("rows", 12, "product"), ("vjp", "operands", ("scan", 12, "chain"))),
]


@pytest.mark.parametrize("tree", NESTED, ids=lambda tree: f"{tree[0]}-{tree[-1][0]}")
def test_loops_in_rules_and_rules_in_loops_keep_to_budgets(tree: Tree) -> None:
    check_budgets(case_of(tree, 1), (0.5,))


def test_generated_blocks_have_loops_in_rules_and_rules_in_loops() -> None:
    found: Counter[str] = Counter()

    @settings(max_examples=200, derandomize=True, database=None, phases=[Phase.generate])
    @given(trees())
    def draw(tree: Tree) -> None:
        found.update([kind for kind, count in nested_kinds(tree).items() if count])

    draw()
    assert min([found[kind] for kind in KINDS]) >= 10, found


@pytest.mark.deep
@share(10)
@given(trees(), st.integers(1, 3))
def test_nested_loops_rules_and_branches_keep_to_budgets(tree: Tree, times: int) -> None:
    check_budgets(case_of(tree, times), SHARES)


@share(20)
@given(cases(differentiable=True))
def test_budgets_of_any_program(case: Case) -> None:
    check_budgets(case, (0.5,))
