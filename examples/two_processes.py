"""Data-parallel regression in two processes on this machine, started by one command.

    python examples/two_processes.py

Each process has two CPU devices and half of the data. The gradient is averaged over all four devices.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad.sharding import NamedSharding, PartitionSpec, make_mesh

STEPS = 60


def train(process: int, processes: int, address: str) -> np.ndarray:
    """One process: fits weights to rows that the processes share."""
    fx.set_cpu_devices(2)
    fx.distributed.initialize(address, processes, process)
    rng = np.random.default_rng(0)
    x, want = rng.normal(size=(32, 3)).astype("float32"), np.array([1.0, -2.0, 0.5], "float32")
    mesh = make_mesh((fx.device_count(),), ("data",))
    rows, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    mine = np.split(x, processes)[process]
    inputs = fx.make_array_from_process_local_data(rows, mine)
    targets = fx.make_array_from_process_local_data(rows, mine @ want)

    def loss(w: fx.Array, x: fx.Array, y: fx.Array) -> fx.Array:
        return fnp.mean((x @ w - y) ** 2)

    def step(w: fx.Array, x: fx.Array, y: fx.Array) -> fx.Array:
        return w - 0.3 * fx.grad(loss)(w, x, y)

    run = fx.jit(step, out_shardings=whole)
    w = fx.device_put(fnp.zeros(3), whole)
    for _ in range(STEPS):
        w = run(w, inputs, targets)
    found = np.asarray(w)
    fx.distributed.barrier()
    print(f"process {fx.process_index()} of {fx.process_count()}, {fx.device_count()} devices: {found.round(3)}")
    assert np.allclose(found, want, atol=1e-2)
    fx.distributed.shutdown()
    return found


def main(processes: int = 2) -> int:
    """Start the processes and waits for them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    started = [
        subprocess.Popen([sys.executable, __file__, str(k), str(processes), address], env=env) for k in range(processes)
    ]
    return max([abs(p.wait()) for p in started])


if __name__ == "__main__":
    if len(sys.argv) == 4:
        train(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main(*map(int, sys.argv[1:])))
