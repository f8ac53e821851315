"""Exported programs: bytes that run in another process and another version, or an error that says why not."""

from __future__ import annotations

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.errors import ArgumentError, FileFormatError, ParameterError
from fxad.runtime import CacheStats
from fxad.storage.exported import KIND, VERSION
from fxad.storage.file_format import FileSection, pack, unpack
from tests.processes import run_python

pytestmark = pytest.mark.smoke

X = np.linspace(-0.9, 0.9, 6, dtype=np.float32).reshape(2, 3)


def loss(params: dict[str, Any], x: Any, *, scale: Any) -> Any:
    y = fnp.arcsinh(x @ params["w"]) * scale
    last, all_ = lax.scan(lambda c, v: (c + v.sum(), lax.erf_inv(v / 9)), 0.0, y)
    return {"last": last, "all": (all_, y > 0)}


ARGS: Any = ({"w": np.eye(3, dtype=np.float32)}, X)
HELD = np.arange(3, dtype=np.float32)


def exported(f: Any, *args: Any, **kwargs: Any) -> bytes:
    return fx.lower(fx.trace(f, *args, **kwargs)).export()


def test_an_exported_program_computes_the_same() -> None:
    program = fx.trace(loss, *ARGS, scale=2.0)
    run = fx.load_exported(fx.lower(program).export())
    got, want = run(*ARGS, scale=np.float32(2)), program(*ARGS, scale=np.float32(2))
    assert fx.tree.structure(got) == fx.tree.structure(want)
    for a, b in zip(fx.tree.leaves(got), fx.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert (run.name, run.digest, run.in_avals) == ("loss", program.jaxpr.digest, program.in_avals)
    assert run.platforms == ("cpu", "cuda")
    assert run.memory().argument_bytes > 0
    with pytest.raises(
        fx.errors.ShapeError, match=r"^loss: argument x has shape \(3, 3\), it was traced with \(2, 3\)"
    ):
        run(ARGS[0], np.ones((3, 3), np.float32), scale=np.float32(1))


def test_pickling_it_says_what_to_do_instead() -> None:
    run = fx.load_exported(exported(loss, *ARGS, scale=2.0))
    with pytest.raises(ArgumentError) as e:
        pickle.dumps(run)
    assert e.value.message == "pickle: <Exported loss> is compiled for the devices of this process"
    assert e.value.remedy == "hand over the bytes that it was loaded from, and call load_exported on them there"
    assert copy.copy(run) is copy.deepcopy([run])[0] is run


def test_derivatives_closures_and_library_calls() -> None:
    def f(x: Any) -> Any:
        return fnp.linalg.slogdet(x @ x.T + fnp.eye(2))[1] + (x * HELD).sum()

    gradient = fx.trace(fx.grad(f), X)
    run = fx.load_exported(fx.lower(gradient).export())
    assert run.platforms == ("cpu", "cuda")
    np.testing.assert_allclose(run(X), gradient(X), rtol=1e-5)


def test_one_program_gives_the_same_bytes() -> None:
    lowered = fx.lower(fx.trace(lambda x: x * HELD, X))
    assert lowered.export() == lowered.export()


def test_donation_is_exported() -> None:
    def step(state: Any, g: Any) -> Any:
        return state - g * HELD

    data = fx.jit(step, donate="state").lower(X, X).export()
    run, state, g = fx.load_exported(data), fx.asarray(X), fx.asarray(X)
    assert run.memory().alias_bytes == X.nbytes
    np.testing.assert_allclose(run(state, g), X - X * HELD)
    np.testing.assert_array_equal(g, X)
    with pytest.raises(fx.errors.ExecutionError, match=r"^to_numpy: the array was donated to step at .*test_export"):
        np.asarray(state)
    with pytest.raises(ArgumentError, match=r"^step: one array is donated and given a second time: argument state and"):
        run(g, g)


@pytest.mark.about_cpus
def test_platforms_are_names() -> None:
    lowered = fx.lower(fx.trace(lambda x: x + 1, X))
    for given, kept in (("cpu", ("cpu",)), (("gpu", "cpu", "cuda", "cpu"), ("cuda", "cpu")), (None, ("cpu", "cuda"))):
        assert fx.load_exported(lowered.export(platforms=given)).platforms == kept


def test_a_class_that_is_defined_in_a_function_is_not_exported() -> None:
    @fx.tree.dataclass
    class Here:
        w: Any

    with pytest.raises(ArgumentError, match=r"^export: the class .*Here cannot be found again under its name\n"):
        exported(lambda p: p.w, Here(X))


OTHER = """
import sys, numpy as np, fxad as fx
from pathlib import Path
run = fx.load_exported(Path(sys.argv[1]).read_bytes())
print(np.asarray(run(np.ones((2, 3), np.float32))).tolist())
assert (fx.cache.stats().misses, fx.cache.stats().compilations) == (1, 1)
"""


def test_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(exported(lambda x: (x * HELD).sum(1), X))
    assert run_python(OTHER, path) == "[3.0, 3.0]\n"


def counted(stats: CacheStats) -> tuple[int, int, int, int]:
    return stats.hits, stats.compilations, stats.disk_hits, stats.disk_writes


def test_loading_twice_compiles_once() -> None:
    data = exported(lambda x: fnp.sin(x) * 1.25 + HELD, X)
    with fx.cache.private() as mine:
        runs = [fx.load_exported(data) for _ in range(3)]
        assert counted(mine.stats()) == (2, 1, 0, 0)
        assert len({np.asarray(run(X)).tobytes() for run in runs}) == 1
        fx.load_exported(exported(lambda x: fnp.sin(x) * 1.5 + HELD, X))
        assert counted(mine.stats()) == (2, 2, 0, 0)
        assert mine.stats().entries == 2


def test_programs_that_differ_in_closed_over_values_share_an_executable() -> None:
    """Closed-over arrays are operands, and no part of the compiled program."""

    def of(held: Any) -> bytes:
        return exported(lambda x: x * held - 1, X)

    with fx.cache.private() as mine:
        a, b = fx.load_exported(of(HELD)), fx.load_exported(of(HELD + 1))
        assert counted(mine.stats()) == (1, 1, 0, 0)
        assert np.allclose(a(X), X * HELD - 1)
        assert np.allclose(b(X), X * (HELD + 1) - 1)


def test_the_executable_of_an_exported_program_is_found_on_disk(tmp_path: Path) -> None:
    data = exported(lambda x: np.linalg.norm(HELD) * lax.linalg.cholesky(x.T @ x + fnp.eye(3, dtype=x.dtype)), X)
    results = []
    for expected in ((0, 1, 0, 1), (0, 0, 1, 0)):
        with fx.cache.private(dir=tmp_path / "cache") as mine:
            results.append(np.asarray(fx.load_exported(data)(X)).tobytes())
            assert counted(mine.stats()) == expected
    assert results[0] == results[1]


def test_the_cache_lists_what_was_exported_and_compares_programs_with_programs() -> None:
    program = fx.trace(lambda x: x + 1.75, X)
    with fx.cache.private() as mine:
        run = fx.load_exported(exported(lambda x: x * 1.75, X))
        (line,) = mine.explain().splitlines()
        assert line.endswith("cpu:0  <lambda>") or "<lambda>" in line
        assert not mine.explain(program).held
        mine.clear()
        assert mine.stats().entries == 0
        assert np.array_equal(run(X), X * np.float32(1.75))


def changed(data: bytes, **entries: Any) -> bytes:
    """Returns the bytes with other entries in their description, and matching checksums."""
    version, sections = unpack("test", data, KIND, VERSION)
    head = {**json.loads(sections[0].content), **entries}
    return b"".join(pack(KIND, version, [FileSection("program", json.dumps(head).encode()), *sections[1:]]))


DAMAGED = "load_exported: the program is damaged: byte 102: "


@pytest.mark.about_cpus
def test_bytes_that_are_no_exported_program_are_refused() -> None:
    data = exported(lambda x: x + 1, X)
    kind = "'fxad exported program' and a version"
    cases: list[tuple[Any, type[fx.errors.FxadError], str]] = [
        (b"junk", FileFormatError, f"load_exported: the program is not what fxad wrote: it does not begin with {kind}"),
        (b"", FileFormatError, f"load_exported: the program is not what fxad wrote: it does not begin with {kind}"),
        ("junk", ArgumentError, "load_exported: a str is not bytes"),
        (data[:-1], FileFormatError, "load_exported: the program is damaged: byte "),
        (
            data.replace(b"program 1", b"program 2", 1),
            FileFormatError,
            "load_exported: the program is of version 2, this fxad reads versions up to 1",
        ),
        (
            changed(data, platforms=["cuda"]),
            ParameterError,
            "load_exported: <lambda> was exported for cuda, the default platform",
        ),
        (changed(data, platforms=3), FileFormatError, f"{DAMAGED}section program: platforms is 3"),
        (
            changed(data, donate=[-1]),
            FileFormatError,
            f"{DAMAGED}section program: donate is [-1], the operands are 0 to 0",
        ),
        (changed(data, donate=[True]), FileFormatError, f"{DAMAGED}section program: donate is [True], the operands"),
        (
            changed(data, results={"tuple": ["*", "*"]}),
            FileFormatError,
            f"{DAMAGED}the trees do not fit the program",
        ),
    ]
    for given, error, message in cases:
        with pytest.raises(error) as e:
            fx.load_exported(given)
        assert re.sub(r"byte \d+: (?=section program|the trees)", "byte 102: ", e.value.message).startswith(message)
        assert e.value.remedy
    lowered = fx.lower(fx.trace(lambda x: fnp.linalg.cholesky(x @ x.T), X))
    for kwargs, message in (
        ({"platforms": ("abacus",)}, "export: <lambda> does not run on 'abacus'"),
        ({"platforms": "abacus"}, "export: <lambda> does not run on 'abacus'"),
        ({"platforms": [["cpu"]]}, "export: <lambda> does not run on ['cpu']"),
        ({"platforms": 3}, "export: platforms is an int, not a name or several"),
        ({"platforms": ()}, "export: <lambda> is to run on no platform"),
        ({"platforms": ("cpu", "rocm")}, "export: <lambda> does not run on 'rocm'"),
    ):
        with pytest.raises(ParameterError) as wrong:
            lowered.export(**kwargs)
        assert wrong.value.message.startswith(message)
    with pytest.raises(ArgumentError, match=r"^export: <lambda> calls show, a function of this process\n"):
        exported(lambda x: fx.debug_print("{}", x), X)


@pytest.mark.parametrize("at", range(0, 2000, 97))
def test_any_byte_that_is_changed_is_seen(at: int) -> None:
    data = bytearray(exported(lambda x: x * HELD + 2, X))
    data[at % len(data)] ^= 0x10
    with pytest.raises(FileFormatError):
        fx.load_exported(bytes(data))
