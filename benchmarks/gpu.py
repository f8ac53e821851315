"""Checks of behaviour that is different on a GPU, with figures: `FXAD_PLATFORM=cuda python -m benchmarks.gpu`.

    FXAD_PLATFORM=cuda python -m benchmarks.gpu --write docs/benchmarks.md

Results are compared with NumPy in float64. The checks are independent: one that fails prints its error, and the others
run. The exit status is the number of failed checks. Arguments select checks by parts of their names.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from benchmarks import bench_call, bench_eager, bench_models
from benchmarks.harness import Row, show
from benchmarks.memory import invertible as reconstructed
from benchmarks.models.blocks import Network, Way, mlp, reversible
from benchmarks.models.library import OURS
from benchmarks.models.networks import transformer
from benchmarks.page import page, save, sections, taken
from benchmarks.run import ORDER
from fxad import lax, policies, random
from fxad.errors import ExecutionError

DTYPES: Final = ("float32", "float64", "complex64", "complex128")
# Relative residuals of decompositions, in order.
TOLERANCE: Final = {"float32": 2e-5, "float64": 1e-12, "complex64": 2e-5, "complex128": 1e-12}

Check = tuple[str, Callable[[], str]]


# ----------------------------------------------------------------------------------------------------- linear algebra


def matrices(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Random matrices."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def positive(shape: tuple[int, ...], dtype: str) -> Any:
    """Random Hermitian matrices with eigenvalues from 1 on."""
    a = matrices(shape, dtype)
    return (a @ adjoint(a) / shape[-1] + np.eye(shape[-1])).astype(dtype)


def well_conditioned(shape: tuple[int, ...], dtype: str) -> Any:
    """Random matrices with a strong diagonal."""
    n = shape[-1]
    return (matrices(shape, dtype) / np.sqrt(n) + 4 * np.eye(n)).astype(dtype)


def adjoint(a: Any) -> Any:
    """The conjugate transpose."""
    return np.swapaxes(a, -1, -2).conj()


def wide(x: Any) -> Any:
    """Converts to 64 bits, on the host."""
    a = np.asarray(x)
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def distance(a: Any, b: Any) -> float:
    """Returns the largest difference, relative to the largest element."""
    return float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1.0))


def _cholesky(shape: tuple[int, ...], dtype: str) -> float:
    a = positive(shape, dtype)
    factor = wide(fx.jit(fnp.linalg.cholesky)(a))
    return distance(factor @ adjoint(factor), wide(a))


def _lu(shape: tuple[int, ...], dtype: str) -> float:
    a = matrices(shape, dtype)
    lu, _, order = map(np.asarray, fx.jit(lax.linalg.lu)(a))
    m, n = shape[-2:]
    k = min(m, n)
    lower = np.tril(wide(lu)[..., :, :k], -1) + np.eye(m, k)
    permuted = np.take_along_axis(wide(a), order.astype(np.int64)[..., None], axis=-2)
    return distance(lower @ np.triu(wide(lu)[..., :k, :]), permuted)


def _qr(shape: tuple[int, ...], dtype: str) -> float:
    a = matrices(shape, dtype)
    q, r = map(wide, fx.jit(fnp.linalg.qr)(a))
    return max(distance(q @ r, wide(a)), distance(adjoint(q) @ q, np.eye(q.shape[-1])))


def _ormqr(shape: tuple[int, ...], dtype: str) -> float:
    a, c = matrices(shape, dtype), matrices(shape, dtype, 1)

    def both(a: Any, c: Any) -> tuple[Any, Any]:
        packed, scales = lax.linalg.geqrf(a)
        return lax.linalg.ormqr(packed, scales, c), lax.linalg.householder_product(packed, scales)

    product, q = map(wide, fx.jit(both)(a, c))
    return distance(product, q @ wide(c))


def _eigh(shape: tuple[int, ...], dtype: str) -> float:
    a = positive(shape, dtype)
    w, v = map(wide, fx.jit(fnp.linalg.eigh)(a))
    return max(distance(wide(a) @ v, v * w[..., None, :]), distance(adjoint(v) @ v, np.eye(shape[-1])))


def _svd(shape: tuple[int, ...], dtype: str, full: bool = False) -> float:
    a = matrices(shape, dtype)
    u, s, vh = map(wide, fx.jit(lambda a: fnp.linalg.svd(a, full_matrices=full))(a))
    alone = wide(fx.jit(fnp.linalg.svdvals)(a))
    k = s.shape[-1]
    whole = (u[..., :, :k] * s[..., None, :]) @ vh[..., :k, :]
    return max(
        distance(whole, wide(a)),
        distance(adjoint(u) @ u, np.eye(u.shape[-1])),
        distance(vh @ adjoint(vh), np.eye(vh.shape[-2])),
        distance(alone, s),
    )


def _full_svd(shape: tuple[int, ...], dtype: str) -> float:
    return _svd(shape, dtype, full=True)


def _eig(shape: tuple[int, ...], dtype: str) -> float:
    a = matrices(shape, dtype)
    w, v = map(wide, fx.jit(fnp.linalg.eig)(a))
    return distance(wide(a) @ v, v * w[..., None, :])


def _solve(shape: tuple[int, ...], dtype: str) -> float:
    a, b = well_conditioned(shape, dtype), matrices(shape, dtype, 1)
    return distance(wide(a) @ wide(fx.jit(fnp.linalg.solve)(a, b)), wide(b))


def _triangular(shape: tuple[int, ...], dtype: str) -> float:
    a, b = well_conditioned(shape, dtype), matrices(shape, dtype, 1)

    def f(a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(a, b, left_side=True, lower=True, transpose_a=True, conjugate_a=True)

    return distance(adjoint(np.tril(wide(a))) @ wide(fx.jit(f)(a, b)), wide(b))


def _tridiagonal(shape: tuple[int, ...], dtype: str) -> float:
    n = shape[-1]
    below, line, above = (matrices((*shape[:-2], n), dtype, k) for k in range(3))
    line, b = line + 4, matrices(shape, dtype, 3)
    x = wide(fx.jit(lax.linalg.tridiagonal_solve)(below, line.astype(dtype), above, b))
    a = np.zeros(shape, np.complex128)
    k = np.arange(n)
    a[..., k, k], a[..., k[1:], k[:-1]], a[..., k[:-1], k[1:]] = line, below[..., 1:], above[..., :-1]
    return distance(a @ x, wide(b))


DECOMPOSITIONS: Final[tuple[tuple[str, Callable[[tuple[int, ...], str], float], tuple[tuple[int, ...], ...]], ...]] = (
    ("cholesky (potrf)", _cholesky, ((1, 1), (5, 5), (64, 3, 3), (300, 300))),
    ("lu (getrf)", _lu, ((5, 5), (6, 4), (4, 6), (64, 3, 3), (300, 300))),
    ("qr (geqrf, orgqr)", _qr, ((5, 5), (6, 4), (4, 6), (16, 5, 3), (300, 200))),
    ("ormqr", _ormqr, ((5, 5), (8, 4, 4), (200, 200))),
    ("eigh (syevd)", _eigh, ((5, 5), (64, 3, 3), (200, 200))),
    ("svd (gesvdj, gesvd)", _svd, ((5, 5), (6, 4), (4, 6), (64, 3, 4), (80, 50), (1100, 7), (7, 1100))),
    ("svd, full matrices", _full_svd, ((6, 4), (4, 6), (40, 50), (1100, 7), (7, 1100))),
    ("eig (geev)", _eig, ((5, 5), (4, 6, 6), (60, 60))),
    ("solve", _solve, ((5, 5), (64, 3, 3), (300, 300))),
    ("triangular_solve (XLA)", _triangular, ((5, 5), (64, 3, 3), (300, 300))),
    ("tridiagonal_solve (gtsv2)", _tridiagonal, ((1, 1), (2, 2), (3, 3), (50, 50), (7, 6, 6))),
)  # fmt: skip


def decomposition(f: Callable[[tuple[int, ...], str], float], shapes: tuple[tuple[int, ...], ...]) -> str:
    """The largest residual of a decomposition for each dtype."""
    worst: dict[str, float] = {}
    over: list[str] = []
    for dtype in DTYPES:
        for shape in shapes:
            residual = f(shape, dtype)
            worst[dtype] = max(worst.get(dtype, 0.0), residual)
            if not residual <= TOLERANCE[dtype] * max(1, max(shape) / 100):
                over.append(f"{dtype}{list(shape)} {residual:.1e}")
    if over:
        raise AssertionError("residuals: " + ", ".join(over))
    return ", ".join([f"{dtype} {r:.1e}" for dtype, r in worst.items()])


def gradients_of_decompositions() -> str:
    """Gradients of functions of decompositions, beside the same program on the CPU, in float64."""
    a = positive((6, 6), "float64")
    worst = 0.0
    cpu = fx.devices("cpu")[0]
    for f in (
        lambda a: fnp.sum(fnp.sin(fnp.linalg.cholesky(a))),
        lambda a: fnp.linalg.slogdet(a)[1],
        lambda a: fnp.sum(fnp.sin(fnp.linalg.inv(a))),
        lambda a: fnp.sum(fnp.abs(fnp.linalg.qr(a)[1])),
        lambda a: fnp.sum(fnp.sin(fnp.linalg.eigh(a)[0])),
        lambda a: fnp.sum(fnp.sqrt(fnp.linalg.svdvals(a))),
        lambda a: fnp.sum(fnp.abs(fnp.linalg.eigvals(a + fnp.triu(a, 1)))),
    ):
        program = fx.grad(fx.trace(f, a))
        here, there = np.asarray(fx.jit(program)(a)), np.asarray(fx.jit(program)(fx.device_put(a, cpu)))
        worst = max(worst, distance(here, there))
    assert worst < 1e-9, worst
    return f"7 functions, largest difference {worst:.1e}"


# ------------------------------------------------------------------------------------------------------------ running


def calls_of_the_host() -> str:
    """Host functions, checks and debug_print."""

    def f(x: Any) -> Any:
        x = fx.error_if(x, fnp.any(x < 0), "x is negative: {}", x)
        return fx.pure_callback(np.sin, fx.Spec((4,)), x) + 1

    run = fx.jit(f)
    np.testing.assert_allclose(np.asarray(run(np.ones(4, np.float32))), np.sin(np.ones(4)) + 1, rtol=1e-6)
    failed = raised(lambda: run(-np.ones(4, np.float32)))
    assert "x is negative" in str(failed), failed

    def raising(_: Any) -> Any:
        raise KeyError("no such key")

    f = fx.jit(lambda x: fx.pure_callback(raising, fx.Spec((4,)), x))
    failed = raised(lambda: f(np.ones(4, np.float32)).block_until_ready())
    assert isinstance(failed, ExecutionError), failed
    assert isinstance(failed.__cause__, KeyError), failed
    return "pure_callback, error_if, an exception of the host function"


def raised(call: Callable[[], object]) -> Exception | None:
    """Returns the exception that a call raises."""
    try:
        call()
    except Exception as e:  # noqa: BLE001  it is compared
        return e
    return None


def donation() -> str:
    """A donated array is overwritten, and the error of a later use names it."""
    x = fx.device_put(np.ones((512, 512), np.float32), fx.devices()[0])
    run = fx.lower(fx.trace(lambda x: x * 2 + 1, x)).compile(donate=0)
    y = run(x)
    failed = raised(lambda: np.asarray(x))
    assert isinstance(failed, ExecutionError), failed
    assert "was donated to" in str(failed), failed
    assert run.memory().alias_bytes == 4 * 512 * 512
    assert float(fnp.sum(y)) == 3 * 512 * 512
    return f"alias bytes {run.memory().alias_bytes}"


def units() -> str:
    """A transformer of equal layers, compiled as units and whole."""
    model = transformer(layers=12, d=256)
    args = [fx.tree.map(fx.asarray, a) for a in (model.params, model.x, model.y)]
    out, said = [], []

    def loss(p: Any, x: Any, y: Any) -> Any:
        return model.loss(OURS, p, x, y)

    choices: tuple[Literal["auto", "none"], ...] = ("auto", "none")
    for how in choices:
        fx.cache.clear()
        run: Any = fx.jit(fx.value_and_grad(loss), units=how)
        start = time.perf_counter()
        out.append(_waited(run(*args)))
        first = time.perf_counter() - start
        said.append(f"{how}: first result {first:.2f} s, step {1e3 * _best(partial(_step, run, args)):.2f} ms")
    for a, b in zip(*[fx.tree.leaves(o) for o in out], strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-2, atol=2e-2)
    return "; ".join(said)


def _step(run: Any, args: Sequence[Any]) -> object:
    return _waited(run(*args))


def _waited(result: Any) -> Any:
    for a in fx.tree.leaves(result):
        a.block_until_ready()
    return result


def _best(step: Callable[[], object], turns: int = 20) -> float:
    best = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return best


def figures_of(network: Network, way: Way) -> tuple[str, Any]:
    """Returns the temporaries and the step time of a network's gradient, and the gradient."""
    args = [fx.tree.map(fx.asarray, a) for a in (network.layers, network.start, network.xs)]

    def loss(layers: Any, start: Any, xs: Any) -> Any:
        return network.loss(OURS, way, layers, start, xs)

    run: fx.Executable[..., Any] = fx.lower(fx.grad(fx.trace(loss, *args))).compile()
    step = 1e3 * _best(lambda: _waited(run(*args)))
    return f"{run.memory().temp_bytes / 2**20:.1f} MiB {step:.2f} ms", run(*args)


def remat() -> str:
    """The temporaries and the step time of a deep network: plain, and under `remat`."""
    network = mlp(depth=32, width=512, batch=2048)
    said, grads = [], []
    for name, way in (
        ("plain", Way()),
        ("nothing", Way(lambda f: fx.remat(f, policy=policies.nothing))),
        ("dots", Way(lambda f: fx.remat(f, policy=policies.dots))),
    ):
        figures, grad = figures_of(network, way)
        said.append(f"{name} {figures}")
        grads.append(grad)
    for other in grads[1:]:
        for a, b in zip(fx.tree.leaves(grads[0]), fx.tree.leaves(other), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-2, atol=1e-3)
    return "; ".join(said)


def invertible() -> str:
    """The temporaries of a reversible network, plain and reconstructed, at two depths."""
    said = []
    for depth in (8, 32):
        network = reversible(depth=depth, width=128, batch=2048)
        for name, way in (("plain", Way()), ("invertible", Way(chain=reconstructed))):
            said.append(f"{depth} layers {name} {figures_of(network, way)[0]}")
    return "; ".join(said)


def disk_tier() -> str:
    """An executable is stored on disk, and read after the memory cache is cleared."""
    with tempfile.TemporaryDirectory() as folder:
        fx.cache.configure(dir=folder)
        try:
            f = fx.jit(lambda x: fnp.linalg.inv(x) @ fnp.sin(x))
            x = np.eye(4, dtype=np.float32) * 2
            before = np.asarray(f(x))
            fx.cache.clear()
            again = np.asarray(fx.jit(lambda x: fnp.linalg.inv(x) @ fnp.sin(x))(x))
            stats = fx.cache.stats()
        finally:
            fx.cache.configure(dir=None)
    np.testing.assert_array_equal(before, again)
    return str(stats).replace("\n", " ")


def transfers() -> str:
    """Arrays to the CPU and back, and by DLPack."""
    x = fx.device_put(np.arange(6, dtype=np.float32), fx.devices()[0])
    there = fx.device_put(x, fx.devices("cpu")[0])
    back = fx.device_put(there, fx.devices()[0])
    np.testing.assert_array_equal(np.asarray(back), np.arange(6))
    same = fnp.from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(same), np.arange(6))
    return f"{x.device} -> {there.device} -> {back.device}; DLPack device {x.__dlpack_device__()}"


def exported() -> str:
    """An exported program runs on a GPU."""
    program = fx.trace(fnp.linalg.cholesky, fx.Spec((3, 3)))
    run = fx.load_exported(fx.lower(program).export())
    a = positive((3, 3), "float32")
    np.testing.assert_allclose(np.asarray(run(a)), np.linalg.cholesky(a), rtol=1e-5, atol=1e-5)
    return f"for {', '.join(run.platforms)}"


def random_numbers() -> str:
    """The bits for a key are those on the CPU."""
    key = random.key(3)
    cpu = fx.devices("cpu")[0]
    f = fx.jit(lambda k: random.bits(k, (1000,)))
    np.testing.assert_array_equal(np.asarray(f(key)), np.asarray(f(fx.device_put(key, cpu))))
    return "1000 equal words"


def checks() -> Iterator[Check]:
    """All checks, in order."""
    yield "devices", lambda: ", ".join([f"{d} {d.kind}" for d in fx.devices()])
    yield "transfers", transfers
    yield "donation", donation
    yield "random", random_numbers
    yield "calls of the host", calls_of_the_host
    for name, f, shapes in DECOMPOSITIONS:
        yield name, partial(decomposition, f, shapes)
    yield "gradients of decompositions", gradients_of_decompositions
    yield "disk tier", disk_tier
    yield "export", exported
    yield "units", units
    yield "remat", remat
    yield "invertible", invertible


MODELS: Final = ("mlp", "transformer", "rnn", "mixture", "large_mixture", "bundle", "bodies", "residual")


def beside_jax() -> list[Row]:
    """Compiled models, eager operations and calls."""
    return [*bench_models.rows(MODELS, 1.5), *bench_eager.rows(), *bench_call.rows()]


def gpu_section(checked: Sequence[tuple[str, str, str]], rows: Sequence[Row], when: str) -> str:
    """Returns the section `gpu` of the page: the checks with their figures, and the rows beside jax."""
    lines = [f"| {name} | {how} | {said.replace('|', '/')} |" for name, how, said in checked]
    table = ["| check | | figures |", "|---|---|---|", *lines]
    cells = [f"| {' | '.join(r.cells())} |" for r in rows]
    beside = ["| what | fxad | jax | ratio | budget | |", "|---|---:|---:|---:|---:|---|", *cells] if rows else []
    return "\n".join([f"Measured on {when}.", "", *table, "", *beside]).rstrip()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the checks, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[""], metavar="PART", help="parts of the names of checks")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="measure beside jax, and put all into this page")
    args = parser.parse_args(argv)
    checked: list[tuple[str, str, str]] = []
    when = taken()
    for name, check in checks():
        if not any([part in name for part in args.parts]):
            continue
        start = time.perf_counter()
        try:
            said, how = check(), "ok"
        except Exception as e:  # noqa: BLE001  the other checks run
            how, said = "FAILED", f"{type(e).__name__}: {e}"[:1500]
            traceback.print_exc(limit=-4)
        print(f"{how:<7}{name:<30}{time.perf_counter() - start:6.1f} s  {said}", flush=True)
        checked.append((name, how, said))
    if args.write:
        rows = beside_jax()
        show("on a GPU: fxad beside jax", rows)
        before = sections(args.write.read_text(encoding="utf-8")) if args.write.exists() else {}
        save(args.write, page({**before, "gpu": gpu_section(checked, rows, when)}, ORDER))
    return sum([how != "ok" for _, how, _ in checked])


if __name__ == "__main__":
    sys.exit(main())
