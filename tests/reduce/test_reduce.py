"""`fx.reduce_program`: its steps, its result, its texts and files, and what it refuses."""

from __future__ import annotations

import functools
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, testing
from fxad.core.typecheck import typecheck
from fxad.diagnosis.reduce import edits, operand_values, retyped
from fxad.diagnosis.reduce.candidate import Candidate, candidate_size, equations, without_dead_code
from fxad.diagnosis.reduce.reading import read_candidate, with_operands
from fxad.diagnosis.reduce.recorded import BodyRuns
from fxad.diagnosis.reduce.source_code import code_of
from fxad.errors import ArgumentError, ExecutionError, FileFormatError
from fxad.ir import Atom, Jaxpr, distinct_jaxprs
from tests.reduce import predicates
from tests.reduce.planted import squash, wrong_jvp
from tests.reduce.predicates import gives_nan, has_tanh, pass_differs

Fails = Callable[[Any, Any], object]
X = np.array([0.5, 0.75, 1.0], np.float32)


def network(x: Any) -> Any:
    """Calls, a scan, a branch and a rematerialization; tanh is in the innermost body."""

    def inner(c: Any, w: Any) -> tuple[Any, Any]:
        c = fx.remat(lambda c: fnp.sin(c) * 0.5 + fx.jit(lambda c: fnp.tanh(c * 0.5) * 2)(c))(c)
        return c + w, fnp.cos(c)

    for _ in range(5):
        x = fnp.sin(x) + x * 0.25
    x, rows = lax.scan(inner, x, fnp.stack([x, x * 0.5, x * 0.25]))
    x = lax.cond(fnp.sum(x) > 0, lambda x: x * 2 + fnp.sum(rows), lambda x: x - 1, x)
    return fnp.sum(x * 1.5)


PROGRAM = fx.trace(network, X)


def messages(e: pytest.ExceptionInfo[Any]) -> str:
    return str(e.value)


# --------------------------------------------------------------------------------------------------------- reductions


def test_the_result_is_one_equation() -> None:
    small = fx.reduce_program(PROGRAM, pass_differs, (X,))
    assert small.reason == "differs"
    assert small.minimal
    assert small.before == equations(PROGRAM.jaxpr)
    assert [e.prim.name for e in small.jaxpr.eqns] == ["tanh"]
    assert pass_differs(small, small.args) == "differs"
    assert repr(small) == f"<Reduced {small.name}: 1 of {small.before} equations, fails: 'differs'>"
    assert isinstance(small, fx.Program)
    typecheck(small.jaxpr)


def test_it_prints_the_users_line_and_can_be_read_again() -> None:
    small = fx.reduce_program(PROGRAM, pass_differs, (X,))
    text = str(small)
    assert "test_reduce.py:" in text
    assert f"# fails: differs\n# 1 of {small.before} equations\n" in text
    program, args = testing.read_reduced(text)
    assert program.jaxpr is small.jaxpr
    assert pass_differs(program, args) == "differs"


def test_the_same_run_gives_the_same_program() -> None:
    first, second = (fx.reduce_program(PROGRAM, pass_differs, (X,)) for _ in range(2))
    assert first.jaxpr is second.jaxpr
    assert first.attempts == second.attempts
    assert str(first) == str(second)


def test_every_program_that_is_tried_is_well_typed_and_smaller() -> None:
    sizes = []

    def fails(program: Any, args: Any) -> str | None:
        typecheck(program.jaxpr)
        fx.interpret(program, *args)  # the arguments fit
        sizes.append(candidate_size(Candidate(program.jaxpr, (*program.bound, *args), len(program.bound))))
        return pass_differs(program, args)

    small = fx.reduce_program(PROGRAM, fails, (X,))
    assert max(sizes[2:]) < sizes[0]
    assert small.attempts + 2 < len(sizes) < 2 * small.attempts + 2  # twice at the start, and where it fails
    assert len(sizes) < 200


def test_a_program_that_fails_once_by_chance_is_not_taken() -> None:
    chance = set[Any]()

    def fails(program: Any, args: Any) -> str | None:
        if has_tanh(program, args):
            return "slow"
        by_chance = program.jaxpr not in chance
        chance.add(program.jaxpr)
        return "slow" if by_chance else None

    small = fx.reduce_program(PROGRAM, fails, (X,))
    assert chance
    assert [e.prim.name for e in small.jaxpr.eqns] == ["tanh"]


def test_no_step_makes_the_result_smaller() -> None:
    """1-minimal: every step from the result is passed over, gives another reason, or is not smaller."""
    small = fx.reduce_program(PROGRAM, two_sines, (X,))
    c = Candidate(small.jaxpr, small.args or ())
    run = next(iter(BodyRuns(c.jaxpr, c.values, np.inf).of(c.jaxpr)), {})
    steps: list[Candidate | None] = [
        *[edits.without_equations(c, k, k + 1, run) for k in range(len(c.jaxpr.eqns))],
        *[
            c.replace(edits.replaced(c.jaxpr, v, by))
            for k in range(len(c.jaxpr.eqns))
            for v, by in edits.other_values(c.jaxpr, k)
        ],
        *edits.merged_operands(c),
        *edits.literal_operands(c),
        *retyped.smaller_shapes(c),
        *retyped.smaller_parameters(c),
        *retyped.bypassed_equations(c),
        *retyped.plainer_dtypes(c),
        *operand_values.plainer_values(c),
    ]
    tried = 0
    for step in steps:
        form = None if step is None else without_dead_code(step)
        if (
            form is not None
            and candidate_size(form) < candidate_size(c)
            and all([np.isfinite(x).all() for x in form.args or ()])
        ):
            tried += 1
            assert two_sines(form.program(), form.args) != small.reason
    assert tried


def two_sines(program: Any, args: Any) -> str | None:
    """It needs two sines that are added, in one body."""
    for body in distinct_jaxprs(program.jaxpr):
        made: dict[Atom, str] = {v: e.prim.name for e in body.eqns for v in e.outs}
        if any([e.prim.name == "add" and any([made.get(a) == "sin" for a in e.ins]) for e in body.eqns]):
            return "sin and add"
    return None


def test_a_program_without_arguments_is_reduced_by_its_form() -> None:
    small = fx.reduce_program(PROGRAM, has_tanh)
    assert small.args is None
    assert [e.prim.name for e in small.jaxpr.eqns] == ["tanh"]
    program, args = testing.read_reduced(str(small))
    assert (program.jaxpr, args) == (small.jaxpr, None)


def test_a_jaxpr_is_reduced() -> None:
    small = fx.reduce_program(PROGRAM.jaxpr, pass_differs, (X,))
    assert len(small.jaxpr.eqns) == 1


def test_arrays_that_the_program_closes_over_stay() -> None:
    w = fnp.asarray(np.array([1.0, 2.0, 3.0], np.float32))
    program = fx.trace(lambda x: fnp.sum(fnp.tanh(x * w)) + fnp.sum(x), X)
    assert len(program.bound) == 1

    def fails(program: Any, args: Any) -> str | None:
        return pass_differs(program, args) if program.bound else None

    small = fx.reduce_program(program, fails, (X,))
    assert len(small.bound) == 1
    again, args = testing.read_reduced(str(small))
    assert np.array_equal(np.asarray(again.bound[0]), np.asarray(small.bound[0]))
    assert fails(again, args) == "differs"


def test_arguments_may_be_trees() -> None:
    params = {"w": X, "b": X * 2}
    program = fx.trace(lambda p, x: {"out": fnp.tanh(p["w"] * x + p["b"])}, params, X)
    small = fx.reduce_program(program, pass_differs_with_trees, (params, X))
    assert len(small.jaxpr.eqns) == 1


def pass_differs_with_trees(program: Any, args: Any) -> str | None:
    leaves = [np.asarray(x) for x in fx.tree.leaves(args)]
    return pass_differs(program, leaves)


def test_a_gradient_of_a_scalar_is_kept_differentiable() -> None:
    def fails(program: Any, args: Any) -> str | None:
        return pass_differs(fx.trace(fx.grad(program), *args), args)

    small = fx.reduce_program(fx.trace(lambda x: network(x) + fnp.sum(fnp.tanh(x)) ** 2, X), fails, (X,))
    assert small.equations <= 3
    assert small.jaxpr.out_avals[0].shape == ()


def test_a_symbolic_program_is_specialized() -> None:
    program = fx.trace(lambda x: fnp.sum(fnp.tanh(x) * 2), fx.Spec("(n,)"))

    def fails(program: Any, args: Any) -> str | None:
        return has_tanh(program, args)

    small = fx.reduce_program(program, fails)
    assert not small.jaxpr.symbolic
    assert len(small.jaxpr.eqns) == 1
    small = fx.reduce_program(program, pass_differs_at_sizes, (X,))
    assert not small.jaxpr.symbolic
    assert len(small.jaxpr.eqns) == 1


def pass_differs_at_sizes(program: Any, args: Any) -> str | None:
    faulty = program.replace(predicates.sines(program.jaxpr))
    same = np.allclose(fx.interpret(program, *args), fx.interpret(faulty, *args))
    return None if same else "differs"


def test_shapes_dtypes_and_values_get_plain() -> None:
    x = np.linspace(0.1, 0.9, 24).reshape(4, 6)

    def fails(program: Any, args: Any) -> str | None:
        return "product" if any([e.prim.name == "dot_general" for e in program.jaxpr.eqns]) else None

    small = fx.reduce_program(fx.trace(lambda x: fnp.sin(x) @ fnp.cos(x).T, x), fails, (x,))
    assert str(small.jaxpr.out_avals[0]) == "f32[1,1]"
    assert all([np.all(a == 0) for a in small.args or ()])


def test_a_loop_gets_short() -> None:
    """A fault that needs two steps of a loop keeps two."""
    xs = np.ones((8, 3), np.float32)

    def fails(program: Any, args: Any) -> str | None:
        loops = [e.prim for e in program.jaxpr.eqns if e.prim.name == "scan"]
        return "loop" if loops and loops[0].length >= 2 else None

    program = fx.trace(lambda x, xs: lax.scan(lambda c, x: (fnp.sin(c) + x, c * 2), x, xs), X, xs)
    small = fx.reduce_program(program, fails, (X, xs))
    (eqn,) = small.jaxpr.eqns
    assert eqn.prim.name == "scan"
    assert getattr(eqn.prim, "length", 0) == 2
    assert small.equations <= 2


def test_a_nan_is_where_it_is_computed() -> None:
    """A nan does not become an operand: the equation that makes it stays."""
    program = fx.trace(lambda x: fnp.sum(fnp.log(fnp.sin(x) - 2) * 2 + x), X)
    small = fx.reduce_program(program, gives_nan, (X,))
    assert [e.prim.name for e in small.jaxpr.eqns] == ["log"]


def test_a_fault_in_dead_code_keeps_it() -> None:
    b = fx.trace(lambda x: (fnp.sin(x), fnp.tanh(x * 2)), X).jaxpr
    dead = Jaxpr(b.ins, b.eqns, b.outs[:1], "dead")

    def fails(program: Any, args: Any) -> str | None:
        outs = set(program.jaxpr.outs) | {a for e in program.jaxpr.eqns for a in e.ins}
        return "dead" if any([e.prim.name == "tanh" and e.outs[0] not in outs for e in program.jaxpr.eqns]) else None

    small = fx.reduce_program(dead, fails, (X,))
    assert [e.prim.name for e in small.jaxpr.eqns] == ["tanh"]


# ------------------------------------------------------------------------------------------------------ the same reason


def test_another_reason_is_not_taken() -> None:
    """The whole program has two faults; the one with a smaller program is another."""

    def fails(program: Any, args: Any) -> str | None:
        names = [e.prim.name for e in program.jaxpr.eqns]
        if "tanh" in names and "sin" in names:
            return "tanh and sin"
        return "tanh" if "tanh" in names else None

    small = fx.reduce_program(fx.trace(lambda x: fnp.cos(fnp.tanh(fnp.sin(x) * 2)), X), fails, (X,))
    assert sorted([e.prim.name for e in small.jaxpr.eqns]) == ["sin", "tanh"]


def test_a_predicate_that_raises_for_smaller_programs_is_no_fault() -> None:
    def fails(program: Any, args: Any) -> str | None:
        if len(program.jaxpr.eqns) < 2:
            raise ValueError("too small")
        return "large"

    small = fx.reduce_program(fx.trace(lambda x: fnp.cos(fnp.tanh(fnp.sin(x))), X), fails, (X,))
    assert len(small.jaxpr.eqns) == 2


@pytest.mark.parametrize("reason", ["text", ValueError, (ValueError, "add"), ("signal", 11)])
def test_reasons(reason: object) -> None:
    small = fx.reduce_program(PROGRAM, lambda program, args: reason if len(program.jaxpr.eqns) else None, (X,))
    assert small.reason == reason
    assert len(small.jaxpr.eqns) == 1


def test_predicates_of_the_common_reasons() -> None:
    program = fx.trace(lambda x: fnp.log(x - 0.75), X)
    assert testing.gives_nan(program, (X,)) == "nan of log"
    assert testing.gives_nan(program, (X + 1,)) is None
    assert testing.gives_nan(program, (X * np.nan,)) is None
    ratio = fx.trace(lambda x: fx.remat(lambda x: fnp.log(x * 0) / fnp.log(x * 0))(x), X)
    assert testing.gives_nan(ratio, (X,)) == "nan of div after inf of log"
    small = fx.reduce_program(ratio, testing.gives_nan, (X,))
    assert sorted([e.prim.name for e in small.jaxpr.eqns]) == ["div", "log"]
    assert testing.compiled_differs(program, (X,)) is None
    assert testing.compiled_differs(PROGRAM, (X,)) is None
    squashed = fx.trace(lambda x: fnp.sum(squash("lower")(fnp.sin(x))), X)
    assert testing.compiled_differs(squashed, (X,)) == "compiled differs"
    assert [e.prim.name for e in fx.reduce_program(squashed, testing.compiled_differs, (X,)).jaxpr.eqns] == ["squash"]
    checked = fx.trace(lambda x: fx.error_if(x, x > 10, "large"), X)
    assert testing.compiled_differs(checked, (X,)) is None


# ----------------------------------------------------------------------------------------------------------- bad input


def test_a_predicate_that_does_not_fail() -> None:
    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(PROGRAM, lambda program, args: None, (X,))
    assert "reduce_program: network does not fail: fails(program, args) returns None" in messages(e)
    assert "give the program and the arguments that fail, and let fails return the reason" in messages(e)


def test_a_predicate_that_is_not_deterministic() -> None:
    reasons = iter(["one", "other"])
    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(PROGRAM, lambda program, args: next(reasons), (X,))
    assert "reduce_program: fails is not deterministic: it returned 'one', then 'other'" in messages(e)
    assert "fix its seeds, and leave numbers and texts of errors out of the reason" in messages(e)
    now_and_then = iter(["one", None])
    with pytest.raises(ArgumentError, match="not deterministic"):
        fx.reduce_program(PROGRAM, lambda program, args: next(now_and_then), (X,))


@pytest.mark.parametrize("reason", [True, 1.5, "", [1], np.float32(1), np.ones(3), ValueError("x")])
def test_what_is_no_reason(reason: object) -> None:
    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(PROGRAM, lambda program, args: reason, (X,))
    assert "reduce_program: fails returned" in messages(e)
    assert "which is not a reason: " in messages(e)
    assert "return a text such as 'nan', a class of errors, or a tuple of such values, or None" in messages(e)


def test_a_predicate_that_raises() -> None:
    def fails(program: Any, args: Any) -> str:
        raise ValueError("an error of the user")

    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(PROGRAM, fails, (X,))
    assert "reduce_program: fails raised ValueError: 'an error of the user'" in messages(e)
    assert "return a reason, such as type(error).__name__, or None if the program does not fail" in messages(e)


def test_a_predicate_that_needs_the_trees() -> None:
    program = fx.trace(lambda p: fnp.tanh(p["w"]), {"w": X})
    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(program, lambda p, args: "dict" if isinstance(args[0], dict) else "flat", ({"w": X},))
    assert "reduce_program: fails returns 'dict' for" in messages(e)
    assert ", and 'flat' for the same program with its arguments as flat arrays" in messages(e)
    assert "call program(*args) in fails, and do not rely on the trees of arguments and results" in messages(e)


def test_other_bad_arguments() -> None:
    with pytest.raises(ArgumentError, match="takes a Program"):
        fx.reduce_program(network, has_tanh)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="fails"):
        fx.reduce_program(PROGRAM, "fails")  # type: ignore[arg-type]
    for budget in (0, -1, float("nan")):
        with pytest.raises(ArgumentError) as e:
            fx.reduce_program(PROGRAM, has_tanh, budget_s=budget)
        assert f"reduce_program: budget_s is {budget}" in messages(e)
        assert "give a positive number of seconds" in messages(e)
    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(PROGRAM, has_tanh, X)
    assert "reduce_program: args is an ndarray" in messages(e).replace("a ndarray", "an ndarray")
    assert ", not the tuple of the arguments: " in messages(e)
    assert "give reduce_program(program, fails, (x, y)), or no args at all" in messages(e)
    with pytest.raises(fx.errors.FxadError, match="has shape"):
        fx.reduce_program(PROGRAM, has_tanh, (X[:2],))
    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(fx.trace(lambda *, x: fnp.tanh(x), x=X), has_tanh, ())
    assert "takes the keyword arguments x" in messages(e)
    assert "trace it with positional arguments: fx.trace(lambda x, y: program(x, name=y), x, y)" in messages(e)


def test_a_program_inside_of_a_trace() -> None:
    def f(x: Any) -> Any:
        inner = fx.trace(lambda y: fnp.tanh(y) * x, X)
        fx.reduce_program(inner, has_tanh)
        return x

    with pytest.raises(ArgumentError) as e:
        fx.trace(f, X)
    assert "of an enclosing trace" in messages(e)
    assert "reduce_program: " in messages(e)
    assert "closes over" in messages(e)
    assert "reduce the program of the whole function" in messages(e)


def test_an_interruption_returns_the_smallest_so_far() -> None:
    last = fx.reduce_program(PROGRAM, pass_differs, (X,)).attempts
    calls = 0

    def fails(program: Any, args: Any) -> str | None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise KeyboardInterrupt
        return pass_differs(program, args)

    small = fx.reduce_program(PROGRAM, fails, (X,))
    assert small.stopped == "interrupted"
    assert not small.minimal
    assert small.equations < small.before
    assert pass_differs(small, small.args) == "differs"
    assert "not minimal: interrupted" in str(small)


def test_the_budget_ends_the_search() -> None:
    small = fx.reduce_program(PROGRAM, pass_differs, (X,), budget_s=1e-9)
    assert small.stopped == "budget"
    assert small.equations == small.before
    assert pass_differs(small, small.args) == "differs"


# ------------------------------------------------------------------------------------------------------- texts of cases


@pytest.mark.parametrize(
    "x",
    [
        np.array([1.5, -0.0, np.nan, np.inf, 1e-45], np.float32),
        np.array([[1 + 2j, complex(np.nan, -0.0)]], np.complex128),
        np.array([True, False]),
        np.array([2**63 - 1, -(2**63)], np.int64),
        np.arange(500, dtype=np.float64).reshape(5, 100) / 7,
        np.full((100, 100), 2.5, np.float16),
        np.zeros((0, 3), np.int8),
        np.array(7, np.uint64),
        np.frombuffer(b"\x01\x00\xc0\x7f", np.float32),
    ],
)
def test_operands_are_read_bit_for_bit(x: Any) -> None:
    program = fx.trace(lambda x: x, x).jaxpr
    c = read_candidate(with_operands(Candidate(program, (x,))))
    assert c.jaxpr is program
    (y,) = c.args or ()
    assert (y.dtype, y.shape, y.tobytes()) == (x.dtype, x.shape, x.tobytes())


def test_texts_that_are_damaged() -> None:
    text = with_operands(Candidate(PROGRAM.jaxpr, (X,)))
    with pytest.raises(FileFormatError) as e:
        read_candidate(text.replace("# operand 0: f32[3] = 0.5,", "# operand 0: f32[3] = "))
    assert "reproduce: operand 0 of type f32[3] has elements that cannot be read: '0.75, 1.0'" in messages(e)
    assert "give the whole text, as it was printed" in messages(e)
    for elements in ("a, b, c", "bytes !!", "bytes 00", "complex(1, 2), 1.0, 2.0"):
        with pytest.raises(FileFormatError, match="cannot be read"):
            read_candidate(text.replace("0.5, 0.75, 1.0", elements))
    for other in ("# operand 1: f32[3]", "# operand 0: f32[2]"):
        with pytest.raises(FileFormatError) as e:
            read_candidate(text.replace("# operand 0: f32[3]", other))
        assert "reproduce: the text has operand " in messages(e)
        assert ", the program takes f32[3]" in messages(e)
    with pytest.raises(FileFormatError, match="reproduce: the text has no operand 0"):
        read_candidate(PROGRAM.text())
    with pytest.raises(ArgumentError, match="reproduce: an int is not a text: 3"):
        read_candidate(3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- as_test


def run_file(path: Path) -> dict[str, Any]:
    return runpy.run_path(str(path))


def test_the_file_fails_now_and_passes_without_the_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = fx.reduce_program(PROGRAM, pass_differs, (X,))
    path = tmp_path / "test_regression.py"
    small.as_test(path)
    text = path.read_text(encoding="utf-8")
    assert "from tests.reduce.predicates import pass_differs\n" in text
    test = run_file(path)["test_reduced"]
    with pytest.raises(AssertionError, match="it fails: 'differs'; when this test was written: 'differs'"):
        test()
    monkeypatch.setattr(predicates, "sines", lambda jaxpr: jaxpr)  # the fault is gone
    test()


def test_a_partial_and_a_child_are_written(tmp_path: Path) -> None:
    path = tmp_path / "test_regression.py"
    fx.reduce_program(PROGRAM, functools.partial(predicates.has, "tanh"), (X,)).as_test(path)
    assert "functools.partial(has, 'tanh')(program, args)" in path.read_text(encoding="utf-8")
    with pytest.raises(AssertionError, match="it fails: 'refuses tanh'"):
        run_file(path)["test_reduced"]()
    code = code_of(testing.in_child(has_tanh, 20, 10**9), PROGRAM.jaxpr)
    assert code.fails == "in_child(functools.partial(has, 'tanh'), seconds=20.0, memory=1000000000)"


def test_a_reason_with_quotes_is_written(tmp_path: Path) -> None:
    path = tmp_path / "test_regression.py"
    fx.reduce_program(PROGRAM, predicates.quotes, (X,)).as_test(path)
    with pytest.raises(AssertionError, match="when this test was written"):
        run_file(path)["test_reduced"]()


def test_primitives_from_outside_are_imported(tmp_path: Path) -> None:
    x = X.astype(np.float64)
    program = fx.trace(lambda x: squash("jvp")(x) * 2, x)
    path = tmp_path / "test_regression.py"
    fx.reduce_program(program, wrong_jvp, (x,)).as_test(path)
    text = path.read_text(encoding="utf-8")
    assert "from tests.reduce.planted import Squash\n" in text
    assert "read_reduced(TEXT, [Squash])" in text
    with pytest.raises(AssertionError, match="it fails: 'tangent'"):
        run_file(path)["test_reduced"]()


SCRIPT = """
import sys
import numpy as np
import fxad as fx
import fxad.numpy as fnp
from fxad.core.interpreter import run

LIMIT = 0.5
LIMITS = {"least": [-float("inf"), LIMIT], "most": (float("inf"),)}

def nans(xs):
    return any(LIMITS["most"][0] > np.isnan(x).mean() > LIMIT > LIMITS["least"][0] for x in xs)

def fails(program, args):
    return "nan" if nans(run(program.jaxpr, list(args))) else None

program = fx.trace(lambda x: fnp.sum(fnp.log(x - 2)), fx.Spec((3,)))
fx.reduce_program(program, fails, (np.zeros(3, "float32"),)).as_test(sys.argv[1])
"""


def test_functions_of_a_script_are_copied(tmp_path: Path) -> None:
    script, path = tmp_path / "script.py", tmp_path / "test_regression.py"
    script.write_text(SCRIPT, encoding="utf-8")
    subprocess.run([sys.executable, str(script), str(path)], check=True, cwd=Path(__file__).parents[2])
    text = path.read_text(encoding="utf-8")
    assert "def nans(xs):" in text
    assert "LIMIT = 0.5" in text
    assert """LIMITS = {'least': [float('-inf'), 0.5], 'most': (float('inf'), )}""" in text
    with pytest.raises(AssertionError, match="it fails: 'nan'"):
        run_file(path)["test_reduced"]()


def at_least(limits: Any, program: Any, args: Any) -> str | None:
    return "long" if len(program.jaxpr.eqns) >= limits[0] else None


def test_predicates_that_a_file_cannot_name(tmp_path: Path) -> None:
    path = tmp_path / "test_regression.py"

    def of_a_function(program: Any, args: Any) -> str | None:
        return has_tanh(program, args)

    for fails in (of_a_function, lambda program, args: has_tanh(program, args)):
        with pytest.raises(ArgumentError) as e:
            fx.reduce_program(PROGRAM, fails).as_test(path)
        assert "as_test: a file cannot name <function test_predicates_that" in messages(e)
        assert "it has no name in a module" in messages(e)
        assert (
            "define it with `def` at the top of a module, and read nothing but modules, functions and plain values"
            in messages(e)
        )
    assert not path.exists()
    main: dict[str, Any] = {"__name__": "__main__"}
    exec("def fails(program, args):\n    return 'x' if program.jaxpr.eqns else None\n", main)
    with pytest.raises(ArgumentError, match="its module __main__ has no source"):
        fx.reduce_program(PROGRAM, main["fails"]).as_test(path)
    with pytest.raises(ArgumentError, match=r"as_test: a file cannot name \(np.float64\(2.0\),\)"):
        fx.reduce_program(PROGRAM, functools.partial(at_least, (np.float64(2),))).as_test(path)
    calls = fx.trace(lambda x: fnp.tanh(fx.pure_callback(np.cos, fx.Spec((3,), "float64"), x)), np.zeros(3))
    with pytest.raises(ArgumentError, match="as_test: the program calls the Python function cos, which") as e:
        fx.reduce_program(calls, functools.partial(predicates.has, "host_call")).as_test(path)
    assert "write a test that traces the program, and calls `fails`" in messages(e)
    with pytest.raises(ArgumentError, match="is not the path of a file"):
        fx.reduce_program(PROGRAM, has_tanh).as_test(3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- a process of its own


def test_what_a_process_may_do() -> None:
    child = testing.in_child(predicates.ends, 3, 20_000_000)

    def at(way: str) -> Any:
        return child(PROGRAM, (np.full(3, predicates.WAYS.index(way), np.float32),))

    reasons = {
        "none": "tanh",
        "signal": "signal SIGSEGV",
        "exit": "exit 3",
        "time": "no result within 3 s",
        "memory": "more than 20000000 bytes",
    }
    assert {way: at(way) for way in reasons} == reasons
    assert at("none") == "tanh"  # the server is the same
    assert child(fx.trace(fnp.tanh, fx.Spec((1 << 23,), "float32")), (np.zeros(1 << 23, np.float32),)) == "tanh"
    assert child(fx.trace(fnp.sin, X), (X,)) is None
    with pytest.raises(ExecutionError) as e:
        at("raise")
    assert "in_child: the predicate raised ZeroDivisionError: by zero" in messages(e)
    assert "return a reason, or None" in messages(e)
    with pytest.raises(ArgumentError, match="guard the main module: if __name__ == '__main__'"):
        fx.reduce_program(PROGRAM, child, (np.full(3, predicates.WAYS.index("server"), np.float32),))
    small = fx.reduce_program(PROGRAM, child, (np.full(3, predicates.WAYS.index("signal"), np.float32),))
    assert [e.prim.name for e in small.jaxpr.eqns] == ["tanh"]
    assert small.reason == "signal SIGSEGV"
    with pytest.raises(ExecutionError) as e:
        at("server")
    assert "in_child: the process that calls " in messages(e)
    assert " has ended" in messages(e)
    assert "guard the main module: if __name__ == '__main__'; it is imported by that process" in messages(e)
    child.close()


def test_predicates_and_limits_that_a_process_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError) as e:
        testing.in_child(lambda program, args: None)
    assert "in_child: another process cannot import <function" in messages(e)
    assert "define it with `def` at the top of a module" in messages(e)
    limits: list[tuple[Any, Any]] = [(0, None), (-1, None), (1, 0), (1, 2.5)]
    for seconds, memory in limits:
        with pytest.raises(ArgumentError) as e:
            testing.in_child(has_tanh, seconds, memory)
        assert f"in_child: seconds is {seconds} and memory is {memory}" in messages(e)
        assert "give a positive number of seconds, and a positive int of bytes or None" in messages(e)
    monkeypatch.delattr("os.fork")
    with pytest.raises(ArgumentError) as e:
        testing.in_child(has_tanh)
    assert "in_child: the system linux has no fork, or none of its files on memory" in messages(e)
    assert "call the predicate in this process, or run the reduction on Linux" in messages(e)


def test_lines_of_an_equal_program_are_not_shown() -> None:
    """Equal programs are one object, with the lines of the first: that of `before` is no line of the whole program."""
    before = fx.reduce_program(fx.trace(lambda x: fnp.tanh(x), fx.Spec((), "float32")), has_tanh)

    def once(x: Any) -> Any:
        return fnp.sum(fnp.sin(fnp.tanh(x)) * fnp.cos(x))

    def twice(x: Any) -> Any:
        y = fnp.tanh(fnp.sum(x) + 1.0)
        return y + fnp.tanh(x)

    for f, line in ((once, f":{once.__code__.co_firstlineno + 1} in "), (twice, "")):
        small = fx.reduce_program(fx.trace(f, fx.Spec((3,), "float32")), has_tanh)
        assert small.jaxpr is before.jaxpr
        (text,) = [text for text in str(small).splitlines() if " = tanh " in text]
        assert line in text if line else "#" not in text


def test_predicates_take_trees_of_arguments() -> None:
    """Regression: `args` of a recorded call have the trees of the call."""
    program = fx.trace(lambda p, x: fnp.sum(fnp.log(p["w"] * x)), {"w": X}, 2.0)
    args = ({"w": -np.abs(X) - 1}, 2.0)
    assert testing.gives_nan(program, args) == "nan of log"
    assert testing.compiled_differs(program, args) is None
    small = fx.reduce_program(program, testing.gives_nan, args)
    assert [e.prim.name for e in small.jaxpr.eqns] == ["log"]
    with pytest.raises(ArgumentError) as e:
        fx.reduce_program(program, testing.gives_nan, ({"w": X}, X, X))
    assert "\\n" not in e.value.message
