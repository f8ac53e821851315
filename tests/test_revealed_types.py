"""No public function hides a type that Python can say behind `Any`."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Iterator

import pytest

MODULES = (
    "fxad", "fxad.lax", "fxad.nn", "fxad.optim", "fxad.random", "fxad.tree", "fxad.numpy", "fxad.numpy.linalg",
    "fxad.numpy.fft", "fxad.scipy.linalg", "fxad.scipy.special", "fxad.scipy.optimize", "fxad.scipy.signal",
    "fxad.scipy.integrate", "fxad.scipy.interpolate", "fxad.scipy.ndimage", "fxad.scipy.fft", "fxad.scipy.cluster.vq",
    "fxad.scipy.sparse.linalg", "fxad.scipy.stats",
)  # fmt: skip
LEAVES = "leaves of a tree are of any types"
ANY = {
    "fxad.closure_convert": "the arrays are those that the function closes over, also of NumPy",
    "fxad.interpret": "NumPy arrays in the tree of the results",
    "fxad.inverse": "takes results, and returns the arguments that are chosen",
    "fxad.linear_transpose": "takes a cotangent of the results, and returns those of the arguments",
    "fxad.load": "the file says what the program takes",
    "fxad.reduce_program": "a predicate of the program and its arguments, of any types",
    "fxad.shapecheck": "texts in the tree of the results",
    "fxad.transpose": "takes known arguments and cotangents, and returns cotangents of the others",
    "fxad.tree.broadcast": "the leaves of the one tree in the structure of the other",
    "fxad.tree.broadcast_prefix": LEAVES,
    "fxad.tree.flatten": LEAVES,
    "fxad.tree.flatten_one_level": "children are of any types, and so is static data",
    "fxad.tree.flatten_one_level_with_keys": "children are of any types, and so is static data",
    "fxad.tree.flatten_up_to": LEAVES,
    "fxad.tree.flatten_with_path": LEAVES,
    "fxad.tree.leaves": LEAVES,
    "fxad.tree.leaves_with_path": LEAVES,
    "fxad.tree.reduce": LEAVES,
    "fxad.tree.reduce_associative": LEAVES,
    "fxad.tree.static": "the default of a field of any type, as `dataclasses.field`",
    "fxad.tree.transpose": "the inner structure outside",
    "fxad.tree.unflatten": "the structure is a value",
}


def functions() -> Iterator[tuple[str, list[str]]]:
    """Yields the public functions with the result of each of their overloads, as written."""
    for module in map(importlib.import_module, MODULES):
        for name in dir(module):
            value = getattr(module, name)
            function = inspect.unwrap(value) if callable(value) and not inspect.isclass(value) else None
            if inspect.isfunction(function) and function.__module__.startswith("fxad.") and not name.startswith("_"):
                overloads = typing.get_overloads(function) or [function]
                yield f"{module.__name__}.{name}", [str(f.__annotations__.get("return", "Any")) for f in overloads]


def test_any_has_a_reason() -> None:
    found = {name for name, results in functions() if all(re.search(r"\bAny\b", r) for r in results)}
    assert found == set(ANY)


# transformations of functions, and the number of literal `argnums` that their types know, with auxiliary results
@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacfwd", "jacrev"])
def test_literal_argnums_have_types(name: str) -> None:
    results = dict(functions())[f"fxad.{name}"]
    assert len([r for r in results if not re.search(r"\bAny\b|Derivative", r)]) >= 15
