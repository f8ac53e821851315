"""The names that users and outside checks rely on (DESIGN, "names that are fixed"), each with a docstring."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

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
