"""The public names (DESIGN, "names that are fixed"), each with a docstring, and the modules that an import loads."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.text import parse
from tests.processes import run_python

pytestmark = pytest.mark.smoke

TRANSFORMATIONS = (
    "jvp", "linearize", "transpose", "vjp", "grad", "value_and_grad", "jacfwd", "jacrev", "hessian", "vmap", "remat",
    "dce", "cse", "simplify", "inline", "outline", "reroll",
)  # fmt: skip
NAMES = (
    *TRANSFORMATIONS,
    "trace", "Spec", "Program", "Lowered", "Executable", "Array", "Jaxpr",
    "lower", "jit", "apply_passes", "interpret", "diff", "devices", "device_put", "explain_nan", "profile",
    "load_exported",
    "error_if", "debug_print", "debug_callback", "io_callback", "pure_callback", "set_cpu_devices",
    "residuals", "plan_memory", "partial_eval", "checkpoint_name", "policies", "SymbolicZero", "CustomVJPPrimal",
)  # fmt: skip
MODULES = ("errors", "lax", "numpy", "passes", "testing", "text", "tree")


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
    assert parse(program.text()) is parse(str(program)) is program.jaxpr

    def increment(z: fx.Array) -> fx.Array:
        return z + 1

    equal = fx.trace(increment, fx.Spec((3,), "float32"))
    assert equal.jaxpr is program.jaxpr  # the text has the name of the function of each
    assert equal.text().startswith("main @increment(")
    assert program.text().startswith('main @"<lambda>"(')
    lowered = fx.lower(program)
    assert "stablehlo.add" in lowered.text()
    run = lowered.compile()
    fields = {f.name for f in dataclasses.fields(run.memory())}
    assert {"argument_bytes", "output_bytes", "alias_bytes", "temp_bytes", "peak_bytes"} <= fields
    assert {"flops", "bytes_accessed"} <= {f.name for f in dataclasses.fields(run.cost())}
    assert {"hits", "misses", "bytes"} <= {f.name for f in dataclasses.fields(fx.cache.stats())}


EAGER = ("lax", "nn", "numpy", "random")
LATER = ("custom_inverse", "custom_ivjp", "inverse", "invertible", "jvp", "load", "residuals", "save")
ROOT = Path(fx.__file__).parent
STUBS = sorted(ROOT.rglob("__init__.pyi"))  # the names and files of packages that import a file at its first use


def test_modules_and_rare_names_are_imported_on_demand() -> None:
    code = f"import fxad as fx; print([getattr(fx, n).__name__ for n in {(*EAGER, *LATER)}])"
    assert run_python(code).strip() == str([*[f"fxad.{n}" for n in EAGER], *LATER])


def test_rare_modules_are_not_imported() -> None:
    code = "import fxad, fxad.numpy, fxad.lax, fxad.nn, fxad.random, sys; print(sorted(sys.modules))"
    modules = set(ast.literal_eval(run_python(code)))
    rare = {
        "fxad.core.alignment",
        "fxad.core.diff",
        "fxad.testing",
        "fxad.text.parser",
        "fxad.units.picture",
        "fxad.api.inverse",
        "fxad.numpy.linalg",
        "fxad.numpy.polynomials",
        "fxad.nn.pooling",
        "fxad.primitives.linalg",
        "fxad.primitives.manifest",
        "fxad.random.gammas",
        "fxad.transforms.inversion.rules",
        "fxad.transforms.outlining.reroll",
        "hypothesis",
        "opt_einsum",
    }
    assert "fxad.tracing.program" in modules
    assert modules & rare == set()


def test_import_fxad_imports_few_modules() -> None:
    """Modules are counted instead of timed: each module of fxad takes 0.3 ms, and each of these libraries 1 to 40
    ms. `grad` is four modules: signatures, programs, arguments, and those that are differentiated."""
    modules = set(ast.literal_eval(run_python("import fxad, sys; print(sorted(sys.modules))")))
    assert len([m for m in modules if m.partition(".")[0] == "fxad"]) <= 224
    rare = {
        "asyncio", "concurrent", "jaxlib._profiler", "jaxlib.cpu", "jaxlib.mlir", "multiprocessing", "scipy", "secrets",
        "socket", "tempfile",
    }  # fmt: skip
    assert modules & rare == set()


def seen_by_type_checkers(stub: Path) -> dict[str, str]:
    """Return each name of a stub with its file. A name is a submodule if it has no file."""
    imports = [n for n in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(n, ast.ImportFrom)]
    assert all([n.level == 1 and a.asname == a.name for n in imports for a in n.names])
    return {a.name: n.module or "" for n in imports for a in n.names}


def dotted(stub: Path) -> str:
    return ".".join(stub.parent.relative_to(ROOT.parent).parts)


def test_each_name_is_the_one_that_type_checkers_see() -> None:
    """Also in a process that has imported all files of the package, which Python sets as attributes of the package."""
    code = f"""
import importlib, pathlib
wrong = []
for package, folder, seen in {[(dotted(p), str(p.parent), seen_by_type_checkers(p)) for p in STUBS]!r}:
    shown = importlib.import_module(package)
    for file in pathlib.Path(folder).iterdir():
        if file.suffix == ".py" or (file / "__init__.py").exists():
            importlib.import_module(f"{{package}}.{{file.stem}}".removesuffix(".__init__"))
    for name, file in seen.items():
        wanted = getattr(importlib.import_module(f"{{package}}.{{file}}"), name) if file else None
        wanted = wanted if file else importlib.import_module(f"{{package}}.{{name}}")
        if getattr(shown, name) is not wanted:
            wrong.append((package, name))
print(wrong)
"""
    assert len(STUBS) > 8
    assert run_python(code).strip() == "[]"


@pytest.mark.parametrize("stub", STUBS, ids=dotted)
def test_a_package_lists_what_its_stub_states(stub: Path) -> None:
    module, seen = importlib.import_module(dotted(stub)), seen_by_type_checkers(stub)
    hidden = vars(fx)["_PATHS_OF_JAX"] if module is fx else set()
    assert sorted(dir(module)) == sorted(set(seen) - hidden)
    assert set(seen) - set(module.__all__) == ({"test_util", "testing"} if module is fx else set())
    # a file of the same name would be in place of the name, once it is imported. `fx.lower` is set after that, and an
    # import of the commands `fxad.explain` and `fxad.replay` gives the functions
    assert {n for n, file in seen.items() if file and (stub.parent / f"{n}.py").exists()} <= {
        *("explain", "lower", "replay"),
    }


def test_import_star_needs_no_optional_package() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; from fxad import *; print(grad.__name__, numpy.__name__)"
    assert run_python(code).split() == ["grad", "fxad.numpy"]


def test_functions_of_primitives_say_what_they_are() -> None:
    """They are made by a factory: names, signatures and docstrings are those of ordinary functions."""
    for module, name, names in (
        (fx.lax, "bitwise_not", ["x"]),
        (fx.lax, "sin", ["x"]),
        (fx.lax, "max", ["x", "y"]),
        (fx.numpy, "sin", ["x"]),
    ):
        f = getattr(module, name)
        assert f.__name__ == f.__qualname__ == name
        assert pickle.loads(pickle.dumps(f)) is f
        signature = inspect.signature(f)
        assert list(signature.parameters) == names
        assert {str(p.annotation) for p in signature.parameters.values()} == {"ArrayLike"}
        assert signature.return_annotation == "Array"
        assert (inspect.getdoc(f) or "").startswith("Return ")
    assert inspect.getdoc(fx.numpy.sin) == "Return the sine of x."
    assert "Rule:   d = cos(x)." in (inspect.getdoc(fx.lax.sin) or "")
    with pytest.raises(
        fx.errors.ArgumentError, match=r"^sin: argument 0: a str is not an array: 'x'\n  called at .*surface"
    ):
        fx.lax.sin("x")  # type: ignore[arg-type]


def test_the_names_that_numpy_has_and_fxad_has_not() -> None:
    """Those of the docstring, against the module. NumPy has each of them."""
    _, listed = str(fnp.__doc__).split("These names of NumPy do not exist here:")
    names = [n for line in re.split(r"\n- ", listed) for n in re.findall(r"`(\w+)`", line.split(": use")[0])]
    assert len(names) >= 10
    assert [n for n in names if hasattr(fnp, n) or not hasattr(np, n)] == []


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match=r"^module 'fxad' has no attribute 'gradients'$"):
        fx.gradients  # type: ignore[attr-defined]  # noqa: B018
