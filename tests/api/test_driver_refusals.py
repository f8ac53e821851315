"""Errors of lowering, compiling, running, exporting and devices: every message whole, with the user's line and the
remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, runtime
from fxad.core.host_functions import HOST
from fxad.errors import (
    ArgumentError,
    CompileError,
    DTypeError,
    ExecutionError,
    FileFormatError,
    FxadError,
    ParameterError,
    ShapeError,
)
from fxad.ir import Aval
from fxad.lower import lower_jaxpr
from fxad.primitives.host_call import NUMBER, HostCall
from fxad.sharding import NamedSharding, PartitionSpec, make_mesh
from fxad.storage.exported import KIND, VERSION
from fxad.storage.file_format import FileSection, pack, unpack
from fxad.xla import buffers, client, custom_calls, host_calls
from fxad.xla.cache import Cache
from fxad.xla.dlpack import _pointer, _Tensor, copy_out
from tests.api.refusals import refused

X = np.ones(4, np.float32)
F4 = Aval((4,), "float32")
SCALAR = Aval((), "int32")
CPU = runtime.default_device()
ELSEWHERE = replace(CPU, platform="abacus")
fxa: Any = fx
driver: Any = runtime


def step(state: Any, grad: Any) -> Any:
    return state - grad


def cholesky(x: Any) -> Any:
    return fnp.linalg.cholesky(x)


LOWERED: Any = fx.lower(fx.trace(step, X, X))
ONE_DEVICE = NamedSharding(make_mesh((1,), ("i",)), PartitionSpec())
CLOSING = fx.lower(fx.trace(lambda x: x + fnp.asarray(X), X))
FACTORED: Any = fx.lower(fx.trace(cholesky, np.eye(2)))
DATA = LOWERED.export(platforms="cpu")
SHOW = HostCall("show", (F4,), "pure")


def changed(**entries: Any) -> bytes:
    _, sections = unpack("test", DATA, KIND, VERSION)
    head = {**json.loads(sections[0].content), **entries}
    return b"".join(pack(KIND, VERSION, [FileSection("program", json.dumps(head).encode()), *sections[1:]]))


def wide() -> object:
    capsule = X.copy().__dlpack__()
    _Tensor.from_address(_pointer(capsule, b"dltensor")).lanes = 4
    return copy_out(capsule)


def traced_call(x: Any) -> Any:
    return LOWERED.compile()(x, x)


def closing_over(x: Any) -> Any:
    fx.lower(fx.trace(lambda y: x + y, X)).compile()
    return x


def exporting_over(x: Any) -> Any:
    fx.lower(fx.trace(lambda y: x + y, X)).export()
    return x


def deleted() -> runtime.Buffer:
    buffer = runtime.to_buffer(X, F4)
    runtime.delete(buffer)
    return buffer


def nested() -> None:
    with fx.profile("nowhere"), fx.profile("nowhere"):
        pass


Case = tuple[Callable[[], object], type[FxadError], str, str]
TRACE = "trace the function first: lower(trace(f, *examples))"
UNITS = "a predicate takes the body of a call, a Jaxpr, and says whether it is a unit"
POSITION = "give a position, a name, a sequence of them, or {name: tree prefix of bools}"
RESULTS = "correct the result types, or convert what the function returns"
KEEP = "compute it again, or delete it when nobody uses it any more"

COMPILING: list[Case] = [
    (lambda: fxa.lower(3), ArgumentError, "lower: takes a Program, got 3", TRACE),
    (lambda: fxa.lower(LOWERED.program, "most"), ParameterError,
     "lower: units must be 'auto', 'none' or a predicate, got 'most'", UNITS),
    (lambda: fxa.jit(step, units=1), ParameterError, "jit: units must be 'auto', 'none' or a predicate, got 1", UNITS),
    (lambda: fx.jit(LOWERED.program, static_argnums=0), ArgumentError,
     "jit: step is a Program, which has no static arguments",
     "jit the function, or give them to trace as static_argnames"),
    (lambda: fx.jit(step, static_argnames="grad", donate="grad"), ParameterError,
     "jit of step: the argument 'grad' is static and donated: a static value has no memory to give up",
     "leave it out of `donate`"),
    (lambda: fxa.jit(step, donate=1.5), ParameterError,
     "jit of step: donate is 1.5, not a position or a name of an argument", POSITION),
    (lambda: fx.jit(step, donate=2), ParameterError, "jit of step: donate has 2, it takes 2 positional arguments",
     "number them from 0, or give their names"),
    (lambda: fx.jit(step, donate="weights"), ParameterError,
     "jit of step: donate has 'weights', which is no argument of it", "its arguments are state, grad"),
    (lambda: fx.jit(lambda: X, donate="weights"), ParameterError,
     "jit of <lambda>: donate has 'weights', which is no argument of it", "it takes no arguments"),
    (lambda: fx.jit(lambda *arrays: X, donate="arrays"), ParameterError,
     "jit of <lambda>: donate has 'arrays', which is no argument of it", "number its arguments"),
    (lambda: fx.jit(lambda **arrays: X, donate=0), ParameterError,
     "jit of <lambda>: donate has 0, it takes 0 positional arguments", "number them from 0, or give their names"),
    (lambda: LOWERED.compile(fx.CompileOptions(donate=(0,)), donate="grad"), ParameterError,
     "compile of step: donate is given twice, by name and as operands of the options",
     "leave it out of CompileOptions"),
    (lambda: LOWERED.compile(fx.CompileOptions(donate=(9,))), ParameterError,
     "compile: donate: operand 9 does not exist, the program has 2",
     "number the operands from 0, or name arguments: compile(donate=...)"),
    (lambda: CLOSING.compile(fx.CompileOptions(donate=(0,))), ParameterError,
     "compile of <lambda>: operand 0 is an array that it closes over, which is not donated",
     "number the argument leaves from 1, or name them: compile(donate=...)"),
    (lambda: LOWERED.compile(device=fx.devices()[0], in_shardings=ONE_DEVICE), ArgumentError,
     "compile of step: a device and shardings are given", "leave out one of them: both say where the program runs"),
    (lambda: LOWERED.compile(device="cpu:0"), ArgumentError, "compile of step: a str is not a device: 'cpu:0'",
     "use fxad.devices()"),
    (lambda: fx.trace(traced_call, X), ArgumentError,
     "step: argument state is Tracer<f32[4]>; a compiled program is not traced",
     "call the Program, or the function, inside a trace; compile the outer program"),
    (lambda: fx.trace(closing_over, X), ArgumentError,
     "compile: <lambda> closes over Tracer<f32[4]> of an enclosing trace",
     "call the program inside that trace instead, and compile the outer one"),
    (lambda: custom_calls.register_targets({"fxad_potrf_f32"}, "abacus"), CompileError,
     "compile: fxad_potrf_f32 has no implementation on abacus",
     "run this part of the program on the CPU: fx.devices('cpu')"),
    (lambda: host_calls.compile_with_callbacks("", [(SHOW, "")], (ELSEWHERE,), driver.CompileOptions()), CompileError,
     "compile: a program on abacus cannot call show, a function of this process",
     "leave it out of what does not run here, on a CPU"),
]  # fmt: skip

EXPORTING: list[Case] = [
    (lambda: fx.load_exported(b"junk"), FileFormatError,
     "load_exported: the program is not what fxad wrote: it does not begin with 'fxad exported program' and a version",
     "load reads what fxad.save wrote, load_exported what export wrote"),
    (lambda: fxa.load_exported("junk"), ArgumentError, "load_exported: a str is not bytes",
     "read the file in binary mode"),
    (lambda: fx.load_exported(DATA.replace(b"program 1", b"program 2", 1)), FileFormatError,
     "load_exported: the program is of version 2, this fxad reads versions up to 1",
     "install a newer fxad, or save the program again with this one"),
    (lambda: fx.load_exported(changed(platforms=["abacus"])), ParameterError,
     f"load_exported: step was exported for abacus, the default platform is {CPU.platform}",
     "export it with platforms=..., or set FXAD_PLATFORM"),
    (lambda: LOWERED.export(platforms="abacus"), ParameterError, "export: step does not run on 'abacus'",
     "export for cpu, cuda"),
    (lambda: LOWERED.export(platforms=()), ParameterError, "export: step is to run on no platform",
     "export for cpu, cuda"),
    (lambda: fx.lower(fx.trace(lax.linalg.eig, np.eye(2))).export(platforms="cuda"), ParameterError,
     "export: eig does not run on 'cuda': eig: cuSOLVER has no left eigenvectors", "export for cpu"),
    (lambda: fx.trace(exporting_over, X), ArgumentError,
     "export: <lambda> closes over Tracer<f32[4]> of an enclosing trace",
     "a file holds values: export the program of the whole function"),
]  # fmt: skip

RUNNING: list[Case] = [
    (lambda: driver.to_buffer([1, 2], F4), ArgumentError, "to_buffer: a list is no array",
     "give a NumPy array, a scalar, or an object with __dlpack__"),
    (lambda: runtime.to_buffer(np.ones(3, np.float32), F4), ShapeError,
     "to_buffer: shapes differ: the array has (3,), the program takes (4,)", "trace for the other shape"),
    (lambda: runtime.to_buffer(np.ones(4), F4), DTypeError,
     "to_buffer: dtypes differ: the array has dtype('float64'), the program takes dtype('float32')",
     "convert the array: nothing is converted silently"),
    (lambda: runtime.to_buffer(300, Aval((), "int8")), DTypeError, "to_buffer: 300 is no int8",
     "give a number that the dtype has, or convert it"),
    (wide, DTypeError, "dlpack: type code 2 with 32 bits and 4 lanes is not a dtype of fxad",
     "convert it where it comes from"),
    (lambda: runtime.to_numpy(deleted()), ExecutionError, "to_numpy: the array is deleted", KEEP),
    (lambda: runtime.cache(LOWERED.program.jaxpr, CPU).execute([deleted(), deleted()]), ExecutionError,
     "execute: operand 0 is deleted", KEEP),
    (lambda: runtime.devices("abacus"), ParameterError, "devices: 'abacus' is no platform", "use cpu or cuda"),
    (lambda: runtime.set_cpu_devices(64), ParameterError,
     f"set_cpu_devices: 64 asked for, the CPU is in use with {len(runtime.devices('cpu'))}",
     "call it before the first program runs, or set FXAD_CPU_DEVICES"),
    (lambda: runtime.set_cpu_devices(0), ParameterError, "set_cpu_devices: the number of devices is 0",
     "give an int of 1 or more"),
    (lambda: runtime.set_cpu_devices(2**31), ParameterError, "set_cpu_devices: the number of devices is 2147483648",
     "give an int of 32 bits"),
    (lambda: fxa.numpy.asarray(X).to_device(CPU, stream=3), ParameterError,
     "to_device: stream 3: fxad orders its own work", "leave `stream` out"),
    (lambda: Cache(max_bytes=-1), ParameterError, "cache: max_bytes must be a number of bytes, got -1",
     "give an int >= 0"),
    (nested, ParameterError, "profile: another profile is running in this process", "end that one first"),
    (lambda: HOST.call(-1, "show", ()), ExecutionError,
     "host_call: show is gone: it is of another process, or nobody holds its program",
     "keep the program, or trace it again"),
    (lambda: replace(SHOW, effect="often").effects, ParameterError,
     "host_call: effect must be pure, io or ordered, got 'often'",
     "pure: it may be left out; io: it may not; ordered: nor change places with another"),
    (lambda: SHOW.abstract_eval(), ArgumentError,
     "host_call: the first operand is the number of a function, u64[], got nothing",
     "use pure_callback, io_callback or debug_print, which number their function"),
    (lambda: replace(SHOW, sizes=(2,), mapped=((False,),)).abstract_eval(NUMBER, F4), ParameterError,
     "host_call: mapped of show is ((False,),) for sizes (2,) and 2 operands",
     "give a tuple for each size, with a flag for each operand, that of the number first"),
    (lambda: replace(SHOW, sizes=(3,), mapped=((False, True),)).abstract_eval(NUMBER, F4), ShapeError,
     "host_call: operand 1 of show has mapped axes [3], got f32[4]", "mapped axes come first, in the order of sizes"),
    (lambda: SHOW._checked((X, X), ()), ExecutionError, "host_call: show gave 2 results, it was declared to give 1",
     "correct the result types, or what the function returns"),
    (lambda: SHOW._checked((X[:2],), ()), ExecutionError,
     "host_call: show gave float32[2], it was declared to give f32[4]", RESULTS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "message", "remedy"),
    [*COMPILING, *EXPORTING, *RUNNING],
    ids=lambda x: x[:50] if isinstance(x, str) else "",
)
def test_refusals(call: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    assert refused(call, error, message).remedy == remedy


def test_the_line_of_a_with_statement_is_the_users() -> None:
    found = refused(nested, ParameterError, "profile: another profile is running in this process")
    assert found.caller.endswith(" in nested")


def test_a_profile_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExecutionError) as e, fx.profile(tmp_path / "file"):
        pass
    assert e.value.message.startswith(f"profile: the trace was not written to {tmp_path / 'file'}: ")
    assert e.value.remedy == "name a directory that you may make and write to"


def test_a_function_that_this_jaxlib_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_calls, "_targets", custom_calls._Targets())
    monkeypatch.setattr("fxad.lowering.lapack.registrations", dict)
    found = refused(
        lambda: FACTORED.compile(fx.CompileOptions(optimization_level=0)),
        CompileError,
        "compile: fxad_potrf_f64 has no implementation in this jaxlib",
    )
    assert found.remedy == "install a newer jaxlib"


def test_a_client_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> object:
        raise runtime.XlaRuntimeError("UNAVAILABLE: no threads")

    monkeypatch.setattr("fxad.xla.client.xla_client.make_cpu_client", fails)
    with pytest.raises(ExecutionError) as e:
        client._Clients().devices("cpu")
    assert e.value.message == "devices: no cpu client: UNAVAILABLE: no threads"
    assert e.value.remedy == "see that the device is there and free, or set FXAD_PLATFORM=cpu"


@pytest.mark.parametrize("count", ["0", "many", "-1", "", "2147483648", "9" * 5000])
def test_a_wrong_number_of_devices(count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXAD_CPU_DEVICES", count)
    with pytest.raises(ParameterError) as e:
        client._Clients().devices("cpu")
    assert e.value.message == f"devices: FXAD_CPU_DEVICES must be a number of devices, got {count!r:.60}"
    assert e.value.remedy == "set it to an int >= 1"


def test_a_process_that_was_forked_has_no_devices() -> None:
    clients = client._Clients()
    clients.devices("cpu")
    clients.after_fork()
    with pytest.raises(ExecutionError) as e:
        clients.devices("cpu")
    assert e.value.message == (
        "devices: this process was forked from one that had begun to compute, and has none of XLA's threads"
    )
    assert e.value.remedy == (
        "start processes with 'spawn' or 'forkserver' of multiprocessing, or fork before computing"
    )


def test_errors_of_xla_have_a_remedy() -> None:
    lowered = lower_jaxpr(LOWERED.program.jaxpr)
    options = fx.CompileOptions(flags=(("xla_no_such_flag", True),))
    remedy = "leave out flags of CompileOptions; if it stays, report it with the program: fx.lower(program).text()"
    with pytest.raises(CompileError, match="No such compile option: 'xla_no_such_flag'") as e:
        runtime.compile_module(lowered, options, CPU, LOWERED.program.jaxpr)
    assert e.value.remedy == remedy
    program, buffer = runtime.cache(LOWERED.program.jaxpr, CPU), runtime.to_buffer(X, F4)
    with pytest.raises(ExecutionError, match="supplied 1 arguments but compiled program expected 2") as refused_call:
        program.execute([buffer])
    check = "the words are XLA's: check what the program is given, and what memory the device has left"
    assert refused_call.value.remedy == check


class OnGpu:
    """An array that claims to be on a GPU."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __dlpack__(self) -> Any:
        return X.copy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number


def test_an_array_on_a_gpu_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "devices", lambda platform: [CPU])
    with pytest.raises(ExecutionError) as e:
        runtime.to_buffer(OnGpu(99), F4)
    assert e.value.message == "to_buffer: the array is on GPU 99, which this process does not use"
    assert e.value.remedy == "copy the array to the host, or to another GPU"


def test_out_of_memory_when_an_array_is_transferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA's out-of-memory error is simulated: a real one would need arrays of the size of the machine."""

    def full(*_: object) -> object:
        raise runtime.XlaRuntimeError("RESOURCE_EXHAUSTED: no memory")

    monkeypatch.setattr("fxad.xla.buffers._put", full)
    monkeypatch.setattr("fxad.xla.buffers._jax.dlpack_managed_tensor_to_buffer", full)
    with pytest.raises(ExecutionError) as put:
        runtime.to_buffer(X, F4)
    assert put.value.message == f"to_buffer: f32[4] to {CPU.raw}: RESOURCE_EXHAUSTED: no memory"
    monkeypatch.setattr(buffers, "devices", lambda platform: [CPU])
    with pytest.raises(ExecutionError) as imported:
        runtime.to_buffer(OnGpu(CPU.raw.local_hardware_id), F4)
    assert imported.value.message == f"to_buffer: DLPack to {CPU}: RESOURCE_EXHAUSTED: no memory"
    for e in (put, imported):
        assert e.value.remedy == "free memory of the device, or choose another device"
