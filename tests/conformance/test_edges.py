"""At edge operands, every function that NumPy or SciPy has too gives their values, in the kind of their dtype.

A value that differs without a word is the worst defect, so the calls are drawn, not chosen: `edges.py` says of what. A
refusal is no defect here, but an error that is none of fxad's is. Where NumPy refuses, there is nothing to compare.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.errors import FxadError
from fxad.tracing.array import Array
from tests.conformance import edges
from tests.conformance.edges import CALLS, DIFFERENCES, Call

IN_PLACE = {"fill_diagonal", "place", "put", "put_along_axis"}
ON_VALUES = {"numpy." + n for n in edges.ON_VALUES.split()}
ORDINARY = 3  # calls of each function in ordinary runs


def function(name: str, root: str = "") -> Callable[..., Any]:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(root + module), last)  # type: ignore[no-any-return]


def leaves(value: Any) -> list[Any]:
    """Returns the arrays of a result, which may be a tuple, or SciPy's pair of a mode and its count."""
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in leaves(v)]
    return [value]


def reference(call: Call) -> Any:
    args = [v.copy() if isinstance(v, np.ndarray) else v for v in call.args]
    out = function(call.name)(*args, **call.keywords)
    return args[0] if call.name.split(".")[-1] in IN_PLACE else out


def traced(call: Call) -> Any:
    """Returns the result of the program, with the arrays among the arguments as operands."""
    f, operands = function(call.name, "fxad."), list[Any]()

    def taken(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            operands.append(value)
            return ("operand", len(operands) - 1)
        return type(value)([taken(v) for v in value]) if isinstance(value, list | tuple) else value

    def given(value: Any, arrays: tuple[Array, ...]) -> Any:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and value[0] == "operand":
            return arrays[value[1]]
        return type(value)([given(v, arrays) for v in value]) if isinstance(value, list | tuple) else value

    args, keywords = [taken(v) for v in call.args], {k: taken(v) for k, v in call.keywords.items()}

    def program(*arrays: Array) -> Any:
        return f(*[given(v, arrays) for v in args], **{k: given(v, arrays) for k, v in keywords.items()})

    return fx.interpret(fx.trace(program, *operands), *operands)


def eager(call: Call) -> Any:
    return function(call.name, "fxad.")(*call.args, **call.keywords)


def near(x: Any, y: Any) -> bool:
    """Compares parts of numbers up to rounding in the narrower of the dtypes; zeros have no signs here."""
    wide = min(x.dtype.itemsize, y.dtype.itemsize) // (2 if x.dtype.kind == "c" else 1)
    eps = {2: 2e-3, 4: 3e-5}.get(wide, 1e-9)
    y = y.astype(x.dtype)  # in float32 as in float64, but for what float32 cannot hold
    nans = np.isnan(x) & np.isnan(y)  # of complex numbers either part
    for p, q in ((x.real, y.real), (x.imag, y.imag)):
        p, q = p.astype(np.float64), q.astype(np.float64)
        size = min(float(np.max(np.abs(q[np.isfinite(q)]), initial=0)), 1e3)
        if not np.all(nans | (p == q) | (np.abs(p - q) <= eps * np.abs(q) + eps / 10 * (size + 1e-3))):
            return False
    return True


def differs(found: Any, wanted: Any) -> str:
    """Returns what is wrong with a result, or an empty string."""
    ours, theirs = leaves(found), leaves(wanted)
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        x, y = np.asarray(one), np.asarray(other)
        if x.shape != y.shape:
            return f"shape {x.shape}, not {y.shape}"
        if x.dtype.kind != y.dtype.kind:
            return f"dtype {x.dtype}, not {y.dtype}"
        if not (np.array_equal(x, y) if x.dtype.kind in "iub" else near(x, y)):
            return f"{x.tolist()}, not {y.tolist()}"
    return ""


def fault(call: Call, run: Callable[[Call], Any]) -> str:
    """Returns the call and what is wrong with it, or an empty string."""
    try:
        wanted = reference(call)
    except Exception:  # it refuses; there are dozens of errors
        wanted = None
    if call.name.split(".")[-1] in IN_PLACE:
        call = call._replace(keywords={**call.keywords, "inplace": False})
    try:
        found = run(call)
    except FxadError:
        return ""
    except Exception as e:
        return f"{call}: {type(e).__name__}: {e}"
    if wanted is None:
        return ""
    said = differs(found, wanted)
    return f"{call}: {said}" if said and not any(d.where(call) for d in DIFFERENCES.get(call.name, ())) else ""


def faults(module: str, most: int | None, run: Callable[[Call], Any] = traced) -> list[str]:
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, calls in CALLS.items():
            if name.startswith(module) == (module != "numpy" or name.count(".") == 1) and name.startswith(module):
                step = 1 if most is None else max(1, len(calls) // most)
                how = eager if name in ON_VALUES else run
                found += [f for call in calls[:: step][:most] if (f := fault(call, how))]
    return found


MODULES = ["numpy", "numpy.linalg", "numpy.fft", "scipy"]


@pytest.mark.parametrize("module", MODULES)
def test_values_at_edge_operands(module: str) -> None:
    assert faults(module, ORDINARY) == []


@pytest.mark.deep
@pytest.mark.parametrize("module", MODULES)
def test_all_values_at_edge_operands(module: str) -> None:
    assert faults(module, None) == []
