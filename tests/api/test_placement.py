"""Devices: a program runs on the device of its committed operands. Committed arrays are never moved silently."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.errors import ArgumentError, ExecutionError
from tests.processes import run_python

X = np.arange(3, dtype=np.float32)


def script(text: str, **env: str) -> str:
    """Returns what a program prints in a process of its own with three CPUs."""
    return run_python(text, **{"FXAD_CPU_DEVICES": "3", "FXAD_PLATFORM": "cpu", **env})


START = """
import numpy as np, fxad as fx, fxad.numpy as fnp
from fxad.errors import PlacementError, ExecutionError
a, b, c = fx.devices()
X = np.arange(3, dtype=np.float32)
def f(x, y=1.0): return {"sum": x + y, "same": x}
def where(x): return str(x.device), x.committed
"""


def test_computation_follows_committed_data() -> None:
    text = """
x, y = fx.device_put(X, b), fx.asarray(X)
print(where(x), where(y))
for out in (x + y, y * x, x + 1, 2 - x, -x, fnp.sin(x), x[1:], x[0], x.at[0].set(9), fx.jit(f)(x, y)["sum"],
            fx.jit(f)(y, x)["same"], fx.jit(lambda z: z + x)(y), fx.grad(lambda z: (z * x).sum())(y),
            fx.trace(f, X, X)(x, y)["sum"], fx.vmap(lambda u, v: u * v)(x, y),
            fx.lower(fx.trace(f, X)).compile()(x)["sum"],
            fx.jit(f)(x, X)["sum"], fx.tree.map(lambda z: z + 1, fx.device_put({"k": [X]}, b))["k"][0],
            fx.jit(f, donate="y")(x, fx.asarray(X))["sum"]):
    assert where(out) == ("cpu:1", True), where(out)
for out in (y + y, fx.jit(f)(y, y)["sum"], fnp.ones(3), fnp.sin(X), fx.jit(lambda z: z)(y), fx.device_put(X)):
    assert where(out) == ("cpu:0", False), where(out)
for out in (fx.device_put(X, a) + y, fx.jit(f)(fx.device_put(y, a), y)["sum"]):
    assert where(out) == ("cpu:0", True), where(out)
print(np.asarray(x + y).tolist(), np.asarray(fx.jit(f)(y, x)["sum"]).tolist())
"""
    assert script(START + text) == "('cpu:1', True) ('cpu:0', False)\n[0.0, 2.0, 4.0] [0.0, 2.0, 4.0]\n"


def test_a_call_with_data_of_two_devices_is_refused_every_time() -> None:
    """Also if the program returns its operands, and runs nothing; and whatever it was called with before."""
    text = """
x, y = fx.device_put(X, b), fx.device_put(X, c)
def both(x, y): return x, y
for make in (lambda: fx.jit(both), lambda: fx.lower(fx.trace(both, X, X)).compile()):
    for before in ((), (X, X), (x, x), (x, X)):
        run = make()
        if before:
            run(*before)
        for _ in range(2):
            try:
                run(x, y)
            except PlacementError as e:
                assert e.message == "both: argument x is on cpu:1, argument y on cpu:2", e.message
            else:
                raise AssertionError(before)
        assert [where(out) for out in run(x, fx.asarray(X))] == [("cpu:1", True), ("cpu:0", False)]
"""
    assert script(START + text) == ""


def test_each_device_is_compiled_for_once() -> None:
    text = """
run = fx.jit(f)
for _ in range(3):
    for d in (a, b, c):
        np.asarray(run(fx.device_put(X, d))["sum"])
        np.asarray(fx.device_put(X, d) + 1)
print(fx.cache.stats().compilations)
"""
    assert script(START + text) == "6\n"


def test_only_the_devices_that_are_used_are_compiled_for() -> None:
    """Also with units, for eager operations, and for calls with uncommitted data later."""
    text = """
def count():
    return fx.cache.stats().compilations
x = fx.device_put(X, b)
run = fx.jit(f)
run(x)
x + 1
fx.trace(lambda x: x * 2.5, X)(x)
print(count(), end=" ")
x + 1, run(x)
print(count(), end=" ")
print(where(run(X)["sum"]), where(run(fx.asarray(X))["sum"]), where(run(x)["sum"]), count())
given = fx.lower(fx.trace(lambda x, y: x * y - 0.125, X, X)).compile(device=c, donate="x")
print(given.memory().alias_bytes, count(), end=" ")
z = fx.device_put(X, c)
print(where(given(z, X)), z._buffer.is_deleted(), count(), end=" ")
z = fx.asarray(X)
print(where(given(z, X)), z._buffer.is_deleted(), count())
same = fx.lower(fx.trace(lambda x: x, X)).compile(device=c)
print(where(same(X)), where(same(x)))
layer = fx.jit(lambda w, x: fnp.tanh(x @ w) + x)
def loss(ws, x):
    for w in ws:
        x = layer(w, x)
    return (x * x).sum()
ws, v = [np.full((20, 20), 0.01, np.float32)] * 4, np.ones((4, 20), np.float32)
run, before = fx.jit(fx.grad(loss), units=lambda body: True), count()
run(fx.device_put(ws, b), v)
(loaded,) = [h.executable._loaded for h in run._by_types.executables.values()]
print(type(loaded).__name__, loaded.device, count() - before == len(loaded.plan.units))
"""
    assert script(START + text).splitlines() == [
        "3 3 ('cpu:0', False) ('cpu:0', False) ('cpu:1', True) 4",
        "12 5 ('cpu:2', True) True 5 ('cpu:2', True) True 5",
        "('cpu:2', True) ('cpu:1', True)",
        "LinkedExecutable cpu:1 True",
    ]


def test_compile_takes_a_device() -> None:
    lowered = fx.lower(fx.trace(lambda x: x + 1, X))
    with pytest.raises(ArgumentError, match=r"^compile of <lambda>: a str is not a device: 'cpu:0'\n"):
        lowered.compile(device="cpu:0")  # type: ignore[arg-type]


def test_only_explicit_placement_commits_arrays() -> None:
    """Only explicit placement commits an array; constants of programs do not. All ways to name a device do."""
    text = """
from fxad.runtime import process_state
held = np.linspace(0, 1, 512, dtype=np.float32)
def deep(x):
    for k in range(8):
        x = fnp.tanh(x @ fnp.asarray(np.eye(512, dtype=np.float32))) + held
    return x
big = np.ones((64, 512), np.float32)
np.asarray(fx.jit(f)(X)["sum"]), np.asarray(fx.jit(deep)(big)), np.asarray((fnp.sin(X) + 1)[1:])
np.asarray(fx.grad(lambda x: (x * held).sum())(big[0]))
fx.device_put(X), fx.asarray(X).__dlpack__(), fx.asarray(X).to_device(a)
print(process_state.any_committed)
ways = (lambda: fx.device_put(X, a), lambda: fx.device_put({"x": [X]}, b), lambda: fx.asarray(X).to_device(b))
for name in ways:
    process_state.any_committed = False
    name()
    print(process_state.any_committed)
"""
    assert script(START + text).split() == ["False", "True", "True", "True"]


def test_mixing_devices_names_both() -> None:
    text = """
x, y = fx.device_put(X, a), fx.device_put(X, b)
calls = (lambda: fx.jit(f)(x, y), lambda: x + y, lambda: fx.trace(f, X, X)(x, y), lambda: fx.jit(lambda z: z * y)(x),
         lambda: fx.jit(lambda p: p["u"] + p["v"])({"u": x, "v": y}), lambda: fnp.concat([X, x, y]))
for call in calls:
    try:
        call()
    except PlacementError as e:
        print(e.message, "|", e.remedy)
np.testing.assert_array_equal(fx.device_put(x, b) + y, 2 * X)
"""
    remedy = " | move one of them: fx.device_put(x, device), with the device of the other, "
    assert script(START + text).splitlines() == [
        f"f: argument x is on cpu:0, argument y on cpu:1{remedy}cpu:0",
        f"add: operand 0 is on cpu:0, operand 1 on cpu:1{remedy}cpu:0",
        f"f: argument x is on cpu:0, argument y on cpu:1{remedy}cpu:0",
        f"<lambda>: closed-over array 0 is on cpu:1, argument z on cpu:0{remedy}cpu:1",
        f"<lambda>: argument p['u'] is on cpu:0, argument p['v'] on cpu:1{remedy}cpu:0",
        f"concatenate: operand 1 is on cpu:0, operand 2 on cpu:1{remedy}cpu:0",
    ]


def test_a_program_for_committed_data_is_freed_with_its_function() -> None:
    """The first call with uncommitted data loads the executable for the default device. The program must not refer to
    itself for that."""
    text = """
import gc, weakref
gc.disable()
def run():
    held = fx.asarray(X) * 2
    g = fx.jit(lambda x: x + held)
    print(where(g(fx.device_put(X, b))))
    return g, weakref.ref(held)
g, held = run()
print(where(g(X)), where(g(X)))
del g
print(held() is None)
g, held = run()
del g
print(held() is None)
del held
on_b = len([x for x in b.client.live_arrays() if x._sharding._device is b.raw])
for donate in ((), "x"):
    held = fx.asarray(X) * 3
    g = fx.jit(lambda x: x + held, donate=donate)
    g(fx.device_put(X, b))
    del g, held
print(len([x for x in b.client.live_arrays() if x._sharding._device is b.raw]) - on_b)
"""
    assert script(START + text).splitlines() == [
        "('cpu:1', True)", "('cpu:0', False) ('cpu:0', False)", "True", "('cpu:1', True)", "True", "0",
    ]  # fmt: skip


def test_donation_elsewhere() -> None:
    text = """
x, y = fx.device_put(X, b), fx.asarray(X)
out = fx.jit(f, donate=("x", "y"))(x, y)
for z in (x, y):
    try:
        np.asarray(z)
    except ExecutionError as e:
        print(e.message.partition(" at ")[0])
"""
    assert script(START.replace('"same": x', '"diff": x - y') + text) == "to_numpy: the array was donated to f\n" * 2


def test_a_trivial_program_neither_commits_nor_copies() -> None:
    x = fx.asarray(X)
    for run in (fx.jit(lambda x: x), fx.lower(fx.trace(lambda x: x, X)).compile()):
        y: Any = run(x)
        assert y.committed is False
        assert y._buffer is x._buffer
    a, b = fx.jit(lambda a, b: (b, a))(x, fx.device_put(x, fx.devices()[0]))
    assert (a.committed, b.committed) == (True, False)
    assert b._buffer is x._buffer
    nested: Any = fx.jit(lambda x: fx.jit(lambda a, b: (b, fnp.sin(a)))(fnp.cos(x), x)[0])(x)
    assert nested._buffer is x._buffer, "through calls, and past what nothing needs"
    one: Any = fx.jit(lambda a, b: (a, b))(x, x)
    assert [y._buffer is x._buffer for y in one] == [True, True]
    constant: Any = fx.jit(lambda x: (1.5, x))(x)
    assert [float(constant[0]), constant[1]._buffer is x._buffer] == [1.5, False], "not trivial: it makes an array"
    held = fx.asarray(X)
    given: Any = fx.jit(lambda: held)()
    assert given._buffer is not held._buffer, "what a program closes over is not handed out"
    twice: Any = fx.jit(lambda x: (x, x))(x)
    assert twice[0]._buffer is not twice[1]._buffer, "two results may be given up apart"
    gone: Any = fx.jit(lambda x: x, donate=0)(x)
    np.testing.assert_array_equal(gone, X)
    with pytest.raises(ExecutionError, match="was donated to"):
        np.asarray(x)


def test_results_from_the_host_follow_committed_data() -> None:
    """Results of host functions, of functions whose sizes depend on values, and of functions like `zeros_like`."""
    text = """
x, y = fx.device_put(X, b), fx.asarray(X)
same = lambda v: v
makes = (lambda x: fx.pure_callback(same, fx.Spec((3,)), x), lambda x: fx.io_callback(same, fx.Spec((3,)), x),
         fnp.nonzero, fnp.argwhere, fnp.flatnonzero, fnp.where, fnp.unique, fnp.unique_all, fnp.unique_counts,
         fnp.unique_inverse, fnp.unique_values, lambda x: fnp.union1d(y, x), lambda x: fnp.setdiff1d(x, y[:1]),
         lambda x: fnp.setxor1d(x, y[:1]), lambda x: fnp.intersect1d(y, x, return_indices=True),
         lambda x: fnp.histogram_bin_edges(x, "auto"), fnp.zeros_like, fnp.ones_like, fnp.empty_like,
         lambda x: fnp.full_like(x, 2), lambda x: fnp.full_like(y, x[0]), lambda x: fx.lax.full_like(x, 2))
for make in makes:
    for of, at in ((x, ("cpu:1", True)), (y, ("cpu:0", False))):
        for out in fx.tree.leaves(make(of)):
            assert where(out) == at, (make, where(out), at)
assert where(fnp.zeros_like(x, device=c)) == ("cpu:2", True)
assert where(fx.jit(lambda: fnp.zeros_like(x))()) == ("cpu:0", False)
for call in (lambda: fnp.union1d(y, 1), lambda: fnp.union1d(fx.device_put(X, c), x)):
    try:
        print(where(call()))
    except PlacementError as e:
        print(e.message)
"""
    want = ["('cpu:0', False)", "union1d: operand 0 is on cpu:2, operand 1 on cpu:1"]
    assert script(START + text).splitlines() == want


def test_an_array_that_is_made_for_a_device_is_committed() -> None:
    """Regression: an array that was made for the default device was not committed, and mixed with arrays on other
    devices silently."""
    text = """
for d in (a, b):
    for x in (fnp.ones(3, device=d), fnp.asarray(X, device=d), fnp.astype(fx.asarray(X), "int32", device=d),
              fnp.zeros_like(fx.asarray(X), device=d), fnp.arange(3, device=d), fx.device_put(X, d)):
        assert where(x) == (str(d), True), where(x)
try:
    fnp.ones(3, device=a) + fnp.ones(3, device=b)
except PlacementError as e:
    print(e.message)
"""
    assert script(START + text) == "add: operand 0 is on cpu:0, operand 1 on cpu:1\n"


def test_device_put() -> None:
    x, here = fx.asarray(X), fx.devices()[0]
    assert fx.device_put(x) is x
    tree: Any = fx.device_put({"a": X, "b": [x, 1.5]})
    assert tree["b"][0] is x
    assert isinstance(tree["a"], fx.Array)
    put = fx.device_put(x, here)
    assert (put.committed, put.device) == (True, here)
    assert fx.device_put(put, here) is put
    assert fx.device_put(put) is put
    assert put._buffer.unsafe_buffer_pointer() == x._buffer.unsafe_buffer_pointer(), "committing copies nothing"
    assert fx.jit(lambda x: fx.device_put(x, here) + x.committed)(x).tolist() == X.tolist()
    own = fx.device_put({"a": put, "b": put}, here, may_alias={"a": False, "b": None})
    assert (own["a"] is put, own["b"] is put) == (False, True)
    assert own["a"]._buffer.unsafe_buffer_pointer() != put._buffer.unsafe_buffer_pointer()
    kept, moved = fx.device_put(own["a"], here, donate=True), fx.device_put(own["a"], donate=True, may_alias=False)
    assert kept is own["a"]
    assert own["a"].is_deleted()
    assert moved.tolist() == fx.jit(lambda x: fx.device_put(x, donate=True))(moved).tolist() == X.tolist()
    with pytest.raises(ArgumentError, match=r"^device_put: donate must be True or False, got an int: 3"):
        fx.device_put(x, donate=3)
    with pytest.raises(ArgumentError, match=r"^device_put: x\['w'\]: a str is not an array: 'no'\n(.*\n)*  remedy"):
        fx.device_put({"w": "no"})
    with pytest.raises(
        ArgumentError, match=r"^device_put: a str is not a device: 'cpu:0'\n(.*\n)*  remedy .* fxad.devices"
    ):
        fx.device_put(X, "cpu:0")


def test_on_a_gpu() -> None:
    """The PJRT plugin is loaded by path, if there is one: results, donation, placement of results."""
    if importlib.util.find_spec("jax_plugins") is None:
        pytest.skip("no CUDA plugin (jax-cuda13-pjrt) is installed")
    try:
        gpu = fx.devices("cuda")[0]
    except ExecutionError as e:
        pytest.skip(f"no GPU answers: {e.message}")
    x = fx.device_put(fnp.ones((256, 256)), gpu)
    run = fx.jit(lambda x: fnp.sin(x) @ x, donate=0)
    out = run(x)
    assert (out.device, out.committed) == (gpu, True)
    np.testing.assert_allclose(np.asarray(out), np.sin(np.ones((256, 256))) @ np.ones((256, 256)), rtol=1e-3)
    with pytest.raises(ExecutionError, match="was donated to"):
        np.asarray(x)


def test_compile_for_a_device_moves_uncommitted_operands() -> None:
    text = """
import warnings
made = fx.lower(fx.trace(lambda: fnp.arange(3.0))).compile(device=c)
plus = fx.lower(fx.trace(lambda x: x + fx.asarray(X), X)).compile(device=b)
same = fx.lower(fx.trace(lambda x: x, X)).compile(device=b)
first = fx.lower(fx.trace(lambda x: x * 2, X)).compile(device=a)
print(where(made()), where(made()), made().tolist())
for x in (X, fx.asarray(X)):
    for _ in range(2):
        print(where(plus(x)), where(same(x)), where(first(x)), plus(x).tolist())
print(where(plus(fx.device_put(X, c))), where(same(fx.device_put(X, c))))
free = fx.asarray(X)
giving = fx.lower(fx.trace(lambda x: x + 1, X)).compile(device=b, donate=0)
print(where(giving(free)), free.is_deleted() if hasattr(free, "is_deleted") else True)
"""
    line = "('cpu:1', True) ('cpu:1', True) ('cpu:0', True) [0.0, 2.0, 4.0]\n"
    assert script(START + text) == (
        "('cpu:2', True) ('cpu:2', True) [0.0, 1.0, 2.0]\n" + 4 * line + "('cpu:2', True) ('cpu:2', True)\n"
        "('cpu:1', True) True\n"
    )
