"""`record` writes calls of compiled programs to files, and `replay` reads and runs them."""

from __future__ import annotations

import json
import os
import re
import runpy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import testing
from fxad.diagnosis.record import recording as module
from fxad.diagnosis.record.stand_ins import stand_in, statistics_of
from fxad.execution import dispatch
from fxad.ir import Aval, source_location
from fxad.support.atomic_file import write_whole
from fxad.tracing.array import current_binder
from tests.processes import run_python

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def loss(params: dict[str, Any], x: Any) -> Any:
    return fnp.sum(fnp.tanh(x @ params["w"]) ** 2)


def replayed_bits(folder: Path) -> list[bool]:
    return [call.same_bits() for call in fx.replay(folder)]


def test_calls_of_programs_executables_and_jit_are_recorded(tmp_path: Path) -> None:
    params, bound = {"w": np.eye(3, dtype=np.float32)}, fnp.full((3,), 0.25)
    program = fx.trace(lambda x: x * bound, X)
    executable = fx.lower(program).compile(fx.CompileOptions(optimization_level=1))
    step = fx.jit(fx.value_and_grad(loss))
    with fx.record(tmp_path) as recording:
        value, gradient = step(params, X)
        step(params, fnp.asarray(X))  # the same program, by its fast path
        out = executable(X)
        program(X)
        fnp.sin(X) + 1  # operations are no calls of programs
    assert str(recording) == f"recorded 4 calls in {tmp_path}"
    first, _, third, fourth = calls = fx.replay(tmp_path)
    assert [type(call.run()) for call in calls] == [tuple, tuple, fx.Array, fx.Array]
    assert replayed_bits(tmp_path) == [True] * 4
    again, gradient_again = first.run()
    assert np.array_equal(np.asarray(again), np.asarray(value))
    assert np.array_equal(gradient_again["w"], gradient["w"])
    assert first.args[0].keys() == {"w"}
    assert np.array_equal(first.args[1], X)
    assert third.program.jaxpr is program.jaxpr
    assert third.options.options == fx.CompileOptions(optimization_level=1)
    assert np.array_equal(third.interpret(), out)
    assert np.array_equal(np.asarray(fourth.program.bound[0]), bound)
    assert str(third) == (
        "000002.fxcall: <lambda>, 2 equations\n"
        "  argument      x: f32[2,3]\n"
        "  options       units auto, optimization level 1\n"
        "  outcome       it returned"
    )
    assert repr(third) == "<RecordedCall of <lambda>: 000002.fxcall>"


def test_equal_arrays_and_programs_are_stored_once(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    f = fx.jit(lambda x, y: x @ y)
    with fx.record(tmp_path):
        f(x, x)
        f(x, x.copy())
        f(x, x + 1)
    sizes = [p.stat().st_size for p in sorted(tmp_path.iterdir())]
    assert x.nbytes < sizes[0] < 1.3 * x.nbytes
    assert sizes[1] < 2000
    assert sizes[2] < 1.3 * x.nbytes
    with fx.record(tmp_path):  # a later block goes on, and finds what is there
        f(x, x)
    assert (tmp_path / "000003.fxcall").stat().st_size < 2000
    assert replayed_bits(tmp_path) == [True] * 4
    last = fx.replay(tmp_path)[3]
    last.save(tmp_path / "alone.fxcall")
    os.rename(tmp_path / "alone.fxcall", tmp_path.parent / "alone.fxcall")
    (alone,) = fx.replay(tmp_path.parent / "alone.fxcall")
    assert alone.same_bits()
    assert np.array_equal(alone.args[0], x)
    (tmp_path / "000000.fxcall").unlink()
    with pytest.raises(
        fx.errors.FileFormatError,
        match=r"the call shares arrays with that of 000000.fxcall, which does not exist(?s:.*)"
        "put both files into one folder; "
        r"`call.save\(file\)` writes a file that stands alone",
    ):
        fx.replay(tmp_path / "000003.fxcall")


def test_large_arrays_are_replaced_by_statistics_and_a_seed(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    big = random.normal(3.0, 2.0, (100, 100)).astype(np.float32)
    big[:10, 0] = np.nan
    index, flag = random.integers(5, 50, 3000), random.random(3000) < 0.25
    z = (random.normal(size=3000) + 1j).astype(np.complex64)
    with fx.record(tmp_path, limit=100) as recording:
        fx.jit(lambda x, i, b, z, small: (x[i[:3]].sum(), b, z, small))(
            big, index, flag, z, np.asarray([1, 2], np.float32)
        )
    assert re.search(
        r"not stored    000000.fxcall: argument x, f32\[100,100\]: mean \S+, deviation \S+, from \S+ to \S+,"
        r" 0.001 of the elements nan; seed \d+\n",
        str(recording),
    )
    call, again = fx.replay(tmp_path)[0], fx.replay(tmp_path)[0]
    assert call.stand_ins == tuple(f"argument {name}" for name in "xibz")
    x, i, b, made, small = call.args
    assert abs(np.nanmean(x) - 3) < 0.2
    assert abs(np.nanstd(x) - 2) < 0.2
    assert 0 < np.isnan(x).sum() < 100
    assert i.dtype == index.dtype
    assert i.min() >= index.min()
    assert i.max() <= index.max()
    assert abs(b.mean() - 0.25) < 0.1
    assert (made.imag == 1).all()
    assert np.array_equal(small, [1, 2])
    assert np.array_equal(x, again.args[0], equal_nan=True)
    call.run()
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"same_bits: the call of <lambda> in 000000.fxcall has stand-ins for argument x, argument i, argument b, "
        "argument z, so it has other results(?s:.*)record with a larger limit; or compare with the interpreter: "
        r"fx.bisect\(call\)",
    ):
        call.same_bits()
    call.save(tmp_path / "copy")
    assert fx.replay(tmp_path / "copy")[0].stand_ins == call.stand_ins


def test_stand_ins_have_the_type_of_their_array() -> None:
    """Of 0-d arrays too, and of numbers whose deviation is not finite."""
    for dtype in fx.dtypes.ALL:
        for shape in ((), (1,), (2, 3)):
            x = np.zeros(shape).astype(dtype) + np.ones((), dtype)
            made = stand_in(Aval(shape, dtype), statistics_of(x), 3)
            assert (made.shape, made.dtype) == (shape, dtype)
            assert (made == x).all()
    most = np.finfo(np.float64).max
    made = stand_in(Aval((20,), fx.dtypes.float64), statistics_of(np.array([most, -most])), 3)
    assert np.isfinite(made).all()


def test_programs_of_symbolic_shape_are_recorded_at_the_sizes_of_the_call(tmp_path: Path) -> None:
    program = fx.trace(lambda x: fnp.sum(fnp.log(x)) / x.shape[0], fx.Spec("(n,)"))
    ways: list[Any] = [
        program,
        fx.jit(lambda x: fnp.sum(fnp.log(x)) / x.shape[0], symbolic="(n,)"),
        fx.jit(lambda x: program(x)),
    ]
    with fx.record(tmp_path):
        for f in ways:
            for n in (0, 3):
                f(np.full(n, -1, np.float32))
    assert replayed_bits(tmp_path) == [True] * 6
    for call, n in zip(fx.replay(tmp_path), (0, 3) * 3, strict=True):
        assert [a.shape for a in call.program.in_avals] == [(n,)]
        assert not call.program.jaxpr.symbolic
        assert np.array_equal(call.run(), call.interpret(), equal_nan=True)
        assert fx.bisect(call) is None
    small = fx.reduce_program(call.program, testing.gives_nan, call.args)
    assert [e.prim.name for e in small.jaxpr.eqns] == ["log"]


def test_options_units_and_passes_come_back(tmp_path: Path) -> None:
    inner = fx.jit(lambda x: fnp.tanh(x) * 2)
    program = fx.trace(lambda x: inner(inner(x)), X)
    passes = (fx.passes.BEFORE_COMPILATION[0], fx.passes.Pass("mine", lambda jaxpr: jaxpr))
    lowered = fx.lower(program, units=lambda body: True, passes=passes)
    options = fx.CompileOptions(flags=(("xla_cpu_enable_fast_math", False),))
    with fx.record(tmp_path):
        lowered.compile(options)(X)
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"run: the call was compiled with the pass 'mine', a function of its process"
        r"(?s:.*)give it: fx.replay\(path, passes=\(my_pass,\)\); call.interpret\(\) needs no pass",
    ):
        fx.replay(tmp_path)[0].run()
    (call,) = fx.replay(tmp_path, passes=passes[1:])
    assert call.lowered.choice == lowered.choice
    assert call.lowered.passes == passes
    assert call.same_bits()
    assert str(call.options) == (
        "units of 1 bodies, passes drop_derivative_rules, mine, xla_cpu_enable_fast_math=False"
    )
    with pytest.raises(fx.errors.ParameterError, match=r"replay: passes must be a tuple of Pass"):
        fx.replay(tmp_path, passes=[passes[1]])  # type: ignore[arg-type]


def test_donated_arguments_are_recorded_before_they_are_deleted(tmp_path: Path) -> None:
    f = fx.jit(lambda x: x + 1, donate="x")
    x = fnp.asarray(X)
    with fx.record(tmp_path):
        f(x)
    with pytest.raises(fx.errors.ExecutionError):
        np.asarray(x)
    (call,) = fx.replay(tmp_path)
    assert np.array_equal(call.args[0], X)
    assert call.options.options.donate == (0,)
    assert call.same_bits()
    assert call.same_bits()  # the arguments stay


def test_containers_other_than_pythons_become_leaves(tmp_path: Path) -> None:
    @fx.tree.dataclass
    class Pair:
        a: Any
        b: Any

    with fx.record(tmp_path):
        fx.jit(lambda p, x: Pair(p.a + x, p.b))(Pair(X, X), x=X)
    (call,) = fx.replay(tmp_path)
    assert len(call.args) == 3
    assert not call.kwargs
    assert call.program.paths == ("p.a", "p.b", "x")
    assert call.same_bits()
    assert len(call.run()) == 2


def test_names_of_scopes_are_any_texts(tmp_path: Path) -> None:
    names = ["a\tb\nc\\n", "naïve ∑", "\udc80"]

    def f(x: Any) -> Any:
        for name in names:
            with fx.named_scope(name):
                x = fnp.sin(x)
        return x

    with fx.record(tmp_path):
        fx.jit(f)(X)
    (call,) = fx.replay(tmp_path)
    assert call.same_bits()
    scopes = [at.scope for at in [source_location(eqn.source) for eqn in call.program.jaxpr.eqns] if at is not None]
    assert scopes == names


def test_what_no_file_can_hold_is_run_and_reported(tmp_path: Path) -> None:
    def host(x: Any) -> Any:
        return fx.pure_callback(np.sin, fx.Spec((2, 3)), x)

    with fx.record(tmp_path) as recording:
        out = fx.jit(host)(X)
    assert np.allclose(out, np.sin(X))
    assert str(recording) == (
        f"recorded 0 calls in {tmp_path}\n"
        "  not recorded  host: host calls the Python function sin, which a file cannot hold"
    )


def test_errors_of_calls_are_recorded(tmp_path: Path) -> None:
    checked = fx.jit(lambda x: fx.error_if(x, x < 0, "negative"))
    with fx.record(tmp_path) as recording:
        with pytest.raises(fx.errors.CheckError):
            np.asarray(checked(-X - 1))
        y = fnp.asarray(X)
        fx.jit(lambda x: x * 2, donate="x")(y)
        with pytest.raises(fx.errors.ExecutionError, match="x"):
            fx.jit(lambda x: x + 1)(y)
    assert [str(call.outcome) for call in fx.replay(tmp_path)] == [
        "it raised CheckError: error_if: negative",
        "it returned",
    ]
    (skipped,) = recording.skipped  # its argument is gone
    assert skipped.program == "<lambda>"


def test_calls_in_other_threads_and_outside_are_not_recorded(tmp_path: Path) -> None:
    f = fx.jit(lambda x: x + 1)
    with fx.record(tmp_path):
        thread = threading.Thread(target=f, args=(X,))
        thread.start()
        thread.join()
    f(X)
    assert list(tmp_path.iterdir()) == []
    assert current_binder() is None


def test_blocks_are_nested(tmp_path: Path) -> None:
    f = fx.jit(lambda x: x + 1)
    with fx.record(tmp_path / "outer"), fx.record(tmp_path / "inner"):
        f(X)
    assert replayed_bits(tmp_path / "outer") == replayed_bits(tmp_path / "inner") == [True]


def test_recordings_at_once_share_a_folder(tmp_path: Path) -> None:
    f = fx.jit(lambda x: x + 1)
    with fx.record(tmp_path) as outer, fx.record(tmp_path) as inner:
        f(X)

    def work() -> None:
        with fx.record(tmp_path):
            for _ in range(3):
                f(X)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({*outer.files, *inner.files}) == 2
    assert replayed_bits(tmp_path) == [True] * 11


def test_disable_jit_and_traces_inside_of_a_block(tmp_path: Path) -> None:
    f = fx.jit(lambda x: x + 1)
    with fx.record(tmp_path):
        with fx.disable_jit():
            f(X)
        fx.trace(f, X)
    assert list(tmp_path.iterdir()) == []


def test_calls_outside_of_a_block_take_the_same_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After a block, the fast path of a call is in force again: it does not reach the code that knows observers."""
    f = fx.jit(lambda x: x + 1)
    x = f(fnp.asarray(X))
    with fx.record(tmp_path):
        f(x)
    f(x)
    monkeypatch.setattr(dispatch.Dispatcher, "call_buffers", None)
    f(x)


def test_recorded_calls_have_the_same_bits_in_another_process(tmp_path: Path) -> None:
    step = fx.jit(fx.value_and_grad(loss))
    with fx.record(tmp_path):
        step({"w": np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)}, X)
        fx.jit(lambda key: fx.random.normal(key, (5,)))(fx.random.key(3))
    interpreted = [np.asarray(call.interpret()[0]).tobytes().hex() for call in fx.replay(tmp_path)[:1]]
    out = run_python(
        "import sys, fxad as fx, numpy as np\n"
        "calls = fx.replay(sys.argv[1])\n"
        "print([c.same_bits() for c in calls], np.asarray(calls[0].interpret()[0]).tobytes().hex(),"
        " calls[0].differences)\n"
        "print(calls[0].program.jaxpr.eqns[0].source)",
        tmp_path,
    )
    bits, line = out.splitlines()
    assert bits == f"[True, True] {interpreted[0]} ()"
    assert re.fullmatch(r"test_record.py:\d+ in \w+", line)


def test_calls_on_several_devices(tmp_path: Path) -> None:
    """They are replayed on one device; the report says which operands were divided."""
    out = run_python(
        "import sys, fxad as fx, fxad.numpy as fnp, numpy as np\n"
        "fx.set_cpu_devices(2)\n"
        "program = fx.trace(lambda x: fnp.sin(x) * 2, fx.Spec((8,)))\n"
        "x = np.arange(8, dtype=np.float32)\n"
        "halves = fx.NamedSharding(fx.make_mesh((2,), ('i',)), fx.P('i'))\n"
        "with fx.record(sys.argv[1]):\n"
        "    fx.jit(program)(fx.device_put(x, halves))\n"
        "    fx.jit(program)(fx.device_put(x, fx.devices()[1]))\n"
        "print([call.same_bits() for call in fx.replay(sys.argv[1])])\n"
        "print(fx.bisect(program, x, reference=fx.devices()[1]))\n"
        # a fault of one device
        "from dataclasses import replace\n"
        "from fxad.diagnosis.bisect import sides\n"
        "load, fast = sides.load_program, (('xla_cpu_enable_fast_math', True),)\n"
        "sides.load_program = lambda j, u, p, o, d: load(j, u, p, replace(o, flags=fast) if d.id else o, d)\n"
        "ratio, nan = fx.trace(lambda x: fnp.sqrt(x).sum() * 0.0 + 1, fx.Spec((2,))), np.float32([1, np.nan])\n"
        "divergence = fx.bisect(ratio, nan, reference=fx.devices()[1])\n"
        "print(divergence.reference, divergence.equation, divergence.expected, divergence.actual)\n"
        "divergence.as_test(sys.argv[1] + '/test_device.py')\n"
        "import runpy\n"
        "test = runpy.run_path(sys.argv[1] + '/test_device.py')\n"
        "try: test['test_the_program_has_the_results_of_the_reference']()\n"
        "except AssertionError as e: print(str(e).splitlines()[0])\n",
        tmp_path,
    )
    assert out == (
        "[True, True]\nNone\n"
        "compiled for cpu:1 %2:f32[] = mul %1:f32[] 0.0:f32[] 0.0 nan\n"
        "compiled differs from compiled for cpu:1\n"
    )
    test = runpy.run_path(str(tmp_path / "test_device.py"))
    with pytest.raises(pytest.skip.Exception, match=r"this process has no device cpu:99: run this file alone"):
        test["device"]("cpu", 99)
    first, second = fx.replay(tmp_path)
    assert first.differences == (
        f"devices 2 there, {len(fx.devices())} here", "argument x divided among 2 devices there, whole here",
    )  # fmt: skip
    assert second.divided == {}


def test_nothing_of_the_environment_is_stored(tmp_path: Path) -> None:
    run_python(
        "import sys, fxad as fx, numpy as np\nwith fx.record(sys.argv[1]): fx.jit(lambda x: x + 1)(np.float32(1))",
        tmp_path,
        SECRET_TOKEN="hunter2-hunter2",
        XLA_FLAGS="--xla_cpu_enable_fast_math=false",
    )
    (file,) = tmp_path.iterdir()
    text = file.read_bytes().decode(errors="replace")
    assert "hunter2" not in text
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text
    head = json.loads(text.split("\n", 2)[2].split("\n}")[0] + "\n}")
    assert head["versions"].keys() == {
        "fxad", "python", "numpy", "jaxlib", "machine", "device", "devices", "XLA_FLAGS",
    }  # fmt: skip
    assert head["versions"]["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    (call,) = fx.replay(tmp_path)
    here = os.environ.get("XLA_FLAGS", "") or "none"
    assert f"XLA_FLAGS --xla_cpu_enable_fast_math=false there, {here} here" in call.differences


def test_checks_in_a_file_name_no_folder(tmp_path: Path) -> None:
    f = fx.jit(lambda x: fx.lax.map(lambda y: fx.error_if(y, y < 0, "negative"), x))
    with fx.record(tmp_path):
        f(X)
    assert str(Path(__file__).parent).encode() not in (tmp_path / "000000.fxcall").read_bytes()
    (call,) = fx.replay(tmp_path)
    assert call.same_bits()
    with pytest.raises(fx.errors.CheckError, match="negative") as caught:
        fx.interpret(call.program, -X - 1)
    assert Path(__file__).name in str(caught.value)


def test_a_process_that_is_killed_leaves_the_complete_calls_and_the_one_that_killed_it(tmp_path: Path) -> None:
    """The file of a call is there before the call runs."""
    code = (
        "import os, sys, fxad as fx, numpy as np\n"
        "from fxad.execution.dispatch import Dispatcher\n"
        "f, g = fx.jit(lambda x: x + 1), fx.jit(lambda x: x * 3)\n"
        "g(np.float32(0))\n"
        "with fx.record(sys.argv[1]):\n"
        "    f(np.float32(1))\n"
        "    launch = Dispatcher._launch\n"
        "    Dispatcher._launch = lambda *_: os._exit(0)\n"
        "    g(np.float32(2))\n"
    )
    run_python(code, tmp_path)
    first, second = fx.replay(tmp_path)
    assert first.same_bits()
    assert not first.ended_process
    assert second.ended_process
    assert second.outcome == "the process ended or was interrupted in the call, or could not write the results"
    assert second.args[0] == 2
    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"same_bits: the call of <lambda> in 000001.fxcall has no recorded results: the process ended"
        r" or was interrupted in the call, or could not write the results"
        r"(?s:.*)compare with the interpreter: fx.bisect\(call\)",
    ):
        second.same_bits()
    assert second.run() == 6


def test_a_full_disk_is_an_error_of_the_call_and_leaves_the_files_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    f = fx.jit(lambda x: x + 1, donate="x")
    x = fnp.asarray(X)

    def full(path: str, parts: Any, mode: int) -> None:
        calls.append(path)
        raise OSError(28, "No space left on device", path)

    with fx.record(tmp_path):
        f(fnp.asarray(X))
        monkeypatch.setattr(module, "write_new", full)
        with pytest.raises(OSError, match=r"No space left on device"):
            f(x)
        assert np.array_equal(x, X)  # the call did not run
        monkeypatch.undo()
        f(x)
    assert len(calls) == 1
    assert replayed_bits(tmp_path) == [True, True]


def test_results_that_a_full_disk_does_not_take_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f = fx.jit(lambda x: x + 1)

    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    def run(path: str, parts: Any, mode: int) -> None:
        with monkeypatch.context() as m:
            m.setattr("os.write", full)
            write_whole(path, parts, mode)

    monkeypatch.setattr(module, "write_whole", run)
    with fx.record(tmp_path) as recording:
        assert np.array_equal(f(X), X + 1)
        with pytest.raises(TypeError):
            f("a")
    assert str(recording).endswith("\n  not stored    000000.fxcall: the results: No space left on device")
    (call,) = fx.replay(tmp_path)
    assert np.array_equal(call.run(), X + 1)
    assert [p.name for p in tmp_path.iterdir()] == ["000000.fxcall"]


def test_refusals_of_record(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with (
        pytest.raises(
            fx.errors.FileFormatError,
            match=r"record: .*file is a file(?s:.*)name a folder: each call gets a file in it",
        ),
        fx.record(file),
    ):
        pass
    with pytest.raises(fx.errors.ArgumentError, match=r"record: 3 is not the path of a folder(?s:.*)name a folder"):
        fx.record(3).__enter__()  # type: ignore[arg-type]
    with pytest.raises(fx.errors.ArgumentError, match=r"record: the budget is a str, not a number of bytes: 'much'"):
        fx.record(tmp_path, limit="much").__enter__()

    def inside(x: Any) -> Any:
        with fx.record(tmp_path):
            return x

    with pytest.raises(
        fx.errors.ArgumentError,
        match=r"record: a trace is active, and calls in it are equations(?s:.*)record the outer call",
    ):
        fx.trace(inside, X)
