"""Programs for devices that do not exist: their text, and its size for any number of devices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.ir import distinct_jaxprs
from fxad.sharding import PartitionSpec as P

MANY = [8, 64, 512]
W: Any = np.ones((4, 4), np.float32)


def step(w: Any, x: Any) -> Any:
    """A step of data-parallel training with a loop, over two axes."""

    def loss(w: Any) -> Any:
        y = lax.scan(lambda c, _: (fnp.tanh(c @ w), None), x, None, length=3)[0]
        return fnp.mean((y - lax.all_gather(y, "j", tiled=True)[: y.shape[0]]) ** 2)

    return w - 0.1 * lax.pmean(fx.grad(loss)(w), ("i", "j"))


def mapped(n: int) -> fx.Program[..., Any]:
    sharded = fx.shard_map(step, {"i": n // 2, "j": 2}, (P(), P(("i", "j"))), P())
    return fx.trace(sharded, W, fx.Spec((n, 4)))


def nested(n: int) -> fx.Program[..., Any]:
    f = fx.pmap(fx.pmap(lambda v: (lax.psum(fnp.sin(v), "b"), lax.ppermute(v, "a", [(0, 1)])), "b"), "a")
    return fx.trace(f, fx.Spec((2, n // 2, 4)))


def constrained(n: int) -> fx.Program[..., Any]:
    """A program without collectives, whose text has no list of devices."""
    f = fx.shard_map(lambda v: 2 * v, {"i": n}, P("i"), P("i"))
    return fx.trace(lambda x: f(f(x)), fx.Spec((n, 4)))


def without_digits(text: str) -> str:
    """Returns the text without lists of devices, with 0 for each number."""
    return re.sub(r"\d+", "0", re.sub(r"dense<\[\[[^>]*> : tensor<\w+>", "", text))


@pytest.mark.parametrize("make", [mapped, nested, constrained])
def test_the_size_of_a_program_does_not_depend_on_the_number_of_devices(make: Any) -> None:
    """The equations and the text are the same, up to digits and to the list of devices in each collective."""
    programs = [make(n) for n in MANY]
    counts = [[len(body.eqns) for body in distinct_jaxprs(p.jaxpr)] for p in programs]
    assert counts[0] == counts[1] == counts[2]
    texts = [without_digits(fx.lower(p).text()) for p in programs]
    assert texts[0] == texts[1] == texts[2]
    written = [without_digits(p.text()) for p in programs]
    assert written[0] == written[1] == written[2]


def test_lists_of_devices_have_each_device_once() -> None:
    text = fx.lower(mapped(512)).text()
    lists = re.findall(r"replica_groups = dense<(\[\[.*?\]\])>", text)
    assert lists
    for found in lists:
        assert sorted(map(int, re.findall(r"\d+", found))) == list(range(512))


GROUPS = [
    ({"a": 2, "b": 3}, "a", "[[0, 3], [1, 4], [2, 5]]"),
    ({"a": 2, "b": 3}, "b", "[[0, 1, 2], [3, 4, 5]]"),
    ({"a": 2, "b": 3}, ("a", "b"), "[[0, 1, 2, 3, 4, 5]]"),
    ({"a": 2, "b": 3}, ("b", "a"), "[[0, 3, 1, 4, 2, 5]]"),
    ({"a": 2, "b": 2, "c": 2}, "b", "[[0, 2], [1, 3], [4, 6], [5, 7]]"),
    ({"a": 2, "b": 2, "c": 2}, ("a", "c"), "[[0, 1, 4, 5], [2, 3, 6, 7]]"),
    ({"a": 1, "b": 4}, "a", "[[0], [1], [2], [3]]"),
]


@pytest.mark.parametrize(("mesh", "names", "want"), GROUPS)
@pytest.mark.parametrize("how", ["shard_map", "pmap"])
def test_replica_groups(mesh: dict[str, int], names: Any, want: str, how: str) -> None:
    """Devices are numbered with the first axis slowest. Each group follows the order of the names."""

    def f(v: Any) -> Any:
        return lax.all_gather(v, names)

    every = tuple(mesh)
    if how == "shard_map":
        program = fx.trace(fx.shard_map(f, mesh, P(every), P(None, every)), fx.Spec((24,)))
    else:
        for name in reversed(every):
            f = fx.pmap(f, name)
        program = fx.trace(f, fx.Spec((*mesh.values(), 2)))
    found = re.findall(r'all_gather"[^\n]*replica_groups = dense<(\[\[.*?\]\])>', fx.lower(program).text())
    assert want in found


def test_replica_groups_of_groups() -> None:
    f = fx.pmap(fx.pmap(lambda v: lax.psum(v, "b", axis_index_groups=[[0, 2], [3, 1]]), "b"), "a")
    text = fx.lower(fx.trace(f, fx.Spec((2, 4)))).text()
    assert "replica_groups = dense<[[0, 2], [3, 1], [4, 6], [7, 5]]>" in text


def test_dead_code_of_a_body_is_not_lowered() -> None:
    """If a result does not depend on the argument, nothing is computed from the argument and nothing is sent."""

    def part(v: Any) -> Any:
        lax.psum(fnp.sin(v), "i")
        return fnp.arange(3.0)

    for f in (fx.pmap(part, "i"), fx.shard_map(part, {"i": 8}, P("i"), P())):
        text = fx.lower(fx.trace(f, fx.Spec((8, 2)))).text()
        assert "iota" in text
        for absent in ("sine", "all_reduce", "all_gather", "partition_id"):
            assert absent not in text


def test_one_lowering() -> None:
    """A map, and the same map in a jit, a scan, a cond and a gradient, is one function of the module."""

    def part(v: Any) -> Any:
        return fnp.sin(v) * lax.psum(v, "i")

    f = fx.pmap(part, "i")
    alone = fx.lower(fx.trace(f, fx.Spec((4, 2)))).text()
    body = alone[alone.index("func.func private @f1") :].split("func.func")[1].partition("{")[2]
    for around in (
        fx.jit(f),
        lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
        lambda x: lax.cond(fnp.sum(x) > 0, f, lambda u: u, x),
    ):
        text = fx.lower(fx.trace(around, fx.Spec((4, 2)))).text()
        assert text.count("sdy.manual_computation") == 1
        assert without_digits(body.partition("sdy.mesh")[0]) in without_digits(text)


def test_the_text_of_equal_layers_does_not_grow() -> None:
    """The text does not grow with the number of equal layers."""

    def layers(x: Any, ws: Any, count: int) -> Any:
        for k in range(count):
            x = lax.psum(fnp.tanh(x @ ws[k]), "i")
        return x

    def lines(count: int, gradient: bool) -> int:
        def rerolled(x: Any, ws: Any) -> Any:
            return fx.reroll(lambda v: layers(v, ws, count))(x)

        mapped: Any = fx.shard_map(rerolled, {"i": 8}, (P("i"), P()), P("i"))

        def total(x: Any, ws: Any) -> Any:
            return fnp.sum(mapped(x, ws))

        f: Any = fx.grad(total) if gradient else mapped
        text = fx.lower(fx.trace(f, fx.Spec((16, 4)), fx.Spec((count, 4, 4)))).text()
        return text.count("stablehlo.tanh") + text.count("stablehlo.all_reduce")

    for gradient in (False, True):
        assert lines(4, gradient) == lines(16, gradient)
