"""The page: one offline file, its text, its errors, comparisons, profiles, and what it says without XLA's messages."""

from __future__ import annotations

import importlib
import io
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.diagnosis.explain import command, hlo
from fxad.diagnosis.explain.page import Page, PreformattedLines
from fxad.errors import ArgumentError
from fxad.transforms.cleanup.cse import cse

VOID = frozenset({"meta", "br", "rect", "path", "polygon"})


class Elements(HTMLParser):
    """Checks that elements nest, and gathers ids, links and attributes."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.attributes |= {(tag, name) for name in given}
        if "id" in given:
            self.ids.append(str(given["id"]))
        if "href" in given:
            self.links.append(str(given["href"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def checked(page: Page) -> Elements:
    """The elements of a page, which is well-formed, and whose links lead to places in it."""
    elements = Elements()
    text = page.html()
    elements.feed(text)
    elements.close()
    assert not elements.open
    assert len(set(elements.ids)) == len(elements.ids)
    assert {link.removeprefix("#") for link in elements.links} <= set(elements.ids)
    assert all(link.startswith("#") for link in elements.links)
    assert not {(t, a) for t, a in elements.attributes if a in ("src", "onclick", "onload")}
    assert "http" not in text.replace("http-equiv", "")
    assert "prefers-color-scheme:dark" in text
    return elements


def loss(w: Any, x: Any) -> Any:
    return fnp.sum(fnp.tanh(x @ w) ** 2)


def executable(size: int = 16) -> Any:
    program = fx.trace(fx.grad(loss), fx.Spec((size, size), np.float32), fx.Spec((8, size), np.float32))
    return fx.lower(program).compile()


def test_the_page_is_one_offline_file_in_the_order_of_its_questions(tmp_path: Path) -> None:
    page = fx.explain(executable())
    elements = checked(page)
    order = ["identity", "memory", "time", "source", "stages", "units", "residuals", "program"]
    assert [i for i in elements.ids if i in order] == order
    file = tmp_path / "page.html"
    page.save(file)
    assert file.read_bytes() == page.html().encode()
    assert "srcdoc" in page._repr_html_()
    assert str(page) == page.text()
    assert repr(page).startswith("<Page of grad_loss: ")


def test_the_text_has_the_source_with_costs_in_the_margin() -> None:
    text = fx.explain(executable()).text()
    line = loss.__code__.co_firstlineno + 1
    row = next(r for r in text.splitlines() if r.endswith("return fnp.sum(fnp.tanh(x @ w) ** 2)"))
    assert f" {line}  " in row
    assert row.split()[0].replace(",", "").isdigit()


def test_a_lowered_program_a_program_and_an_executable_have_one_page() -> None:
    ready = executable()
    pages = [fx.explain(x) for x in (ready, ready.lowered, ready.program)]
    assert pages[0].html() == pages[1].html() == pages[2].html()


def test_texts_of_the_user_are_escaped() -> None:
    name = "<script>alert('&')</script>\x00"
    program = fx.trace(lambda x: fnp.sin(x) * 2.0, fx.Spec((3,), np.float32))
    page = fx.explain(fx.lower(program.replace(program.jaxpr, name=name)))
    checked(page)
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;?" in page.html()
    assert "<script>alert" not in page.html()


def test_a_comparison_names_what_grew() -> None:
    page = fx.explain(executable(16), executable(64))
    checked(page)
    assert page.verdict[0].startswith("change: temporaries ")
    assert "grew: test_page.py:" in page.verdict[0]
    assert "shrank: nothing" in page.verdict[0]
    assert page.sections[0].title == "What changed"
    assert "- operands" in page.text()
    assert "The programs are equal." in fx.explain(executable(), executable()).text()


def test_the_table_of_residuals_is_on_the_page() -> None:
    w, x = fx.Spec((16, 16), np.float32), fx.Spec((8, 16), np.float32)
    page = fx.explain(executable(), residuals=fx.residuals(fx.trace(loss, w, x)))
    checked(page)
    assert "decided by" in page.text()
    assert "no policy" in page.text()


def test_stages_show_what_a_pass_changed_and_why() -> None:
    program = fx.trace(lambda x: fnp.sin(x) + fnp.sin(x), fx.Spec((8,), np.float32))
    page = fx.explain(fx.lower(program, passes=(fx.passes.Pass("cse", cse), fx.passes.Pass("again", cse))))
    checked(page)
    stages = next(s for s in page.sections if s.id == "stages")
    _, why, diff, unchanged = stages.blocks
    assert str(why).startswith("cse: Return the program")
    assert isinstance(diff, PreformattedLines)
    assert any(line.startswith("- %1: f32[8] = sin %arg0") for line in diff.lines)
    assert str(unchanged).startswith("again: no change. Return the program")
    assert "passes: cse, again" in page.text()


def test_without_the_messages_of_xla_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = executable()
    total = ready.memory().temp_bytes
    kind = type(ready.parts[0])
    for method, damaged, problem in (
        ("buffer_assignment_proto", b"", "this jaxlib does not give XLA's assignment of buffers"),
        ("hlo_proto", b"", "this jaxlib does not give the optimised module"),
        ("hlo_proto", b"\xff" * 9, "the messages of this jaxlib cannot be read: ValueError"),
    ):
        with monkeypatch.context() as m:
            m.setattr(kind, method, lambda self, data=damaged: data)
            page = fx.explain(ready)
        checked(page)
        assert sum(r.bytes for r in page.memory) == total
        assert problem in page.verdict[0]
        assert f"Details are missing: {problem}" in page.text()


def test_messages_of_xla_are_read_in_a_private_pool() -> None:
    with pytest.raises(ValueError, match="parsing"):
        hlo.read_module(b"\xff" * 9)
    assert hlo.read_assignment(b"").bytes == 0


def test_instructions_have_the_lines_of_their_metadata() -> None:
    module = hlo.read_module(executable().parts[0].hlo_proto())
    lines = {i.line for i in module.by_id.values() if i.operation}
    first = loss.__code__.co_firstlineno
    assert (first + 1, "loss") in {(line.line, line.function) for line in lines if line is not None}
    assert {line.file for line in lines if line is not None} == {__file__}
    assert module.entry in module.computations
    assert {k for i in module.by_id.values() for k in i.operands} <= module.by_id.keys()


def test_times_are_measured_if_there_is_a_profile(tmp_path: Path) -> None:
    ready = executable(64)
    w, x = np.ones((64, 64), np.float32), np.ones((8, 64), np.float32)
    ready(w, x).block_until_ready()
    with fx.profile(tmp_path / "profile"):
        for _ in range(3):
            ready(w, x).block_until_ready()
    page = fx.explain(ready, profile=tmp_path / "profile")
    assert {r.reason for r in page.time} == {"measured"}
    assert any(r.line is not None and r.line.line == loss.__code__.co_firstlineno + 1 for r in page.time)
    assert "a call, measured:" in page.verdict[1]
    assert "Measured, by a profile of this program." in page.text()


def test_errors(tmp_path: Path) -> None:
    ready = executable()
    with pytest.raises(ArgumentError) as e:
        fx.explain(loss)
    assert e.value.message.startswith("explain: a function is not a program: ")
    assert e.value.remedy == (
        "give fx.lower(fx.trace(f, *args)), the executable that it compiles to, or fx.jit(f).lower(*args)"
    )
    with pytest.raises(ArgumentError) as e:
        fx.explain(ready, profile=tmp_path)
    assert e.value.message == f"explain: {tmp_path} has no profile"
    assert e.value.remedy == "with fx.profile(folder): call the program, and wait for it"
    with fx.profile(tmp_path):
        pass
    with pytest.raises(ArgumentError) as e:
        fx.explain(ready, profile=tmp_path)
    assert e.value.message == f"explain: the profile in {tmp_path} has no instructions of XLA"
    assert e.value.remedy == (
        "call the compiled program inside `with fx.profile(folder)`, and wait for its results there"
    )
    with pytest.raises(ArgumentError) as e:
        fx.explain(ready).save(3)  # type: ignore[arg-type]  # the error
    assert e.value.message == "Page.save: an int is not a path: 3"
    assert e.value.remedy == 'name a file: page.save("page.html")'


def test_the_command_explains_saved_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after, page = tmp_path / "before.fxad", tmp_path / "after.fxad", tmp_path / "page.html"
    fx.save(executable(16).program, before)
    fx.save(executable(64).program, after)
    assert command.main([str(before)]) == 0
    assert "explain grad_loss" in capsys.readouterr().out
    assert command.main([str(before), str(after), "-o", str(page)]) == 0
    assert "What changed" in page.read_text(encoding="utf-8")
    page.write_bytes(b"no program")
    assert command.main([str(page)]) == 1
    assert str(page) in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main([str(before)] * 3)
    assert "explain one program, or compare two, not 3: a saved program, a saved" in capsys.readouterr().err


def test_the_command_explains_recorded_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m fxad.explain` gets the functions of other plug-ins from `fxad/explain.py`."""
    ready, folder = executable(), tmp_path / "calls"
    w, x = np.ones((16, 16), np.float32), np.ones((8, 16), np.float32)
    with fx.record(folder):
        ready(w, x)
        ready(w, x)
    (call, again) = fx.replay(folder)
    assert fx.explain(call).html() == fx.explain(ready).html()
    given: dict[str, Any] = {"recordings": [fx.replay], "tables": [fx.rounding_errors]}
    assert command.main([str(folder)], **given) == 0
    from_folder = capsys.readouterr().out
    assert "digits: not measured" in from_folder
    assert command.main([again.path], **given) == 0
    assert capsys.readouterr().out == from_folder == f"{fx.explain(ready).text()}\n"
    assert command.main([str(folder), "--digits"], **given) == 0
    assert "Digits lost by line" in capsys.readouterr().out
    saved = tmp_path / "program.fxad"
    fx.save(ready, saved)
    assert command.main([str(saved), "--digits"], **given) == 1
    message = capsys.readouterr().err
    assert "explain: --digits measures the rounding errors of a call, and a saved program has no arguments" in message
    assert (
        "record a call, `with fx.record(folder)`, and explain the folder;"
        " or fx.explain(program, digits=fx.rounding_errors(program, *args))"
    ) in message
    assert command.main([str(tmp_path / "none")], **given) == 1
    assert command.main([str(folder)]) == 1  # without the plug-in
    with fx.record(folder):
        executable(8)(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
        executable(32)(np.ones((32, 32), np.float32), np.ones((8, 32), np.float32))
    with pytest.raises(SystemExit):
        command.main([str(folder)], **given)
    assert "explain one program, or compare two, not 3: 000001.fxcall, 000002.fxcall" in capsys.readouterr().err


def test_a_recorded_call_keeps_its_options(tmp_path: Path) -> None:
    program = fx.trace(lambda x: fnp.sin(x) * 2.0, fx.Spec((300,), np.float32))
    ready = fx.lower(program, units="none", passes=()).compile(fx.CompileOptions(optimization_level=1), donate=0)
    with fx.record(tmp_path):
        ready(fnp.ones(300))
    page = fx.explain(*fx.replay(tmp_path))
    assert page.html() == fx.explain(ready).html()
    assert "optimization level 1" in page.text()


def test_other_values_are_refused() -> None:
    ready = executable()
    values: list[tuple[str, dict[str, Any], str]] = [
        (
            "explain: digits are an int, not a table of rounding errors: 5",
            {"digits": 5},
            "give digits=fx.rounding_errors(program, *args)",
        ),
        (
            "explain: residuals are a str, not a table: 'all'",
            {"residuals": "all"},
            "give residuals=fx.residuals(f, *args)",
        ),
        (
            "explain: the profile is an int, not a path: 5",
            {"profile": 5},
            "name the folder of `with fx.profile(folder)`",
        ),
    ]
    for message, arguments, remedy in values:
        with pytest.raises(ArgumentError) as e:
            fx.explain(ready, **arguments)
        assert e.value.message == message
        assert e.value.remedy == remedy
    for value in (loss, fx.jit(loss), re.compile("a"), [ready]):
        with pytest.raises(ArgumentError) as e:
            fx.explain(value)
        assert "is not a program" in e.value.message
        assert "fx.jit(f).lower(*args)" in str(e.value.remedy)


def test_the_function_and_its_command_share_a_name() -> None:
    function = fx.explain
    importlib.import_module("fxad.explain")
    assert fx.explain is function


@pytest.mark.smoke
def test_the_command_runs_as_a_module(tmp_path: Path) -> None:
    file = tmp_path / "program.fxad"
    fx.save(executable().program, file)
    run = subprocess.run([sys.executable, "-m", "fxad.explain", str(file)], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("explain grad_loss")
    assert "return fnp.sum(fnp.tanh(x @ w) ** 2)" in run.stdout


MODEL = """import fxad as fx
import fxad.numpy as fnp

def scaled(x):
    return fnp.sin(x @ x)

def model(x):
    return scaled(x) + scaled(2 * x)

fx.save(fx.trace(model, fx.Spec((64, 64), "float32")), "model.fxad")
"""


def test_a_saved_program_keeps_its_lines_and_the_text_while_it_is_the_same(tmp_path: Path) -> None:
    """Another process reads them. The line of a helper names its callers, with their shares."""
    source = tmp_path / "model.py"

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    source.write_text(MODEL)
    run("model.py")
    explained = run("-m", "fxad.explain", "model.fxad")
    assert "    return fnp.sin(x @ x)" in explained
    assert re.search(r"model.py:5 in scaled +model.py:8 in model 100 %", explained)
    source.write_text(MODEL.replace("sin", "cos"))
    explained = run("-m", "fxad.explain", "model.fxad")
    assert "fnp" not in explained
    assert "model.py: its text is not here, or is another one than when the program was saved" in explained
    assert re.search(r" 5  in scaled$", explained, re.MULTILINE)


def test_a_program_can_be_saved_without_lines(tmp_path: Path) -> None:
    program = fx.trace(lambda x: fnp.sin(x) * 7.25, fx.Spec((3,), np.float32))
    digest = program.jaxpr.digest
    fx.save(program, tmp_path / "with")
    fx.save(program, tmp_path / "without", lines=False)
    assert b"test_page.py" in (tmp_path / "with").read_bytes()
    assert b"test_page.py" not in (tmp_path / "without").read_bytes()
    assert fx.load(tmp_path / "with").jaxpr.digest == fx.load(tmp_path / "without").jaxpr.digest == digest


def long_program(equations: int) -> Any:
    def f(x: Any) -> Any:
        for k in range(equations // 2):
            x = fnp.sin(x) if k % 3 else fnp.cos(x)
            x = x * np.float32(1 + k / equations)
        return x

    return fx.lower(fx.trace(f, fx.Spec((4,), np.float32)), units="none")


@pytest.mark.deep
def test_a_page_of_ten_thousand_equations_is_at_most_a_megabyte() -> None:
    """`python -m pytest -m deep tests/explain/test_page.py`. XLA takes most of the time, to compile it."""
    ready = long_program(10_000).compile()
    page = fx.explain(ready)
    assert len(page.html().encode()) <= 10**6


def test_a_page_lists_the_first_equations_of_a_long_program() -> None:
    page = fx.explain(long_program(400))
    checked(page)
    assert len(page.html().encode()) < 300_000


@pytest.mark.parametrize("width", [40, 200])
def test_rich_shows_the_page_in_a_terminal(width: int) -> None:
    """Brackets are no markup, and no word is lost; tables of rich fold their cells, where the terminal is wide."""
    rich = pytest.importorskip("rich.console")
    page = fx.explain(fx.trace(fx.grad(lambda w, x: fnp.sum(fnp.tanh(x @ w))), *[fx.Spec((4, 4), np.float32)] * 2))
    console = rich.Console(width=width, record=True, file=io.StringIO())
    console.print(page)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "f32[4,4]" in text
    found = " ".join([part for about in page.findings for part in about.found])
    assert " ".join(found.split()[:12]) in " ".join(text.replace(" - ", " ").split())
    assert max(map(len, page.text().split("\n\n")[1].splitlines())) <= 100
