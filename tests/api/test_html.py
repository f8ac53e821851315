"""HTML that a notebook shows: plain, escaped, and short."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.core.diff import side_by_side
from fxad.diagnosis.bisect.divergence import Divergence
from fxad.diagnosis.equality.verdict import Unknown
from fxad.support.tables import LINES, ROWS, Table, escaped, preformatted


class _Checker(HTMLParser):
    """Asserts that every tag is closed, in order, and collects the text of the cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(value: Any) -> list[str]:
    checker = _Checker()
    html = value if isinstance(value, str) else value._repr_html_()
    checker.feed(html)
    assert checker.open == []
    return checker.text


def model(w: fx.Array, x: fx.Array) -> dict[str, fx.Array]:
    return {"y": fnp.tanh(x @ w)}


W, X = np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)
PROGRAM = fx.trace(model, W, X)


def test_an_array() -> None:
    x = fnp.arange(3.0)
    assert x._repr_html_() == f"<div><div><code>f32[3], 12 bytes, {x.device}</code></div><pre>[0. 1. 2.]</pre></div>"
    assert len(fnp.zeros((1000, 1000))._repr_html_()) < 2000


def test_an_array_without_a_value() -> None:
    x = fnp.ones(3)
    fx.jit(lambda x: x + 1, donate=0)(x)
    assert shown(x) == [repr(x)]
    assert "<Array f32[3]" in repr(x)


def test_a_tracer() -> None:
    seen = []

    def f(x: fx.Array) -> fx.Array:
        seen.append(x._repr_html_())
        return x

    fx.trace(f, fx.Spec((3,), "float32"))
    assert seen == ["<div><div><code>Tracer&lt;f32[3]&gt;</code></div></div>"]


def test_a_program() -> None:
    html = PROGRAM._repr_html_()
    assert html == (
        "<div><div><code>Program model: 2 equations, 2 argument leaves</code></div>"
        "<table><thead><tr><th></th><th></th><th>type</th></tr></thead><tbody>"
        "<tr><td>argument</td><td>w</td><td>f32[3,2]</td></tr><tr><td>argument</td><td>x</td><td>f32[4,3]</td></tr>"
        "<tr><td>result</td><td>[&#x27;y&#x27;]</td><td>f32[4,2]</td></tr></tbody></table>"
        "<details open><summary>text</summary><pre>main @model(%arg0: f32[3,2], %arg1: f32[4,3]) -&gt; (f32[4,2]) {\n"
        "  %0: f32[4,2] = dot_general[lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=(), preferred=none]"
        " %arg1, %arg0\n  %1: f32[4,2] = tanh %0\n  return %1\n}</pre></details></div>"
    )
    shown(PROGRAM)


def test_names_are_escaped() -> None:
    program = fx.trace(lambda x: x + 1, fx.Spec((), "float32"))
    assert "<lambda>" not in program._repr_html_()
    assert "&lt;lambda&gt;" in program._repr_html_()
    assert any("<lambda>" in text for text in shown(program))
    assert escaped("""<a href="x" id='y'>&""") == "&lt;a href=&quot;x&quot; id=&#x27;y&#x27;&gt;&amp;"


def layers(w: fx.Array, x: fx.Array) -> fx.Array:
    for _ in range(12):
        x = fnp.tanh(x @ w)
    return x.sum()


def summed(x: fx.Array) -> fx.Array:
    return lax.psum(x, "i")


SQUARE = np.eye(8, dtype=np.float32)


@pytest.mark.parametrize(
    "value",
    [
        fx.residuals(fx.trace(layers, SQUARE, SQUARE)),
        fx.plan_memory(fx.trace(layers, SQUARE, SQUARE), budget=10**6),
        fx.lower(fx.grad(fx.remat(fx.trace(layers, SQUARE, SQUARE)))).units,
        fx.lower(PROGRAM, passes=()).stages,
        fx.comm(fx.trace(summed, fx.Spec((4,)), axis_env={"i": 2})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_table_has_the_cells_of_its_text(value: Any) -> None:
    cells = " ".join(" ".join(shown(value)).split())
    for line in str(value).splitlines():
        for word in line.split():
            assert word.strip(",;:") in cells


def test_programs_on_the_way_to_an_executable() -> None:
    lowered = fx.lower(fx.grad(fx.trace(layers, SQUARE, SQUARE)), units=lambda body: True)
    executable = lowered.compile()
    assert "main @grad_layers" in shown(lowered.program.jaxpr)[-1]
    for stage in lowered.stages._repr_html_(), lowered.units._repr_html_():
        assert stage in lowered._repr_html_()
    memory = executable.memory()
    cells = shown(memory)
    for name in ("argument", "output", "alias", "temp", "peak"):
        assert cells[cells.index(name) + 1] == f"{getattr(memory, f'{name}_bytes'):,}"
    assert memory._repr_html_() in executable._repr_html_()
    shown(lowered)
    shown(executable)


def test_an_explanation_of_a_nan() -> None:
    explanation = fx.explain_nan(lambda x: fnp.log(x) * 2, -SQUARE)
    assert explanation is not None
    assert shown(explanation) == [str(explanation)]


def many(leaves: dict[str, fx.Array], x: fx.Array) -> fx.Array:
    for leaf in leaves.values():
        x = fnp.sin(x + leaf)
    return lax.psum(x, "i") if x.size > 64 else x.sum()


class _Values:
    """A value of each class that notebooks show, of a program that is long and has names like tags."""

    def __init__(self) -> None:
        self.args = {f"<b>{k}": np.float32(k) for k in range(80)}, SQUARE
        self.program = fx.trace(many, *self.args)
        self.name = "<script>&" * 200
        self.hostile = self.program.replace(self.program.jaxpr, name=self.name)
        self.lowered = fx.lower(fx.grad(fx.trace(layers, SQUARE, SQUARE)), units=lambda body: True)

    def all(self) -> dict[str, Any]:
        nan = fx.explain_nan(lambda x: fnp.log(x), -SQUARE)
        wide = fx.trace(many, {}, fx.Spec((100,)), axis_env={"i": 2})
        other = fx.trace(lambda x: many({str(k): x for k in range(300)}, x), SQUARE)
        executable = self.lowered.compile()
        args = {"<b>": np.float32(1)}, SQUARE
        small = fx.trace(many, *args)
        small = small.replace(small.jaxpr, name=self.name)
        return {
            "Array": fnp.zeros((300, 300)),
            "Program": self.hostile,
            "Jaxpr": self.hostile.jaxpr,
            "Lowered": self.lowered,
            "Executable": executable,
            "MemoryStats": executable.memory(),
            "UnitPlan": self.lowered.units,
            "Stages": self.lowered.stages,
            "Residuals": fx.residuals(self.hostile),
            "MemoryPlan": fx.plan_memory(self.hostile, budget=10**6),
            "Communication": fx.comm(wide),
            "NanExplanation": nan,
            "Proof": fx.equal(self.program, self.program),
            "Counterexample": fx.equal(fnp.sin, fnp.cos, at=(np.ones(1000, np.float32),)),
            "Unknown": Unknown(self.name, "<b>"),
            "Divergence": Divergence("<b>", self.program.jaxpr, (), failure=self.name, lines=()),
            "Diff": side_by_side(self.program.jaxpr, other.jaxpr),
            "Page": fx.explain(executable),
            "Pattern": fx.sparsity(fx.trace(lambda x: fnp.sin(x), fx.Spec((300,)))),
            "RoundingErrors": fx.rounding_errors(small, *args),
            "Shadow": fx.shadow(self.hostile, *self.args),
            "PrecisionPlan": fx.plan_precision(small, *args, tolerance=1e-1),
        }


def test_what_notebooks_show_is_escaped_and_short() -> None:
    """Each class with `_repr_html_` is in the list; a tracer is tested above."""
    values = _Values().all()
    found = set()
    for path in Path(fx.__file__).parent.rglob("*.py"):
        for part in path.read_text("utf-8").split("\nclass ")[1:]:
            if re.search(r"    def (_repr_html_|_shown)\(self|^\w+\(ShownSummary", part):
                found.update(re.findall(r"^\w+", part))
    assert found - {"Shown", "ShownSummary", "Tracer"} <= set(values)
    for name, value in values.items():
        html = value._repr_html_()
        assert len(html) < (500_000 if name == "Page" else 50_000), (name, len(html))
        assert "<script>&" not in html, name
        assert "<b>" not in html, name
        shown(value)


def test_rich_shows_tables_where_a_terminal_is_wide() -> None:
    """rich reads no cell as markup, and a narrow terminal shows the text."""
    console = pytest.importorskip("rich.console")
    value = fx.residuals(fx.trace(layers, SQUARE, SQUARE))
    for width in (60, 160):
        out = io.StringIO()
        console.Console(file=out, width=width).print(value)
        text = out.getvalue()
        assert "f32[8,8]" in text
        assert ("─" in text) == (width == 160)
        assert ("Residuals of layers" in text) == (width == 160)


def test_a_table() -> None:
    table = Table(("", "bytes"), (("a<b", "1"), ("c", "20")), right=(1,))
    assert table.text() == "     bytes\na<b      1\nc       20"
    assert table.html() == (
        '<table><thead><tr><th></th><th style="text-align: right">bytes</th></tr></thead><tbody>'
        '<tr><td>a&lt;b</td><td style="text-align: right">1</td></tr>'
        '<tr><td>c</td><td style="text-align: right">20</td></tr></tbody></table>'
    )


def test_long_programs_and_tables_are_cut() -> None:
    table = Table(("n",), tuple([(str(k),) for k in range(ROWS + 1200)]))
    assert shown(table.html())[-1] == "1,200 more rows"
    text = shown(preformatted("\n".join(map(str, range(LINES + 7)))))[0]
    assert text.splitlines()[-2:] == [str(LINES - 1), "... 7 more lines"]

    def f(x: fx.Array) -> fx.Array:
        for k in range(500):
            x = x + k
        return x

    long = fx.trace(f, fx.Spec((), "float32"))
    assert len(long._repr_html_()) < 10_000
