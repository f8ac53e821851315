"""Types, literals, parameters and programs for the laws of identity and text. The programs are well-typed but
meaningless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, NoReturn, final

from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.ir import (
    Atom,
    Aval,
    BatchCtx,
    Hlo,
    HloValue,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Primitive,
    Tangent,
    primitive,
)
from fxad.primitives.control.call import Call
from fxad.text import PRIMITIVES


class Inert(Primitive):
    """A primitive that is printed and typed, and never run."""

    __slots__ = ()

    def impl(self, *args: NDArray) -> NoReturn:
        raise AssertionError("not run")

    def lower(self, hlo: Hlo, args: Sequence[HloValue], ins: Sequence[Aval], outs: Sequence[Aval]) -> NoReturn:
        raise AssertionError("not lowered")

    def batch(self, ctx: BatchCtx, args: tuple[Atom, ...], dims: tuple[int | None, ...]) -> NoReturn:
        raise AssertionError("not batched")

    def jvp(self, ctx: JvpCtx, primals: tuple[Atom, ...], tangents: tuple[Tangent, ...]) -> NoReturn:
        raise AssertionError("not differentiated")


@final
@primitive
class Tagged(Inert):
    """A primitive with a parameter of every kind. It takes any operands and returns the types of a parameter."""

    name: ClassVar[str] = "tagged"
    results: tuple[Aval, ...] = ()
    count: int = 0
    flag: bool = False
    note: str = ""
    maybe: int | None = None
    dtype: DType = dtypes.float32
    lit: Lit | None = None
    body: Jaxpr | None = None
    bodies: tuple[Jaxpr, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    mixed: tuple[str, tuple[DType | Lit | Aval | bool | None, ...]] = ("", ())

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        return self.results


VOCABULARY: Final[Mapping[str, type[Primitive]]] = MappingProxyType({**PRIMITIVES, Tagged.name: Tagged})

integers = st.integers() | st.integers(-(2**70), 2**70) | st.just(10**5000)
avals = st.builds(Aval, st.lists(st.integers(0, 4), max_size=3) | st.just([2**40]), st.sampled_from(dtypes.ALL))
names = st.sampled_from(["f", "g", "<lambda>", "f#1", "", 'a"b', "λ", "two\nlines", "\ud800", "fn"]) | st.text()


def forged(**parameters: object) -> Tagged:
    """A primitive whose parameters its class would reject."""
    made = Tagged()
    for name, value in parameters.items():
        object.__setattr__(made, name, value)
    return made


@st.composite
def literals(draw: st.DrawFn) -> Lit:
    """Draws any bits of any type."""
    aval = draw(avals)
    if aval.dtype == dtypes.bool_:
        return Lit(draw(st.sampled_from([b"\0", b"\1"])), aval)
    size = aval.dtype.itemsize
    return Lit(draw(st.binary(min_size=size, max_size=size)), aval)


def tagged(bodies: Sequence[Jaxpr]) -> st.SearchStrategy[Tagged]:
    """Draws `Tagged` with any parameters, some of them bodies from `bodies`."""
    some = st.lists(st.sampled_from(bodies), max_size=3).map(tuple) if bodies else st.just(())
    leaves = st.sampled_from(dtypes.ALL) | literals() | avals | st.booleans() | st.none()
    return st.builds(
        Tagged,
        results=st.lists(avals, max_size=3).map(tuple),
        count=integers,
        flag=st.booleans(),
        note=st.text() | names,
        maybe=st.none() | integers,
        dtype=st.sampled_from(dtypes.ALL),
        lit=st.none() | literals(),
        body=st.sampled_from([None, *bodies]),
        bodies=some,
        pairs=st.lists(st.tuples(integers, integers), max_size=2).map(tuple),
        mixed=st.tuples(st.text(), st.lists(leaves, max_size=3).map(tuple)),
    )


@st.composite
def programs(draw: st.DrawFn, depth: int = 3) -> Jaxpr:
    """Draws a well-typed program with bodies nested up to `depth`."""
    inner = draw(st.lists(programs(depth - 1), max_size=2)) if depth else []
    b = Builder()
    known: list[Atom] = list(b.inputs(draw(st.lists(avals, max_size=3))))
    known += draw(st.lists(literals(), max_size=2))
    for _ in range(draw(st.integers(0, 3))):
        args = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
        known += b(draw(tagged(inner)), *args)
    for body in inner:
        if not body.ins:
            known += b(Call(body))
    outs = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
    return b.build(outs, draw(names))
