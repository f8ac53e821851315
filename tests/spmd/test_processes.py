"""Several processes on this machine, connected by gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import distributed
from fxad.errors import ArgumentError, FxadError, ParameterError, ShapeError
from fxad.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding, make_mesh
from fxad.xla import cuda

JAXLIB = "fxad.xla.cuda.xla_client"
ROOT = Path(__file__).parent.parent.parent
# Each script gets the number of the process, the number of processes, the address, and further arguments.
LOST = """
import os, sys, time
import numpy as np
import fxad as fx
from fxad import lax
k, n, heartbeat = int(sys.argv[1]), int(sys.argv[2]), 2
fx.distributed.initialize(sys.argv[3], n, k, heartbeat_timeout=heartbeat)
f = fx.jit(fx.pmap(lambda v: lax.psum(v, "i"), "i", out_axes=None))
mesh = fx.make_mesh((n,), ("i",))
rows = fx.sharding.NamedSharding(mesh, fx.sharding.PartitionSpec("i"))
x = fx.make_array_from_process_local_data(rows, np.ones(1, "float32"))
print(float(np.asarray(f(x))), fx.distributed.is_initialized(), flush=True)
if k == n - 1:
    os._exit(7)
died = time.monotonic()
calls = [lambda: fx.distributed.initialize(sys.argv[3], n, 0), lambda: np.asarray(x)]
for call in calls:
    try:
        call()
    except fx.errors.FxadError as e:
        print(e.message, "|", e.remedy)
for call in (lambda: np.asarray(f(x)), lambda: fx.distributed.barrier(1)):
    try:
        print("no error", call())
    except fx.errors.ExecutionError as e:
        print(e.message.split(":")[0], "|", e.remedy, flush=True)
print("soon" if time.monotonic() - died < 30 else "late")
time.sleep(2.5 * heartbeat)  # jaxlib has noticed it
fx.distributed.shutdown()
fx.distributed.shutdown()
print("alive", fx.distributed.is_initialized(), flush=True)
os._exit(0)
"""
# The start of two scripts: arrays of all processes, and three programs with a collective.
PROGRAMS = """
import os, sys, time
import numpy as np
import fxad as fx
from fxad import lax
k, n = int(sys.argv[1]), int(sys.argv[2])
fx.distributed.initialize(sys.argv[3], n, k, heartbeat_timeout=2)
mesh = fx.make_mesh((n,), ("i",))
x = fx.make_array_from_process_local_data(fx.NamedSharding(mesh, fx.P("i")), np.ones(1, "float32"))
def doubled(v):
    return lax.psum(2 * v, "i")
def halved(v):
    return lax.psum(v / 2, "i")
def tripled(v):
    return lax.psum(3 * v, "i")
def run(f):
    return float(np.asarray(fx.jit(fx.pmap(f, "i", out_axes=None))(x)))
"""
OTHER = (
    PROGRAMS
    + """
late = int(sys.argv[4])
print(run(doubled), run(doubled))
if k == late:
    fx.cache.clear()  # what is compiled again in one process has run before
again = run(doubled)
if k == late:
    time.sleep(2)
try:
    print(again, run(halved if k == 0 else tripled))
except fx.errors.ExecutionError as e:
    print(e.message, "|", e.remedy, flush=True)
os._exit(0)
"""
)
NEVER = (
    LOST[: LOST.index("print(float")]
    + """
if k == n - 1:
    os._exit(7)
try:
    print("no error", np.asarray(f(x)))
except fx.errors.ExecutionError as e:
    print(e.message.split(":")[0], "|", e.remedy, flush=True)
os._exit(0)
"""
)
FIRST = """
import os, sys, time
import fxad as fx
fx.distributed.initialize(sys.argv[3], 2, int(sys.argv[1]), heartbeat_timeout=2)
fx.distributed.barrier()
if sys.argv[1] == "0":
    os._exit(7)
time.sleep(60)
"""
ALONE = """
import sys
import fxad as fx
try:
    fx.distributed.initialize(sys.argv[3], 2, 0, initialization_timeout=2)
except fx.errors.ExecutionError as e:
    print(e.message.replace(sys.argv[3], "ADDRESS"), "|", e.remedy, fx.distributed.is_initialized())
"""
SHARED = """
import sys
import numpy as np
import fxad as fx, fxad.numpy as fnp
from fxad import lax
k, n = int(sys.argv[1]), int(sys.argv[2])
fx.cache.configure(dir=sys.argv[4])
fx.distributed.initialize(sys.argv[3], n, k)
mesh = fx.make_mesh((n,), ("i",))
x = fx.make_array_from_process_local_data(fx.NamedSharding(mesh, fx.P("i")), np.arange(2.0) + k)
y = fx.jit(fx.shard_map(lambda v: lax.psum(fnp.sum(v), "i"), mesh, fx.P("i"), fx.P()))(x)
turned = fx.device_put(x, fx.NamedSharding(mesh, fx.P()))  # devices of both processes exchange parts
parts = fx.make_array_from_callback((4,), fx.NamedSharding(mesh, fx.P("i")), lambda at: np.arange(4.0)[at])
print(float(np.asarray(y)), np.asarray(turned).tolist(), parts.addressable_data(0).tolist(), parts.is_fully_addressable)
print(repr(x), str(turned))
try:
    fx.device_put({"a": x}, fx.devices()[1 - k])
except fx.errors.PlacementError as e:
    print(e.message, "|", e.remedy)
stats = fx.cache.stats()
print(stats.compilations > 0, stats.disk_hits > 0)
fx.distributed.shutdown()
"""

# Process 1 runs a program without collectives alone, then both run one with a collective. Process 1 tries another one
# twice, and then the one that process 0 is waiting in.
ALONE_FIRST = (
    PROGRAMS
    + """
def tried(f):
    try:
        print(run(f), flush=True)
    except fx.errors.ExecutionError as e:
        print(e.message.partition(":")[0], "|", e.remedy, flush=True)
if k == 1:
    print((3 * x).addressable_data(0), flush=True)
tried(doubled)
if k == 0:
    tried(halved)
else:
    time.sleep(1)
    tried(tripled)
    tried(tripled)
    tried(halved)
tried(tripled)
fx.distributed.shutdown()
"""
)

# None of these calls `shutdown`. Process 1 ends after the heartbeat timeout, raises an exception, or keeps process 0
# waiting.
ENDS = (
    PROGRAMS
    + """
print(run(doubled), flush=True)
time.sleep(3 * k)
"""
)
RAISES = (
    PROGRAMS
    + """
print(run(doubled), flush=True)
if k == 1:
    raise ValueError
try:
    run(halved)
except fx.errors.ExecutionError as e:
    print(e.remedy, flush=True)
"""
)
INTERRUPTED = (
    PROGRAMS
    + """
import signal, threading
print(run(doubled), flush=True)
if k == 1:
    time.sleep(120)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told the tests to ignore it
begin = time.monotonic()
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {"collective": lambda: run(halved), "barrier": fx.distributed.barrier}[sys.argv[4]]()
finally:
    print(time.monotonic() - begin < 10, flush=True)
"""
)


def _run(text: str, processes: int, *more: str) -> list[tuple[int, list[str]]]:
    """Runs a script in several processes. Returns the exit status and the output of each."""
    address = _address()
    command = [sys.executable, "-c", text]
    started = [
        subprocess.Popen(
            [*command, str(k), str(processes), address, *more],
            env=_env(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
        )
        for k in range(processes)
    ]  # fmt: skip
    out = [p.communicate(timeout=150)[0] for p in started]
    lines = [[line for line in text.splitlines() if not line.startswith("[Gloo]")] for text in out]
    return [(p.returncode, found) for p, found in zip(started, lines, strict=True)]


def _address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _env() -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "FXAD_PLATFORM": "cpu"}


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.deep)])
def test_training_in_processes(processes: int) -> None:
    command = [sys.executable, str(ROOT / "examples" / "two_processes.py"), str(processes)]
    done = subprocess.run(command, env=_env(), capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    for k in range(processes):
        assert f"process {k} of {processes}, {2 * processes} devices: [ 1.  -2.   0.5]" in done.stdout


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.deep)])
def test_a_process_that_dies_is_an_error_in_the_others(processes: int) -> None:
    """A collective fails as soon as the connections close, a barrier after its timeout. The other processes
    continue."""
    *others, dead = _run(LOST, processes)
    assert dead == (7, [f"{float(processes)} True"])
    for status, lines in others:
        assert lines == [
            f"{float(processes)} True",
            "distributed.initialize: it was called before | call it once in a process",
            (
                "to_numpy: parts of the array are on devices of other processes | "
                "read addressable_shards, or gather it in a program: out_shardings with PartitionSpec()"
            ),
            "pmap_<lambda> | see why another process has ended, or does not run this program",
            "distributed.barrier | see why another process did not come to the barrier",
            "soon",
            "alive False",
        ]
        assert status == 0


@pytest.mark.parametrize("late", [0, 1])
def test_another_program_is_an_error(late: int) -> None:
    """One process runs `doubled` and `halved`, the other `doubled` and `tripled`. The later one raises an error."""
    lines = [lines for _, lines in _run(OTHER, 2, str(late))]
    names = "pmap_halved", "pmap_tripled"
    seen = (
        f"process {late} runs it as program 1 on devices of processes 0, 1; process {1 - late} runs {names[1 - late]}"
    )
    remedy = "run the same programs in the same order in all processes"
    assert lines[late] == ["4.0 4.0", f"{names[late]}: {seen} | {remedy}"]


@pytest.mark.deep
def test_a_process_that_dies_before_the_first_collective() -> None:
    """jaxlib waits 30 seconds for the address of a process."""
    (status, lines), (dead, _) = _run(NEVER, 2)
    assert (status, dead) == (0, 7)
    assert lines == ["pmap_<lambda> | see why another process has ended, or does not run this program"]


def test_a_program_without_collectives_is_not_compared() -> None:
    """One process may run it alone, for example to print a value. A program that was rejected is rejected again."""
    refused = "pmap_tripled | run the same programs in the same order in all processes"
    assert _run(ALONE_FIRST, 2) == [
        (0, ["4.0", "1.0", "6.0"]),
        (0, ["[3.]", "4.0", refused, refused, "1.0", "6.0"]),
    ]


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_process_that_ends_waits_for_the_others(platform: str) -> None:
    """With a service as for GPUs, a process without heartbeats counts as lost, and all others end."""
    begin = f"import fxad.xla.processes\nfxad.xla.processes.default_platform = lambda: {platform!r}\n"
    assert _run(begin + ENDS, 2) == [(0, ["4.0"]), (0, ["4.0"])]


@pytest.mark.deep
def test_a_process_that_ends_with_an_exception_does_not_wait() -> None:
    failed = "see why another process has ended, or does not run this program"
    assert _run(RAISES, 2) == [(0, ["4.0", failed]), (1, ["4.0"])]


@pytest.mark.parametrize("what", ["collective", "barrier"])
def test_ctrl_c_ends_the_wait_for_another_process(what: str) -> None:
    """Python exits with status 130, or by the signal itself. Process 1 ends because process 0 does."""
    (status, lines), (other, _) = _run(INTERRUPTED, 2, what)
    assert lines == ["4.0", "True"]
    assert status in (130, -2)
    assert other != 0


def test_if_process_0_dies_the_others_end() -> None:
    (first, _), (other, lines) = _run(FIRST, 2)
    assert first == 7
    assert other != 0
    assert lines == []


@pytest.mark.deep
def test_a_process_that_does_not_connect() -> None:
    ((status, lines),) = _run(ALONE, 1)
    assert lines == [
        (
            "distributed.initialize: process 0 of 2 at ADDRESS: not connected within 2 s, or another process has this"
            " number | start all processes with one address and distinct process_id, within the timeout False"
        )
    ]
    assert status == 0


def test_processes_share_arrays_and_the_directory_of_the_cache(tmp_path: Path) -> None:
    for again in (False, True):
        for k, (status, lines) in enumerate(_run(SHARED, 2, str(tmp_path))):
            assert status == 0
            assert lines == [
                f"4.0 [0.0, 1.0, 1.0, 2.0] {[2.0 * k, 2.0 * k + 1]} False",
                "<Array f64[4], parts on devices of other processes> [0. 1. 1. 2.]",
                (
                    f"device_put: x['a']: cpu:{2048 * (1 - k)} is a device of process {1 - k}, this is process {k} |"
                    " divide the array among the devices of all processes: device_put(x, NamedSharding(mesh, spec))"
                ),
                f"{not again} {again}",
            ]


def test_the_client_of_gpus_gets_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the test checks the arguments that jaxlib gets for two processes."""
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(cuda._Plugin, "load", lambda plugin: None)
    monkeypatch.setattr(f"{JAXLIB}.generate_pjrt_gpu_plugin_options", lambda: {"platform_name": "cuda"})
    monkeypatch.setattr(f"{JAXLIB}.make_c_api_client", lambda *args: made.append(args))
    service: Any = object()
    cuda.cuda_client(None, None)
    cuda.cuda_client((service, 1, 2, "host"), (3,))
    options = {"preallocate": False, "platform_name": "cuda"}
    assert made == [
        ("gpu", options),
        ("gpu", {**options, "visible_devices": [3], "node_id": 1, "num_nodes": 2}, service),
    ]


def test_a_coordinator_with_an_address_of_ipv6() -> None:
    """Regression: an error of Python, after the connection."""
    try:
        with socket.socket(socket.AF_INET6) as free:
            free.bind(("::1", 0))
            port = free.getsockname()[1]
    except OSError:
        pytest.skip("this system has no IPv6")
    text = """
import sys
import fxad as fx
fx.distributed.initialize(sys.argv[4], 1, 0)
print(fx.distributed.is_initialized(), float(fx.jit(lambda x: x + 1.0)(1.0)))
"""
    assert _run(text, 1, f"[::1]:{port}") == [(0, ["True 2.0"])]


def test_one_process() -> None:
    assert (fx.process_index(), fx.process_count()) == (0, 1)
    assert fx.local_devices() == list(fx.devices())
    assert fx.device_count() == len(fx.devices())
    fx.distributed.barrier()
    fx.distributed.shutdown()
    mesh = make_mesh((1,), ("i",))
    rows = NamedSharding(mesh, PartitionSpec("i"))
    x = fx.make_array_from_process_local_data(rows, np.arange(4.0), (4,))
    np.testing.assert_array_equal(np.asarray(x), np.arange(4.0))
    alone = fx.make_array_from_process_local_data(SingleDeviceSharding(fx.devices()[0]), np.arange(4.0), (4,))
    assert alone.sharding == SingleDeviceSharding(fx.devices()[0])
    np.testing.assert_array_equal(np.asarray(alone), np.arange(4.0))
    with pytest.raises(ShapeError) as e:
        fx.make_array_from_process_local_data(rows, np.arange(4.0), (8,))
    assert e.value.message == (
        "make_array_from_process_local_data: local data of shape (4,) are [1] of [1] parts of an array of shape (8,)"
    )
    assert e.value.remedy == "give the parts of the devices of this process, put together"


WRONG: list[tuple[Any, str, str]] = [
    (("127.0.0.1:1", 2, 2), "distributed.initialize: process_id is 2 of 2 processes", "number processes from 0"),
    (("here", 2, 0), "distributed.initialize: coordinator_address is 'here', not a host and a port",
     'as in "127.0.0.1:8476": an address of process 0 that all processes reach'),
    ((3, 2, 0), "distributed.initialize: coordinator_address is 3, not a host and a port",
     'as in "127.0.0.1:8476": an address of process 0 that all processes reach'),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message", "remedy"), WRONG)
def test_refused(args: Any, message: str, remedy: str) -> None:
    with pytest.raises(FxadError) as e:
        distributed.initialize(*args)
    assert isinstance(e.value, ParameterError)
    assert (e.value.message, e.value.remedy) == (message, remedy)


@pytest.mark.parametrize(
    "name",
    [
        "num_processes", "process_id", "local_device_ids", "initialization_timeout", "heartbeat_timeout",
        "shutdown_timeout",
    ],
)  # fmt: skip
def test_numbers_are_checked(name: str) -> None:
    arguments: Any = {"coordinator_address": "127.0.0.1:1", "num_processes": 2, "process_id": 0, name: "x"}
    with pytest.raises(ArgumentError) as e:
        distributed.initialize(**arguments)
    kind = "a sequence" if name == "local_device_ids" else "an integer"
    assert e.value.message in [
        f"distributed.initialize: {n} must be {kind}, got a str: 'x'" for n in (name, f"{name}[0]")
    ]
    timeout: Any = "x"
    with pytest.raises(ArgumentError, match=r"^distributed.barrier: timeout must be a real number, got a str: 'x'"):
        distributed.barrier(timeout)


UNREACHED = """
import fxad as fx
try:
    fx.distributed.initialize("127.0.0.1:9", 2, 1, initialization_timeout=1)
except fx.errors.ExecutionError as e:
    print(e.message, "|", e.remedy, flush=True)
fx.devices()
import os
address = "127.0.0.1:%s"
try:
    fx.distributed.initialize(address, 1, 0)
except fx.errors.ParameterError as e:
    print(e.message, "|", e.remedy, flush=True)
os._exit(0)
"""


@pytest.mark.deep
def test_no_service() -> None:
    text = UNREACHED % _address().partition(":")[2]
    done = subprocess.run([sys.executable, "-c", text], env=_env(), capture_output=True, text=True, check=False,
                          timeout=60, cwd=ROOT)  # fmt: skip
    assert done.stdout.splitlines() == [
        (
            "distributed.initialize: process 1 of 2 at 127.0.0.1:9: not connected within 1 s, or another process has"
            " this number | start all processes with one address and distinct process_id, within the timeout"
        ),
        "distributed.initialize: devices are in use | call it before the first program runs",
    ], done.stderr[-1000:]
