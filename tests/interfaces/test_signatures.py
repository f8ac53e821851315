"""The parameters of functions agree with those of jax in name and position. A table has the differences, with
reasons."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

MODULES = (
    "numpy", "numpy.linalg", "numpy.fft", "lax", "lax.linalg", "nn", "nn.initializers", "random", "scipy.cluster.vq",
    "scipy.fft", "scipy.integrate", "scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal",
    "scipy.sparse.linalg", "scipy.special", "scipy.stats", "image", "ops", "tree", "tree_util",
)  # fmt: skip

# Keyword arguments of jax that no function has. Python's TypeError names them.
NOWHERE: Mapping[str, str] = {
    "out_sharding": "device_put(x, sharding) divides an array",
    "sharding": "device_put(x, sharding) divides an array",
    "accuracy": "there is one algorithm for each function",
    "allow_negative_indices": "negative places count from the end: jnp's rule",
    "implementation": "there is one algorithm for each decomposition",
    "use_magma": "there is one algorithm for each decomposition",
    "_dot_general": "private",
    "inplace": "arrays are immutable",
    "algorithm": "there is one algorithm",
    "subset_by_index": "slice the results",
    "nan_policy": "nan is the result, as in jax",
    "preferred_element_type": "astype before the product",
    "precision": "the products are composites",
    "numpy_resid": "residuals are always returned",
    "method": "there is one algorithm",
    "size": "unique(size=) pads its results",
    "fill_value": "unique(fill_value=) pads its results",
}
# Further keyword arguments that single functions do not have.
ABSENT: Mapping[str, str] = {
    "numpy.einsum": "out", "numpy.modf": "out",
    "numpy.save": "allow_pickle", "numpy.linalg.matrix_rank": "tol",
    "lax.all_gather": "to", "lax.dot": "dimension_numbers",
    "lax.linalg.schur": "select_callable", "scipy.linalg.sqrtm": "blocksize",
    "random.key": "dtype", "random.wrap_key_data": "dtype",
    "scipy.linalg.eigh": "check_finite eigvals overwrite_a overwrite_b turbo type",
    "scipy.linalg.eigh_tridiagonal": "key tol", "scipy.linalg.polar": "eps max_iterations",
    "scipy.linalg.expm": "max_squarings", "scipy.sparse.linalg.gmres": "solve_method",
}  # fmt: skip
# Those of functions in jax 0.12.
NEWER: Mapping[str, str] = {"numpy.lexsort": "batch_size"}
# Parameters with another position in jax, or that are keyword-only in fxad.
MOVED: Mapping[str, str] = {
    "numpy.histogram": "density weights", "numpy.histogram2d": "density weights",  # NumPy's order
    "numpy.histogramdd": "density weights", "scipy.stats.mode": "keepdims",
    "lax.conv_with_general_padding": "precision preferred_element_type",
}  # fmt: skip
# NumPy's ufuncs: `out` and `where` need arrays that can be written to.
UFUNC = frozenset({"out", "where"})


def of(root: str, module: str) -> Any:
    return importlib.import_module(f"{root}.{module}")


def pairs(module: str) -> Iterator[tuple[str, Mapping[str, inspect.Parameter], Mapping[str, inspect.Parameter]]]:
    theirs, ours = of("jax", module), of("fxad", module)
    for name in dir(theirs):
        if name.startswith("_") or not hasattr(ours, name):
            continue
        try:
            function = getattr(theirs, name)
            if inspect.isclass(function) or inspect.ismodule(function) or not callable(function):
                continue
            signatures = inspect.signature(function), inspect.signature(getattr(ours, name))
        except Exception:  # deprecated names raise errors of many types, and some have no signature
            continue
        yield f"{module}.{name}", signatures[0].parameters, signatures[1].parameters


@pytest.mark.parametrize("module", MODULES)
def test_parameters_are_those_of_jax(module: str) -> None:
    pytest.importorskip("jax")
    differences = {}
    for path, theirs, ours in pairs(module):
        kinds = [p.kind for p in ours.values()]
        places = [n for n, p in ours.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        any_number, any_keyword = inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds
        absent, moved = set(), set()
        for at, (name, p) in enumerate(theirs.items()):
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                here = name in ours and ours[name].kind is not inspect.Parameter.POSITIONAL_ONLY
                if not here and not any_keyword and name not in NOWHERE:
                    absent.add(name)
            if p.kind is p.POSITIONAL_OR_KEYWORD and name in ours and not any_number and places[at : at + 1] != [name]:
                moved.add(name)
        if absent == UFUNC:
            absent = set()
        # a parameter after a missing one cannot have jax's position
        missing = [k for k, (n, p) in enumerate(theirs.items()) if n not in ours and p.kind is p.POSITIONAL_OR_KEYWORD]
        if missing and not set(MOVED.get(path, "").split()) & moved:
            moved = {n for n in moved if list(theirs).index(n) < missing[0]}
        if absent or moved:
            differences[path] = (" ".join(sorted(absent)), " ".join(sorted(moved)))
    known = {p: (ABSENT.get(p, ""), MOVED.get(p, "")) for p in (*ABSENT, *MOVED) if p.rpartition(".")[0] == module}
    known.update({p: (absent, "") for p, absent in NEWER.items() if p in differences})
    assert differences == known


# Words in docstrings that are always names of arguments.
ARGUMENTS = frozenset({"x1", "x2", "n_cols", "ary", "arr", "ar1", "ar2"})


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_name_parameters_that_exist(module: str) -> None:
    wrong = {}
    ours = importlib.import_module(f"fxad.{module}")
    for name in dir(ours):
        function = getattr(ours, name)
        if inspect.isfunction(function):
            named = ARGUMENTS & set(re.findall(r"\w+", inspect.getdoc(function) or ""))
            if absent := named - {*inspect.signature(function).parameters}:
                wrong[name] = sorted(absent)
    assert wrong == {}
