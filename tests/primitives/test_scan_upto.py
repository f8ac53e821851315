"""scan up to a count: slices beyond the count are not read, their results are zero, and so are their cotangents."""

from __future__ import annotations

import numpy as np
import pytest

from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.errors import DTypeError, FxadError, ParameterError
from fxad.ir import INT32_SCALAR, Aval, Jaxpr, Lit
from fxad.primitives.control.scan import Scan
from fxad.primitives.elementwise import MUL, SIN
from fxad.text import parse, to_text
from fxad.transforms import dce, simplify
from fxad.transforms.vmap import vmap
from tests.primitives.harness import check, eqns, floats, program, same, xla

pytestmark = pytest.mark.usefixtures("nothing_of_other_files")

V = Aval((3,), "float64")
XS = V.with_shape((4, 3))


def step() -> Jaxpr:
    """w, h, x -> sin(h) x; w x, 2."""
    b = Builder()
    w, h, x = b.inputs((V, V, V))
    return b.build((b.one(MUL, b.one(SIN, h), x), b.one(MUL, w, x), Lit.of(2, V)), "step")


def scan(*, reverse: bool = False) -> Scan:
    return Scan(step(), 4, reverse, 1, 1, 1, True)


def at(k: int) -> np.ndarray:
    return np.asarray(k, np.int32)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [-1, 0, 1, 3, 4, 9])
def test_laws(count: int, reverse: bool) -> None:
    check(scan(reverse=reverse), at(count), floats(3) + 1, floats(3), floats(4, 3))


@pytest.mark.parametrize("reverse", [False, True])
def test_meaning(reverse: bool) -> None:
    w, h, xs = floats(3) + 1, floats(3), floats(4, 3)
    last = h
    for x in xs[1::-1] if reverse else xs[:2]:
        last = np.sin(last) * x
    zero, two = np.zeros(3), np.full(3, 2.0)
    p = program(scan(reverse=reverse), INT32_SCALAR, V, V, XS)
    want = last, np.stack([w * xs[0], w * xs[1], zero, zero]), np.stack([two, two, zero, zero])
    same(run(p, (at(2), w, h, xs)), want)
    same(xla(p, at(2), w, h, xs), want)


@pytest.mark.parametrize("reverse", [False, True])
def test_each_example_has_its_own_count(reverse: bool) -> None:
    p = program(scan(reverse=reverse), INT32_SCALAR, V, V, XS)
    counts, w, h, xs = np.array([3, 0, 4, 9, -2], np.int32), floats(3) + 1, floats(3, 5), floats(4, 3)
    batched, dims = vmap(p, 5, (0, None, 1, None))
    rows = [run(p, (n, w, h[:, k], xs)) for k, n in enumerate(counts)]
    wants = [np.stack(results, d or 0) for results, d in zip(zip(*rows, strict=True), dims, strict=True)]
    same(run(batched, (counts, w, h, xs)), tuple(wants))
    same(xla(batched, counts, w, h, xs), tuple(wants))


def test_rewriting() -> None:
    p = program(scan(), INT32_SCALAR, V, V, XS)
    assert parse(to_text(p)) is p
    # simplify replaces neither the literal row nor the slices, because rows beyond the count are zero
    assert eqns(simplify(p)) == ["scan"]
    assert simplify(p).outs == p.outs
    slim = dce(Jaxpr(p.ins, p.eqns, p.outs[1:2]))
    (eqn,) = slim.eqns
    assert len(eqn.ins) == 3
    args = (at(2), floats(3), floats(3), floats(4, 3))
    same(run(slim, args), run(p, args)[1:2])


@pytest.mark.parametrize(
    ("prim", "avals", "error", "message", "remedy"),
    [
        (
            scan(),
            (V, V, V, XS),
            DTypeError,
            "scan: the count of slices to run over must be i32[], got f64[3]",
            "give what the bodies take, or trace the function again; nothing is converted silently",
        ),
        (
            Scan(step(), 4, False, 2, 1, 1, True),
            (INT32_SCALAR, V, V, XS),
            ParameterError,
            "scan: up to a count, unroll must be 1 and length less than 2**31, got 2 and 4",
            "leave out unroll, or the count",
        ),
    ],
)
def test_messages(prim: Scan, avals: tuple[Aval, ...], error: type[FxadError], message: str, remedy: str) -> None:
    with pytest.raises(error) as caught:
        prim.abstract_eval(*avals)
    assert (caught.value.message, caught.value.remedy) == (message, remedy)
