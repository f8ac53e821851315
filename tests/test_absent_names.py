"""A name of JAX that fxad does not have raises an error that says what to write instead."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import fxad as fx
from fxad.support.absent import absent, explained, explained_elsewhere
from tests.processes import run_python

MODULES = (
    "",
    "numpy",
    "numpy.linalg",
    "numpy.fft",
    "lax",
    "lax.linalg",
    "random",
    "nn",
    "nn.initializers",
    "sharding",
    "debug",
    "core",
    "image",
    "scipy.linalg",
    "scipy.special",
    "scipy.stats",
)

PROGRAM = fx.trace(lambda x: x + 1, 1.0)


def of(root: str, module: str) -> Any:
    return importlib.import_module(f"{root}.{module}" if module else root)


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_of_jax_exists_or_has_an_explanation(module: str) -> None:
    pytest.importorskip("jax")
    theirs, ours = of("jax", module), of("fxad", module)
    silent = []
    for name in dir(theirs):
        if name.startswith("_") or not _there(theirs, name) or hasattr(ours, name):
            continue
        if absent(ours.__name__, name).endswith(f"has no attribute {name!r}"):
            silent.append(name)
    assert silent == []


def _there(module: Any, name: str) -> bool:
    try:
        getattr(module, name)
    except Exception:  # JAX's deprecated names raise errors of many types
        return False
    return True


def test_names_with_an_explanation_do_not_exist() -> None:
    here = []
    for path in (*explained(), *explained_elsewhere()):
        module, _, name = path.rpartition(".")
        if hasattr(importlib.import_module(module), name):
            here.append(path)
    assert here == []


def test_the_message() -> None:
    for module, name, instead in (
        (
            fx,
            "enable_x64",
            "64-bit types are always there: give dtype='float64' where arrays are made, or NumPy arrays of float64",
        ),
        (fx.lax, "add_p", "primitives are classes: fxad.primitives.ALL lists them"),
        (fx.lax, "approx_max_k", "lax.top_k is exact"),
        (fx.experimental, "checkify", "error_if(x, x < 0, 'negative: {}', x) raises in the compiled program"),
    ):
        with pytest.raises(AttributeError) as e:
            getattr(module, name)
        assert str(e.value) == f"module {module.__name__!r} has no attribute {name!r}: {instead}"
    with pytest.raises(AttributeError) as e:
        getattr(fx.lax, "nothing")  # noqa: B009
    assert str(e.value) == "module 'fxad.lax' has no attribute 'nothing'"
    for module, name, elsewhere in ((fx.lax, "linear_transpose", "fxad"), (fx.random, "sin", "fxad.lax")):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}': {elsewhere}\.{name}$"):
            getattr(module, name)


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (PROGRAM, "eqns", "program.jaxpr.eqns"),
        (PROGRAM, "invars", "program.jaxpr.ins: those of program.bound, then those of the arguments"),
        (PROGRAM, "literals", "program.bound"),
        (PROGRAM.jaxpr, "outvars", "jaxpr.outs"),
        (PROGRAM.jaxpr.eqns[0], "primitive", "eqn.prim"),
        (PROGRAM.jaxpr.eqns[0], "params", "the fields of eqn.prim"),
        (PROGRAM.jaxpr.eqns[0], "nothing", ""),
    ],
)
def test_attributes_of_a_jaxpr_of_jax(owner: Any, name: str, instead: str) -> None:
    assert not hasattr(owner, "undefined")
    with pytest.raises(AttributeError) as e:
        getattr(owner, name)
    assert str(e.value) == f"{type(owner).__name__!r} object has no attribute {name!r}" + (instead and f": {instead}")


def test_dir_has_public_names_only() -> None:
    """In a fresh process: `dir` shows no name that fxad imports for itself."""
    code = "import fxad, fxad.numpy, fxad.lax, fxad.random, fxad.nn, fxad.tree\n"
    code += "print(*[n for m in (fxad, fxad.numpy, fxad.lax, fxad.random, fxad.nn, fxad.tree) for n in dir(m)])"
    names = set(run_python(code).split())
    assert {"grad", "jit", "vmap", "tree", "dtypes", "errors", "numpy", "scipy", "eval_shape", "matmul"} <= names
    assert names & {"annotations", "lazy_exports", "TYPE_CHECKING", "sys", "np", "Final", "core", "api"} == set()


PUBLIC = (
    "debug distributed extend lax.linalg numpy.fft optim passes scipy.linalg scipy.special scipy.stats sharding "
    "testing tree tree_util typing"
)


@pytest.mark.parametrize("name", PUBLIC.split())
def test_dir_of_each_public_module_has_its_names_only(name: str) -> None:
    module = importlib.import_module(f"fxad.{name}")
    assert {n for n in dir(module) if not n.startswith("_")} == set(module.__all__)
