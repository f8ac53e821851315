"""Rules that do not fit their function: the errors name the rule, the path and both types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.builder import Builder
from fxad.errors import (
    ArgumentError,
    DTypeError,
    FxadError,
    NotDifferentiableError,
    NotLinearError,
    ParameterError,
    ShapeError,
    TreeError,
)
from fxad.ir import Aval, Jaxpr
from fxad.primitives.custom import CallWithRules
from fxad.primitives.custom_rules import BatchRule, Derivative, Function, Refusal, Rules
from fxad.primitives.linear_call import LinearCall
from fxad.testing import check_rule
from tests.api.refusals import check_refused

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

X = np.ones(3)


def f(x: Any, n: Any) -> Any:
    return {"y": x * 2, "n": n}


def jvp_rule(rule: Callable[..., Any]) -> fx.CustomFunction[..., Any]:
    made = fx.custom_jvp(f)
    rule.__name__ = "rule"
    made.defjvp(rule)
    return made


def vjp_rule(fwd: Callable[..., Any], bwd: Callable[..., Any]) -> fx.CustomFunction[..., Any]:
    made = fx.custom_vjp(f)
    fwd.__name__, bwd.__name__ = "fwd", "bwd"
    made.defvjp(fwd, bwd)
    return made


LINEAR = (
    "a derivative is linear in its direction; for a map that is so only as a whole, or that is to be taken for one, "
    "use lax.linear_call with as_whole=True"
)
TANGENTS: list[tuple[Callable[..., Any], type[FxadError], str, str]] = [
    (
        lambda p, t: f(*p),
        TreeError,
        "defjvp of f: rule returns {'n': *, 'y': *}, not a pair (results, tangents)",
        "return a tuple of two: (results, tangents)",
    ),
    (
        lambda p, t: (p[0], t[0]),
        TreeError,
        "defjvp of f: rule returns results *, f returns {'n': *, 'y': *}",
        "a rule gives the results of its function, in the same tree",
    ),
    (
        lambda p, t: (f(*p), (t[0],)),
        TreeError,
        "defjvp of f: rule returns the tangent (*,), it must be {'n': None, 'y': *} as the results",
        "a tangent has the structure of the results, with None for integers and bools, or where it vanishes",
    ),
    (
        lambda p, t: (f(*p), {"y": t[0], "n": 1.0}),
        DTypeError,
        "defjvp of f: rule returns a tangent of result['n'], which is i32[] and has none",
        "return None for it; an array of float0, or of zeros, is taken too",
    ),
    (
        lambda p, t: (f(*p), {"y": fnp.sum(t[0]), "n": None}),
        ShapeError,
        "defjvp of f: rule returns f64[] as tangent of result['y'], which is f64[3]",
        "return f64[3] there",
    ),
    (
        lambda p, t: (f(*p), {"y": t[0].astype("float32"), "n": None}),
        DTypeError,
        "defjvp of f: rule returns f32[3] as tangent of result['y'], which is f64[3]",
        "return f64[3] there: astype('float64')",
    ),
    (
        lambda p, t: (f(p[0].astype("float32"), p[1]), {"y": t[0], "n": None}),
        DTypeError,
        "defjvp of f: rule returns f32[3] for result['y'], which is f64[3]",
        "return f64[3] there: astype('float64')",
    ),
    (
        lambda p, t: (f(*p), {"y": t[0] * t[0], "n": None}),
        NotLinearError,
        "defjvp of f: rule is not linear in the tangents",
        LINEAR,
    ),
    (
        lambda p, t: (f(*p), {"y": t[0] + 1, "n": None}),
        NotLinearError,
        "defjvp of f: rule is not linear in the tangents",
        LINEAR,
    ),
    (
        lambda p, t: (f(*p), {"y": p[0], "n": None}),
        NotLinearError,
        "defjvp of f: rule is not linear in the tangents: result 0 is constant in them and not zero",
        "return zeros where nothing depends on the direction",
    ),
    (
        lambda p, t: (f(t[0], p[1]), {"y": t[0], "n": None}),
        NotLinearError,
        "defjvp of f: rule: result 1 depends on the tangents",
        "return (results, tangents of the results), in this order",
    ),
    (
        lambda p, t: (f(*p), {"y": lax.fori_loop(0, 2, lambda _, c: c * c, t[0]), "n": None}),
        NotLinearError,
        "defjvp of f: rule is not linear in the tangents",
        "a body here is not linear in its direction: leave out what is not, or use lax.linear_call with as_whole=True",
    ),
]


@pytest.mark.parametrize(("rule", "kind", "message", "remedy"), TANGENTS, ids=[c[2] for c in TANGENTS])
def test_rules_for_tangents(rule: Callable[..., Any], kind: type[FxadError], message: str, remedy: str) -> None:
    check_refused(lambda: fx.trace(jvp_rule(rule), X, 1), kind, message, remedy)


COTANGENTS: list[tuple[Callable[..., Any], Callable[..., Any], type[FxadError], str, str]] = [
    (
        lambda x, n: f(x, n),
        lambda r, ct: (ct["y"], None),
        TreeError,
        "defvjp of f: fwd returns {'n': *, 'y': *}, not a pair (results, residuals)",
        "return a tuple of two: (results, residuals)",
    ),
    (
        lambda x, n: (x, None),
        lambda r, ct: (ct["y"], None),
        TreeError,
        "defvjp of f: fwd returns results *, f returns {'n': *, 'y': *}",
        "a rule gives the results of its function, in the same tree",
    ),
    (
        lambda x, n: (f(fnp.sum(x), n), None),
        lambda r, ct: (ct["y"], None),
        ShapeError,
        "defvjp of f: fwd returns f64[] for result['y'], which is f64[3]",
        "return f64[3] there",
    ),
    (
        lambda x, n: (f(x, n), None),
        lambda r, ct: ct["y"],
        TreeError,
        "defvjp of f: bwd returns *, f has 2 arguments that its rule is about",
        "return a tuple with a cotangent for each argument, None where it has none",
    ),
    (
        lambda x, n: (f(x, n), None),
        lambda r, ct: (ct["y"], 1.0),
        DTypeError,
        "defvjp of f: bwd returns a cotangent of n, which is i32[] and has none",
        "return None for it; an array of float0, or of zeros, is taken too",
    ),
    (
        lambda x, n: (f(x, n), None),
        lambda r, ct: ((ct["y"], ct["y"]), None),
        TreeError,
        "defvjp of f: bwd returns the cotangent (*, *), it must be * as the argument",
        "a cotangent has the structure of the argument, with None for integers and bools, or where it vanishes",
    ),
    (
        lambda x, n: (f(x, n), None),
        lambda r, ct: (fnp.sum(ct["y"]), None),
        ShapeError,
        "defvjp of f: bwd returns f64[] as cotangent of x, which is f64[3]",
        "return f64[3] there",
    ),
    (
        lambda x, n: (f(x, n), None),
        lambda r, ct: (fnp.clip(ct["y"], -1, 1), None),
        NotLinearError,
        "defvjp of f: bwd is not linear in the cotangents",
        LINEAR,
    ),
]


@pytest.mark.parametrize(("fwd", "bwd", "kind", "message", "remedy"), COTANGENTS, ids=[c[3] for c in COTANGENTS])
def test_rules_for_cotangents(
    fwd: Callable[..., Any], bwd: Callable[..., Any], kind: type[FxadError], message: str, remedy: str
) -> None:
    check_refused(lambda: fx.trace(vjp_rule(fwd, bwd), X, 1), kind, message, remedy)


def test_an_equation_that_is_not_linear_is_named_with_its_line() -> None:
    with pytest.raises(NotLinearError) as e:
        fx.trace(jvp_rule(lambda p, t: (f(*p), {"y": fnp.exp(t[0]), "n": None})), X, 1)
    assert "exp" in str(e.value)
    assert "test_rule_errors.py" in str(e.value)


def test_a_rule_has_no_derivative_with_respect_to_closed_over_values() -> None:
    def outer(x: Any) -> Any:
        @fx.custom_jvp
        def scaled(y: Any) -> Any:
            return y * x * 0.3125  # no other test traces an equal body, which might have its name

        scaled.defjvp(lambda p, t: (p[0] * x * 0.3125, t[0] * x * 0.3125))
        return fnp.sum(scaled(x))

    with pytest.raises(NotDifferentiableError) as e:
        fx.grad(outer)(X)
    assert "scaled or its rule closes over a value of type f64[3] (operand 0) that depends on" in str(e.value)
    assert "stop_gradient" in str(e.value)


def test_a_batch_rule_alone_allows_derivatives_with_respect_to_closed_over_values() -> None:
    def outer(x: Any) -> Any:
        scaled = fx.custom_vmap(lambda y: y * x)
        scaled.def_vmap(3)(lambda size, mapped, y: (y * x, True))
        return fnp.sum(scaled(x))

    np.testing.assert_allclose(np.asarray(fx.grad(outer)(X)), 2 * X)


def test_arguments() -> None:
    with pytest.raises(ArgumentError, match="custom_jvp: an int is neither a Program nor a function"):
        fx.custom_jvp(3)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match=r"custom rules of f: nondiff_argnums \(-1,\) has -1"):
        fx.custom_jvp(f, nondiff_argnums=(-1,))
    untyped: Any = fx.custom_jvp
    with pytest.raises(ArgumentError, match="custom rules of f: nondiff_argnums is 0, not a sequence of numbers"):
        untyped(f, nondiff_argnums=0)
    beyond: Any = fx.custom_jvp(f, nondiff_argnums=(5,))
    beyond.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    with pytest.raises(ArgumentError, match=r"^f: nondiff_argnums has 5, and it is called with 2 arguments\n"):
        fx.trace(beyond, X, X)
    with pytest.raises(ArgumentError, match=r"custom_vjp: nondiff_argnums \(0,\) differs from \(1,\)"):
        fx.custom_vjp(fx.custom_jvp(f, nondiff_argnums=(1,)), nondiff_argnums=(0,))
    with pytest.raises(ParameterError, match="def_vmap of f: no axis size is given"):
        fx.custom_vmap(f).def_vmap()
    with pytest.raises(ParameterError, match="def_vmap of f: -1 is not an axis size"):
        fx.custom_vmap(f).def_vmap(-1)
    with pytest.raises(ArgumentError, match="defjvps of f: not with nondiff_argnums"):
        fx.custom_jvp(f, nondiff_argnums=(1,)).defjvps(None)
    with pytest.raises(ArgumentError, match="check_rule: a CustomFunction has no rules"):
        check_rule(fx.custom_jvp(f), X, 1)
    made = fx.custom_jvp(lambda x, *, k: x)
    made.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(ArgumentError, match="has arguments that are given by keyword only: k"):
        fx.trace(lambda x: made(x, k=1), X)
    with pytest.raises(ArgumentError, match=r"f: missing a required argument: 'n'"):
        fx.trace(jvp_rule(lambda p, t: (f(*p), None)), X)
    with pytest.raises(ArgumentError, match=r"f: n: a str is not an array"):
        fx.trace(lambda x: jvp_rule(lambda p, t: (f(*p), None))(x, "one"), X)
    three = fx.custom_jvp(f)
    three.defjvps(None)
    with pytest.raises(ArgumentError, match="defjvps of f: has 1 rules for 2 arguments"):
        fx.trace(three, X, 1)


def test_rules_for_stacks() -> None:
    made = fx.custom_vmap(f)
    made.def_vmap(2)(lambda size, mapped, x, n: (f(x[0], n), True))
    with pytest.raises(ShapeError, match=r"returns f64\[3\] as stack of result\['y'\], which is f64\[2,3\]"):
        fx.trace(made, X, 1)
    made.def_vmap(2)(lambda size, mapped, x, n: (f(x, n), {"y": False, "n": True}))
    with pytest.raises(ShapeError, match=r"for result\['y'\], which is f64\[3\], and is no stack by out_batched"):
        fx.trace(made, X, 1)


def test_rules_with_wrong_signatures() -> None:
    def one(x: Any) -> Any:
        return x

    def back(r: Any, ct: Any) -> Any:
        return ct["y"], None

    def stacks() -> Any:
        made = fx.custom_vmap(f)
        made.def_vmap(2)(one)
        return made

    def inverse() -> Any:
        made = fx.custom_inverse(f)
        made.definverse(one, keep="n")
        return made

    cases: list[tuple[Any, str, str, str]] = [
        (jvp_rule(lambda x: x), "defjvp of f: rule: too many", "(primals, tangents)", "rule(x)"),
        (vjp_rule(lambda x: x, back), "defvjp of f: fwd: too many", "(x, n)", "fwd(x)"),
        (
            vjp_rule(lambda x, n: (f(x, n), None), lambda x: x),
            "defvjp of f: bwd: too many",
            "(residuals, cotangents)",
            "bwd(x)",
        ),
        (stacks(), "def_vmap of f: one: too many", "(axis_size, in_batched, x, n)", "one(x: 'Any') -> 'Any'"),
        (inverse(), "definverse of f: one: too many", "(results, n)", "one(x: 'Any') -> 'Any'"),
    ]
    for made, message, given, signature in cases:
        with pytest.raises(ArgumentError) as e:
            fx.trace(made, X, 1)
        assert e.value.message == f"{message} positional arguments"
        assert e.value.remedy == f"it is called with {given}, its signature is {signature}"


def test_a_leaf_that_is_no_array_is_named_by_its_path() -> None:
    with pytest.raises(ArgumentError, match=r"^defjvp of f: rule: result\['y'\]: a str is not an array"):
        fx.trace(jvp_rule(lambda p, t: ({"y": "s", "n": 1}, None)), X, 1)
    with pytest.raises(ArgumentError, match=r"^defjvp of f: rule: tangent of result\['y'\]: a str is not an array"):
        fx.trace(jvp_rule(lambda p, t: (f(*p), {"y": "s", "n": None})), X, 1)
    with pytest.raises(ArgumentError, match=r"^defvjp of f: bwd: cotangent of x: a str is not an array"):
        fx.trace(vjp_rule(lambda x, n: (f(x, n), None), lambda r, ct: ("s", None)), X, 1)


def test_linear_call() -> None:
    def twice(_: Any, x: Any) -> Any:
        return 2 * x

    def positive(_: Any, x: Any) -> Any:
        return x > 0

    with pytest.raises(DTypeError, match=r"linear_call: linear_args is i64\[3\], which has no tangent"):
        lax.linear_call(twice, twice, None, np.ones(3, np.int64))
    with pytest.raises(DTypeError, match=r"linear_call: result of .* is bool\[3\], which has no tangent"):
        lax.linear_call(positive, twice, None, X)
    with pytest.raises(TreeError, match=r"linear_call: .* returns \(\*, \*\), linear_args is \*"):
        lax.linear_call(twice, lambda _, ct: (ct, ct), None, X)
    with pytest.raises(ShapeError, match=r"returns f64\[\] as cotangent of linear_args, which is f64\[3\]"):
        lax.linear_call(twice, lambda _, ct: fnp.sum(ct), None, X)
    with pytest.raises(TreeError, match="linear_call: linear_args has no leaf"):
        lax.linear_call(twice, twice, X, ())


def test_linear_call_takes_linear_functions() -> None:
    def twice(_: Any, x: Any) -> Any:
        return 2 * x

    def powered(_: Any, x: Any) -> Any:
        return fnp.exp(x) * x

    def shifted(_: Any, x: Any) -> Any:
        return x + 1

    def constant(k: Any, x: Any) -> Any:
        return k

    def scaled(_: Any, x: Any) -> Any:
        size = fnp.sum(fnp.abs(x))
        return size * (x / size)

    named: list[tuple[Any, str]] = [(powered, "exp"), (shifted, "add"), (scaled, "abs")]
    unusual = np.ones((1, 3, 1, 1, 7), np.float32)  # equal programs share lines: this one is of no other test
    for fn, equation in named:
        for one, other, role in ((fn, twice, "fun"), (twice, fn, "fun_transpose")):
            with pytest.raises(NotLinearError) as e:
                lax.linear_call(one, other, None, unusual)
            message = str(e.value)
            assert message.startswith(f"linear_call: {role} {fn.__name__} is not linear in its linear arguments")
            assert f"= {equation} " in message
            assert "test_rule_errors.py" in message
            assert "as_whole=True" in message
    with pytest.raises(NotLinearError, match="constant is not linear in its linear arguments: result 0 is"):
        lax.linear_call(constant, lambda k, ct: ct, X, X)
    np.testing.assert_array_equal(lax.linear_call(scaled, scaled, None, X, as_whole=True), X)
    untyped: Any = lax.linear_call
    with pytest.raises(ArgumentError, match="linear_call: as_whole must be True or False, got an int: 1"):
        untyped(twice, twice, None, X, as_whole=1)


def test_linear_call_assumes_that_loops_and_host_functions_are_linear() -> None:
    def solver(_: Any, x: Any) -> Any:
        size = fnp.sum(fnp.abs(x))
        return lax.while_loop(lambda s: fnp.max(s) < size, lambda s: s + x, x) * (x / x)

    def on_the_host(_: Any, x: Any) -> Any:
        return fx.pure_callback(lambda v: v * 2.0, fx.Spec((3,), "float64"), x)

    lax.linear_call(solver, solver, None, X)
    got = fx.grad(lambda x: fnp.sum(lax.linear_call(on_the_host, on_the_host, None, x)))(X)
    np.testing.assert_array_equal(np.asarray(got), [2.0, 2.0, 2.0])


def test_residuals_that_are_no_arrays_and_can_change_are_refused() -> None:
    made = vjp_rule(lambda x, n: (f(x, n), {"log": bytearray(b"ab")}), lambda r, ct: (ct["y"], None))
    with pytest.raises(ArgumentError) as e:
        fx.trace(made, X, 1)
    message = str(e.value)
    assert message.startswith(
        "defvjp of f: fwd returns a bytearray as residual['log'], which is no array and can change: bytearray(b'ab')"
    )
    assert e.value.remedy == "store arrays, or values that are hashable, such as a frozenset for a set"


def _program(n_in: int, n_out: int, aval: Aval) -> Jaxpr:
    b = Builder()
    ins = b.inputs([aval] * n_in)
    return b.build(ins[:1] * n_out, "body")


def test_primitives_check_their_bodies_and_rules() -> None:
    aval, index = (
        Aval((3, 29), "float32"),
        Aval((3, 29), "int32"),
    )  # no other test has an equal program, which might have another name
    one, two = _program(1, 1, aval), _program(2, 1, aval)
    together = "the bodies of one equation belong together: trace the function again"

    def fails(prim: CallWithRules | LinearCall, message: str, remedy: str = together) -> None:
        with pytest.raises(ParameterError) as e:
            prim.abstract_eval(*prim.body.in_avals)
        assert (e.value.message, e.value.remedy) == (f"{prim.name}: {message}", remedy)

    takes = "body takes (f32[3,29], f32[3,29]), expected (f32[3,29])"
    first = "at least one operand is linear, and linear ones come first"
    fails(LinearCall(one, one, 2), "n_linear is 2, body has 1 operands", first)
    fails(LinearCall(one, two, 1), f"adjoint {takes}")
    inexact = "linear operands and results are floating or complex"
    whole = _program(1, 1, index)
    fails(LinearCall(whole, whole, 1), "linear operand 0 of body is i32[3,29], which has no tangent", inexact)

    def ruled(captured: int = 0, **rules: Any) -> CallWithRules:
        return CallWithRules(Function(one, captured, Rules(**rules)))

    fails(ruled(2), "captured is 2, body has 1 operands", "captured operands come first in the body")
    for marks in ((), (True, True)):
        message = f"a rule has {len(marks)} marks for 1 operands"
        remedy = "mark the operands whose tangents do not vanish"
        fails(ruled(jvp=(Refusal(marks, "it raised an error", "use another"),)), message, remedy)
        fails(ruled(vjp=(Derivative(marks, one, one),)), message, remedy)
    fails(ruled(derivative_of=two), f"program of derivatives {takes}")
    fails(ruled(jvp=(Derivative((True,), two, one),)), f"forward {takes}")
    fails(ruled(jvp=(Derivative((True,), one, two),)), f"push {takes}")
    fails(ruled(vjp=(Derivative((True,), one, one, two),)), f"pull {takes}")
    fails(
        ruled(1, jvp=(Derivative((True,), one, one),)),
        "a rule is about tangents of operands that have none",
        "mark inexact operands behind the captured ones",
    )
    fails(ruled(batch=(BatchRule(2, one),)), "vmap rule of size 2 body takes (f32[3,29]), expected (f32[2,3,29])")
    with pytest.raises(ArgumentError, match="derivative: pull must be"):
        Derivative((True,), one, one, (one,))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="rules: jvp must be"):
        Rules(jvp=(one, one))  # type: ignore[arg-type]


def once_more(x: Any) -> Any:
    return x * 3


FORGOTTEN: list[tuple[str, Callable[..., Any], Callable[[Any], Any], str]] = [
    ("custom_jvp", fx.custom_jvp, lambda f: f.defjvps(lambda t, y, x: 3 * t), "once_more.defjvp(jvp)"),
    (
        "custom_vjp",
        fx.custom_vjp,
        lambda f: f.defvjp(lambda x: (x, ()), lambda _, ct: (ct,)),
        "once_more.defvjp(fwd, bwd)",
    ),
    ("custom_vmap", fx.custom_vmap, lambda f: f.def_vmap(lambda n, m, x: (3 * x, True)), "once_more.def_vmap(rule)"),
    ("custom_inverse", fx.custom_inverse, lambda f: f.definverse(lambda y: y / 3), "once_more.definverse(inverse)"),
    ("custom_ivjp", fx.custom_ivjp, lambda f: f.defivjp(lambda y, ct: (y / 3, (3 * ct,))), "once_more.defivjp(ivjp)"),
]


@pytest.mark.parametrize(("name", "decorator", "give", "how"), FORGOTTEN, ids=[c[0] for c in FORGOTTEN])
def test_a_function_without_its_announced_rule_is_refused(
    name: str, decorator: Callable[..., Any], give: Callable[[Any], Any], how: str
) -> None:
    made = decorator(once_more)
    calls: list[Callable[[], object]] = [
        lambda: made(2.0),
        lambda: fx.trace(made, 2.0),
        lambda: fx.grad(made)(2.0),
        lambda: fx.vmap(made)(X),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=f"^{name} of once_more: it is called before its rule") as e:
            call()
        assert e.value.message == (
            f"{name} of once_more: it is called before its rule is given; it has rules for nothing"
        )
        assert e.value.remedy == f"{how} first, or call once_more without {name}: then all is derived"
        assert __file__ in str(e.value)
    give(made)
    assert float(made(2.0)) == 6
    assert float(fx.trace(made, 2.0)(2.0)) == 6


def test_each_decorator_of_a_function_needs_its_rule() -> None:
    made = fx.custom_vmap(fx.custom_jvp(once_more))
    made.def_vmap(lambda n, m, x: (3 * x, True))
    with pytest.raises(ArgumentError, match=r"^custom_jvp of once_more: .* it has rules for vmap"):
        made(2.0)
    made.defvjp(lambda x: (made(x), ()), lambda _, ct: (5 * ct,))
    assert float(fx.grad(made)(2.0)) == 5, "a derivative was given, whichever its mode"


def made(name: str) -> Any:
    decorators: dict[str, Any] = {"jvp": fx.custom_jvp, "vmap": fx.custom_vmap}
    return decorators[name](f)


def stacked_wrongly() -> None:
    g = made("vmap")
    g.def_vmap(2)(lambda size, mapped, x, n: (f(x, n), {"y": False, "n": True}))
    fx.trace(g, X, 1)


def cubed(x: Any) -> Any:
    return x**3


def mapped_later(rule: Any) -> Any:
    """Returns a map of a program that was traced with this rule, which is then traced for any size."""
    g = fx.custom_vmap(cubed)
    g.def_vmap(rule)
    program: Any = fx.trace(g, 2.0)
    assert float(program(2.0)) == 8, "the program itself does not need the rule"
    return program


def raising(size: Any, mapped: Any, x: Any) -> Any:
    raise ValueError("no stack")


NAMES_SIZES = "a rule that needs the number is for the sizes that it names: cubed.def_vmap(3)"
ONE: Any = 1
THREE: Any = 3
REMEDIES: list[tuple[Callable[[], object], type[FxadError], str, str]] = [
    (
        lambda: made("jvp").defjvp(lambda p, t: (p, t), symbolic_zeros=1),
        ParameterError,
        "defjvp of f: symbolic_zeros is an int, not a bool: 1",
        "symbolic_zeros=True tells the rule what vanishes, False gives it zeros",
    ),
    (
        lambda: made("vmap").def_vmap(-1),
        ParameterError,
        "def_vmap of f: -1 is not an axis size",
        "an axis size is an int >= 0: f.def_vmap(32, 128)(rule); f.def_vmap(rule) is for any size",
    ),
    (
        lambda: fx.vmap(mapped_later(raising), axis_size=3)(X),
        ArgumentError,
        "call_with_rules: a stack of 3: def_vmap of cubed: raising raised ValueError: no stack",
        f"give a rule that covers this case; {NAMES_SIZES}(raising)",
    ),
    (
        lambda: fx.vmap(fx.grad(mapped_later(raising)), axis_size=3)(X.astype("float32")),
        ArgumentError,
        "call_with_rules: a stack of 3: def_vmap of cubed: raising raised ValueError: no stack",
        f"give a rule that covers this case; {NAMES_SIZES}(raising)",
    ),
    (
        lambda: fx.vmap(mapped_later(lambda n, m, x: x), axis_size=3)(X),
        ArgumentError,
        "call_with_rules: a stack of 3: def_vmap of cubed: <lambda> returns *, not a pair (results, out_batched)",
        f"return a tuple of two: (results, out_batched); {NAMES_SIZES}(<lambda>)",
    ),
    (
        lambda: fx.custom_jvp(f, nondiff_argnums=(-1,)),
        ArgumentError,
        "custom rules of f: nondiff_argnums (-1,) has -1",
        "number positional arguments from 0",
    ),
    (
        lambda: fx.trace(jvp_rule(lambda p, t: f(*p)), X, 1),
        TreeError,
        "defjvp of f: rule returns {'n': *, 'y': *}, not a pair (results, tangents)",
        "return a tuple of two: (results, tangents)",
    ),
    (
        lambda: fx.trace(jvp_rule(lambda p, t: (p[0], t[0])), X, 1),
        TreeError,
        "defjvp of f: rule returns results *, f returns {'n': *, 'y': *}",
        "a rule gives the results of its function, in the same tree",
    ),
    (
        lambda: fx.trace(jvp_rule(lambda p, t: (f(*p), {"y": t[0].astype("float32"), "n": None})), X, 1),
        DTypeError,
        "defjvp of f: rule returns f32[3] as tangent of result['y'], which is f64[3]",
        "return f64[3] there: astype('float64')",
    ),
    (
        lambda: fx.trace(jvp_rule(lambda p, t: (f(*p), {"y": fnp.sum(t[0]), "n": None})), X, 1),
        ShapeError,
        "defjvp of f: rule returns f64[] as tangent of result['y'], which is f64[3]",
        "return f64[3] there",
    ),
    (
        stacked_wrongly,
        ShapeError,
        "def_vmap of f: <lambda> returns f64[2,3] for result['y'], which is f64[3], and is no stack by out_batched",
        "return f64[3] there, or say True for it in out_batched if it is a stack",
    ),
    (
        lambda: lax.linear_call(lambda r, x: x, lambda r, x: x, (), X, as_whole=ONE),
        ArgumentError,
        "linear_call: as_whole must be True or False, got an int: 1",
        "it is static: a Python value, which cannot come from a traced array",
    ),
    (
        lambda: lax.linear_call(lambda r, x: x.astype("int32"), lambda r, x: x, (), X),
        DTypeError,
        "linear_call: result of <lambda> is i32[3], which has no tangent",
        "return floating or complex arrays; compute the others outside of the linear function",
    ),
    (
        lambda: lax.linear_call(lambda r, x: x, lambda r, x: (x, x), (), X),
        TreeError,
        "linear_call: <lambda> returns (*, *), linear_args is *",
        "the transpose gives a cotangent for each linear argument, in the tree of linear_args",
    ),
    (
        lambda: lax.linear_call(lambda r, x: x, lambda r, x: x[:2], (), X),
        ShapeError,
        "linear_call: <lambda> returns f64[2] as cotangent of linear_args, which is f64[3]",
        "a cotangent has the type of its argument; nothing is converted silently",
    ),
    (
        lambda: fx.checkpoint_name(X, THREE),
        ArgumentError,
        "checkpoint_name: the name is an int, not a str: 3",
        'checkpoint_name(x, "mlp")',
    ),
]


@pytest.mark.parametrize(("call", "kind", "message", "remedy"), REMEDIES, ids=[m[:50] for _, _, m, _ in REMEDIES])
def test_what_to_do(call: Callable[[], object], kind: type[FxadError], message: str, remedy: str) -> None:
    error = check_refused(call, kind, message, remedy)
    assert __file__ in str(error), "the line that is to be changed"
