"""Errors of `remat`, its policies and plans, `residuals`, `partial_eval`, `checkpoint_name` and `checkpointed_scan`:
every message whole, with the user's line and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, policies
from fxad.errors import (
    ArgumentError,
    FxadError,
    NotDifferentiableError,
    ParameterError,
    ShapeError,
    TreeError,
    described,
)
from tests.api.refusals import refused

X = np.ones((3, 3), np.float32)


def loss(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * x)


def other(x: Any) -> Any:
    return fnp.sum(fnp.cos(fnp.exp(x)) * x)


def counted(x: Any, k: Any) -> Any:
    return x * k["n"]


def silent(eqn: Any) -> Any:
    """A predicate without a return value."""


def angry(eqn: Any) -> bool:
    raise ValueError("mine")


@dataclass
class Unhashable:
    def __call__(self, eqn: Any) -> bool:
        return True


PROGRAM, OTHER, COUNTED = fx.trace(loss, X), fx.trace(other, X), fx.trace(counted, X, {"n": np.int32(3)})
TABLE = fx.residuals(PROGRAM)
FOREIGN = fx.residuals(OTHER)[2]
GIVEN, SINE, COSINE, STRANGER = [
    f"{r.made_by} f32[3,3]" + (f" (test_memory_refusals.py:{r.where.line})" if r.where else "")
    for r in (*TABLE, FOREIGN)
]
untyped: Any = fx
policy: Any = policies
loop: Any = lax.checkpointed_scan
EDIT = "edit a table by without(...) and keep(...), which leave every row in its place"
ROWS = "rows are numbered from 0: table.without(*[k for k, r in enumerate(table) if ...])"
POLICY = "one of fxad.policies: nothing, everything, dots, names(...), where(predicate), ..."
ARRAY = "pass a NumPy array, an fxad Array, a Python or NumPy scalar, or an object with __dlpack__"
BOOLS = "one bool for each positional argument"

Case = tuple[Callable[[], object], type[FxadError], str, str]

POLICIES: list[Case] = [
    (lambda: untyped.remat(loss, policy=3), ArgumentError, "remat: an int is not a policy: 3", POLICY),
    (lambda: untyped.remat(loss, policy="pre"), ArgumentError, "remat: a str is not a policy: 'pre'",
     "policies.names(...) chooses by name"),
    (lambda: untyped.remat(loss, policy=policies.Dots), ArgumentError,
     "remat: an ABCMeta is not a policy: <class 'fxad.transforms.memory.policies.Dots'>",
     "make one of the class: Dots(...)"),
    (lambda: untyped.remat(loss, policy=len), ArgumentError,
     "remat: a builtin_function_or_method is not a policy: <built-in function len>",
     "policies.where(f) takes a function of an equation; one as in JAX takes (prim, *avals, **params)"),
    (lambda: untyped.remat(3), ArgumentError, "remat: an int is neither a Program nor a function: 3",
     "pass the function itself, or trace(f, *examples)"),
    (lambda: policy.dots | 3, ArgumentError, "|: an int is not a policy: 3", POLICY),
    (lambda: policy.dots & "a", ArgumentError, "&: a str is not a policy: 'a'", "policies.names(...) chooses by name"),
    (lambda: policies.dots and policies.everything, ArgumentError, "the policy dots is neither true nor false",
     "combine policies by |, & and ~, not by or, and, not"),
    (lambda: not policies.names("a"), ArgumentError, "the policy names('a') is neither true nor false",
     "combine policies by |, & and ~, not by or, and, not"),
    (lambda: policy.names(["a"]), ArgumentError, "names: a list is not a name: ['a']",
     'names("a", "b") takes strings'),
    (lambda: policy.names_except(None), ArgumentError, "names_except: a NoneType is not a name: None",
     'names_except("a", "b") takes strings'),
    (lambda: policy.where(3), ArgumentError, "where: an int is not a function: 3",
     "pass a function of an equation that returns a bool; policies.names(...) chooses by name"),
    (lambda: policy.where(silent, 3), ArgumentError, "where: the name is an int, not a str: 3", 'name="mine"'),
    (lambda: fx.remat(PROGRAM, policy=policies.where(silent)), ArgumentError,
     "remat: the policy where(silent) answers a NoneType, not a bool: None",
     "return True for what is stored and False for the rest; without a return a function gives None"),
    (lambda: untyped.checkpoint_name(X, 3), ArgumentError,
     "checkpoint_name: the name is an int, not a str: 3", 'checkpoint_name(x, "mlp")'),
    (lambda: fx.checkpoint_name({"a": X, "b": ["no"]}, "a"), ArgumentError,
     "checkpoint_name: x['b'][0]: a str is not an array: 'no'", ARRAY),
]  # fmt: skip

PLANS: list[Case] = [
    (lambda: fx.remat(PROGRAM, plan=TABLE, policy=policies.dots), ArgumentError,
     "remat: both a plan and the policy dots are given", "give one; a plan says of each value what"),
    (lambda: untyped.remat(PROGRAM, plan=list(TABLE)[:0]), ArgumentError,
     "remat: plan is a list, not what residuals(program) gives: []", "plan=residuals(program).without(k)"),
    (lambda: untyped.remat(PROGRAM, plan=TABLE, static_argnums=0), ArgumentError,
     "remat: loss is a Program, which has no static arguments",
     "remat the function, or give them to trace as static_argnames"),
    (lambda: untyped.remat(None, plan=TABLE), ArgumentError, "remat: a plan is for a Program, got None",
     "trace the function: remat(trace(f, *examples), ...)"),
    (lambda: fx.remat(OTHER, plan=TABLE), ArgumentError,
     f"remat: the plan is for another program: {PROGRAM.jaxpr!r}, this is {OTHER.jaxpr!r}",
     "make it with residuals(program) of this very program"),
    (lambda: fx.remat(PROGRAM, plan=replace(TABLE, rows=(*TABLE.rows[:2], FOREIGN))), ArgumentError,
     f"remat: row 2 of the plan is {STRANGER}, that of residuals(loss) is {COSINE}", EDIT),
    (lambda: fx.remat(PROGRAM, plan=replace(TABLE, rows=(TABLE[1], *TABLE.rows[1:]))), ArgumentError,
     f"remat: row 0 of the plan is {SINE}, that of residuals(loss) is {GIVEN}", EDIT),
    (lambda: fx.remat(PROGRAM, plan=replace(TABLE, rows=(replace(TABLE[0], stored=False), *TABLE.rows[1:]))),
     ArgumentError, f"remat: row 0 of the plan is {GIVEN}, computed again, that of residuals(loss) is {GIVEN}", EDIT),
    (lambda: fx.remat(PROGRAM, plan=replace(TABLE, rows=TABLE.rows * 2)), ArgumentError,
     "remat: the plan has 6 rows, residuals(loss) gives 3", EDIT),
    (lambda: fx.remat(PROGRAM, plan=replace(TABLE, rows=TABLE.rows[:1])), ArgumentError,
     "remat: the plan has 1 row, residuals(loss) gives 3", EDIT),
    (lambda: fx.remat(PROGRAM, plan=replace(TABLE, rows=untyped.tree.map(str, (1, 2, 3)))), ArgumentError,
     f"remat: row 0 of the plan is a str: '1', that of residuals(loss) is {GIVEN}", EDIT),
    (lambda: TABLE.without(0), ArgumentError,
     "residuals: row 0 is an argument of loss: it is stored by whoever passes it",
     "leave out rows that the program computes"),
    (lambda: TABLE.without(-1), ArgumentError, "residuals: row -1 does not exist: there are 3",
     "rows are numbered from 0, as print(table) shows them"),
    (lambda: untyped.residuals(PROGRAM).without("sin"), ArgumentError,
     "residuals: 'sin' is not the number of a row", ROWS),
    (lambda: TABLE.keep(True), ArgumentError, "residuals: True is not the number of a row", ROWS),
    (lambda: TABLE.keep(np.array(0.5)), ArgumentError, "residuals: array(0.5) is not the number of a row", ROWS),
    (lambda: TABLE.keep(np.array([0, 1])), ArgumentError, "residuals: array([0, 1]) is not the number of a row", ROWS),
    (lambda: untyped.residuals(3), ArgumentError, "residuals: takes a Program, got 3",
     "trace the function first: residuals(trace(f, *examples))"),
    (lambda: fx.residuals(PROGRAM, argnums=1), ArgumentError,
     "residuals: argnums 1 does not fit loss, which was given 1 positional argument",
     "pass what is to be chosen by position: keyword arguments have no number"),
    (lambda: fx.residuals(COUNTED, argnums=1), NotDifferentiableError,
     "residuals: argument k['n'] of counted has type i32[], which has no tangent",
     "choose other argnums, or convert the argument to a floating dtype"),
    (lambda: fx.partial_eval(PROGRAM, untyped), ArgumentError,
     f"partial_eval: known is {fx!r:.60}, not a sequence of bools", BOOLS),
    (lambda: untyped.partial_eval(PROGRAM, (1,)), ArgumentError, "partial_eval: known is (1,), not a sequence of bools",
     BOOLS),
    (lambda: fx.partial_eval(PROGRAM, ()), ArgumentError,
     "partial_eval: known has 0 entries, loss takes 1 positional argument",
     "one bool for each positional argument; keyword arguments are not known"),
    (lambda: untyped.partial_eval(None, (True,)), ArgumentError, "partial_eval: takes a Program, got None",
     "trace the function first: partial_eval(trace(f, *examples))"),
]  # fmt: skip

LOOPS: list[Case] = [
    (lambda: loop(lambda h, _: (h, h), X, None, 100, budget=5), ParameterError,
     "checkpointed_scan: a budget of 5 carries is too small for 100 steps",
     "at least 13 are needed; a step is computed again for each level of segments"),
    (lambda: loop(lambda h, _: (h, h), X, None, 100, budget=0), ParameterError,
     "checkpointed_scan: budget is 0, less than 1", "give an int from 1 on"),
    (lambda: loop(lambda h, _: (h, h), X, None, 100, budget=True), ArgumentError,
     "checkpointed_scan: budget is a bool, not an int: True", "budget is static: a Python int"),
    (lambda: loop(lambda h, _: (h, h), X, budget=5), ArgumentError,
     "checkpointed_scan: xs has no leaves to tell the number of steps", "give length"),
    (lambda: loop(lambda h, _: (h, h), X, {"a": 1.0}, budget=5), ShapeError,
     "checkpointed_scan: xs['a'] is f32[], without an axis to run over",
     "f may close over what is the same for all steps"),
    (lambda: loop(lambda h, _: (h, h), X, X, 4, budget=5), ShapeError,
     "checkpointed_scan: length is 4, xs is f32[3,3]", "leave out length"),
    (lambda: loop(lambda h, _: (h[0], h), X, X, budget=3), ShapeError,
     "checkpointed_scan: the carry changes its type: init is f32[3,3], f <lambda> returns f32[3] for it",
     "a loop has one shape for all steps: start from, and return, the same"),
    (lambda: loop(lambda h, _: h, X, X, budget=3), TreeError,
     "checkpointed_scan: f <lambda> returns *, not a pair (carry, result)",
     "return (carry, None) when there is nothing to collect"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message", "remedy"), [*POLICIES, *PLANS, *LOOPS])
def test_refusals(call: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    assert refused(call, error, message).remedy == remedy


def test_a_policy_without_a_hash_is_refused() -> None:
    predicate = Unhashable()
    found = refused(
        lambda: policies.where(predicate),
        ArgumentError,
        f"where: {described(predicate)} has no hash, and a policy is part of a key: {predicate!r:.60}",
    )
    assert found.remedy == "pass a function, or give the class a __hash__"


def test_an_exception_of_a_predicate_has_a_note_with_the_equation() -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        fx.remat(PROGRAM, policy=policies.dots | policies.where(angry))
    assert caught.value.__notes__ == [
        "raised by the policy where(angry) of remat, asked about the equation %0:f32[3,3] = sin %arg0:f32[3,3]"
    ]
    found = refused(
        lambda: fx.remat(PROGRAM, policy=policies.where(silent)),
        ArgumentError,
        "remat: the policy where(silent) answers a NoneType, not a bool: None",
    )
    assert found.equation == "%0:f32[3,3] = sin %arg0:f32[3,3]"
    assert found.where.startswith(f"{__file__}:")
    assert found.where.endswith(" in loss")


def test_a_predicate_may_return_a_bool_of_numpy() -> None:
    chosen = policy.where(lambda eqn: np.bool_(eqn.prim.name == "sin"), "sines")
    table = fx.residuals(fx.remat(PROGRAM, policy=chosen))
    assert [r.decided_by for r in table if not r.is_argument] == ["where(sines)"]


def test_rows_may_be_selected_by_integers_of_numpy() -> None:
    assert TABLE.without(*np.arange(1, 3)) == TABLE.without(1, 2)
    assert repr(TABLE) == "<Residuals of loss: 3 rows, 72 bytes beside the arguments>"
    assert repr(TABLE.without(np.int8(2))) == "<Residuals of loss: 3 rows, 36 bytes beside the arguments>"


def test_integer_leaves_of_an_argument_are_left_out() -> None:
    program = fx.trace(lambda state: fnp.sin(state["x"]) * state["count"], {"x": X, "count": np.int32(3)})
    assert fx.residuals(program, argnums=0) == fx.residuals(program)
    assert fx.residuals(program)[0].made_by == "cos"
