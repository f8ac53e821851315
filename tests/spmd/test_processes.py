"""Several processes on this machine, connected by gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad import distributed
from fxad.errors import FxadError, ParameterError, ShapeError
from fxad.sharding import NamedSharding, PartitionSpec, make_mesh

ROOT = Path(__file__).parent.parent.parent
LOST = """
import os, sys
import numpy as np
import fxad as fx
from fxad import lax
fx.distributed.initialize(sys.argv[3], 2, int(sys.argv[1]), heartbeat_timeout=30)
f = fx.jit(fx.pmap(lambda v: lax.psum(v, "i"), "i", out_axes=None))
mesh = fx.make_mesh((2,), ("i",))
rows = fx.sharding.NamedSharding(mesh, fx.sharding.PartitionSpec("i"))
x = fx.make_array_from_process_local_data(rows, np.ones(1, "float32"))
print(float(np.asarray(f(x))), flush=True)
if sys.argv[1] == "1":
    os._exit(7)
for call in (lambda: fx.distributed.initialize(sys.argv[3], 2, 0), lambda: np.asarray(x)):
    try:
        call()
    except fx.errors.FxadError as e:
        print(e.message, "|", e.remedy)
try:
    fx.distributed.barrier(3)
    print("no error")
except fx.errors.ExecutionError as e:
    print(e.message.split(":")[0], "|", e.remedy, flush=True)
os._exit(0)
"""


def _address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _env() -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "FXAD_PLATFORM": "cpu"}


@pytest.mark.parametrize("processes", [2, 4])
def test_training_in_processes(processes: int) -> None:
    command = [sys.executable, str(ROOT / "examples" / "two_processes.py"), str(processes)]
    done = subprocess.run(command, env=_env(), capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    for k in range(processes):
        assert f"process {k} of {processes}, {2 * processes} devices: [ 1.  -2.   0.5]" in done.stdout


def test_a_process_that_dies_is_an_error_in_the_others() -> None:
    address, start = _address(), time.monotonic()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LOST, str(k), "2", address], env=_env(), stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for k in range(2)
    ]
    out = [p.communicate(timeout=100)[0] for p in started]
    assert started[1].returncode == 7
    assert out[0].splitlines()[-4:] == [
        "2.0",
        "distributed.initialize: it was called before | call it once in a process",
        (
            "to_numpy: parts of the array are on devices of other processes | "
            "read addressable_shards, or gather it in a program: out_shardings with PartitionSpec()"
        ),
        "distributed.barrier | see why another process did not come to the barrier",
    ], out
    assert time.monotonic() - start < 90


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
]  # fmt: skip


@pytest.mark.parametrize(("args", "message", "remedy"), WRONG)
def test_refused(args: Any, message: str, remedy: str) -> None:
    with pytest.raises(FxadError) as e:
        distributed.initialize(*args)
    assert isinstance(e.value, ParameterError)
    assert (e.value.message, e.value.remedy) == (message, remedy)


UNREACHED = """
import fxad as fx
try:
    fx.distributed.initialize("127.0.0.1:9", 2, 1, initialization_timeout=1)
except fx.errors.ExecutionError as e:
    print(e.message.startswith("distributed.initialize: process 1 of 2 at 127.0.0.1:9:"), e.remedy)
fx.devices()
import os
address = "127.0.0.1:%s"
try:
    fx.distributed.initialize(address, 1, 0)
except fx.errors.ParameterError as e:
    print(e.message, "|", e.remedy)
os._exit(0)
"""


def test_no_service() -> None:
    text = UNREACHED % _address().partition(":")[2]
    done = subprocess.run([sys.executable, "-c", text], env=_env(), capture_output=True, text=True, check=False,
                          timeout=60, cwd=ROOT)  # fmt: skip
    assert done.stdout.splitlines() == [
        "True start all processes with one address, within the timeout",
        "distributed.initialize: devices are in use | call it before the first program runs",
    ], done.stderr[-1000:]
