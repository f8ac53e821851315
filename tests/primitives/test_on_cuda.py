"""The StableHLO of linear algebra for GPUs: MLIR verifies it, and jaxlib's plugin has its custom calls. No GPU is
needed."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, runtime
from fxad.errors import CompileError, TranslationError
from fxad.lower import lower_jaxpr
from fxad.xla import cuda, host_calls
from fxad.xla.custom_calls import custom_call_targets, implements

# The cuSOLVER routines that a custom call needs, for matrices of a shape.
CALLS: list[tuple[Any, tuple[int, ...], str]] = [
    (fnp.linalg.cholesky, (3, 3), "potrf"),
    (fnp.linalg.cholesky, (5, 3, 3), "potrf"),
    (lax.linalg.lu, (4, 3), "getrf"),
    (fnp.linalg.qr, (4, 3), "geqrf orgqr"),
    (lambda a: lax.linalg.ormqr(*lax.linalg.geqrf(a), a), (4, 4), "geqrf ormqr"),
    (fnp.linalg.eigh, (2, 3, 3), "syevd"),
    (fnp.linalg.eigvalsh, (3, 3), "syevd"),
    (lambda a: fnp.linalg.svd(a, full_matrices=False), (2, 40, 33), "gesvdj"),
    (lambda a: fnp.linalg.svd(a, full_matrices=False), (2, 4, 3), "gesvdj"),
    (lambda a: fnp.linalg.svd(a, full_matrices=True), (3, 4), "gesvdj"),
    (fnp.linalg.svdvals, (3, 4), "gesvdj"),
    (lambda a: fnp.linalg.svd(a, full_matrices=False), (1100, 7), "gesvd"),
    (lambda a: fnp.linalg.svd(a, full_matrices=True), (2, 7, 1100), "gesvd"),
    (fnp.linalg.svdvals, (2, 7, 1100), "gesvd"),
    (fnp.linalg.eig, (3, 3), "geev"),
    (fnp.linalg.eigvals, (2, 3, 3), "geev"),
    (fnp.linalg.solve, (3, 3), "getrf"),
    (lambda a: lax.linalg.tridiagonal_solve(a[..., 0], a[..., 1], a[..., 2], a), (2, 5, 4), "gtsv"),
    (lambda a: lax.linalg.tridiagonal_solve(a[..., 0], a[..., 1], a[..., 2], a), (2, 3), "gtsv"),
]


def _called(program: Any) -> set[str]:
    return {t.split("_")[1] for t in custom_call_targets(lower_jaxpr(program.jaxpr, "cuda").body)}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("f", "shape", "routines"), CALLS)
def test_the_calls_of_a_decomposition(f: Any, shape: tuple[int, ...], routines: str, dtype: str) -> None:
    spec = fx.Spec(shape, dtype)
    program = fx.trace(f, spec, spec) if f is fnp.linalg.solve else fx.trace(f, spec)
    module = lower_jaxpr(program.jaxpr, "cuda")
    assert module.pretty(), "MLIR's verifier reads it"
    assert _called(program) == set(routines.split())
    assert all([implements("cuda", t) for t in custom_call_targets(module.body)])
    assert all([implements("cpu", t) for t in custom_call_targets(lower_jaxpr(program.jaxpr).body)])


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_triangular_solves_are_an_operation_of_xla(left: bool, lower: bool, transposed: bool) -> None:
    def f(a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(a, b, left_side=left, lower=lower, transpose_a=transposed, conjugate_a=True)

    spec = fx.Spec((2, 3, 3), "complex64")
    text = lower_jaxpr(fx.trace(f, spec, spec).jaxpr, "cuda").pretty()
    assert "custom_call" not in text
    kind = "ADJOINT" if transposed else "NO_TRANSPOSE"
    assert f"transpose {kind}" in text
    assert re.search(rf"left_side = {str(left).lower()}", text)
    assert re.search(rf"lower = {str(lower).lower()}", text)


def test_modules_without_linear_algebra_are_the_same_for_all_platforms() -> None:
    program = fx.grad(fx.trace(lambda x: fnp.sum(fnp.sin(x) @ x), fx.Spec((3, 3))))
    assert lower_jaxpr(program.jaxpr, "cuda").body == lower_jaxpr(program.jaxpr).body


def test_left_eigenvectors_are_refused() -> None:
    program = fx.trace(lax.linalg.eig, fx.Spec((3, 3)))
    with pytest.raises(CompileError) as e:
        lower_jaxpr(program.jaxpr, "cuda")
    assert e.value.message == "eig: cuSOLVER has no left eigenvectors"
    assert e.value.remedy == (
        "compute the right ones, and inv(v).conj().T of them, or run this part on fx.devices('cpu')"
    )


def test_routines_without_the_plugin_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda._Plugin, "load", lambda plugin: None)
    monkeypatch.setattr(cuda, "_of_plugin", lambda module: None)
    with pytest.raises(CompileError) as e:
        cuda.PLUGIN.register("fxad_potrf_f32")
    assert (
        e.value.message
        == "compile: fxad_potrf_f32 is cusolver_potrf_ffi of jax-cuda13-plugin, which this jaxlib does not have"
    )
    assert e.value.remedy == "pip install jax-cuda13-plugin of the version of jaxlib"


def test_host_calls_are_those_of_gpus() -> None:
    def f(x: Any) -> Any:
        return fx.pure_callback(np.sin, fx.Spec((3,)), x)

    program = fx.trace(f, fx.Spec((3,)))
    assert custom_call_targets(lower_jaxpr(program.jaxpr, "cuda").body) == {"xla_ffi_python_gpu_callback"}
    assert custom_call_targets(lower_jaxpr(program.jaxpr).body) == {"xla_ffi_python_cpu_callback"}


def test_host_calls_without_the_plugin_are_refused() -> None:
    program = fx.trace(lambda x: fx.pure_callback(np.sin, fx.Spec((3,)), x), fx.Spec((3,)))
    module = lower_jaxpr(program.jaxpr, "cuda")

    class Elsewhere:
        client, platform, raw = None, "cuda", None

    device: Any = Elsewhere()
    if cuda.PLUGIN.calls_host:
        pytest.skip("a plugin is installed")
    with pytest.raises(CompileError) as e:
        host_calls.compile_with_callbacks("", module.host, (device,), runtime.CompileOptions())  # type: ignore[arg-type]
    assert e.value.message == (
        "compile: without jax-cuda13-plugin, a program on cuda cannot call sin, a function of this process"
    )
    assert e.value.remedy == "pip install jax-cuda13-plugin of the version of jaxlib"


@pytest.mark.skipif(importlib.util.find_spec("jax_plugins") is not None, reason="a plugin is installed")
def test_a_program_for_two_platforms_of_jax_is_refused_where_they_differ() -> None:
    jax = pytest.importorskip("jax")
    to_jax = pytest.importorskip("fxad.interop.jax").to_jax
    f = to_jax(fx.trace(fnp.linalg.cholesky, fx.Spec((3, 3))))
    with pytest.raises(TranslationError, match=r"^to_jax of cholesky: its StableHLO differs on cpu, cuda\n") as e:
        jax.export.export(jax.jit(f), platforms=("cpu", "cuda"))(jax.ShapeDtypeStruct((3, 3), "float32"))
    assert e.value.remedy == "export it for one platform at a time"
    g = to_jax(fx.trace(fnp.sin, fx.Spec((3,))))
    assert jax.export.export(jax.jit(g), platforms=("cpu", "cuda"))(jax.ShapeDtypeStruct((3,), "float32"))
