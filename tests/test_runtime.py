"""The runtime: devices, buffers, executables, the cache. Every name of stubs/jaxlib is exercised here."""

from __future__ import annotations

import _thread
import copy
import gc
import importlib.util
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from typing_extensions import CapsuleType

import fxad as fx
import fxad.numpy as fnp
from fxad import dtypes, lax, runtime
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import ArgumentError, CompileError, DTypeError, ExecutionError, ParameterError, ShapeError
from fxad.ir import Aval, Jaxpr, Lit, NDArray, Var
from fxad.lower import lower_jaxpr
from fxad.primitives.control.remat import Remat
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise import ADD, MUL, SIN, SUB, TANH
from fxad.xla import buffers, failures, interruptible
from fxad.xla.cuda import cuda_library
from fxad.xla.dlpack import _pointer, _Tensor, copy_out
from fxad.xla.donated_buffers import start_pinned, take_for_deletion
from fxad.xla.host_calls import HostErrors
from fxad.xla.interruptible import waits
from tests.api.refusals import check_refused
from tests.processes import run_python

pytestmark = pytest.mark.smoke

CPU = runtime.devices("cpu")[0]
F4 = Aval((4,), "float32")
NO_PROTOCOL = dtypes.FLOAT8 | {dtypes.bfloat16}


def add_mul(n: int = 1, aval: Aval = F4) -> Jaxpr:
    b = Builder()
    x, y = b.inputs([aval, aval])
    for _ in range(n):
        x = b.one(ADD, b.one(MUL, x, y), y)
    return b.build([x])


def array(aval: Aval, seed: int = 0) -> NDArray:
    """Returns an array of random bits."""
    rng = np.random.default_rng(seed)
    if aval.dtype == dtypes.bool_:
        return rng.integers(0, 2, aval.shape).astype(np.bool_)
    return cast(NDArray, np.frombuffer(rng.bytes(aval.nbytes), aval.dtype).reshape(aval.shape).copy())


def put(x: NDArray) -> runtime.Buffer:
    return runtime.to_buffer(x, Aval(x.shape, x.dtype), CPU)


# --------------------------------------------------------------------------------------------------------- programs


def test_runs() -> None:
    x, y = np.arange(4, dtype=np.float32), np.full(4, 2, np.float32)
    jaxpr = add_mul(3)
    program = runtime.cache(jaxpr, CPU)
    (out,) = program.execute([put(x), put(y)])
    (want,) = run(jaxpr, (x, y))
    np.testing.assert_array_equal(runtime.to_numpy(out), want)
    assert (program.in_avals, program.out_avals, program.device) == ((F4, F4), (F4,), CPU)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_literals_survive_to_the_bit(dtype: dtypes.DType) -> None:
    """Every literal of the table, through lowering, compiling and running, of shapes (), (3,) and (0, 2)."""
    size = dtype.itemsize
    patterns = {bytes(size), b"\1" + bytes(size - 1)}
    if dtype != dtypes.bool_:
        patterns |= {b"\xff" * size, bytes(size - 1) + b"\x80", b"\x01" * (size - 1) + b"\x7f"}
    lits = [Lit(bits, Aval(shape, dtype)) for bits in sorted(patterns) for shape in ((), (3,), (0, 2))]
    jaxpr = Builder().build(lits)
    outs = runtime.cache(jaxpr, CPU).execute([])
    for lit, out in zip(lits, outs, strict=True):
        assert runtime.to_numpy(out).tobytes() == lit.bits * lit.aval.size, lit


def test_a_program_without_operands_and_results() -> None:
    assert runtime.cache(Builder().build([]), CPU).execute([]) == []


def test_operands_as_results() -> None:
    b = Builder()
    x, _ = b.inputs([F4, F4])
    outs = runtime.cache(b.build([x, x]), CPU).execute(
        [put(np.arange(4, dtype=np.float32)), put(np.ones(4, np.float32))]
    )
    assert [runtime.to_numpy(o).tolist() for o in outs] == [[0, 1, 2, 3]] * 2


def test_execution_errors_have_a_reason() -> None:
    program = runtime.cache(add_mul(), CPU)
    with pytest.raises(ExecutionError, match=r"(?m)^execute: .*supplied 1 arguments but compiled program expected 2$"):
        program.execute([put(np.ones(4, np.float32))])
    buffer = put(np.ones(4, np.float32))
    runtime.delete(buffer)
    with pytest.raises(ExecutionError, match=r"(?m)^execute: operand 0 is deleted$"):
        program.execute([buffer, buffer])


def test_compile_errors_have_a_reason() -> None:
    lowered = lower_jaxpr(add_mul())
    options = runtime.CompileOptions(flags=(("xla_no_such_flag", True),))
    with pytest.raises(CompileError, match=r"(?m)^compile: .*No such compile option: 'xla_no_such_flag'$"):
        runtime.compile_module(lowered, options, CPU, add_mul())
    broken = type(lowered)(lowered.in_avals, lowered.out_avals, "%0 = nonsense\n}\n", "")
    with pytest.raises(CompileError, match=r"(?m)^compile: (.|\n)*  in            %0 = nonsense$"):
        runtime.compile_module(broken, runtime.CompileOptions(), CPU, add_mul())


def test_options_reach_xla() -> None:
    """A program with other options is another entry of the cache, with the same results."""
    options = runtime.CompileOptions(optimization_level=0, flags=(("xla_llvm_disable_expensive_passes", True),))
    jaxpr = add_mul(2)
    x = put(np.arange(4, dtype=np.float32))
    plain, other = runtime.cache(jaxpr, CPU), runtime.cache(jaxpr, CPU, options)
    assert plain is not other
    (a,), (b,) = plain.execute([x, x]), other.execute([x, x])
    assert runtime.to_numpy(a).tobytes() == runtime.to_numpy(b).tobytes()


def test_donation() -> None:
    aval = Aval((4096,), "float32")
    program = runtime.cache(add_mul(1, aval), CPU, runtime.CompileOptions(donate=(0,)))
    assert program.memory().alias_bytes == aval.nbytes
    x = np.arange(4096, dtype=np.float32)
    given_up, kept, shown = put(x), put(x), put(x)
    view = runtime.to_numpy(shown)
    (out,) = program.execute([given_up, kept])
    program.execute([shown, kept])
    assert runtime.is_deleted(given_up)
    assert not runtime.is_deleted(kept)
    np.testing.assert_array_equal(view, x)
    np.testing.assert_array_equal(runtime.to_numpy(out), x * x + x)


def test_donating_shared_memory_leaves_it_alone() -> None:
    aval = Aval((1 << 16,), "float32")
    program = runtime.cache(add_mul(1, aval), CPU, runtime.CompileOptions(donate=(0,)))
    first = put(np.arange(1 << 16, dtype=np.float32))
    view = runtime.to_numpy(first)
    before = view.copy()
    runtime.block(program.execute([put(view), first])[0])
    np.testing.assert_array_equal(view, before)


def test_memory_and_cost() -> None:
    aval = Aval((256, 256), "float32")
    program = runtime.cache(add_mul(1, aval), CPU)
    memory = program.memory()
    n = aval.nbytes
    assert (memory.argument_bytes, memory.output_bytes, memory.alias_bytes) == (2 * n, n, 0)
    assert memory.peak_bytes == 3 * n + memory.temp_bytes
    cost = program.cost()
    assert (cost.flops, cost.transcendentals) == (2 * 256 * 256, 0.0)
    assert cost.bytes_accessed == 3 * n
    b = Builder()
    assert runtime.cache(b.build([b.one(TANH, b.input(aval))]), CPU).cost().transcendentals == 256 * 256


def test_recomputation_saves_memory_in_the_executable() -> None:
    """A backward program of 64 layers recomputes in 8 segments. XLA must not merge them with the forward program."""
    aval = Aval((128, 128), "float32")
    dot, dot_t = DotGeneral((1,), (0,), (), (), None), DotGeneral((1,), (1,), (), (), None)

    def forward() -> Jaxpr:
        b = Builder()
        x, w = b.inputs([aval, aval])
        for _ in range(8):
            x = b.one(TANH, b.one(dot, x, w))
        return b.build([x])

    def backward() -> Jaxpr:
        b = Builder()
        bar, x, w = b.inputs([aval, aval, aval])
        saved = []
        for _ in range(8):
            x = b.one(TANH, b.one(dot, x, w))
            saved.append(x)
        for t in reversed(saved):
            bar = b.one(dot_t, b.one(MUL, bar, b.one(SUB, Lit.of(1.0, aval), b.one(MUL, t, t))), w)
        return b.build([bar])

    def whole(opaque: bool) -> Jaxpr:
        b = Builder()
        x, w = b.inputs([aval, aval])
        starts = []
        for _ in range(8):
            starts.append(x)
            (x,) = b(Remat(forward(), False), x, w)
        bar: Var | Lit = Lit.of(1.0, aval)
        for start in reversed(starts):
            (bar,) = b(Remat(backward(), opaque), bar, start, w)
        return b.build([x, bar])

    rng = np.random.default_rng(0)
    x, w = [put(rng.normal(size=aval.shape).astype(np.float32) / 10) for _ in range(2)]
    outs, arrays = [], []
    for opaque in (False, True):
        program = runtime.cache(whole(opaque), CPU)
        arrays.append(program.memory().temp_bytes / aval.nbytes)
        outs.append([runtime.to_numpy(out).tobytes() for out in program.execute([x, w])])
    assert arrays[0] > 60
    assert arrays[1] < 18
    assert outs[0] == outs[1]


def test_hlo_has_the_users_names() -> None:
    b = Builder()
    # no other test has an equal program, which could have another name
    jaxpr = b.build([b.one(SIN, b.one(SIN, b.one(SIN, b.input(Aval((4, 17), dtypes.float32)))))], "attend")
    assert 'op_name="attend/sin"' in runtime.cache(jaxpr, CPU).hlo()


# ------------------------------------------------------------------------------------------------------------ cache


def test_one_compilation_however_many_threads() -> None:
    cache = runtime.Cache()
    jaxpr = add_mul(40)
    barrier = threading.Barrier(16)
    programs: list[runtime.XlaExecutable] = []

    def ask() -> None:
        barrier.wait()
        programs.append(cache(jaxpr, CPU))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(map(id, programs))) == 1
    stats = cache.stats()
    assert (stats.compilations, stats.misses, stats.hits, stats.entries) == (1, 1, 15, 1)
    assert stats.seconds > 0


def test_a_cache_of_zero_bytes_keeps_nothing() -> None:
    cache = runtime.Cache(max_bytes=0)
    jaxpr = add_mul(7)
    gone, program = weakref.ref(jaxpr), weakref.ref(cache(jaxpr, CPU))
    assert program() is None
    assert (cache.stats().entries, cache.stats().bytes, cache.stats().evictions) == (0, 0, 1)
    del jaxpr
    gc.collect()
    assert gone() is None


def test_the_most_recently_used_programs_are_kept() -> None:
    all_of_them = runtime.Cache()
    for n in (61, 62, 63):
        all_of_them(add_mul(n), CPU)
    budget = all_of_them.stats().bytes - 1024  # room for two
    all_of_them.clear()
    cache = runtime.Cache(budget)
    gc.freeze()  # what other tests left is not searched below
    for n in (61, 62, 61, 63, 61, 62):  # 63 evicts 62, and the second 62 evicts 63; no other test has these programs
        cache(add_mul(n), CPU)
        gc.collect()
    stats = cache.stats()
    assert (stats.compilations, stats.entries, stats.evictions) == (4, 2, 2)
    assert stats.bytes <= budget
    gone = weakref.ref(add_mul(61))
    assert gone() is not None
    cache.clear()
    gc.collect()
    assert gone() is None


def test_a_live_executable_is_found_after_its_eviction() -> None:
    cache = runtime.Cache(max_bytes=0)
    mine = add_mul(5)
    first = cache(mine, CPU)
    cache(add_mul(6), CPU)
    assert cache(mine, CPU) is first


def test_a_held_executable_outlives_its_program() -> None:
    program = runtime.Cache()(add_mul(8), CPU)
    gc.collect()
    x = put(np.ones(4, np.float32))
    assert runtime.to_numpy(program.execute([x, x])[0]).tolist() == [9.0] * 4


def test_clear_forgets() -> None:
    cache = runtime.Cache()
    jaxpr = add_mul()
    first = cache(jaxpr, CPU)
    cache.clear()
    assert cache.stats() == runtime.CacheStats()
    assert cache(jaxpr, CPU) is not first


def test_explain() -> None:
    cache = runtime.Cache()
    jaxpr = add_mul()
    options = runtime.CompileOptions(optimization_level=1)
    for _ in range(3):
        cache(jaxpr, CPU)
    cache(jaxpr, CPU, options)
    lines = sorted(cache.explain().splitlines(), key=len)
    assert " ms      2 hits " in lines[0]
    assert lines[0].endswith(" bytes  cpu:0  <Jaxpr main(f32[4], f32[4]) -> (f32[4]), 2 equations>")
    assert lines[1].endswith(f" bytes  cpu:0  {jaxpr!r} with {options}")


def test_a_bool_flag_and_an_int_flag_are_different_keys() -> None:
    """Regression: `1 == True`, so the executable for the flag True was returned for the flag 1, which XLA rejects."""
    fast = "xla_cpu_enable_fast_math"
    yes, one = (runtime.CompileOptions(flags=((fast, v),)) for v in (True, 1))
    assert yes != one
    assert yes == runtime.CompileOptions(flags=((fast, True),))
    assert hash(yes) == hash(runtime.CompileOptions(flags=((fast, True),)))
    cache, jaxpr = runtime.Cache(), add_mul(3)
    cache(jaxpr, CPU, yes)
    with pytest.raises(CompileError, match="'1' is not a valid bool value"):
        cache(jaxpr, CPU, one)
    why = cache.explain(jaxpr, one)
    assert "('xla_cpu_enable_fast_math', 1)" in str(why)


@pytest.mark.parametrize(
    "total",
    [
        fnp.prod,
        lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b, (0, 1)),
        lambda x: lax.reduce_window(x, np.float32(1), lax.mul, x.shape, (1, 1), "valid"),
    ],
    ids=["prod", "reduce", "reduce_window"],
)
def test_a_product_keeps_its_constant_factors(total: Callable[[fx.Array], fx.Array]) -> None:
    """A constant factor stays in front of the product: behind it, the product has already overflowed."""
    x = np.full((2, 3), 1e9, np.float32)
    found = fx.jit(lambda x: fnp.sum(total(x * np.float32(1e-9))))(x)
    assert abs(float(found) - 1) < 1e-6


@pytest.mark.as_users_compile
@pytest.mark.parametrize(
    "largest",
    [
        lambda y: fnp.sum(y.max(0)),
        lambda y: y.max(),
        lambda y: fnp.sum(fx.vmap(lambda v: lax.pmax(v, "i"), axis_name="i")(y)) / 16,
        lambda y: fnp.sum(fnp.where(y >= lax.stop_gradient(y.max(0)), y, 0)),
        lambda y: fnp.sum(fnp.where(y == lax.stop_gradient(y.max(0)), y, 0)),
    ],
    ids=["max of columns", "max", "pmax", "not less than the max", "equal to the max"],
)
def test_the_gradient_of_a_maximum_compares_equal_values(largest: Callable[[Any], Any]) -> None:
    """Regression: XLA rounded x * y + z in two ways, in the maximum and in the comparison with it."""
    slope = fx.jit(fx.grad(lambda x: largest(x * x[0] + x[1])))
    rng = np.random.default_rng(0)
    for _ in range(20):
        x: Any = rng.normal(size=(16, 16)).astype(np.float32)
        want = np.asarray(slope(x.astype(np.float64)))
        np.testing.assert_allclose(np.asarray(slope(x)), want, rtol=1e-4, atol=1e-4)


def deep(x: Any, w: Any) -> Any:
    for _ in range(20):
        x = fnp.tanh(x @ w)
    return x


def test_lists_in_options_are_tuples() -> None:
    given: Any = {"donate": [0], "flags": [["xla_cpu_enable_fast_math", True]]}
    options = runtime.CompileOptions(**given)
    assert options == runtime.CompileOptions(donate=(0,), flags=(("xla_cpu_enable_fast_math", True),))
    assert hash(options) is not None
    given["donate"].append(1)
    assert options.donate == (0,)


@pytest.mark.parametrize(
    ("given", "message", "remedy"),
    [
        ({"donate": 0}, "CompileOptions: donate is 0, not a sequence of ints", "number operands from 0"),
        ({"donate": (True,)}, "CompileOptions: donate is (True,), not a sequence of ints", "number operands from 0"),
        (
            {"optimization_level": "3"},
            "CompileOptions: optimization_level is '3', neither an int nor None",
            "XLA's levels are 0 to 3",
        ),
        (
            {"optimization_level": 2**31},
            "CompileOptions: optimization_level is 2147483648, more than 32 bits",
            "XLA's levels are 0 to 3",
        ),
        (
            {"flags": (("xla_dump_to", "\udcff"),)},
            "CompileOptions: flags has '\\udcff', which is no text of Unicode",
            "a surrogate alone is no character",
        ),
        (
            {"flags": {"a": True}},
            "CompileOptions: flags is {'a': True}, not a sequence of pairs of a name and a value",
            'as in flags=(("xla_cpu_enable_fast_math", True),); a value is a str, a bool, an int or a float',
        ),
        (
            {"flags": (("a", [1]),)},
            "CompileOptions: flags is (('a', [1]),), not a sequence of pairs of a name and a value",
            'as in flags=(("xla_cpu_enable_fast_math", True),); a value is a str, a bool, an int or a float',
        ),
    ],
    ids=str,
)
def test_options_are_checked_when_they_are_given(given: Any, message: str, remedy: str) -> None:
    error = check_refused(lambda: runtime.CompileOptions(**given), ParameterError, message, remedy)
    assert "test_runtime.py" in error.caller


def test_none_in_a_tree_of_devices_is_no_device() -> None:
    device = fx.devices()[0]
    put: Any = fx.device_put({"a": np.ones(3), "b": [np.ones(3), np.ones(2)]}, {"a": device, "b": None})
    assert (put["a"].committed, put["b"][0].committed) == (True, False)
    with pytest.raises(ArgumentError, match=r"^interpret: observe must be a function, got an int: 3"):
        fx.interpret(fx.trace(fnp.sin, fx.Spec((3,))), np.ones(3, np.float32), observe=cast(Any, 3))
    with pytest.raises(ArgumentError, match=r"^picture: shape must be a sequence, got an int: 3"):
        fx.debug.visualize_sharding(cast(Any, 3), put["a"].sharding)


@pytest.mark.parametrize("given", [None, {"donate": (0,)}], ids=str)
def test_values_of_other_types_are_not_options(given: Any) -> None:
    program = fx.trace(lambda x: x + 1, fx.Spec((3,)))
    for what, use in (
        ("compile of <lambda>", lambda: fx.lower(program).compile(given)),
        ("cache.explain", lambda: fx.cache.explain(program, given)),
    ):
        with pytest.raises(ArgumentError) as e:
            use()
        assert e.value.message.startswith(f"{what}: a {type(given).__name__} is not a CompileOptions: ")
        assert e.value.remedy == "leave it out, or give fx.CompileOptions(...)"
    device: Any = "cpu"
    with pytest.raises(ArgumentError, match=r"^cache.explain: a str is not a device: 'cpu'"):
        fx.cache.explain(program, device=device)


def test_pickling_an_executable_says_what_to_do_instead() -> None:
    executable = fx.jit(fx.trace(lambda x: x + 1, fx.Spec((3,))))
    with pytest.raises(ArgumentError) as e:
        pickle.dumps(executable)
    assert e.value.message == "pickle: <Executable <lambda>> is compiled for the devices of this process"
    assert e.value.remedy == (
        "pickle executable.program and compile it there; fx.cache.configure(dir=...) keeps what it made."
        " Or hand over the bytes of fx.lower(program).export()"
    )
    assert copy.copy(executable) is executable
    assert copy.deepcopy({"run": executable})["run"] is executable
    assert pickle.loads(pickle.dumps(executable.program)).jaxpr is executable.program.jaxpr


def test_devices_are_pickled_by_name() -> None:
    device = fx.devices()[0]
    mesh = fx.sharding.Mesh([device], "a")
    where = fx.sharding.NamedSharding(mesh, fx.sharding.PartitionSpec("a"))
    again = pickle.loads(pickle.dumps([device, mesh, where]))
    assert again[0] is copy.deepcopy(device) is device
    assert again[1:] == [mesh, where]
    assert not again[1].devices.flags.writeable
    there = pickle.dumps(device).replace(b"K\x00", b"K\x63")  # device 99 of another process
    with pytest.raises(ExecutionError) as e:
        pickle.loads(there)
    assert e.value.message.startswith(f"unpickle: this process has no device {device.platform}:99, only {device}")
    assert e.value.remedy == "give it as many devices: set_cpu_devices, or FXAD_CPU_DEVICES"


def test_pickling_a_cache_says_what_to_do_instead() -> None:
    with pytest.raises(ArgumentError) as e:
        pickle.dumps(fx.cache)
    assert e.value.message == "pickle: a Cache belongs to its process"
    assert e.value.remedy == "make one there: fx.Cache(dir=...) finds what the directory contains"


def test_a_failed_compilation_is_tried_again() -> None:
    cache = runtime.Cache()
    jaxpr = add_mul()
    options = runtime.CompileOptions(flags=(("xla_no_such_flag", True),))
    for _ in range(2):
        with pytest.raises(CompileError):
            cache(jaxpr, CPU, options)
    assert cache.stats().entries == 0
    assert cache(jaxpr, CPU) is cache(jaxpr, CPU)


# ---------------------------------------------------------------------------------------------------------- buffers


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 3), (3, 0)], ids=str)
def test_round_trip(dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    """Every dtype, in every memory layout of NumPy: same bits, read-only, same dtype object."""
    x = array(Aval(shape, dtype))
    layouts = [x, x.T, np.asfortranarray(x), np.broadcast_to(x, (2, *shape)), np.repeat(x[..., None], 2, -1)[..., 0]]
    if shape:
        layouts.append(x[::-1])
    for y in layouts:
        out = runtime.to_numpy(put(y))
        assert (out.shape, out.dtype) == (y.shape, dtype)
        assert out.tobytes() == y.tobytes()
        assert not out.flags.writeable


@pytest.mark.parametrize("n", [4, 1 << 16])
def test_writes_to_an_array_after_the_transfer_change_nothing(n: int) -> None:
    owner = np.arange(n, dtype=np.float32)
    view = owner[:]
    view.flags.writeable = False  # read-only, but `owner` can still be written
    buffers = [put(owner), put(view), put(owner[::1])]
    owner[:] = -1
    for b in buffers:
        np.testing.assert_array_equal(runtime.to_numpy(b), np.arange(n))


def aligned(n: int) -> NDArray:
    """Returns floats that own aligned memory, which XLA can share."""
    tried: list[NDArray] = []
    while not tried or tried[-1].ctypes.data % 64:
        tried.append(cast(NDArray, np.zeros(n, np.float32)))
    return tried[-1]


@pytest.mark.parametrize("n", [4, 1 << 10])
def test_arrays_that_may_become_writable_are_copied(n: int) -> None:
    """Regression: buffers changed when the owner made its memory writable again, or through a view that was writable
    before."""
    owner, sealed = aligned(n), aligned(n)
    sibling, view = owner[:], owner[:]
    for x in (view, owner, sealed):
        x.flags.writeable = False
    buffers = [put(owner), put(view), put(sealed)]
    sibling[:] = -1
    sealed.flags.writeable = True
    sealed[:] = -1
    for b in buffers:
        np.testing.assert_array_equal(runtime.to_numpy(b), np.zeros(n))


def test_memory_that_cannot_be_written_to_is_shared() -> None:
    """Aligned memory of a buffer, here a result of a program, is not copied."""
    view = runtime.to_numpy(put(np.arange(1 << 16, dtype=np.float32)))
    again = runtime.to_numpy(put(view))
    assert again.__array_interface__["data"][0] == view.__array_interface__["data"][0]


def test_a_numpy_array_is_freed_with_its_last_reference() -> None:
    """Regression: jaxlib kept a reference to copied and to shared arrays until its next call."""

    class View(np.ndarray):
        """An array with weak references."""

    copied = np.ones(1000, np.float32).view(View)
    buffer = put(copied)
    gone = weakref.ref(copied)
    del copied
    assert gone() is None
    shared = runtime.to_numpy(buffer).view(View)
    again = put(shared)
    assert again.unsafe_buffer_pointer() == buffer.unsafe_buffer_pointer()
    gone = weakref.ref(shared)
    del shared, buffer
    assert gone() is not None
    assert runtime.to_numpy(again)[-1] == 1
    del again
    assert gone() is None


def test_a_program_may_be_freed_after_the_modules_of_fxad() -> None:
    """At the exit of the interpreter: an object of C keeps a program and a module alive, as the client of GPUs does."""
    text = """
import ctypes, numpy
import fxad as fx, fxad.core.weak
numpy.kept = fx.trace(lambda x: x + 1, fx.Spec((3,)))
for module in (fxad.core.weak, numpy):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
"""
    assert not run_python(text)


def test_calls_leak_no_memory() -> None:
    """Regression: jaxlib stores the caller of each execution until it is told to clear that list. In a process without
    jax, fxad did not."""
    text = """
import sys
import numpy as np, fxad as fx, fxad.numpy as fnp
x = fx.asarray(np.ones(4, np.float32))
block = fx.jit(lambda x: fnp.tanh(x) * 2)
run = {
    "one": fx.lower(fx.trace(lambda x: x + x, x)).compile(),
    "many": fx.jit(lambda *xs: [x + 1 for x in xs]),
    "linked": fx.lower(fx.trace(lambda x: block(block(x)), x), units=lambda body: True).compile(),
    "donating": lambda y, donating=fx.jit(lambda x: x * 1, donate=0): donating(y + 1),
    "program": fx.trace(lambda x: x * 2, x),
    "eager": lambda y: y + y,
    "alone": fnp.sin,
    "index": lambda y: y[2],
    "block": fx.Array.block_until_ready,
    "read": np.asarray,
    "dlpack": np.from_dlpack if x.device.platform == "cpu" else fx.Array.__dlpack__,
    "copy": fx.Array.copy,
    "committed": lambda y, there=fx.device_put(x, x.device): there + y,
}
for name, f in run.items():
    for n in (3000, 3000):  # tables of what was used last fill up first
        before = sys.getallocatedblocks()
        for _ in range(n):
            f(x)
    print(name, sys.getallocatedblocks() - before < 1500)
assert "jax" not in sys.modules
"""
    lines = run_python(text).splitlines()
    assert len(lines) == 13
    assert all(line.endswith(" True") for line in lines), lines


def test_to_numpy_is_a_view() -> None:
    buffer = put(np.arange(1 << 16, dtype=np.float32))
    view = runtime.to_numpy(buffer)
    assert view.__array_interface__["data"][0] == buffer.unsafe_buffer_pointer()
    runtime.delete(buffer)
    del buffer
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(1 << 16))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (-3, "int8"),
        (2.5, "bfloat16"),
        (7, "float64"),
        (1 + 2j, "complex64"),
        (np.float32(3), "float32"),
    ],
)
def test_scalars(value: complex, dtype: str) -> None:
    aval = Aval((), dtype)
    assert runtime.to_numpy(runtime.to_buffer(value, aval)) == np.asarray(value, aval.dtype)


def test_arrays_of_wrong_types_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"(?m)^to_buffer: shapes differ: the array has \(3,\), the program takes \(4,\)$"
    ):
        runtime.to_buffer(np.ones(3, np.float32), F4, CPU)
    differ = r"(?m)^to_buffer: dtypes differ: the array has dtype\('float64'\), the program takes dtype\('float32'\)$"
    with pytest.raises(DTypeError, match=differ):
        runtime.to_buffer(np.ones(4), F4, CPU)
    with pytest.raises(DTypeError, match="dtypes differ"):
        runtime.to_buffer(np.ones(4, ">f4"), F4, CPU)
    with pytest.raises(ArgumentError, match=r"(?m)^to_buffer: a list is no array$"):
        runtime.to_buffer([1, 2], F4, CPU)
    with pytest.raises(DTypeError, match=r"(?m)^to_buffer: 300 is no int8$"):
        runtime.to_buffer(300, Aval((), "int8"), CPU)
    with pytest.raises(DTypeError, match=r"(?m)^to_buffer: 2j is no float32$"):
        runtime.to_buffer(2j, Aval((), "float32"), CPU)


def test_ready_and_deleted() -> None:
    buffer = put(np.ones(4, np.float32))
    runtime.block(buffer)
    assert runtime.is_ready(buffer)
    assert not runtime.is_deleted(buffer)
    runtime.delete(buffer)
    assert runtime.is_deleted(buffer)
    with pytest.raises(ExecutionError, match=r"^block: .*deleted"):
        runtime.block(buffer)
    with pytest.raises(ExecutionError, match=r"^to_numpy: .*deleted"):
        runtime.to_numpy(buffer)
    with pytest.raises(ExecutionError, match=r"^is_ready: .*deleted"):
        runtime.is_ready(buffer)
    with pytest.raises(ExecutionError, match=r"^to_dlpack: .*deleted"):
        runtime.to_dlpack(buffer)
    assert (runtime.dlpack_device(buffer), runtime.device_of(buffer)) == ((1, 0), CPU)
    assert (runtime.unreadable_reason(buffer), runtime.unreadable_reason(put(np.ones(4, np.float32)))) == (
        "deleted",
        None,
    )


def test_a_failed_read_does_not_count_as_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: exit then ended at once, and one of several processes left the others without a goodbye."""

    def full(_: object) -> Any:
        raise MemoryError

    buffer = put(np.ones(4, np.float32))
    monkeypatch.setattr(buffers, "_view", full)
    monkeypatch.setattr(waits, "interrupted", False)  # a test before this one may have set it
    with pytest.raises(MemoryError):
        runtime.to_numpy(buffer)
    assert not waits.interrupted


def test_an_interruption_while_a_thread_starts_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreter exit then does not wait for the computation in the thread."""

    def interrupted(*args: Any) -> None:
        _thread.start_new_thread(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(interruptible, "start_new_thread", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            waits.call(lambda: None)
        assert waits.interrupted
    finally:
        waits.interrupted = False


def test_a_deletion_after_an_interrupted_one() -> None:
    """Regression: it waited for ever. An array on several devices is taken before it is deleted."""
    buffer = put(np.ones(4, np.float32))
    in_thread = threading.Thread(target=take_for_deletion, args=(buffer,), daemon=True)
    for thread in (in_thread, threading.Thread(target=take_for_deletion, args=(buffer,), daemon=True)):
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    with pytest.raises(ExecutionError) as e:
        runtime.to_numpy(buffer)
    assert e.value.message == "to_numpy: the array is deleted"
    runtime.delete(buffer)
    take_for_deletion(buffer)


def in_another_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_a_deletion_in_the_thread_of_a_donating_call() -> None:
    """Regression: a signal handler or a finaliser that runs in such a call waited for it, and so for itself."""

    def deleted_inside() -> None:
        call, buffer = runtime.DonatingCall(), put(np.ones(4, np.float32))
        assert runtime.take_for_donation(buffer, runtime.claim_of(call, runtime.DonationRecord("f", None)))
        take_for_deletion(buffer)

    in_another_thread(deleted_inside)


def test_a_buffer_is_free_when_the_call_that_took_it_is_gone() -> None:
    """Regression: if a signal interrupted the release of the operands of a call that failed, their deletion waited for
    ever, and they could not be donated again."""
    record, call = runtime.DonationRecord("f", None), runtime.DonatingCall()
    deleted, donated = put(np.ones(4, np.float32)), put(np.ones(4, np.float32))
    for buffer in (deleted, donated):
        assert runtime.take_for_donation(buffer, runtime.claim_of(runtime.DonatingCall(), record))
        assert runtime.to_numpy(buffer).tolist() == [1, 1, 1, 1]
    in_another_thread(lambda: take_for_deletion(deleted))
    assert runtime.take_for_donation(donated, runtime.claim_of(call, record))
    assert not runtime.take_for_donation(donated, runtime.claim_of(runtime.DonatingCall(), record))


def test_an_interrupted_start_on_several_devices_leaves_no_pin() -> None:
    """Regression: the traceback kept the pin alive, and a donation in another thread waited for the end of it."""

    class Interrupted(dict[object, object]):
        def pop(self, *_: object) -> object:
            raise KeyboardInterrupt

    class Operand:
        def __init__(self, pins: dict[object, object]) -> None:
            self.fxad_pins = pins

        def is_deleted(self) -> bool:
            return False

    operands: Any = [Operand(Interrupted()), Operand({})]
    with pytest.raises(KeyboardInterrupt) as kept:
        start_pinned(len, operands)
    call = runtime.DonatingCall()
    claim = runtime.claim_of(call, None)
    in_another_thread(lambda: runtime.take_for_donation(operands[1], claim))
    assert kept.tb is not None


def test_a_buffer_that_another_thread_donates_is_not_lent() -> None:
    """Regression: the process crashed if the memory was lent to jax and donated at the same time."""
    buffer = put(np.ones(4, np.float32))
    call = runtime.DonatingCall()
    claim = runtime.claim_of(call, runtime.DonationRecord("f", None))
    claim.thread = 0
    assert runtime.take_for_donation(buffer, claim)
    for read in (runtime.lend, runtime.to_numpy):
        with pytest.raises(ExecutionError) as e:
            read(buffer)
        assert e.value.message == f"{read.__name__}: the array was donated to f; its memory is used again"
    del call
    np.testing.assert_array_equal(copy_out(runtime.lend(buffer)), np.ones(4))


def test_a_donation_that_is_undone_while_its_error_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the error said that the array is deleted."""
    buffer = put(np.ones(4, np.float32))
    records = iter([runtime.DonationRecord("f", None)])
    monkeypatch.setattr(failures, "donation_record", lambda _: next(records, None))
    refused = runtime.XlaRuntimeError(runtime.OPERAND_DELETED)
    producer = runtime.BufferProducer("g", "", lambda: None)
    assert runtime.execution_error(refused, [buffer], producer).message == "execute: operand 0 was donated to f"


def test_a_bounded_number_of_exceptions_of_host_functions_is_kept() -> None:
    """Regression: those that no error named were all kept, with the arrays in their frames."""
    errors = HostErrors(deferred=False)
    for k in range(500):
        for _ in range(k % 3):
            errors.end(errors.begin())
        errors.stand_in(ValueError())
    assert len(errors._by_number) == 64


def test_execution_does_not_wait() -> None:
    """A call returns before the computation ends."""
    aval = Aval((512, 512), "float32")
    b = Builder()
    x = b.input(aval)
    for _ in range(8):
        x = b.one(SIN, b.one(DotGeneral((1,), (0,), (), (), None), x, x))
    program = runtime.cache(b.build([x]), CPU)
    buffer = put(np.ones((512, 512), np.float32))
    runtime.block(program.execute([buffer])[0])
    ready = [runtime.is_ready(program.execute([buffer])[0]) for _ in range(5)]
    assert not all(ready)


# ----------------------------------------------------------------------------------------------------------- dlpack


class Capsule:
    """An object that offers a buffer of fxad, as `fxad.Array` does."""

    def __init__(self, buffer: runtime.Buffer) -> None:
        self.buffer = buffer

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        return runtime.to_dlpack(self.buffer, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return runtime.dlpack_device(self.buffer)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_dlpack_round_trip(dtype: dtypes.DType) -> None:
    aval = Aval((3, 5), dtype)
    x = array(aval)
    offered = Capsule(put(x))
    assert runtime.dlpack_aval(offered) == aval
    again = runtime.to_buffer(offered, aval, CPU)
    assert runtime.to_numpy(again).tobytes() == x.tobytes()
    runtime.delete(offered.buffer)  # jaxlib aborts the process when it deletes an array that it exported itself


def test_dlpack_to_numpy_is_a_read_only_view() -> None:
    buffer = put(np.arange(1 << 12, dtype=np.float32))
    view = np.from_dlpack(Capsule(buffer))
    assert view.__array_interface__["data"][0] == buffer.unsafe_buffer_pointer()
    assert not view.flags.writeable
    runtime.delete(buffer)
    np.testing.assert_array_equal(view, np.arange(1 << 12))


def test_dlpack_before_version_1_is_a_copy() -> None:
    buffer = put(np.arange(4, dtype=np.float32))
    copied = copy_out(runtime.to_dlpack(buffer))
    np.testing.assert_array_equal(copied, np.arange(4))
    with pytest.raises(
        BufferError,
        match=r"(?m)^an immutable float32 array is not exported so without a copy: leave out copy=False$",
    ):
        runtime.to_dlpack(buffer, copy=False)
    elsewhere = r"^the array is on DLPack device \(1, 0\), and goes there or to the host only: leave out dl_device$"
    with pytest.raises(BufferError, match=elsewhere):
        runtime.to_dlpack(buffer, dl_device=(2, 0))


@given(st.data())
def test_dlpack_strides(data: st.DataObject) -> None:
    """Any view of a NumPy array is read with its strides."""
    x = np.arange(4 * 3 * 5, dtype=np.int16).reshape(4, 3, 5)
    view = np.asarray(x[data.draw(hnp.basic_indices(x.shape, allow_newaxis=True, allow_ellipsis=True))])
    view = view.transpose(data.draw(st.permutations(range(view.ndim))))
    np.testing.assert_array_equal(copy_out(view.__dlpack__()), view)


def test_dlpack_of_an_unknown_type() -> None:
    capsule = np.ones(4, np.float32).__dlpack__()
    address = _pointer(capsule, b"dltensor")
    _Tensor.from_address(address).lanes = 4
    with pytest.raises(DTypeError, match=r"(?m)^dlpack: type code 2 with 32 bits and 4 lanes is not a dtype of fxad$"):
        copy_out(capsule)


# ---------------------------------------------------------------------------------------------------------- devices


@pytest.mark.about_cpus
def test_devices() -> None:
    assert runtime.devices() == runtime.devices("cpu")
    assert str(CPU) == "cpu:0"
    unknown = r"(?m)^devices: 'abacus' is no platform\n(.*\n)?  remedy        use cpu or cuda$"
    with pytest.raises(ParameterError, match=unknown):
        runtime.devices("abacus")
    with pytest.raises(ParameterError, match=r"^set_cpu_devices: 64 asked for, the CPU is in use with 1\n"):
        runtime.set_cpu_devices(64)


def test_no_cuda_here() -> None:
    if importlib.util.find_spec("jax_plugins") is not None:
        pytest.skip("a plugin is installed")
    for call in (cuda_library, lambda: runtime.devices("cuda")):
        with pytest.raises(ExecutionError) as e:
            call()
        assert e.value.message == (
            "devices: no CUDA plugin is installed (looked for jax_plugins.xla_cuda13, jax_plugins.xla_cuda12)"
        )
        assert e.value.remedy == (
            "pip install jax-cuda13-pjrt and jax-cuda13-plugin of the version of jaxlib, and NVIDIA's libraries"
        )


SEVERAL = """
import numpy as np
from fxad import runtime
from fxad.core.builder import Builder
from fxad.ir import Aval
from fxad.primitives.elementwise import ADD
F4 = Aval((4,), "float64")
b = Builder(); x = b.input(F4); jaxpr = b.build([b.one(ADD, x, x)])
ds = runtime.devices()
for d in ds:
    x = runtime.transfer(runtime.to_buffer(np.arange(4.), F4, ds[0]), d)
    print(d, runtime.to_numpy(runtime.cache(jaxpr, d).execute([x])[0]).tolist())
"""


@pytest.mark.about_cpus
def test_several_devices() -> None:
    want = "".join(f"cpu:{k} [0.0, 2.0, 4.0, 6.0]\n" for k in range(3))
    assert run_python(SEVERAL, FXAD_CPU_DEVICES="3", FXAD_PLATFORM="cpu") == want
    assert run_python(SEVERAL.replace("ds =", "runtime.set_cpu_devices(3); ds =")) == want


EVERYTHING = """
import sys
import ml_dtypes, numpy as np
from fxad import runtime
from fxad.core.builder import Builder
from fxad.ir import Aval
from fxad.primitives.elementwise import SIN
def work():
    for dtype in (np.float64, np.int64, ml_dtypes.bfloat16):
        aval = Aval((4,), dtype)
        x = runtime.to_buffer(np.arange(4).astype(dtype), aval, runtime.devices()[0])
        runtime.to_dlpack(x)
        assert runtime.to_numpy(x).dtype == dtype
    b = Builder(); aval = Aval((4,), "float64")
    program = runtime.cache(b.build([b.one(SIN, b.input(aval))]), runtime.devices()[0])
    x = runtime.to_buffer(np.arange(4.), aval, runtime.devices()[0])
    return runtime.to_numpy(program.execute([x])[0])
"""


def test_jax_stays_out() -> None:
    assert run_python(EVERYTHING + "work(); print('jax' in sys.modules)") == "False\n"


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_jax_stays_out_of_divided_arrays() -> None:
    """jaxlib looks up classes of jax when it reads an array of several devices."""
    text = """
import sys
import numpy as np, fxad as fx
from fxad.sharding import NamedSharding, PartitionSpec as P, make_mesh
from fxad.xla.compat import to_host
mesh = make_mesh((4,), ("i",))
def read():
    for spec in (P("i"), P()):
        whole = np.arange(8, dtype=np.float32)
        x = fx.device_put(whole, NamedSharding(mesh, spec))
        np.testing.assert_array_equal(fx.jit(lambda x: x + x)(x), 2 * whole)
        np.testing.assert_array_equal(x.addressable_shards[1].data, whole[2:4] if spec else whole)
        np.testing.assert_array_equal(to_host(fx.asarray(whole[:3])._buffer), whole[:3])
read()
assert not [name for name in sys.modules if name.split(".")[0] == "jax"]
import jax
read()
print(jax.numpy.arange(3))
for shape in ((2,), (8,), (3,), (), (5,)):  # those of the arrays that were read, and others
    ours = np.ones(shape, np.float32)
    theirs = jax.numpy.from_dlpack(fx.asarray(ours))
    assert isinstance(theirs.aval, jax.core.ShapedArray) and not theirs.aval.weak_type
    np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(theirs), ours + 1)
    np.testing.assert_array_equal(jax.numpy.asarray(2.0) + theirs, ours + 2)
"""
    assert run_python(text, FXAD_CPU_DEVICES="4", FXAD_PLATFORM="cpu") == "[0 1 2]\n"


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_a_result_that_is_read_before_jax_is_imported() -> None:
    """The first array that is read is on one device: jaxlib does not look up the type of its part."""
    text = """
import numpy as np
import fxad as fx
ones = np.ones(8, np.float32)
divided = fx.device_put(ones, fx.NamedSharding(fx.make_mesh((1,), ("i",)), fx.P("i")))
np.testing.assert_array_equal(fx.jit(lambda x: x + x)(divided), 2 * ones)
import jax
print(jax.numpy.from_dlpack(fx.asarray(ones)) + 1)
"""
    assert run_python(text, FXAD_PLATFORM="cpu") == "[2. 2. 2. 2. 2. 2. 2. 2.]\n"


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
@pytest.mark.parametrize("order", ["before", "after"])
def test_beside_jax(order: str) -> None:
    """With imports in either order, neither library changes the results or dtypes of the other."""
    peer = "import jax, jax.numpy as jnp\ntheirs = jnp.sin(jnp.arange(4.)); assert theirs.dtype == np.float32\n"
    check = (
        "ours = work(); assert ours.dtype == np.float64\n"
        "np.testing.assert_allclose(ours, np.sin(np.arange(4.)), rtol=1e-15)\n"
        "again = jax.jit(jnp.sin)(jnp.arange(4.)); assert again.dtype == np.float32\n"
        "np.testing.assert_array_equal(theirs, again); assert type(again).__module__ != 'fxad'\n"
        "aval = Aval((4,), 'float32'); x = runtime.to_buffer(theirs, aval, runtime.devices()[0])\n"
        "np.testing.assert_array_equal(runtime.to_numpy(x), theirs)\n"
    )
    first = "" if order == "before" else "work()\n"
    assert run_python(EVERYTHING + first + peer + check) == ""
