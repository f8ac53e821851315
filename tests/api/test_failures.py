"""Errors of XLA and of host functions name the user's function, its line, and the bytes or types that were
requested."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import runtime
from fxad.errors import ArgumentError, ExecutionError

HUGE = 1 << 40


def huge_result(x: Any) -> Any:
    return fnp.zeros((HUGE,)) + x


def huge_temporary(x: Any) -> Any:
    return (fnp.zeros((1 << 20, 1 << 20)) + x) @ fnp.ones((1 << 20,))


@pytest.mark.usefixtures("nothing_remembered")
def test_out_of_memory_for_results() -> None:
    """The call itself allocates the results."""
    message = (
        r"^huge_result: out of memory: 4,398,046,511,104 bytes were asked for; at its peak the program needs "
        r"4,398,046,511,\d\d\d: arguments 4, results 4,398,046,511,104, temporaries \d+\n"
        rf"  traced at     {re.escape(__file__)}:\d+ in huge_result\n"
        r"  remedy        donate arguments that are not needed again, recompute with remat, or give it smaller arrays$"
    )
    with pytest.raises(ExecutionError, match=message):
        fx.jit(huge_result)(np.float32(1))


@pytest.mark.usefixtures("nothing_remembered")
def test_out_of_memory_for_temporaries() -> None:
    """Temporaries are allocated later. The result of the call still knows the program."""
    y = fx.jit(huge_temporary)(np.float32(1))
    for touch, op in ((fx.Array.block_until_ready, "block"), (np.asarray, "to_numpy")):
        message = (
            rf"^{op}: huge_temporary: out of memory: [\d,]{{17}} bytes were asked for; at its peak the program needs "
            rf"[\d,]{{17}}: (.|\n)*  traced at     {re.escape(__file__)}:\d+ in huge_temporary\n"
        )
        with pytest.raises(ExecutionError, match=message):
            touch(y)


@pytest.mark.usefixtures("nothing_remembered")
def test_out_of_memory_in_a_linked_run_reports_the_peak_of_the_run() -> None:
    """The peak is that of the whole run, and not of the unit that failed. The line is that of the unit's call."""
    inner = fx.jit(huge_temporary)

    def twice(x: Any) -> Any:
        y = inner(x[0])
        return inner(y[0]), y

    x = np.ones(1 << 20, np.float32)
    run = fx.lower(fx.trace(twice, x), units=lambda body: body.name == "huge_temporary").compile()
    assert isinstance(run._loaded, runtime.LinkedExecutable)
    (unit,) = [p for p in run._loaded.executables if p.producer.name == "huge_temporary"]
    peak = run.memory().peak_bytes
    assert peak >= unit.memory().peak_bytes + x.nbytes
    for y in run(x):
        message = (
            rf"^block: twice: out of memory: [\d,]{{17}} bytes were asked for; at its peak the program needs {peak:,}: "
            rf"(.|\n)*  traced at     {re.escape(__file__)}:\d+ in .*twice\n"
        )
        with pytest.raises(ExecutionError, match=message):
            y.block_until_ready()


def test_calls_return_before_the_work_is_done() -> None:
    x = fnp.ones((700, 700))

    def work(x: fx.Array) -> fx.Array:
        for _ in range(30):
            x = fnp.tanh(x @ x)
        return x

    run = fx.jit(work)
    run(x).block_until_ready()
    ready = runtime.is_ready
    assert not all(ready(run(x)._buffer) for _ in range(5))
    y = run(x)
    assert y.block_until_ready() is y
    assert ready(y._buffer)


@fx.jit
def twice(x: Any) -> Any:
    return fnp.sin(x) * 2


def huge_after_some(x: Any, y: Any) -> Any:
    return huge_result(twice(twice(x))[0]), y + 1, x - 1


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize("units", ["none", lambda body: True])
@pytest.mark.parametrize("donate", [(), 0, ("x", "y")])
def test_out_of_memory_of_a_call_that_donates_its_operands(units: Any, donate: Any) -> None:
    """Regression: the error reported the operands that the call itself had donated as the cause."""
    x = fx.Spec((4,))
    program = fx.trace(huge_after_some, x, x)
    run = fx.lower(program, units=units).compile(donate=donate)
    with pytest.raises(ExecutionError, match=r"^huge_after_some: out of memory: 4,398,046,511,104 bytes") as e:
        run(fnp.ones(4), fnp.ones(4))
    assert ("unit " in e.value.equation) is (units != "none")
    assert re.search(r"test_failures.py:\d+ in ", e.value.where)


@pytest.mark.parametrize("gone", ["x", "y"])
def test_a_linked_run_names_the_argument_that_was_donated_before(gone: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return twice(twice(x)), twice(twice(y))

    arrays = {"x": fnp.ones(4), "y": fnp.ones(4)}
    fx.jit(lambda a: a + 1, donate=0)(arrays[gone])
    program = fx.trace(f, fx.Spec((4,)), fx.Spec((4,)))
    for donate in ((), ("x", "y")):
        run = fx.lower(program, units=lambda body: True).compile(donate=donate)
        with pytest.raises(ExecutionError, match=rf"^f: argument {gone} was donated to <lambda> at ") as e:
            run(arrays["x"], arrays["y"])
        assert e.value.equation == "unit 0 of f: twice, 2 equations, used 4 times"
        arrays["x" if gone == "y" else "y"] = fnp.ones(4)


NUMBERS: list[tuple[Any, str, str]] = [
    (3.7, "int32", "gave float64[], it was declared to give i32[]"),
    (float("nan"), "int64", "gave float64[], it was declared to give i64[]"),
    (300, "uint8", "gave int64[], it was declared to give u8[]"),
    (-1, "uint32", "gave int64[], it was declared to give u32[]"),
    (2**70, "int64", "gave object[], it was declared to give i64[]"),
    (1j, "float32", "gave complex128[], it was declared to give f32[]"),
    (2, "bool", "gave int64[], it was declared to give bool[]"),
]


@pytest.mark.parametrize(("number", "dtype", "message"), NUMBERS)
def test_a_host_result_that_its_declared_type_cannot_hold_is_refused(number: Any, dtype: str, message: str) -> None:
    """Regression: the number was truncated, wrapped around or stripped of its imaginary part without an error."""
    with pytest.raises(ExecutionError, match=f"^host_call: <lambda> {re.escape(message)}\n"):
        fx.jit(lambda x: fx.pure_callback(lambda _: number, fx.Spec((), dtype), x))(np.float32(1))


def test_a_host_function_that_returns_a_masked_array_is_refused() -> None:
    with pytest.raises(ExecutionError) as e:
        fx.jit(lambda x: fx.pure_callback(lambda x: np.ma.masked_less(x, 0), x, x))(np.ones(3, np.float32))
    assert e.value.message == "host_call: <lambda> gave a masked array, whose mask would be lost"
    assert e.value.remedy == "fill it: x.filled(0)"


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (3.7, "float32"),
        (3, "float32"),
        (3, "bfloat16"),
        (255, "uint8"),
        (True, "int32"),
        (2.5, "complex64"),
        (1j, "complex64"),
    ],
)
def test_a_host_result_takes_the_declared_type(number: Any, dtype: str) -> None:
    run: Any = fx.jit(lambda x: fx.pure_callback(lambda _: number, fx.Spec((), dtype), x))
    want = np.asarray(number).astype(np.asarray(run(np.float32(1))).dtype)
    assert (np.asarray(run(np.float32(1))) == want, run(np.float32(1)).dtype.name) == (True, dtype)


ONE = "a format such as {:.2f} is for one number; {} shows any array"


@pytest.mark.parametrize(
    ("fmt", "message", "remedy"),
    [
        ("{", "'{' is not a format: Single '{' encountered in format string", "write {{ and }} for braces"),
        (
            "{:.2f}",
            "'{:.2f}' does not format these values: unsupported format string",
            ONE,
        ),
        ("{[3]}", "'{[3]}' does not format these values: index 3 is out of bounds", ONE),
    ],
)
def test_a_format_that_does_not_fit_its_values_is_refused_while_tracing(fmt: str, message: str, remedy: str) -> None:
    def show(x: Any) -> Any:
        fx.debug_print(fmt, x)
        return x

    def check(x: Any) -> Any:
        return fx.error_if(x, x > 2, fmt, x)

    for f, what in ((show, "debug_print"), (check, "error_if")):
        with pytest.raises(ArgumentError) as e:
            fx.trace(f, np.ones(3, np.float32))
        assert e.value.message.startswith(f"{what}: {message}")
        assert e.value.remedy == remedy
    if fmt == "{:.2f}":
        fx.trace(fx.vmap(show), np.ones(3, np.float32))


@pytest.mark.parametrize("units", ["none", lambda body: True])
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_in_a_host_function_is_raised_by_the_call(stop: BaseException, units: Any) -> None:
    """Regression: the interrupt became an error of the function, which `except Exception` around a training step
    catches."""
    wanted: list[BaseException] = []

    def host(x: Any) -> Any:
        if wanted:
            raise wanted.pop()
        return x

    def step(x: Any) -> Any:
        y: Any = fx.io_callback(host, fx.Spec((3,)), x)
        return y * 2

    x = np.ones(3, np.float32)
    program = fx.trace(lambda x: fx.jit(step)(fx.jit(step)(x)), x)
    run = fx.lower(program, units=units).compile()
    wanted.append(stop)
    with pytest.raises(type(stop)) as caught:
        run(x)
    assert caught.value is stop
    assert run(x).tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("run", [lambda f, x: f(x), lambda f, x: fx.interpret(fx.trace(f, x), x)])
def test_an_exception_of_a_host_function_is_the_same_error_in_eager_and_interpreted_calls(run: Any) -> None:
    """Regression: eager and interpreted calls raised the bare exception, so code that handled the error of `jit` missed
    it."""
    cause = ValueError("no")

    def refusing(x: Any) -> Any:
        raise cause

    with pytest.raises(ExecutionError, match=r"^host_call: refusing raised ValueError: no\n(.|\n)*  remedy ") as e:
        run(lambda x: fx.pure_callback(refusing, fx.Spec((3,)), x), np.ones(3, np.float32))
    assert e.value.__cause__ is cause
