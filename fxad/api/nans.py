"""`explain_nan`: which equation made the first nan of a run, from what, and where it was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, FxadError
from fxad.ir import Atom, Aval, Eqn, Jaxpr, Lit, NDArray, Place, place
from fxad.primitives.control.call import Applied
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.remat import Remat
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.custom import CustomCall
from fxad.tracing.program import Program, flatten_arguments
from fxad.transforms.locate import describe

_SHOWN: Final = 4  # operands whose values are shown


@final
@dataclass(frozen=True, slots=True)
class Made:
    """An equation that made a value no operand of it had: `what` is "nan" or "inf".

    `inside` says through which calls, steps and branches one comes to it, from the outside in. `operands` are those that
    it took, `at` is the first element of the result that has the value.
    """

    what: str
    equation: str
    where: Place | None
    inside: tuple[str, ...]
    operands: tuple[NDArray, ...]
    result: NDArray
    at: tuple[int, ...]
    count: int

    def __str__(self) -> str:
        """Some lines, as in an error."""
        of = f"{self.count} of {self.result.size} elements" if self.result.ndim else "its result"
        written = any([_any(np.isnan, x) for x in self.operands]) and self.what == "nan"
        how = "from one that is written in the program" if written else "and no operand has one"
        lines = [f"{self.what} was made in {of}, {how}", f"  equation      {self.equation}"]
        if self.where:
            lines.append(f"  traced at     {self.where}")
        lines += [f"  inside        {', '.join(self.inside)}"] if self.inside else []
        for k, x in enumerate(self.operands[:_SHOWN]):
            same = x.shape == self.result.shape
            value = f"{x[self.at]} at {list(self.at)}" if same and self.at else _short(x)
            lines.append(f"  operand {k}     {value}")
        return "\n".join(lines)


@final
@dataclass(frozen=True, slots=True)
class NanExplanation:
    """What made the first nan of a run, and what made the first inf before it, if anything did."""

    nan: Made
    inf: Made | None

    def __str__(self) -> str:
        before = f"\nbefore it, {self.inf}" if self.inf else ""
        return f"explain_nan: {self.nan}{before}"


def explain_nan(program: Program[..., Any], *args: Any, **kwargs: Any) -> NanExplanation | None:
    """The equation that makes the first nan when a program runs on these arguments; None when none does.

    The program is interpreted in NumPy, equation by equation, into calls, the steps of loops and the branch that is taken.
    A nan that an argument has is not made by the program; one that is written in it is made where it is first read. What is found need not reach a result: a nan that `where` leaves
    out of the value comes back in the gradient.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> found = fx.explain_nan(fx.trace(lambda x: fnp.log(x).sum(), fx.Spec((2,))), fnp.asarray([1.0, -1.0]))
    >>> found.nan.equation, found.nan.at
    ('%0:f32[2] = log %arg0:f32[2]', (1,))

    Raises: what a call of the program raises for arguments that do not fit; ArgumentError for what is not a Program.
    """
    if not isinstance(program, Program):
        raise ArgumentError(f"explain_nan: takes a Program, got {program!r:.60}", remedy="trace the function first")
    leaves = flatten_arguments(program, args, kwargs)
    walker = _Walker()
    with np.errstate(all="ignore"):
        walker.run(program.jaxpr, [np.asarray(x) for x in (*program.bound, *leaves)], ())
    return NanExplanation(walker.nan, walker.inf) if walker.nan else None


@final
class _Walker:
    """Runs a program until an equation has made a nan; remembers it, and the first that made an inf."""

    __slots__ = ("inf", "nan")

    def __init__(self) -> None:
        self.nan: Made | None = None
        self.inf: Made | None = None

    def _done(self) -> bool:
        return self.nan is not None

    def run(self, jaxpr: Jaxpr, args: Sequence[NDArray], inside: tuple[str, ...]) -> list[NDArray]:
        """Results, as far as they have been computed when a nan is found."""
        env: dict[Atom, NDArray] = dict(zip(jaxpr.ins, args, strict=True))
        for eqn in jaxpr.eqns:
            ins = [a.array if isinstance(a, Lit) else env[a] for a in eqn.ins]
            outs = self._enter(eqn, ins, inside)
            if self._done():
                return []
            if outs is None:
                outs = _results(eqn, ins)
                self._judge(eqn, ins, outs, inside)
                if self._done():
                    return []
            env.update(zip(eqn.outs, outs, strict=True))
        return [a.array if isinstance(a, Lit) else env[a] for a in jaxpr.outs]

    def _enter(self, eqn: Eqn, ins: list[NDArray], inside: tuple[str, ...]) -> list[NDArray] | None:
        """The results of an equation with bodies, by way of them; None where there is nothing to enter."""
        prim = eqn.prim
        match prim:
            case CustomCall():
                return self.run(prim.value, ins, (*inside, f"call of {prim.value.name}"))
            case Applied():  # calls, linear maps, roots and solutions
                return self.run(prim.value, ins, (*inside, f"{prim.name} of {prim.value.name}"))
            case Remat():
                return self.run(prim.body, ins, (*inside, f"{prim.name} of {prim.body.name}"))
            case Cond():
                k = int(np.clip(ins[0], 0, len(prim.branches) - 1))
                return self.run(prim.branches[k], ins[1:], (*inside, f"branch {k} of cond"))
            case Scan():
                return self._scan(prim, ins, inside)
            case While():
                return self._while(prim, ins, inside)
            case _:
                return None

    def _scan(self, prim: Scan, ins: list[NDArray], inside: tuple[str, ...]) -> list[NDArray] | None:
        count, operands = prim.counted(ins)
        n, m = prim.n_consts, prim.n_consts + prim.n_carry
        consts, carry, xs = operands[:n], list(operands[n:m]), operands[m:]
        rows = _blank(prim.length, prim.body.out_avals[prim.n_carry :])
        steps = range(min(int(count[0]), prim.length) if count else prim.length)
        for k in reversed(steps) if prim.reverse else steps:
            outs = self.run(prim.body, [*consts, *carry, *[x[k] for x in xs]], (*inside, f"step {k} of scan"))
            if self._done():
                return []
            carry = _filled(rows, k, outs, prim.n_carry)
        return [*carry, *rows]

    def _while(self, prim: While, ins: list[NDArray], inside: tuple[str, ...]) -> list[NDArray]:
        of_cond, of_body, start = prim.parts(ins)
        rows = _blank(prim.max_steps or 0, prim.rows)
        carry, k = list(start), 0
        while k != prim.max_steps:
            go = self.run(prim.cond, [*of_cond, *carry], (*inside, f"predicate {k} of while"))
            if self._done() or not go[0]:
                break
            outs = self.run(prim.body, [*of_body, *carry], (*inside, f"step {k} of while"))
            if self._done():
                break
            carry, k = _filled(rows, k, outs, len(carry)), k + 1
        return [] if self._done() else [*carry, *rows]

    def _judge(self, eqn: Eqn, ins: list[NDArray], outs: list[NDArray], inside: tuple[str, ...]) -> None:
        for what, has in (("inf", np.isinf), ("nan", np.isnan)):
            if what == "inf" and (self.inf or any([_any(np.isnan, x) for x in ins])):
                continue
            # a nan that is written in the program came from nowhere else; an inf often is, and harms nobody
            if any(
                [_any(has, x) for a, x in zip(eqn.ins, ins, strict=True) if what == "inf" or not isinstance(a, Lit)]
            ):
                continue
            for out in outs:
                if _any(has, out):
                    marks = has(_comparable(out))
                    at = tuple([int(k) for k in np.argwhere(marks)[0]])
                    made = Made(what, describe(eqn), place(eqn.source), inside, tuple(ins), out, at, int(marks.sum()))
                    if what == "inf":
                        self.inf = made
                    else:
                        self.nan = made
                    break


def _results(eqn: Eqn, ins: list[NDArray]) -> list[NDArray]:
    try:
        return [np.asarray(x) for x in eqn.prim.impl(*ins)]
    except FxadError as e:  # of a check, or of a host function
        raise e.located(equation=describe(eqn), where=str(place(eqn.source) or ""))


def _blank(length: int, avals: Sequence[Aval]) -> list[NDArray]:
    return [np.zeros((length, *a.shape), a.dtype) for a in avals]


def _filled(rows: list[NDArray], k: int, outs: list[NDArray], n_carry: int) -> list[NDArray]:
    """The carry that step k gives; its rows are in their places then."""
    for row, x in zip(rows, outs[n_carry:], strict=True):
        row[k] = x
    return outs[:n_carry]


def _comparable(x: NDArray) -> NDArray:
    """In a dtype that NumPy knows the tests of."""
    return x if x.dtype.kind in "fc" else x.astype(np.float32)


def _any(has: Any, x: NDArray) -> bool:
    return bool(x.dtype.kind not in "biu" and has(_comparable(x)).any())


def _short(x: NDArray) -> str:
    text = np.array2string(x, threshold=8, edgeitems=2).replace("\n", "")
    return f"{text} {x.dtype}{list(x.shape)}"
