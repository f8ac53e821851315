"""Pages of benchmarks are saved section by section, and one section can be measured again."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import coverage, history, run
from benchmarks.harness import Row
from benchmarks.memory_page import read, replaced, tables, write
from benchmarks.page import page, save, section, sections

ROOT = Path(__file__).resolve().parent.parent


def of(module: str) -> list[Row]:
    """Returns rows of a benchmark: one meets its budget, one misses it, one has none."""
    return [Row(f"{module}: fast", 1.0, 2.0, 1.0), Row("outline: slow", 3.0, 2.0, 1.0), Row("shown", 1.0, 1.0)]


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stamps = iter(range(100))
    monkeypatch.setattr(run, "taken", lambda: f"day {next(stamps)}")
    return tmp_path


def test_a_page_is_split_into_its_sections() -> None:
    parts = {"units": section(of("units"), "day 1"), "trace": section(of("trace"), "day 2")}
    text = page(parts, run.MODULES)
    assert sections(text) == parts
    assert page(sections(text), run.MODULES) == text
    assert text.index("## trace") < text.index("## units"), "in the order of the modules"
    assert "2 of 4 budgets are met." in text
    assert "Measured on day 1." in parts["units"]
    assert "| outline: slow | 3 us | 2 us | 1.500 | 1 | **MISSED** |" in parts["units"]
    assert "- `outline: slow`: Both columns are fxad's" in parts["units"]


def test_the_page_in_the_docs_is_a_page_of_sections() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page(sections(text), run.ORDER) == text
    assert tuple(sections(text)) == run.ORDER
    assert all(body.startswith("Measured on 20") for body in sections(text).values())


def test_a_module_that_is_measured_again_replaces_its_section_only(docs: Path) -> None:
    file = docs / "benchmarks.md"
    assert run.main(["trace", "bench_units", "--write", str(file)], of) == 0
    before = sections(file.read_text(encoding="utf-8"))
    assert run.main(["units", "--write", str(file)], of) == 0
    after = sections(file.read_text(encoding="utf-8"))
    assert after["trace"] == before["trace"]
    assert "day 1" in before["units"]
    assert after["units"] == before["units"].replace("day 1", "day 2")
    assert [p.name for p in docs.iterdir()] == ["benchmarks.md"], "no temporary file is left"


def test_a_run_that_is_stopped_has_saved_what_it_measured(docs: Path) -> None:
    def stopped(module: str) -> list[Row]:
        if module == "lower":
            raise KeyboardInterrupt
        return of(module)

    file = docs / "benchmarks.md"
    with pytest.raises(KeyboardInterrupt):
        run.main(["--write", str(file)], stopped)
    assert list(sections(file.read_text(encoding="utf-8"))) == ["trace", "interfaces"]


def test_a_module_that_fails_is_named_and_keeps_its_section(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(module: str) -> list[Row]:
        if module == "interfaces":
            raise subprocess.CalledProcessError(3, "bench_interfaces")
        return of(module)

    file = docs / "benchmarks.md"
    chosen = ["trace", "interfaces", "lower", "--write", str(file)]
    run.main(chosen, of)
    before = sections(file.read_text(encoding="utf-8"))
    assert run.main(chosen, failing) == 1
    after = sections(file.read_text(encoding="utf-8"))
    assert [name for name in after if after[name] != before[name]] == ["trace", "lower"]
    assert "not measured: interfaces (exit status 3)" in capsys.readouterr().err


def test_a_module_that_does_not_exist_is_refused_before_any_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["trace", "nonesuch"], of)
    assert "no such benchmark: nonesuch; there are trace, interfaces," in capsys.readouterr().err


def test_the_history_has_a_line_for_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A commit that is measured again replaces its line; lines are in the order of the commits' dates."""
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.csv")
    dates = {"aaaaaaaa": ("2026-11-02", "2"), "bbbbbbbb": ("2026-11-01", "1")}
    head, figures = iter(["aaaaaaaa", "bbbbbbbb", "aaaaaaaa"]), iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(history, "measured", lambda tree: dict.fromkeys(history.FIGURES, next(figures)))

    def git(*arguments: str) -> str:
        if arguments[0] == "rev-parse":
            return next(head)
        return dates[arguments[-1]][arguments[2] == "--format=%ct"]

    monkeypatch.setattr(history, "git", git)
    for _ in range(3):
        history.main([])
    assert [(row["commit"], row["date"], row["trace_us"]) for row in history.history()] == [
        ("bbbbbbbb", "2026-11-01", "2.0"),
        ("aaaaaaaa", "2026-11-02", "3.0"),
    ]
    assert capsys.readouterr().out.count("bbbbbbbb") == 2


def test_the_history_on_the_site_has_all_figures() -> None:
    rows = history.history()
    assert len({row["commit"] for row in rows}) == len(rows) >= 4
    assert all([float(row[name]) > 0 for row in rows for name in history.FIGURES])


def test_every_benchmark_is_run() -> None:
    there = {p.stem.removeprefix("bench_") for p in (ROOT / "benchmarks").glob("bench_*.py")}
    assert there == set(run.MODULES)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    save(file, "before")
    with pytest.raises(UnicodeEncodeError):
        save(file, "after \ud800")
    assert file.read_text(encoding="utf-8") == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["page.md"]


# -------------------------------------------------------------------------------------------------------------- memory


def network(name: str, day: str, held: int, time: float | None) -> dict[str, Any]:
    rows: dict[str, Any] = {"plain": {"bytes": [held, 4096]}, "invertible": {"bytes": [held // 2]}}
    taken = {"bytes": day}
    if time is not None:
        taken["time"] = day
        rows["plain"]["time"], rows["invertible"]["time"] = [time, 1.0], [time]
    return {"name": name, "taken": taken, "rows": rows}


def test_a_network_that_is_measured_again_replaces_its_tables_only(tmp_path: Path) -> None:
    data = replaced(replaced(read(tmp_path), network("MLP", "day 1", 2048, 1.5)), network("RNN", "day 1", 1024, 1.2))
    write(tmp_path, data)
    assert read(tmp_path) == data
    write(tmp_path, replaced(data, network("MLP", "day 2", 8192, None)))
    again = read(tmp_path)
    assert [n["name"] for n in again["networks"]] == ["MLP", "RNN"]
    assert again["networks"][1] == data["networks"][1]
    assert tables(again, "time") == tables(data, "time"), "bytes only: times are those of day 1"
    text = tables(again, "bytes").splitlines()
    assert text[0] == "Measured on day 2."
    assert text[4:6] == ["| plain | 8 | 4 | 2.00 |", "| invertible | 4 |  |  |"]
    assert "Measured on day 1." in (tmp_path / "memory.md").read_text(encoding="utf-8")


def test_a_cell_without_a_time_is_blank() -> None:
    text = tables(replaced({}, network("MLP", "day 1", 2048, None)), "time")
    assert text.splitlines()[0] == "Measured on no day."
    assert "| plain |  |  |  |" in text


def test_the_memory_page_in_the_docs_is_made_from_the_data(tmp_path: Path) -> None:
    data = json.loads((ROOT / "docs" / "memory.json").read_text(encoding="utf-8"))
    write(tmp_path, data)
    for name in ("memory.md", "memory.json"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_coverage_reads_names_and_calls(tmp_path: Path) -> None:
    """Imports, attributes, aliases and calls of jax are found; a call that does not bind is one."""
    pytest.importorskip("jax")
    source = tmp_path / "sample.py"
    source.write_text(
        "import jax, jax.numpy as jnp\n"
        "from functools import partial\n"
        "from jax import lax, tree_util as jtu\n"
        "from jax.scipy.special import logsumexp\n"
        "@partial(jax.jit, static_argnums=0)\n"
        "def f(n, x):\n"
        "    jax.config.update('jax_enable_x64', True)\n"
        "    return jnp.sum(logsumexp(x)) + lax.add(x, nonsense=1) + jtu.tree_map(abs, x)\n"
    )
    reader = coverage.Reader(str(source))
    reader.visit(ast.parse(source.read_text()))
    names = sorted({u.name for u in reader.uses})
    assert names == [
        "jax.jit", "jax.lax.add", "jax.numpy.sum", "jax.scipy.special.logsumexp", "jax.tree_util.tree_map",
    ]  # fmt: skip
    assert [u.name for u in reader.uses if u.call is not None and coverage.binds(u)] == ["jax.lax.add"]
    text = coverage.Coverage(reader.uses).report(5)
    assert "uses   " in text
    assert "jax.lax.add: " in text
    assert coverage.left_out("jax.experimental.pallas.pallas_call")
