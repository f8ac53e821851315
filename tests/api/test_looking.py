"""The log of compilations, profiles of runs, and the text of executables."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
from fxad.errors import ArgumentError, ExecutionError, FxadError, ParameterError, RecompilationWarning
from fxad.xla import profiler

pytestmark = pytest.mark.smoke

X = np.arange(3, dtype=np.float32)


@pytest.mark.about_cpus
@pytest.mark.usefixtures("nothing_remembered")
def test_the_log_says_what_is_compiled_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fxad")

    def shifted(x: Any) -> Any:
        return x + 4096.25

    run = fx.jit(shifted)
    run(X)
    run(X)
    run(X[:2])
    lines = [r.getMessage() for r in caplog.records]
    here = rf"; called at {re.escape(__file__)}:\d+ in test_the_log_says_what_is_compiled_and_why"
    compiled = r"compiled shifted for cpu:0 in [\d.]+ ms: 1 equations, \d+ temporary bytes"
    patterns = [
        rf"jit of shifted: called for the first time, with x f32\[3\]{here}",
        compiled,
        rf"jit of shifted: x is f32\[2\], it was f32\[3\]{here}",
        rf"{compiled}; the nearest of that name differs at operand 0: f32\[2\] vs f32\[3\]",
    ]
    lines = [line for line in lines if "eager" not in line]
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


def logged(caplog: pytest.LogCaptureFixture, call: Any) -> list[str]:
    """Returns the messages about programs that a call logs, without figures and lines."""
    caplog.clear()
    call()
    lines = [r.getMessage() for r in caplog.records if "eager" not in r.getMessage()]
    return [re.sub(r"; (called|traced) at .*", "", re.sub(r"in [\d.]+ ms: .* bytes", "...", line)) for line in lines]


def test_many_compilations_for_the_calls_of_one_line_are_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("always", RecompilationWarning)
    run = fx.jit(lambda x: x * 4099.25)

    def messages(sizes: range) -> list[str]:
        recwarn.clear()
        for n in sizes:
            run(np.ones(n, np.float32))
            run(np.ones(n, np.float32))
        return [str(w.message) for w in recwarn]

    with fx.cache.private():
        for n in range(3):
            run(np.ones((n, 2), np.float32))  # another line
        assert messages(range(1, 10)) == []
        (message,) = messages(range(10, 11))
        assert message.startswith(f"jit of <lambda>: the calls at {__file__}:")
        assert "have compiled 10 programs. The last reason: x is f32[10], it was f32[9]. Pad to a few sizes" in message
        assert messages(range(11, 25)) == []
    with fx.cache.private():  # a program that is found in the cache is not compiled
        for _ in range(12):
            fx.jit(lambda x: x * 4100.25)(X)
    assert not recwarn


def test_the_log_while_another_thread_compiles(caplog: pytest.LogCaptureFixture) -> None:
    """Regression: the dict of executables changed its size while the reason was looked for in it."""
    caplog.set_level(logging.INFO, logger="fxad")
    run: Any = fx.jit(lambda x: x * 4101.25)
    run(X)
    executables = run._by_types.executables
    (held,) = executables.values()

    class Other:
        @property
        def program(self) -> Any:
            executables[object()] = held  # by the other thread
            return held.program

    executables[None] = Other()
    assert "jit of <lambda>: x is f32[5], it was f32[3]" in logged(caplog, lambda: run(np.ones(5, np.float32)))


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.about_cpus
def test_the_log_says_what_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fxad")

    def power(p: Any, *rest: Any, n: int = 2) -> Any:
        return sum([v.sum() for v in p.values()]) * 0.1 * n

    def scaled(by: float) -> Any:
        def scale(x: Any) -> Any:
            return x * by

        return fx.jit(scale)

    p = {"a": X, "b": X}
    run: Any = fx.jit(power, static_argnames="n")
    plain: Any = fx.jit(power)
    with fx.cache.private():
        first = logged(caplog, lambda: run(p))
        assert first == [
            "jit of power: called for the first time, with p['a'] f32[3], p['b'] f32[3]",
            "compiled power for cpu:0 ...",
        ]
        assert logged(caplog, lambda: run(p)) == []
        static, _, compiled = logged(caplog, lambda: run(p, n=3))
        assert static == "jit of power: called with new static values: n=3 (1 before)"
        assert compiled.startswith("compiled power for cpu:0 ...; the nearest of that name differs at equation ")
        assert compiled.endswith(" / operand 1: 3.0:f32[] vs 2.0:f32[]")
        plain(p)
        turned = [f"p['{k}'] is f32[1,{k + 1}], it was f32[{k + 1},1]" for k in range(5)]
        news = [
            logged(caplog, lambda: plain({"a": X, "b": X.astype("int32")}))[0],
            logged(caplog, lambda: plain({"a": X}))[0],
            logged(caplog, lambda: plain({str(k): np.ones((k + 1, 1), np.float32) for k in range(5)}))[0],
            logged(caplog, lambda: plain({str(k): np.ones((1, k + 1), np.float32) for k in range(5)}))[0],
            logged(caplog, lambda: plain(p, X))[0],
        ]
        assert news == [
            "jit of power: p['b'] is i32[3], it was f32[3]",
            "jit of power: argument p is {'a': *}, it was traced as {'a': *, 'b': *}",
            "jit of power: argument p is {'0': *, '1': *, '2': *, '3': *, '4': *}, it was traced as {'a': *}",
            f"jit of power: {', '.join(turned[1:4])} and 1 more",
            "jit of power: takes 1 positional argument, 2 were given",
        ]
        scaled(4097.25)(X)
        assert logged(caplog, lambda: scaled(4098.25)(X))[1].endswith("operand 1: 4098.25:f32[3] vs 4097.25:f32[3]")
        assert logged(caplog, lambda: scaled(4097.25)(X)) == ["jit of scale: called for the first time, with x f32[3]"]


def test_a_profile_has_the_format_of_viewers(tmp_path: Path) -> None:
    with fx.profile(tmp_path):
        fx.jit(lambda x: (x @ x).sum())(np.ones((64, 64), np.float32)).block_until_ready()
        with (
            pytest.raises(ParameterError, match=r"^profile: another profile is running in this process\n"),
            fx.profile(tmp_path),
        ):
            pass
    (space,) = tmp_path.rglob("*.xplane.pb")
    assert space.stat().st_size > 0
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert len(events) > 1


def test_profiles_within_a_second_have_different_names(tmp_path: Path) -> None:
    """Regression: the second profile overwrote the first."""
    for _ in range(4):
        with fx.profile(tmp_path):
            pass
    assert len([*tmp_path.rglob("*.xplane.pb")]) == 4
    assert [p.name for p in tmp_path.iterdir()] == ["plugins"]


def test_a_name_that_is_taken_is_numbered(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for _ in range(3):
        made = tmp_path / "now"
        made.mkdir()
        (made / "trace").touch()
        profiler._move(made, tmp_path / "runs")
    assert sorted([p.name for p in (tmp_path / "runs").iterdir()]) == ["now", "now_1", "now_2"]


def test_an_error_ends_the_profile(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), fx.profile(tmp_path):
        1 / 0  # noqa: B018
    with fx.profile(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_profile_in_a_directory_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ExecutionError, match=r"^profile: the trace .* is not writable\n"), fx.profile(tmp_path / "in"):
        pass


def test_a_profile_without_a_directory_is_refused_before_the_code_runs(tmp_path: Path) -> None:
    """Regression: the profile was refused at the end, after the profiled code had run."""
    (tmp_path / "file").touch()
    at, make = "profile: the trace was not written to ", "name a directory that you may make and write to"
    places: list[tuple[Any, type[FxadError], str, str]] = [
        (3, ArgumentError, "profile: an int is not a path: 3", "name a directory to write the trace to"),
        ("\0", ArgumentError, "profile: a str is not a path: '\\x00'", "name a directory to write the trace to"),
        (tmp_path / ("a" * 300), ExecutionError, f"{at}{tmp_path / ('a' * 300)}: File name too long", make),
        (tmp_path / "file", ExecutionError, f"{at}{tmp_path / 'file'}: {tmp_path / 'file'} is not a directory", make),
        (tmp_path / "file" / "in", ExecutionError, f"{at}{tmp_path / 'file' / 'in'}: ", make),
    ]
    for place, kind, message, remedy in places:
        ran = False
        with pytest.raises(kind) as e, fx.profile(place):
            ran = True
        assert e.value.message.startswith(message)
        assert e.value.remedy == remedy
        assert not ran
    with fx.profile(os.fsencode(tmp_path)):
        pass
    assert [*tmp_path.rglob("*.xplane.pb")]


# ------------------------------------------------------------------------------------ the text of the optimised program


@fx.jit
def halved(x: Any) -> Any:
    return x * 0.5 + 1.0


def thrice(x: Any) -> Any:
    return halved(halved(halved(x))) - 1.0625  # no other test has such a program, whose name would be that of this one


def test_the_text_of_an_executable_is_what_xla_optimised() -> None:
    text = fx.lower(fx.trace(thrice, X), units="none").compile().text()
    assert text.startswith("HloModule")
    assert "f32[3]" in text
    assert "fusion" in text  # XLA makes fusions, the program has none
    assert "// unit" not in text


@pytest.mark.usefixtures("nothing_remembered")
def test_the_text_of_linked_units_has_a_section_for_each() -> None:
    executable = fx.lower(fx.trace(thrice, X), units=lambda body: body.name == "halved").compile()
    sections = re.split(r"^// (unit .*)\n", executable.text(), flags=re.MULTILINE)
    assert sections[0] == ""
    assert sections[1::2] == [
        "unit 0 of thrice: halved, 2 equations, used 3 times",
        "unit 1 of thrice: remainder, 1 equations, used 1 times",
    ]
    assert all(section.startswith("HloModule") for section in sections[2::2])
    assert "multiply" in sections[2]
    assert "subtract" in sections[4] or "add" in sections[4]


def test_a_program_from_the_disk_has_its_text(tmp_path: Path) -> None:
    program, texts, hits = fx.trace(thrice, X), list[str](), list[int]()
    for _ in range(2):
        with fx.cache.private(dir=tmp_path) as mine:
            texts.append(fx.lower(program, units="none").compile().text())
            hits.append(mine.stats().disk_hits)
    assert hits == [0, 1]
    assert [t.startswith("HloModule") and "f32[3]" in t for t in texts] == [True, True]
