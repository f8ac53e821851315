"""A project outside of this repository, with fxad installed by `pip install -e`: mypy finds fxad's types, and its
plugin says what Python's types cannot. The pages are modules of the project: mypy accepts their blocks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import mypy.api
import numpy as np

from tests.test_typing import MODULES, OUTPUT_LINE, expectations
from tests.typed_programs import write_pages

ROOT = Path(__file__).resolve().parent.parent

# A page is a session, in which a name may get a value of another type.
SETTINGS = "[mypy]\nstrict = True\nplugins = fxad.mypy_plugin\nallow_redefinition = True\n"
PROJECT = '''
"""A project elsewhere."""

from functools import partial
from typing import Any, reveal_type

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

reveal_type(divmod(np.asarray(x), params.b))  # R: tuple[Array, Array]
reveal_type(np.asarray(params.b) + 1)  # R: ndarray[tuple[Any, ...], dtype[Any]]
np.testing.assert_allclose(params.b, x[0])
average: np.floating[Any] = np.mean(params.b)
reveal_type(np.sum(params.b))  # R: Any


# functools.partial of a function with overloads
def scaled(x: fx.Array, n: int) -> fx.Array:
    return x * n


def with_aux(x: fx.Array, n: int) -> tuple[fx.Array, int]:
    return fnp.sum(x), n


reveal_type(partial(fx.jit, static_argnames="n")(scaled))  # R: StaticJitted[[x: Array, n: int], Array]
reveal_type(partial(fx.jit, donate="x")(scaled))  # R: Jitted[[x: Array, n: int], Array]
reveal_type(partial(fx.jit, units="none")(program))  # R: Executable[[params: Params, x: Array], Array]
reveal_type(partial(fx.vmap, in_axes=(0, None))(scaled)(params.b, 3))  # R: Array
reveal_type(partial(fx.grad, argnums=0)(scaled)(params.b, 3))  # R: Array
reveal_type(partial(fx.grad, argnums=1)(loss)(params, params.b))  # R: Array
reveal_type(partial(fx.grad, has_aux=True)(with_aux)(params.b, 3))  # R: tuple[Array, int]
reveal_type(partial(fx.value_and_grad)(loss)(params, params.b))  # R: tuple[Array, Params]
reveal_type(partial(fx.remat, policy=fx.policies.dots)(scaled)(params.b, 3))  # R: Array
reveal_type(partial(fx.shard_map, in_specs=(), out_specs=())(scaled)(params.b, 3))  # R: Array
reveal_type(partial(fx.custom_jvp, nondiff_argnums=(1,))(scaled)(params.b, 3))  # R: Array
partial(fx.jit, static_argnames="n")(scaled)("a", 3)  # E: incompatible type "str"


@partial(fx.jit, static_argnames="n")
def decorated(x: fx.Array, n: int) -> fx.Array:
    return x * n


reveal_type(decorated(params.b, n=3))  # R: Array


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
    (tmp_path / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    pages = write_pages(tmp_path)
    out, err, _ = mypy.api.run([
        "--config-file", str(tmp_path / "mypy.ini"), "--python-executable", str(env / "bin" / "python"),
        "--cache-dir", str(tmp_path / "cache"), "--no-pretty", "--no-error-summary", str(tmp_path / "use.py"),
        *[str(tmp_path / name) for name in pages],
    ])  # fmt: skip
    assert not err
    said: dict[int, list[str]] = {}
    page_errors: list[str] = []
    for line in out.splitlines():
        m = OUTPUT_LINE.match(line)
        assert m is not None, line
        name = Path(m["file"]).name
        if name in pages and m["kind"] == "error":
            page_errors.append(f"{pages[name].name}:{m['line']}: {m['text']}")
        assert name in (*pages, "use.py"), line
        if name == "use.py" and (m["kind"] == "error" or m["text"].startswith("Revealed type")):
            said.setdefault(int(m["line"]), []).append(m["text"])
    assert page_errors == [], "\n".join(page_errors)
    expected = {n: (kind, text) for n, kind, text in expectations(tmp_path / "use.py")}
    assert {n: t for n, t in said.items() if n not in expected} == {}
    for n, (kind, text) in expected.items():
        given = " ".join(said.get(n, ["nothing"]))
        if kind == "R":
            assert re.fullmatch(rf'Revealed type is "{re.escape(text)}"', MODULES.sub("", given)), f"{n}: {given}"
        else:
            assert text in given, f"{n}: {given}"
