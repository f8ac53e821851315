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
ORDINARY = 2  # calls of each function in ordinary runs


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
                found += [f for call in calls[::step][:most] if (f := fault(call, how))]
    return found


MODULES = ["numpy", "numpy.linalg", "numpy.fft", "scipy"]


def test_values_at_edge_operands() -> None:
    assert [f for module in MODULES for f in faults(module, ORDINARY)] == []


@pytest.mark.deep
@pytest.mark.parametrize("module", MODULES)
def test_all_values_at_edge_operands(module: str) -> None:
    assert faults(module, None) == []


# Without calls: what has no numbers to compare, vectors with a free sign, limits that SciPy lacks (or where it does not
# end), and functions with tests of their own, of stated sizes.
ELSEWHERE = {
    "numpy": """apply_along_axis apply_over_axes argpartition array array_repr array_str asarray astype broadcast_arrays
        broadcast_shapes broadcast_to can_cast copy diag_indices diag_indices_from einsum_path empty empty_like fix
        from_dlpack frombuffer fromfile fromfunction fromiter fromstring full full_like histogramdd identity indices
        iscomplexobj isdtype isrealobj isscalar issubdtype iterable load mask_indices ndim ones ones_like partition
        permute_dims piecewise polydiv promote_types result_type save savez shape size tril_indices_from
        triu_indices_from unstack zeros zeros_like""",
    "numpy.linalg": "eig eigh eigvals matrix_transpose multi_dot outer tensorinv tensorsolve",
    "numpy.fft": "",
    "scipy.special": "bernoulli hyp1f1 hyp2f1 i0 i1 loggamma multigammaln spence sph_harm_y wofz zeta",
    "scipy.linalg": """cho_factor cho_solve dft expm_frechet funm invpascal lu_solve pascal qr_multiply rsf2csf
        solve_sylvester sqrtm""",
    "scipy.signal": "csd istft stft welch",
    "scipy.fft": "",
    "scipy.ndimage": "",
    "scipy.stats": "",
}


def test_every_function_has_calls() -> None:
    for module, others in ELSEWHERE.items():
        ours, theirs = importlib.import_module(f"fxad.{module}"), importlib.import_module(module)
        names = {n for n in getattr(ours, "__all__", dir(ours)) if callable(getattr(ours, n)) and not n.startswith("_")}
        both = {n for n in names if hasattr(theirs, n) and not isinstance(getattr(theirs, n), type)}
        called = {n.rpartition(".")[2] for n in CALLS if n.rpartition(".")[0] == module}
        assert both - called - set(others.split()) == set(), module


def test_refusals_of_what_numpy_refuses() -> None:
    """What is wrong whatever the values are, and what stands in NumPy arrays and lists."""
    fnp, linalg = fx.numpy, importlib.import_module("fxad.scipy.linalg")
    x = edges.X
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: fnp.digitize(x, [1, 3, 2]), "digitize: bins [1, 3, 2] must ascend or descend"),
        (lambda: fnp.histogram(x, np.array([1.0, 0.0])), "histogram: bins array([1., 0.]) must ascend"),
        (lambda: fnp.searchsorted(edges.V, 1.0, sorter=np.array([0, 1])), "searchsorted: sorter i64[2] for f64[5]"),
        (lambda: fnp.unpackbits(edges.UV, count=-99), "unpackbits: count -99 of 40 bits"),
        (lambda: fnp.place(edges.I, x > 0, 9.5), "place: a value of float32 does not go into i32[3,4] without loss"),
        (lambda: fnp.fft.irfftn(x, axes=()), "irfftn: no axis of f64[3,4] is transformed"),
        (
            lambda: linalg.lu_solve(linalg.lu_factor(edges.A), np.ones(2)),
            "lu_solve: the matrix has 3 rows, b is f64[2]",
        ),
    ]
    for call, message in refused:
        with pytest.raises(FxadError) as e:
            call()
        assert e.value.message == message


def test_beta_and_pochhammer_below_zero() -> None:
    """Values of mpmath: gamma of large operands cancels."""
    special: Any = importlib.import_module("fxad.scipy.special")
    a, b = np.array([1e8, 1e300, 0.5, -0.25]), np.array([-0.5, -0.5, -2.25, -3.4])
    wanted = [-35449.0768851762815, -3.54490770181103205e150, -1.11826421908655273, -6.50832059071929148]
    np.testing.assert_allclose(fx.interpret(fx.trace(special.beta, a, b), a, b), wanted, rtol=2e-13)
    z = np.array([1e-300, 1e-8])
    found = fx.interpret(fx.trace(lambda z: special.poch(z, -1.0), z), z)
    np.testing.assert_allclose(found, [-1, -1.0000000100000001], rtol=1e-15)
