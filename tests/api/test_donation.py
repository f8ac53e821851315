"""Donation: a donated array is deleted, and its error says so; its memory is reused; results are the same."""

from __future__ import annotations

import copy
import io
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, DonationWarning, ExecutionError, LeakedTracerError, ParameterError, TreeError
from fxad.execution.donation import DonatingStart

N = 1024
F = fx.Spec((N,), "float32")


def ones(n: int = N) -> fx.Array:
    return fx.asarray(np.ones(n, np.float32))


def step(state: dict[str, Any], grad: Any) -> tuple[dict[str, Any], Any]:
    """Momentum: updates two arrays of state, and returns a value for the log of a training loop."""
    m = state["m"] * 0.9 + grad
    return {"w": state["w"] - 0.1 * m, "m": m}, (m * m).sum()


def state() -> dict[str, Any]:
    return {"w": ones(), "m": ones()}


def gone(x: fx.Array) -> bool:
    try:
        np.asarray(x)
    except ExecutionError:
        return True
    return False


# --------------------------------------------------------------------------------------- the arguments that are donated


@pytest.mark.parametrize("donate", [0, -2, "state", ["state"], (0,), {"state": True}, {0: {"w": True, "m": True}}])
def test_spellings(donate: Any) -> None:
    runs: tuple[Any, ...] = (
        fx.jit(step, donate=donate),
        fx.jit(donate=donate)(step),
        fx.lower(fx.trace(step, state(), ones())).compile(donate=donate),
        fx.jit(fx.trace(step, state(), ones()), donate=donate),
        fx.jit(step, donate=donate).lower(state(), ones()).compile(),
    )
    for run in runs:
        s, g = state(), ones()
        new, _ = run(s, g)
        assert [gone(s["w"]), gone(s["m"]), gone(g)] == [True, True, False]
        np.testing.assert_array_equal(new["m"], np.float32(1.9))


@pytest.mark.parametrize("prefix", [{"w": True, "m": False}, {"w": True, "m": [False, False]}])
def test_a_tree_prefix_chooses_leaves(prefix: Any) -> None:
    f = fx.jit(lambda s: (s["w"] + 1, s["m"]), donate={0: prefix})
    s: dict[str, Any] = {"w": ones(), "m": [ones(), ones()]}
    f(s)
    assert [gone(s["w"]), gone(s["m"][0]), gone(s["m"][1])] == [True, False, False]


def test_keywords_statics_methods_and_open_signatures() -> None:
    def f(n: int, x: Any, *rest: Any, scale: Any = 1.0) -> Any:
        return x * n, scale

    x, y = ones(), ones()
    fx.jit(f, static_argnums=0, donate=("x", "scale"))(3, x, scale=y)
    assert [gone(x), gone(y)] == [True, True]

    def g(*xs: Any) -> Any:
        return [x + 1 for x in xs]

    x, y, z = ones(), ones(), ones()
    fx.jit(g, static_argnums=0, donate=2)(3, x, y, z)
    assert [gone(x), gone(y), gone(z)] == [False, True, False]

    x, y, z = ones(), ones(), ones()
    fx.lower(fx.trace(g, x, y, z)).compile(donate=(1, "args[2]"))(x, y, z)
    assert [gone(x), gone(y), gone(z)] == [False, True, True]

    class Model:
        @fx.jit(donate="x")
        def double(self, x: Any) -> Any:
            return x * 2

    x = ones()
    Model().double(x)
    assert gone(x)


def test_inside_a_trace_nothing_is_donated() -> None:
    inner = fx.jit(lambda x: x + 1, donate=0)
    x = ones()
    np.testing.assert_array_equal(fx.jit(lambda x: inner(x) + x)(x), np.float32(3))
    assert not gone(x)


# ------------------------------------------------------------------------------------------------------------ memory


def test_a_training_loop_holds_one_copy_of_the_state() -> None:
    n = 1 << 16
    program = fx.trace(step, {"w": fx.Spec((n,)), "m": fx.Spec((n,))}, fx.Spec((n,)))
    plain, donating = fx.lower(program).compile().memory(), fx.lower(program).compile(donate="state").memory()
    assert (plain.alias_bytes, donating.alias_bytes) == (0, 2 * 4 * n)
    assert plain.peak_bytes - donating.peak_bytes == 2 * 4 * n
    run = fx.jit(program, donate="state")
    s = {"w": ones(n), "m": ones(n)}
    places = {s[k]._buffer.unsafe_buffer_pointer() for k in s}
    grad = ones(n)
    for _ in range(5):
        s, _ = run(s, grad)
        fx.tree.map(fx.Array.block_until_ready, s)
        assert {s[k]._buffer.unsafe_buffer_pointer() for k in s} == places


def test_values_are_those_without_donation() -> None:
    """Up to rounding: XLA compiles a program that donates to other kernels."""
    plain, donating = fx.jit(step), fx.jit(step, donate="state")
    a, b, g = state(), state(), ones()
    for _ in range(3):
        (a, x), (b, y) = plain(a, g), donating(b, g)
        np.testing.assert_allclose(x, y, rtol=1e-6)
    for k in a:
        np.testing.assert_allclose(a[k], b[k], rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float16", "complex128"])
def test_any_type(shape: tuple[int, ...], dtype: str) -> None:
    x = fnp.ones(shape, dtype=dtype)
    y = fx.jit(lambda x: ~x if dtype == "bool" else x + 1, donate=0)(x)
    assert (y.shape, y.dtype) == (shape, fnp.ones((), dtype=dtype).dtype)
    assert gone(x)


def test_memory_that_numpy_shares_does_not_change() -> None:
    source = np.arange(N, dtype=np.float32)
    source.flags.writeable = False
    shared, looked_at = fx.asarray(source), ones()
    view = np.asarray(looked_at)
    run = fx.jit(lambda x, y: (x + 1, y + 1), donate=(0, 1))
    run(shared, looked_at)[1].block_until_ready()
    np.testing.assert_array_equal(source, np.arange(N))
    np.testing.assert_array_equal(view, np.ones(N))
    assert [gone(shared), gone(looked_at)] == [True, True]


def test_cached_constants_are_not_donated() -> None:
    one = fnp.asarray(1.5)
    fx.jit(lambda x: x + 1, donate=0)(one)
    assert float(fnp.asarray(1.5) + 1.5) == 3.0


# ------------------------------------------------------------------------------------------------------------ errors

GONE = r"donated to step at .*test_donation\.py:\d+ in donated_state"


def donated_state() -> fx.Array:
    s = state()
    fx.jit(step, donate="state")(s, ones())
    out = s["w"]
    assert isinstance(out, fx.Array)
    return out


def f(x: Any) -> Any:
    return x * 2


def same(x: Any) -> Any:
    return x


HERE = fx.devices()[0]
TOUCHES: dict[str, tuple[str, Callable[[fx.Array], object]]] = {
    "asarray": ("to_numpy: the array", np.asarray),
    "block": ("block: the array", fx.Array.block_until_ready),
    "operator": ("add: argument 0", lambda x: x + 1),
    "reflected": ("add: argument 1", lambda x: np.ones(N, np.float32) + x),
    "comparison": ("eq: argument 0", lambda x: x == x),
    "index": ("getitem: argument 0", lambda x: x[0]),
    "update": ("update: argument 0", lambda x: x.at[0].set(1)),
    "iteration": ("getitem: argument 0", lambda x: list(x)),
    "method": ("sum: argument 0", lambda x: x.sum()),
    "function": ("stack: argument 0", lambda x: fnp.stack([x, x])),
    "as an index": ("astype: argument 0", lambda x: fnp.arange(4)[x.astype("int32")]),
    "tree map": ("multiply: argument 0", lambda x: fx.tree.map(lambda a: a * 2, {"a": [x]})),
    "str": ("to_numpy: the array", str),
    "print": ("to_numpy: the array", lambda x: print(x, file=io.StringIO())),
    "format": ("to_numpy: the array", lambda x: f"{x}"),
    "tolist": ("to_numpy: the array", lambda x: x.tolist()),
    "pickle": ("to_numpy: the array", pickle.dumps),
    "dlpack": ("to_dlpack: the array", lambda x: x.__dlpack__()),
    "from_dlpack": ("to_dlpack: the array", np.from_dlpack),
    "device_put": ("to_numpy: the array", lambda x: fx.device_put(x, HERE)),
    "jit": ("step: argument state['m']", lambda x: fx.jit(step)({"w": x, "m": x}, x)),
    "compiled": ("f: argument x", lambda x: fx.jit(fx.trace(f, F))(x)),
    "program": ("f: argument x", lambda x: fx.trace(f, F)(x)),
    "trivial": ("same: argument x", lambda x: fx.jit(same)(x)),
    "donated again": ("f: argument x", lambda x: fx.jit(f, donate=0)(x)),
    "closed over": ("<lambda>: closed-over array 0", lambda x: fx.jit(lambda y: y + x)(ones())),
    "grad": ("grad_<lambda>: argument y", lambda x: fx.grad(lambda y: (y * y).sum())(x)),
    "vmap": ("vmap_f: argument x", lambda x: fx.vmap(f)(x)),
    "scan": ("scan: operand 1", lambda x: fx.lax.scan(lambda c, y: (c + y, None), 0.0, x)),
    "interpret": ("to_numpy: the array", lambda x: fx.interpret(fx.trace(f, F), x)),
    "save": ("to_numpy: the array", lambda x: fx.save(fx.trace(lambda y: y + x, F), "never written")),
    "export": ("to_numpy: the array", lambda x: fx.lower(fx.trace(lambda y: y + x, F)).export()),
}


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize("how", TOUCHES)
def test_uses_of_a_donated_array_are_errors(how: str) -> None:
    x, (what, touch) = donated_state(), TOUCHES[how]
    with pytest.raises(ExecutionError, match=f"^{re.escape(what)} was {GONE}") as e:
        touch(x)
    assert e.value.remedy == "use the result in its place, or leave the argument out of `donate`"


def test_a_deleted_operand_has_the_name_of_the_operation() -> None:
    x = ones()
    x.delete()
    with pytest.raises(ExecutionError, match=r"^add: argument 1 is deleted"):
        ones() + x
    with pytest.raises(ExecutionError, match=r"^where: argument 1 is deleted"):
        fnp.where(ones() > 0, x, ones())


def test_a_donated_array_has_a_repr_and_a_type() -> None:
    """A debugger, and a message that shows its argument, call `repr`: it says where the array was donated."""
    x = donated_state()
    assert re.fullmatch(rf"\[<Array f32\[{N}\], {GONE}>\]", repr([x]))
    assert (x.shape, x.dtype, x.device, len(x), x.committed) == ((N,), np.dtype("float32"), HERE, N, False)
    assert fx.trace(f, x).in_avals == fx.trace(f, F).in_avals
    assert x.__dlpack_device__() == (1, 0)


def test_one_array_twice() -> None:
    x = ones()
    program = fx.trace(lambda a, b: (a + b, a - b), F, F)
    message = (
        r"^<lambda>: one array is donated and given a second time: argument a and argument b\n(.*\n)*"
        r"  remedy        pass a copy for one of them: fxad.numpy.copy\(x\)$"
    )
    with pytest.raises(ArgumentError, match=message):
        fx.jit(program, donate="a")(x, x)
    with pytest.raises(ArgumentError, match=r"^<lambda>: one array is donated twice: argument a and argument b\n"):
        fx.jit(program, donate=("a", "b"))(x, x)
    closed = fx.jit(lambda a: a + x, donate=0)
    with pytest.raises(ArgumentError, match=r"given a second time: closed-over array 0 and argument a\n"):
        closed(x)
    assert not gone(x), "refused before anything ran"
    fx.jit(lambda a, b: a + b)(x, x)


def test_an_array_given_twice_and_not_donated_takes_no_longer() -> None:
    """Regression: a call was quadratic in its operands, and took seconds for 10,000 arrays of state."""
    looked_at = 0

    class Operands(list[Any]):
        def __getitem__(self, k: Any) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(k)

    n, twice = 100, object()
    start = DonatingStart(lambda buffers: [], tuple(range(n)), "f", str)  # type: ignore[arg-type, return-value]
    start._check(Operands([*[object() for _ in range(n)], twice, twice]))
    assert looked_at <= 2 * n


@pytest.mark.parametrize("device", [None, fx.devices()[0]])
def test_every_call_names_the_argument_that_is_deleted(device: fx.Device | None) -> None:
    """Regression: a call of a program said `execute: operand 0`."""

    def loss(params: dict[str, fx.Array], x: fx.Array) -> fx.Array:
        return params["w"] * x

    x, w = ones(), fx.device_put(ones(), device)
    program = fx.trace(loss, {"w": w}, x)
    calls: list[Any] = [program, fx.lower(program).compile(), fx.jit(loss), fx.jit(loss)]
    calls[-1]({"w": fx.device_put(ones(), device)}, x)
    w.delete()
    for call in calls:
        with pytest.raises(ExecutionError, match=r"^loss: argument params\['w'\] is deleted\n"):
            call({"w": w}, x)


@pytest.mark.parametrize("units", ["none", lambda body: True])
def test_a_deleted_array_was_not_donated(units: Any) -> None:
    """The error names what happened to the array: it was deleted by `delete`, and not by the call that is refused."""
    x, y = ones(), ones()
    run = fx.jit(lambda a, b: (fx.jit(fnp.sin)(a), fx.jit(fnp.sin)(b)), donate=(0, 1), units=units)
    y.delete()
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"^<lambda>: argument b is deleted\n"):
            run(x, y)
        assert repr(y) == f"<Array f32[{N}], deleted>"
        assert not gone(x)
    with pytest.raises(ExecutionError, match=r"^to_numpy: the array is deleted\n"):
        np.asarray(y)


@pytest.mark.parametrize("units", ["none", lambda body: True])
def test_a_call_that_fails_in_its_second_unit_has_donated_its_operands(units: Any) -> None:
    """Regression: a linked run had donated the first operand when its second step failed, and the array did not know
    the call."""

    def half(x: Any) -> Any:
        y: Any = fx.io_callback(lambda x: x, F, x)
        return y * 2

    def fails(x: Any) -> Any:
        return fx.io_callback(lambda x: 1 / 0, F, x)

    def f(x: Any, y: Any) -> Any:
        return fx.jit(fails)(fx.jit(half)(fx.jit(half)(x))), y + 1

    program = fx.trace(f, F, F)
    run = fx.lower(program, units=units).compile(donate=("x", "y"))
    x, y = ones(), ones()
    with pytest.raises(ExecutionError, match="raised ZeroDivisionError"):
        run(x, y)
    with pytest.raises(ExecutionError, match=r"the array was donated to f at .*test_donation\.py:\d+ in test_a_call"):
        np.asarray(x)


class Model:
    """Methods with positional-only arguments."""

    @fx.jit(donate=1)
    def first(self, *s: Any) -> Any:
        return [x + 1 for x in s]

    @fx.jit(static_argnames="n", donate=2)
    def second(self, *s: Any, n: int = 1) -> Any:
        return [x + n for x in s]

    @fx.jit(static_argnums=(1, 2), donate=4)
    def fourth(self, n: int, m: int, *s: Any) -> Any:
        return [x + n + m for x in s]

    @fx.jit(static_argnums=2)
    def filled(self, *s: Any) -> Any:
        return fnp.zeros((s[1],), dtype="float32") + s[0]


def test_a_linked_call_that_is_refused_donates_nothing() -> None:
    block = fx.jit(lambda x: fnp.tanh(x) * 2)
    run = fx.jit(lambda x, y: (block(block(x)), block(y)), units=lambda body: True, donate=("x", "y"))
    gone, held = fx.asarray(np.ones(7, np.float32)), fx.asarray(np.full(7, 2, np.float32))
    run(held.copy(), gone)
    with pytest.raises(ExecutionError, match="argument y was donated to"):
        run(held, gone)
    assert held.tolist() == [2.0] * 7


def test_positions_without_a_name_count_from_the_instance() -> None:
    """Regression: a method is called without its first argument, so the argument after the named one was donated."""
    calls: list[tuple[Callable[..., Any], int]] = [
        (Model().first, 0),
        (Model().second, 1),
        (lambda *s: Model().fourth(1, 2, *s), 1),
    ]
    for call, which in calls:
        arrays = [ones(), ones(), ones()]
        call(*arrays)
        assert [gone(x) for x in arrays] == [k == which for k in range(3)]
    assert Model().filled(fnp.ones(()), 3).tolist() == [1.0] * 3


COPIES: dict[str, Callable[[Any], Any]] = {
    "fnp.copy": fnp.copy,
    "copy": lambda x: x.copy(),
    "asarray": lambda x: fnp.asarray(x, copy=True),
    "array": lambda x: fnp.array(x, copy=True),
    "from_dlpack": lambda x: fnp.from_dlpack(x, copy=True),
    "shallow": copy.copy,
    "deep": lambda x: copy.deepcopy({"x": x})["x"],
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_donated_independently(way: str) -> None:
    """A copy has its own memory: the error for an array that is passed twice suggests it, and loops keep a state so."""
    x = ones()
    kept = COPIES[way](x)
    assert kept.committed is x.committed
    total, rest = fx.jit(lambda a, b: (a + b, a - b), donate=(0, 1))(x, kept)
    assert (gone(x), gone(kept)) == (True, True)
    assert (total[0], rest[0]) == (2.0, 0.0)
    x = fx.device_put(ones(), HERE)
    kept = COPIES[way](x)
    fx.jit(lambda a: a + 1, donate=0)(x)
    assert (kept.committed, kept.device, gone(kept), float(kept[0])) == (True, HERE, False, 1.0)
    with pytest.raises(ExecutionError, match=r"^copy: the array was donated to .*; its memory is used again\n"):
        COPIES[way](x)


def test_a_copy_inside_a_trace_is_no_equation() -> None:
    x = ones()
    program = fx.trace(lambda a: (a.copy() + fnp.copy(x)) * (fnp.asarray(a, copy=True) + x), F)
    assert [e.prim.name for e in program.jaxpr.eqns] == ["add", "add", "mul"]
    assert len(program.bound) == 1
    leaked: list[Any] = []
    fx.trace(lambda a: leaked.append(a), F)
    for way in COPIES.values():
        with pytest.raises(LeakedTracerError):
            way(leaked[0])


def test_a_donation_that_no_result_can_use_is_warned_of_once() -> None:
    run = fx.jit(lambda big, x: (x + 1, big.sum()), donate=("big", "x"))
    message = (
        r"^<lambda>: donated memory is of no use to its results: no result of its type is left for big \(f32\[7\]\)"
        r"; leave it out of `donate`$"
    )
    with pytest.warns(DonationWarning, match=message) as found:
        run(ones(7), ones())
    assert found[0].filename == __file__
    big = ones(7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(big, ones())
    assert gone(big)


WRONG: dict[str, dict[str, Any]] = {
    r"jit of step: donate has 'weights', which is no argument of it": {"donate": "weights"},
    r"jit of step: donate has 2, it takes 2 positional arguments": {"donate": 2},
    r"jit of step: donate is 1.5, not a position or a name of an argument": {"donate": 1.5},
    r"jit of step: donate has '', which is no argument of it": {"donate": ""},
    r"jit of step: donate is 0.0, not a position or a name of an argument": {"donate": 0.0},
    r"jit of step: donate is [True], not a position or a name of an argument": {"donate": [True]},
    r"jit of step: donate names the argument 'state' twice: ('state', 0)": {"donate": ("state", 0)},
    r"jit of step: the argument 'grad' is static and donated: a static value has no memory to give up": {
        "donate": ("state", "grad"),
        "static_argnames": "grad",
    },
}


@pytest.mark.parametrize("message", WRONG)
def test_names_and_numbers_that_are_no_argument_are_refused(message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}\n"):
        fx.jit(step, **WRONG[message])


def test_wrong_for_a_program() -> None:
    lowered = fx.lower(fx.trace(step, state(), ones()))
    wrong: dict[Any, str] = {
        "weights": "compile of step: donate has 'weights', which is no argument of it",
        5: "compile of step: donate has 5, it takes 2 positional arguments",
    }
    for donate, message in wrong.items():
        with pytest.raises(ParameterError, match=f"^{message}\n"):
            lowered.compile(donate=donate)
    with pytest.raises(TreeError, match=r"^compile of step: donate of 'state': {'w': True} is not a tree prefix of"):
        lowered.compile(donate={"state": {"w": True}})
    with pytest.raises(ParameterError, match=r"^compile of step: donate is given twice, by name and as operands"):
        lowered.compile(fx.CompileOptions(donate=(0,)), donate="grad")
    with pytest.raises(ParameterError, match=r"^compile: donate: operand 9 does not exist, the program has 3\n"):
        lowered.compile(fx.CompileOptions(donate=(9,)))
    held = ones()
    closes = fx.lower(fx.trace(lambda x: x + held, F))
    with pytest.raises(ParameterError, match=r"^compile of <lambda>: operand 0 is an array that it closes over, which"):
        closes.compile(fx.CompileOptions(donate=(0,)))
    with pytest.raises(ParameterError, match=r"^jit of <lambda>: donate has -1, it takes any number of positional"):
        fx.jit(lambda *xs: xs, donate=-1)


def test_arguments_without_names_are_donated_by_position() -> None:
    """The parameters of `*xs` have no names. A program calls them args[0], args[1]."""
    run = fx.lower(fx.trace(lambda *xs: (xs[0] + 1, xs[1]), F, F)).compile(donate=0)
    x, y = ones(), ones()
    run(x, y)
    assert x.is_deleted()
    assert not y.is_deleted()


def test_donate_argnums_and_argnames_that_name_no_argument() -> None:
    jit: Any = fx.jit
    for option in ("donate_argnums", "donate_argnames"):
        with pytest.raises(ParameterError, match=r"^jit of step: donate is \[1.5\], not a position or a name"):
            jit(step, **{option: 1.5})


@pytest.mark.parametrize("leaves", [2, 3])
def test_a_donated_tree_that_is_given_again(leaves: int) -> None:
    step = fx.jit(lambda s: [x + 1 for x in s], donate=0)
    s = [fnp.ones(3) * k for k in range(leaves)]
    step(s)
    for _ in range(2):
        with pytest.raises(fx.errors.ExecutionError, match=r"argument s\[0\].* was donated to <lambda> at ") as e:
            step(s)
        assert "donated twice" not in str(e.value)
    alive = fnp.ones(3)
    with pytest.raises(fx.errors.ExecutionError, match=r"argument s\[1\].* was donated to <lambda> at "):
        step([alive, *s[1:]])
    np.testing.assert_array_equal(alive, np.ones(3))
    fresh = fnp.ones(3)
    with pytest.raises(ArgumentError, match="one array is donated twice"):
        step([fresh] * leaves)
