"""The law of `specialize` on every public function: specialized to a size, a symbolic program is the program traced at
that size.

Each function takes arrays in which the sizes 3 are replaced by n. There are three outcomes: the law holds; the function
raises, because it needs the number; it chooses an algorithm by the number, and then only the results are equal. Two
tables give the reasons.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, nn, random
from fxad.core.sizes.size import named_size
from fxad.errors import FxadError, SizeError
from fxad.numpy import fft, linalg
from tests.attack.public import Function, functions

GIVEN: Final = 3  # the size of the arrays in tests/attack/public.py
AT: Final = (3, 5)

# Functions that reject a symbolic size, and why they need the number.
NUMBER: Final = MappingProxyType(
    {
        "numpy.delete": "which slices remain is found by NumPy",
        "numpy.insert": "where slices go is found by NumPy",
        "numpy.einsum_path": "an order of contraction for Python",
        "numpy.fill_diagonal": "the places are found by NumPy",
        "numpy.place": "the places are found by NumPy",
        "numpy.histogramdd": "one vector of edges for each column",
        "numpy.poly": "one equation for each root",
        "numpy.tril_indices_from": "the number of indices is not a polynomial of n",
        "numpy.triu_indices_from": "the number of indices is not a polynomial of n",
        "lax.levenberg_marquardt": "the places of the diagonal are found by NumPy",
        "lax.unstack": "one result for each slice",
        "numpy.unstack": "one result for each slice",
    }
)
# Functions whose algorithm depends on the number of elements.
CHOICE: Final = MappingProxyType(
    {
        "lax.associative_scan": "the stages of the scan are equations; without a number it is a scan",
        "numpy.isin": "compares with up to 64 elements, sorts more",
        "numpy.intersect1d": "isin",
        "numpy.setdiff1d": "isin",
        "numpy.setxor1d": "isin",
        "numpy.vander": "up to 256 powers have an equation each",
        "numpy.fft.ihfft": "the scale is a literal; without a number it is divided by",
        "numpy.linalg.det": "up to 3 rows by the formula",
        "random.permutation": "the rounds of sorting are equations; without a number they are a loop",
    }
)


def traced(f: Function, size: int) -> fx.Program[..., Any] | None:
    """Returns the program of a function with `size` for each size 3, or None if it takes no such array."""
    specs: list[fx.Spec] = []

    def take(v: Any) -> Any:
        if isinstance(v, np.ndarray) and v.ndim and GIVEN in v.shape:
            specs.append(fx.Spec([size if n == GIVEN else n for n in v.shape], v.dtype))
            return Place(len(specs) - 1)
        return type(v)([take(x) for x in v]) if type(v) in (list, tuple) else v

    marked = {k: take(v) for k, v in f.given.items()}

    def run(*arrays: Any) -> list[Any]:
        def put(v: Any) -> Any:
            if isinstance(v, Place):
                return arrays[v.number]
            return type(v)([put(x) for x in v]) if type(v) in (list, tuple) else v

        actual = fx.tree.leaves(f.run(**{k: put(v) for k, v in marked.items()}))
        return [x for x in actual if isinstance(x, fx.Array | np.ndarray | np.generic | bool | int | float | complex)]

    return fx.trace(run, *specs) if specs else None


class Place:
    """Stands for an array in the arguments of a function."""

    def __init__(self, number: int) -> None:
        self.number = number


def _check(f: Function) -> str:
    """Returns "same", "differs", "refuses", or "" if there is nothing to compare."""
    at: dict[int, fx.Program[..., Any]] = {}
    for n in AT:
        try:
            program = traced(f, n)
        except FxadError:  # a function that takes three elements only, or values
            return ""
        if program is None:
            return ""
        at[n] = program
    try:
        symbolic = traced(f, named_size("n", min(AT)))
    except SizeError:
        return "refuses"
    assert symbolic is not None
    fixed = {n: fx.specialize(symbolic, n=n) if symbolic.jaxpr.symbolic else symbolic for n in AT}
    return "same" if all([fixed[n].jaxpr is at[n].jaxpr for n in AT]) else "differs"


@pytest.mark.parametrize("module", [lax, fnp, fft, linalg, nn, random], ids=lambda m: m.__name__)
def test_every_function(module: Any) -> None:
    actual = {str(f): _check(f) for f in functions(module)}
    tables = {**dict.fromkeys(NUMBER, "refuses"), **dict.fromkeys(CHOICE, "differs")}
    want = {name: tables.get(name, "same") for name, said in actual.items() if said or name in tables}
    assert {name: actual[name] for name in want} == want
    assert len(want) > 3
