"""The names that users and outside checks rely on (DESIGN, "names that are fixed"), each with a docstring."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import subprocess
import sys

import pytest

import fxad as fx

pytestmark = pytest.mark.smoke

TRANSFORMATIONS = (
    "jvp", "linearize", "transpose", "vjp", "grad", "value_and_grad", "jacfwd", "jacrev", "hessian", "vmap", "remat",
    "dce", "cse", "simplify", "inline", "outline", "reroll",
)  # fmt: skip
NAMES = (
    *TRANSFORMATIONS,
    "trace", "Spec", "Program", "Lowered", "Executable", "Array", "Jaxpr",
    "lower", "jit", "interpret", "diff", "devices", "device_put", "explain_nan", "profile", "load_exported",
    "debug_print", "debug_callback", "io_callback", "pure_callback", "set_cpu_devices",
    "residuals", "partial_eval", "checkpoint_name", "policies",
)  # fmt: skip
MODULES = ("errors", "lax", "numpy", "testing", "text", "tree")


@pytest.mark.parametrize("name", NAMES)
def test_name_is_there_and_documented(name: str) -> None:
    found = getattr(fx, name)
    assert inspect.getdoc(found), f"fx.{name} has no docstring"


@pytest.mark.parametrize("name", MODULES)
def test_module_is_there_and_documented(name: str) -> None:
    assert inspect.getdoc(importlib.import_module(f"fxad.{name}")), f"fxad.{name} has no docstring"


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_transformation_takes_a_program_or_a_callable_and_nothing_else(name: str) -> None:
    with pytest.raises(fx.errors.ArgumentError) as caught:
        getattr(fx, name)(3)
    assert isinstance(caught.value, TypeError)
    assert name in caught.value.message
    assert caught.value.remedy


def test_members_are_there() -> None:
    program = fx.trace(lambda x: x + 1, fx.Spec((3,), "float32"))
    assert program.text() == str(program.jaxpr)
    lowered = fx.lower(program)
    assert "stablehlo.add" in lowered.text()
    run = lowered.compile()
    fields = {f.name for f in dataclasses.fields(run.memory())}
    assert {"argument_bytes", "output_bytes", "alias_bytes", "temp_bytes", "peak_bytes"} <= fields
    assert {"flops", "bytes_accessed"} <= {f.name for f in dataclasses.fields(run.cost())}
    assert {"hits", "misses", "bytes"} <= {f.name for f in dataclasses.fields(fx.cache.stats())}


FACES = ("lax", "nn", "numpy", "random")
LATER = ("custom_inverse", "custom_ivjp", "inverse", "invertible", "reconstruction_error")


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_faces_and_rare_names_are_there_without_importing_them() -> None:
    code = f"import fxad as fx; print([getattr(fx, n).__name__ for n in {(*FACES, *LATER)}])"
    assert fresh(code) == str([*[f"fxad.{n}" for n in FACES], *LATER])


def test_what_importing_leaves_for_later() -> None:
    code = "import fxad, sys; print(sorted(sys.modules))"
    modules = set(ast.literal_eval(fresh(code)))
    rare = {
        "fxad.nn",
        "fxad.random",
        "fxad.testing",
        "fxad.api.inverting",
        "fxad.transforms.inverse_rules",
        "hypothesis",
    }
    assert "fxad.program" in modules
    assert modules & rare == set()


def test_the_surface_lists_what_comes_later() -> None:
    """The names that type checkers see are found and listed, and no tools among them."""
    tree = ast.parse(inspect.getsource(fx))
    named = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    listed = dir(fx)
    assert {n for n in named if n} <= set(listed)
    assert {n for n in listed if not n.startswith("_") and not inspect.ismodule(getattr(fx, n))} <= named
    assert all([hasattr(fx, n) for n in listed])


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"^module 'fxad' has no attribute 'gradient'$"):
        fx.gradient  # type: ignore[attr-defined]  # noqa: B018
