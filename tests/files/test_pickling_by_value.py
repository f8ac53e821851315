"""Functions of a script in other processes: joblib, ray and dask pickle them by value, with cloudpickle."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("cloudpickle")

_SCRIPT = """
import functools, pickle, sys
import cloudpickle, numpy as np
import fxad as fx, fxad.numpy as fnp

scale = 3.0

@fx.jit
def f(x):
    return x * scale

@functools.partial(fx.jit, static_argnames="n")
def power(x, n):
    return x**n

@fx.jit
def recursive(x):
    return x if x.ndim == 0 else recursive(x.sum())

def loss(x):
    return fnp.sum(f(x) ** 2)

@fx.custom_vjp
def doubled(x):
    return x * 2

doubled.defvjp(lambda x: (x * 2, x), lambda r, c: (c * 3,))

functions = {
    "jit": f,
    "static": functools.partial(power, n=2),
    "lambda": fx.jit(lambda x: x * scale, donate=0),
    "recursive": recursive,
    "grad": fx.grad(loss),
    "value_and_grad": fx.value_and_grad(loss),
    "vmap": fx.vmap(f),
    "remat": fx.remat(loss),
    "jit of grad": fx.jit(fx.grad(loss)),
    "grad of static": fx.grad(lambda x: power(x, n=2).sum()),
    "hessian": fx.hessian(loss),
    "custom": fx.grad(lambda x: doubled(x).sum()),
}
x = np.ones(3, np.float32)
wanted = {name: np.asarray(fx.tree.leaves(g(x + 0))[0]).tolist() for name, g in functions.items()}
if sys.argv[1:] == ["by name"]:  # the modules of multiprocessing find a decorated function by its name in the script
    for name in ("jit", "static", "recursive"):
        again = pickle.loads(pickle.dumps(functions[name]))
        assert np.asarray(again(x)).tolist() == wanted[name], name
        pickle.loads(pickle.dumps(again))
else:
    sys.stdout.buffer.write(cloudpickle.dumps((functions, wanted)))
"""
_WORKER = """
import pickle, sys
import numpy as np
functions, wanted = pickle.loads(sys.stdin.buffer.read())
import fxad as fx
for name, g in functions.items():
    got = np.asarray(fx.tree.leaves(g(np.ones(3, np.float32)))[0]).tolist()
    assert got == wanted[name], (name, got, wanted[name])
import cloudpickle
cloudpickle.dumps(functions)
"""


def test_functions_of_a_script_in_another_process() -> None:
    pickled = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, check=True).stdout
    subprocess.run([sys.executable, "-c", _WORKER], input=pickled, check=True)


def test_the_pickle_of_python_finds_them_by_name() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT, "by name"], check=True)
