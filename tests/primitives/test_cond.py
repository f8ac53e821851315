"""The laws of cond: types, values, derivative, adjoint, batching, residuals, dead code, known predicates."""

from __future__ import annotations

import numpy as np
import pytest

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, DTypeError, FxadError, ParameterError, ShapeError
from fxad.ir import INT32_SCALAR, Atom, Aval, Eqn, Jaxpr, Lit, Primitive, Zero
from fxad.lower import lower_jaxpr
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Batching, Cond
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise import COS, EXP, MUL, NEG, SIN, SUB
from fxad.text import parse, to_text
from fxad.transforms import cse, dce, inline, simplify
from fxad.transforms.ad.jvp import jvp
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.ad.transpose import transpose
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program, same, xla

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

V = Aval((3,), "float64")


def branch(*steps: str, name: str = "branch") -> Jaxpr:
    """Returns x, y -> two results by recipes: `x y` are operands, `0 1` literals, other words are operations on x and
    y."""
    b = Builder()
    x, y = b.inputs((V, V))
    made: dict[str, Atom] = {"x": x, "y": y, "0": Zero(V).instantiate(), "1": Lit.of(1, V)}
    for word in steps:
        if word not in made:
            made[word] = {
                "sin": lambda: b.one(MUL, b.one(SIN, x), y),
                "exp": lambda: b.one(EXP, b.one(MUL, x, y)),
                "neg": lambda: b.one(NEG, x),
                "sub": lambda: b.one(SUB, x, y),
                "square": lambda: b.one(MUL, y, y),
            }[word]()
    return b.build([made[w] for w in steps], name)


def at(k: int) -> np.ndarray:
    return np.asarray(k, np.int32)


THREE = (branch("sin", "x"), branch("exp", "square"), branch("0", "1"))


@pytest.mark.parametrize("batched", ["select", "loop"])
@pytest.mark.parametrize("k", [-5, 0, 1, 2, 3, 100])
def test_laws(k: int, batched: Batching) -> None:
    check(Cond(THREE, batched), at(k), floats(3), floats(3))


def test_the_index_is_clamped() -> None:
    p = program(Cond(THREE), INT32_SCALAR, V, V)
    x, y = floats(3), floats(3) + 1
    for k in (-(2**31), -1, 0, 1, 2, 3, 2**31 - 1):
        want = run(THREE[min(max(k, 0), 2)], (x, y))
        same(run(p, (at(k), x, y)), want)
        same(xla(p, at(k), x, y), want)


def test_one_branch_is_a_call() -> None:
    p = program(Cond(THREE[:1]), INT32_SCALAR, V, V)
    assert "stablehlo.case" not in lower_jaxpr(p).pretty()
    check(Cond(THREE[:1]), at(4), floats(3), floats(3))


def test_branches_without_operands_and_without_results() -> None:
    constants = tuple([Jaxpr((), (), (Lit.of(k, V),)) for k in range(3)])
    check(Cond(constants), at(2), differentiate=False)
    nothing = program(Cond((Jaxpr((), (), ()),) * 2), INT32_SCALAR)
    assert run(nothing, (at(0),)) == ()
    assert xla(nothing, at(0)) == ()


# ---------------------------------------------------------------------------------------------------- differentiation


def linearized(prim: Primitive, *nonzero: bool) -> tuple[Eqn, Eqn]:
    split = linearize(program(prim, INT32_SCALAR, V, V), nonzero)
    (primal,), (linear,) = split.primal.eqns, split.linear.eqns
    return primal, linear


def test_branches_share_the_places_of_their_residuals() -> None:
    """sin has the residuals cos(x) and sin(x), exp has exp(x y). x and y are operands of the caller."""
    primal, linear = linearized(Cond(THREE), False, True, True)
    assert len(primal.outs) == 2 + 2
    # index, two tangents, the operands x and y, two shared places, exp(x y), which is a result of its branch
    assert len(linear.ins) == 1 + 2 + 2 + 1 + 2


def test_residuals_of_different_types_have_different_places() -> None:
    wide, long = Aval((2, 3), "float64"), Aval((3, 2), "float64")

    def of(aval: Aval) -> Jaxpr:
        b = Builder()
        x, y = b.inputs((wide, long))
        z = x if aval is wide else y
        outs: list[Atom] = [Zero(wide).instantiate(), Zero(long).instantiate()]
        outs[aval is long] = b.one(SIN, b.one(COS, z))
        return b.build(outs)

    split = linearize(program(Cond((of(wide), of(long))), INT32_SCALAR, wide, long), (False, True, True))
    stored = split.primal.out_avals[2:]
    assert stored.count(wide) == stored.count(long) == 2


def test_a_tangent_that_reaches_no_result_is_zero() -> None:
    prim = Cond((branch("y", "0"), branch("1", "square")))
    split = linearize(program(prim, INT32_SCALAR, V, V), (False, True, False))
    assert split.out_nonzero == (False, False)
    assert split.linear.eqns == ()
    assert jvp(program(prim, INT32_SCALAR, V, V), (False, True, False))[1] == (False, False)


def test_a_result_has_a_tangent_where_one_branch_gives_it_one() -> None:
    prim = Cond((branch("y", "0"), branch("1", "square")))
    forward, nonzero = jvp(program(prim, INT32_SCALAR, V, V), (False, False, True))
    assert nonzero == (True, True)
    x, y, dot = floats(3), floats(3) + 1, floats(3) + 2
    same(run(forward, (at(0), x, y, dot))[2:], (dot, np.zeros(3)))
    same(run(forward, (at(1), x, y, dot))[2:], (np.zeros(3), 2 * y * dot))


def test_linear_where_every_branch_is() -> None:
    linear = Cond((branch("neg", "sub"), branch("0", "y")))
    assert linear.linear_in((False, True, True))
    assert not linear.linear_in((True, True, True))
    assert not Cond((branch("neg", "sub"), branch("1", "y"))).linear_in((False, True, True))
    check(linear, at(0), floats(3), floats(3))
    check(linear, at(1), floats(3), floats(3))


def test_a_cotangent_that_is_zero_in_all_branches_is_no_result() -> None:
    adjoint = transpose(program(Cond((branch("neg"), branch("x"))), INT32_SCALAR, V, V), (False, True, True))
    (eqn,) = adjoint.eqns
    assert len(eqn.outs) == 1
    assert adjoint.outs[1] == Zero(V).instantiate()


def test_zero_cotangents_are_no_operands() -> None:
    b = Builder()
    ins = b.inputs((INT32_SCALAR, V, V))
    first, _ = b(Cond((branch("neg", "sub"), branch("x", "y"))), *ins)
    (eqn,) = transpose(b.build((first,)), (False, True, True)).eqns
    assert len(eqn.ins) == 2


# ----------------------------------------------------------------------------------------------------------- batching


def test_an_index_for_all_stays_one_cond() -> None:
    batched, dims = vmap(program(Cond(THREE), INT32_SCALAR, V, V), 4, (None, 0, None))
    assert eqns(batched) == ["cond"]
    assert dims == (0, 0)


def test_select_runs_all_branches_and_loop_runs_examples_in_order() -> None:
    picked, _ = vmap(program(Cond(THREE), INT32_SCALAR, V, V), 4, (0, 0, None))
    # two branches have slopes: for each, selections of the first example, of its row, of both operands
    assert [eqns(picked).count(name) for name in ("call", "select_n", "while", "scan")] == [3, 10, 0, 0]
    looped, _ = vmap(program(Cond(THREE, "loop"), INT32_SCALAR, V, V), 4, (0, 0, None))
    (eqn,) = looped.eqns
    assert isinstance(eqn.prim, Scan)
    assert [e.prim for e in eqn.prim.body.eqns] == [Cond(THREE, "loop")]
    index = np.array([2, 0, -1, 1], np.int32)
    xs, y = floats(4, 3), floats(3)
    same(run(picked, (index, xs, y)), run(looped, (index, xs, y)))
    same(xla(picked, index, xs, y), xla(looped, index, xs, y))


def test_results_are_batched_where_one_branch_varies() -> None:
    batched, dims = vmap(program(Cond((branch("x", "y"), branch("y", "y"))), INT32_SCALAR, V, V), 2, (None, 1, None))
    assert dims == (0, None)
    x, y = floats(3, 2), floats(3)
    same(run(batched, (at(0), x, y)), (x.T, y))
    same(run(batched, (at(1), x, y)), (np.stack([y, y]), y))


# ---------------------------------------------------------------------------------------------------------- rewriting


def test_dce_removes_dead_results_and_their_equations() -> None:
    b = Builder()
    ins = b.inputs((INT32_SCALAR, V, V))
    first, _ = b(Cond((branch("neg", "sin"), branch("x", "exp"))), *ins)
    (eqn,) = dce(b.build((first,))).eqns
    assert eqn.ins == ins[:2]
    assert len(eqn.outs) == 1
    assert isinstance(eqn.prim, Cond)
    assert [eqns(body) for body in eqn.prim.branches] == [["neg"], []]


def test_literals_move_into_the_branches() -> None:
    b = Builder()
    index, x = b.inputs((INT32_SCALAR, V))
    p = dce(b.build(b(Cond(THREE), index, x, Lit.of(2, V))))
    assert len(p.eqns[0].ins) == 2
    assert dce(p) is p
    same(run(p, (at(1), floats(3))), run(THREE[1], (floats(3), np.full(3, 2.0))))


def test_a_literal_index_selects_its_branch() -> None:
    b = Builder()
    x, y = b.inputs((V, V))
    p = simplify(b.build(b(Cond(THREE), Lit.of(7, INT32_SCALAR), x, y)))
    assert [e.prim for e in p.eqns] == [Call(simplify(THREE[2]))]
    assert eqns(inline(p)) == []


def test_equal_branches_become_a_call() -> None:
    p = simplify(program(Cond((branch("sin", "x"), branch("sin", "x"))), INT32_SCALAR, V, V))
    assert eqns(p) == ["call"]


def test_equal_conds_merge() -> None:
    b = Builder()
    ins = b.inputs((INT32_SCALAR, V, V))
    p = b.build((*b(Cond(THREE), *ins), *b(Cond(THREE), *ins)))
    assert eqns(cse(p)) == ["cond"]


def test_text() -> None:
    p = program(Cond(THREE, "loop"), INT32_SCALAR, V, V)
    assert parse(to_text(p)) is p
    assert 'cond[branches=(@branch, @branch#1, @branch#2), batched="loop"] %arg0, %arg1, %arg2' in to_text(p)


FITTING = "give what the bodies take, or trace the function again; nothing is converted silently"
TOGETHER = "the bodies of one equation belong together: trace the function again"


@pytest.mark.parametrize(
    ("prim", "avals", "error", "message", "remedy"),
    [
        (Cond(()), (INT32_SCALAR,), ParameterError, "cond: has no branch", "give at least one"),
        (
            Cond(THREE, "all"),  # type: ignore[arg-type]  # no word that it takes
            (INT32_SCALAR, V, V),
            ParameterError,
            "cond: batched is 'all'",
            "use 'select', 'loop' or 'apart'",
        ),
        (Cond(THREE), (INT32_SCALAR, V), ArgumentError, "cond: takes an index and 2 operands, got 2 in all", FITTING),
        (
            Cond(THREE),
            (Aval((), dtypes.bool_), V, V),
            DTypeError,
            "cond: the index must be i32[], got bool[]",
            FITTING,
        ),
        (Cond(THREE), (Aval((1,), "int32"), V, V), ShapeError, "cond: the index must be i32[], got i32[1]", FITTING),
        (
            Cond(THREE),
            (INT32_SCALAR, V, Aval((4,), "float64")),
            ShapeError,
            "cond: operand 1 is f64[4], its branches take f64[3]",
            FITTING,
        ),
        (
            Cond((THREE[0], Jaxpr((), (), ()))),
            (INT32_SCALAR,),
            ShapeError,
            "cond: branch 1 takes (), branch 0 takes (f64[3], f64[3])",
            TOGETHER,
        ),
        (
            Cond((THREE[0], branch("x"))),
            (INT32_SCALAR, V, V),
            ShapeError,
            "cond: branch 1 returns (f64[3]), branch 0 returns (f64[3], f64[3])",
            TOGETHER,
        ),
    ],
)
def test_messages(prim: Cond, avals: tuple[Aval, ...], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        prim.abstract_eval(*avals)
    assert (caught.value.message, caught.value.remedy) == (message, remedy)
