"""A project outside of this repository, with fxad installed by `pip install -e`: mypy finds fxad's types, and its
plugin accepts NumPy arrays where they are accepted at run time."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import mypy.api
import numpy as np

from tests.test_typing import MODULES, OUTPUT_LINE, expectations

ROOT = Path(__file__).resolve().parent.parent

PROJECT = '''
"""A project elsewhere."""

from typing import reveal_type

import numpy as np

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, optim


@fx.tree.dataclass
class Params:
    w: fx.Array
    b: fx.Array


def loss(params: Params, x: fx.Array) -> fx.Array:
    return fnp.sum((x @ params.w + params.b) ** 2)


def named(arrays: dict[str, fx.Array], pair: tuple[fx.Array, int]) -> fx.Array:
    return arrays["x"] * pair[1] + pair[0]


params = Params(fnp.ones((3, 2)), fnp.zeros(2))
x = np.ones((5, 3), np.float32)
program = fx.trace(loss, params, x)

# what runs: NumPy arrays, scalars and numbers as arguments, alone and in containers
reveal_type(program(params, x))  # R: Array
reveal_type(fx.jit(loss)(params, x))  # R: Array
reveal_type(fx.grad(program)(params, x))  # R: Params
reveal_type(fx.lower(program).compile()(params, x))  # R: Array
reveal_type(fx.jit(named)({"x": x}, (np.float32(3), 3)))  # R: Array
reveal_type(fx.jit(named)({"x": fnp.ones(3)}, (2.0, 3)))  # R: Array
reveal_type(fx.jit(static_argnames="pair")(named)({"x": x}, (x, 3)))  # R: Array

# what does not
program(params, "x")  # E: incompatible type "str"; expected "Array | ndarray
program(x, x)  # E: expected "Params"
program(params)  # E: Missing positional argument "x"
fx.jit(named)({"x": "x"}, (x, 3))  # E: incompatible type "dict[str, str]"

# NumPy beside fxad
reveal_type(0.5 * np.asarray(x) + params.b)  # R: Array
reveal_type(params.b * x)  # R: Array
reveal_type(np.asarray(x) @ params.w)  # R: Array
reveal_type(np.float32(3) - params.b)  # R: Array
reveal_type(x < params.b)  # R: Array

# types that survive
def total(x: fx.Array) -> fx.Array:
    return fnp.sum(x)


general: fx.Program[..., fx.Array] = fx.grad(fx.trace(total, x))
again: fx.Program[..., fx.Array] = fx.grad(general)
of_program: fx.Program[..., Params] = fx.grad(program)


def body(carry: fx.Array, _: None) -> tuple[fx.Array, fx.Array]:
    return carry + 1, carry


reveal_type(lax.scan(body, params.b, xs=None, length=3))  # R: tuple[Array, Array]
reveal_type(fx.pure_callback(np.sin, fx.Spec((3,), "float32"), x))  # R: Array
reveal_type(optim.adam(0.1).init(params))  # R: AdamState[Params]

# nothing of jaxlib shows
reveal_type(fx.devices()[0])  # R: Device
reveal_type(fx.lower(program).compile().text())  # R: str
reveal_type(fx.cache.stats().hits)  # R: int
'''.lstrip()


def test_a_project_elsewhere(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert settings["package-dir"] == {"": "."}, "setuptools then writes a path for an editable install"
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    (site,) = env.glob("lib/python*/site-packages")
    (site / "__editable__.fxad.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    (site / "beside.pth").write_text(f"{Path(np.__file__).parents[1]}\n", encoding="utf-8")
    (tmp_path / "use.py").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nplugins = fxad.mypy_plugin\n", encoding="utf-8")
    out, err, _ = mypy.api.run([
        "--config-file", str(tmp_path / "mypy.ini"), "--python-executable", str(env / "bin" / "python"),
        "--cache-dir", str(tmp_path / "cache"), "--no-pretty", "--no-error-summary", str(tmp_path / "use.py"),
    ])  # fmt: skip
    assert not err
    said: dict[int, list[str]] = {}
    for line in out.splitlines():
        m = OUTPUT_LINE.match(line)
        assert m is not None, line
        assert Path(m["file"]).name == "use.py", line
        if m["kind"] == "error" or m["text"].startswith("Revealed type"):
            said.setdefault(int(m["line"]), []).append(m["text"])
    expected = {n: (kind, text) for n, kind, text in expectations(tmp_path / "use.py")}
    assert {n: t for n, t in said.items() if n not in expected} == {}
    for n, (kind, text) in expected.items():
        given = " ".join(said.get(n, ["nothing"]))
        if kind == "R":
            assert re.fullmatch(rf'Revealed type is "{re.escape(text)}"', MODULES.sub("", given)), f"{n}: {given}"
        else:
            assert text in given, f"{n}: {given}"
