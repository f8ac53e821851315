"""A run of a program beside one in higher precision: float64 for 32 bits and less, pairs of float64 for float64.

Both runs take the same steps and branches, those of the program itself. A value of both is one structured array: `low`
is that of the program, `high` (and `rest`, for pairs) that of the shadow. So loops slice and collect both at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, log10
from typing import Any, Final, cast, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import single_equation
from fxad.core.dataclasses import dataclass
from fxad.core.interpreter import run, run_by_layout
from fxad.core.stack import with_enough_stack
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, NDArray, SourceLocation
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.elementwise.arithmetic import Add, Sub
from fxad.primitives.linalg.lu import Lu
from fxad.support.tables import ShownSummary, Table
from fxad.transforms.locate import describe, lines_of
from fxad.transforms.precision import double_double
from fxad.transforms.precision.causes import Cause, CauseKind, EquationWithCauses, digits_lost
from fxad.transforms.precision.local_errors import copies
from fxad.transforms.precision.retype import ROUNDS, TO_FLOAT64, retyped, unit_roundoff
from fxad.transforms.precision.rounding import Path, applied_body
from fxad.transforms.precision.table import RoundingErrors, located, relative_to

_GROWTH: Final = 100.0  # a relative error that grows by two digits is named


@final
@dataclass(frozen=True, slots=True)
class ShadowRow(EquationWithCauses):
    """An equation of a program, and how far its result was from that of the shadow.

    `error` is the largest relative error of its results over the run, in the Euclidean norm, `operands` that of the
    operands of that step. `typed_causes` is what is wrong, and `causes` are its texts: "cancellation of 5 digits",
    "ill-conditioned by 5 digits", "overflow", "underflow". `line`, `lines`, `inside`, `path`, `equation` and
    `primitive` are those of `RoundingError`. `finite`: no element of its results was infinite or nan, in the program.
    """

    error: float
    operands: float
    equation: str
    primitive: str
    lines: tuple[SourceLocation, ...]
    inside: tuple[str, ...]
    path: Path
    typed_causes: tuple[Cause, ...]
    finite: bool = True


@final
@dataclass(frozen=True, slots=True, eq=False)
class Shadow(ShownSummary[ShadowRow]):
    """A run beside one in higher precision: a row for each equation with a floating result that ran, in the order of
    the program.

    `error` is the error of all floating results together (their Euclidean norm), `size` the norm of the results of the
    shadow. `results` and `exact` are the floating results of the program and of the shadow. `approximate` names the
    operations over 64-bit values that the shadow computes in 64 bits too: their errors are not seen.
    """

    jaxpr: Jaxpr
    rows: tuple[ShadowRow, ...]
    error: float
    size: float
    results: tuple[NDArray, ...]
    exact: tuple[NDArray, ...]
    approximate: tuple[str, ...]

    @property
    def relative(self) -> float:
        """The error, relative to the size of the results."""
        return relative_to(self.error, self.size)

    @property
    def _total(self) -> str:
        more = f"; in 64 bits: {', '.join(self.approximate)}" if self.approximate else ""
        return f"error {self.error:.2g}, {self.relative:.2g} of the results{more}"

    @property
    def _table(self) -> Table:
        cells = [
            (f"{r.error:.2g}", f"{r.operands:.2g}", r.equation, r.line.short if r.line else "", "; ".join(r.causes))
            for r in self.rows
        ]
        return Table(("relative error", "of operands", "equation", "where", "causes"), tuple(cells), right=(0, 1))

    def __repr__(self) -> str:
        return f"<Shadow of {self.jaxpr.name}: {self._total}>"

    @property
    def _title(self) -> str:
        return f"Shadow of {self.jaxpr.name}"


def shadow(jaxpr: Jaxpr, operands: Sequence[NDArray]) -> Shadow:
    """Run a program on operands, beside one in higher precision.

    Law:  the results are those of `interpret`.
    Cost: that of `interpret`, for each equation in both precisions.
    """
    walker = _ShadowInterpreter()
    with np.errstate(all="ignore"):
        outs = walker.run(jaxpr, [_equal_in_both_runs(x) for x in operands], ())
        inexact = [x for x in outs if x.dtype.names]
        error = _norm(np.array([_norm(_difference(x)) for x in inexact]))
        size = _norm(np.array([_norm(_component(x, "high")) for x in inexact]))
    rows = []
    for path in sorted(walker.errors):
        around, eqn, inside = located(jaxpr, path)
        errors = walker.errors[path]
        lines = lines_of((*around, eqn))
        rows.append(
            ShadowRow(
                errors.error,
                errors.operands,
                describe(eqn),
                eqn.prim.name,
                lines,
                inside,
                path,
                errors.causes,
                errors.finite,
            )
        )
    return Shadow(
        jaxpr,
        tuple(rows),
        inf if np.isnan(error) else error,
        size,
        tuple([np.asarray(_component(x, "low")) for x in inexact]),
        tuple([np.asarray(_component(x, "high")) for x in inexact]),
        tuple(sorted(walker.approximate)),
    )


def with_causes_of(table: RoundingErrors, run_beside: Shadow) -> RoundingErrors:
    """Return a table whose error is not finite, with the causes of that: those of a shadow run."""
    row_at = {row.path: row for row in run_beside}
    not_finite = Cause(CauseKind.NOT_FINITE)
    rows = []
    for r in table.rows:
        beside = row_at.get(r.path)
        causes = list(r.typed_causes)
        if beside is not None:
            flows = [c for c in beside.typed_causes if c.flows]
            if not_finite in causes:
                causes.remove(not_finite)
                if Cause(CauseKind.OVERFLOW) not in flows:
                    causes.insert(0, Cause(CauseKind.INFINITE_DERIVATIVE) if beside.finite else not_finite)
            causes = list(dict.fromkeys([*flows, *causes]))
        rows.append(replace(r, typed_causes=tuple(causes)))
    return replace(table, rows=tuple(rows))


# -------------------------------------------------------------------------------------------- values of both precisions


def _structured(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of a value of both runs."""
    if dtype in dtypes.COMPLEX:
        return np.dtype([("low", dtype), ("high", np.complex128)])
    if dtype == dtypes.float64:
        return np.dtype([("low", np.float64), ("high", np.float64), ("rest", np.float64)])
    return np.dtype([("low", dtype), ("high", np.float64)])


def _equal_in_both_runs(x: NDArray) -> NDArray:
    """Return a value that is the same in both runs."""
    if x.dtype not in dtypes.INEXACT:
        return x
    out = np.zeros(x.shape, _structured(x.dtype))
    out["low"], out["high"] = x, x
    return out


@final
@dataclass(frozen=True, slots=True)
class _Type:
    """The shape and the structured dtype of a result: a `TypeOfResult`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _component(x: NDArray, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return `low`, `high` or `rest` of a structured array."""
    return cast("np.ndarray[Any, np.dtype[np.void]]", x)[name]


def _has_rest(x: NDArray) -> bool:
    """Return True for a value whose shadow is a pair."""
    return "rest" in (x.dtype.names or ())


def _low(x: NDArray) -> NDArray:
    return np.asarray(_component(x, "low")) if x.dtype.names else x


def _difference(x: NDArray) -> NDArray:
    """Return the result of the shadow minus that of the program, in high precision."""
    low = _component(x, "low").astype(_component(x, "high").dtype)
    same = (low == _component(x, "high")) | (np.isnan(low) & np.isnan(_component(x, "high")))
    rest = _component(x, "rest") if _has_rest(x) else 0.0
    return np.where(same, 0.0, _component(x, "high") - low) + rest


def _relative(x: NDArray) -> float:
    """Return the relative error of a value, in the Euclidean norm."""
    with np.errstate(all="ignore"):
        error = _norm(_difference(x))
        return 0.0 if error == 0 else inf if np.isnan(error) else relative_to(error, _norm(_component(x, "high")))


def _norm(x: NDArray) -> float:
    """Return the Euclidean norm, also where the squares of the elements overflow or are 0."""
    size = float(np.max(np.abs(x), initial=0.0))
    return size * float(np.linalg.norm(np.ravel(np.divide(x, size)))) if 0.0 < size < inf else size


# ------------------------------------------------------------------------------------------------------------- the run


@final
@dataclass(frozen=True, slots=True)
class _ErrorsSoFar:
    """The errors that the runs of an equation have shown so far: the largest relative error of its results, that of its
    operands in this step, the causes, and whether all results were finite."""

    error: float = -1.0  # less than that of any run
    operands: float = 0.0
    causes: tuple[Cause, ...] = ()
    finite: bool = True


@final
class _ShadowInterpreter:
    """Interprets a program in both precisions, and notes for each equation that ran what its runs have shown."""

    __slots__ = ("approximate", "errors")

    def __init__(self) -> None:
        self.errors: dict[Path, _ErrorsSoFar] = {}
        self.approximate: set[str] = set()

    @with_enough_stack
    def run(self, jaxpr: Jaxpr, args: Sequence[NDArray], path: Path) -> list[NDArray]:
        """Return the results of a program."""
        env: dict[Atom, NDArray] = dict(zip(jaxpr.ins, args, strict=True))

        def value(a: Atom) -> NDArray:
            return _equal_in_both_runs(a.array) if isinstance(a, Lit) else env[a]

        for k, eqn in enumerate(jaxpr.eqns):
            ins = [value(a) for a in eqn.ins]
            outs = self._run_bodies(eqn, ins, (*path, k))
            if outs is None:
                outs = self._run_equation(eqn, ins, (*path, k))
            env.update(zip(eqn.outs, outs, strict=True))
        return [value(a) for a in jaxpr.outs]

    def _run_bodies(self, eqn: Eqn, ins: list[NDArray], path: Path) -> Sequence[NDArray] | None:
        prim = eqn.prim
        if not isinstance(prim, HigherOrder) or isinstance(prim, ShardMap):
            return None
        if (body := applied_body(prim)) is not None:
            return self.run(body, ins, (*path, 0))
        layout = prim.layout
        if not layout.states_results or not layout.transparent:
            return None
        outs = [_Type(v.aval.shape, _structured(v.aval.dtype) if v.aval.inexact else v.aval.dtype) for v in eqn.outs]

        def run_body(number: int, _step: int | None, args: list[NDArray]) -> list[NDArray]:
            return self.run(layout.bodies[number].jaxpr, args, (*path, number))

        return run_by_layout(layout, ins, outs, run_body)

    def _run_equation(self, eqn: Eqn, ins: list[NDArray], path: Path) -> list[NDArray]:
        low = [np.asarray(x) for x in eqn.prim.impl(*[_low(x) for x in ins])]
        outs: list[NDArray] = []
        for x, (high, rest) in zip(low, self._high(eqn, ins, low), strict=True):
            if x.dtype not in dtypes.INEXACT:  # the shadow takes the decisions of the program
                outs.append(x)
                continue
            pair = np.zeros(x.shape, _structured(x.dtype))
            pair["low"], pair["high"] = x, high
            if rest is not None and _has_rest(pair):
                pair["rest"] = np.where(np.isfinite(pair["high"]), rest, 0.0)
            outs.append(pair)
        self._record(eqn, ins, outs, path)
        return outs

    def _high(self, eqn: Eqn, ins: list[NDArray], low: list[NDArray]) -> list[tuple[NDArray, NDArray | None]]:
        """Return the results of an equation in high precision, each with the rest of a pair. `low` are those of the
        program."""
        avals = [*[a.aval for a in eqn.ins], *[v.aval for v in eqn.outs]]
        of_64_bits = any([a.dtype in (dtypes.float64, dtypes.complex128) for a in avals])
        if isinstance(eqn.prim, ROUNDS) and ins[0].dtype.names and eqn.outs[0].aval.inexact:
            x = ins[0]
            high = _component(x, "high") if eqn.outs[0].aval.dtype in dtypes.COMPLEX else np.real(_component(x, "high"))
            return [(high, _component(x, "rest") if _has_rest(x) else None)]
        if all([a.dtype == dtypes.float64 or not a.inexact for a in avals]) and not isinstance(eqn.prim, HigherOrder):
            operands = [
                double_double.pair(_component(x, "high"), _component(x, "rest")) if x.dtype.names else x for x in ins
            ]
            outs, exact = double_double.evaluate(eqn.prim, operands)
            if not exact and any([v.aval.inexact for v in eqn.outs]):
                self.approximate.add(eqn.prim.name)
            return [x if isinstance(x, tuple) else (x, None) for x in outs]
        if of_64_bits and not copies(eqn.prim):
            self.approximate.add(eqn.prim.name)
        if isinstance(eqn.prim, Lu):  # the row exchanges are decisions
            return [(_eliminated(_component(ins[0], "high"), low[1]), None), (low[1], None)]
        wide = retyped(single_equation(eqn.prim, [a.aval for a in eqn.ins]), TO_FLOAT64)
        highs = [
            np.asarray(_component(x, "high"), a.dtype) if x.dtype.names else x
            for x, a in zip(ins, wide.in_avals, strict=True)
        ]
        return [(x, None) for x in run(wide, highs)]

    def _record(self, eqn: Eqn, ins: Sequence[NDArray], outs: Sequence[NDArray], path: Path) -> None:
        inexact = [x for x in outs if x.dtype.names and x.size]
        if not inexact:
            return
        relative = max([_relative(x) for x in inexact])
        of_operands = max([_relative(x) for x in ins if x.dtype.names], default=0.0)
        before = self.errors.get(path, _ErrorsSoFar())
        causes = list(self._causes(eqn, ins, inexact, relative, of_operands))
        no_digits = dict.fromkeys([c for c in (*before.causes, *causes) if c.digits is None])  # all of them, each once
        # of causes that name lost digits there is at most one in each step, and that of the worst step is kept
        lost_digits = [c for c in before.causes if c.digits is not None]
        lost_in_this_step = [c for c in causes if c.digits is not None]
        if lost_in_this_step and (relative > before.error or not lost_digits):
            lost_digits = lost_in_this_step
        worst = (relative, of_operands) if relative > before.error else (before.error, before.operands)
        finite = before.finite and all([bool(np.isfinite(_as_float(_component(x, "low"))).all()) for x in inexact])
        self.errors[path] = _ErrorsSoFar(*worst, (*no_digits, *lost_digits), finite)

    def _causes(
        self, eqn: Eqn, ins: Sequence[NDArray], outs: Sequence[NDArray], relative: float, of_operands: float
    ) -> Iterator[Cause]:
        """Yield why an equation whose operands have the relative error `of_operands` has results with the error
        `relative`: they overflow or underflow in their dtype, and the exact ones do not; or the error is more than
        `_GROWTH` times that of the operands, or of one rounding. Example: x - y in float32, where both have the error
        6e-8 and agree in four digits: the result has the error 6e-4, so four digits are lost by cancellation."""
        operands_finite = all([bool(np.isfinite(_as_float(_low(x))).all()) for x in ins if x.dtype.names])
        flows = False
        for x in outs:
            low = _as_float(_component(x, "low"))
            if operands_finite and bool((~np.isfinite(low) & np.isfinite(_component(x, "high"))).any()):
                flows = True
                yield Cause(CauseKind.OVERFLOW)
            # an operand that is wrong already may be zero itself
            if of_operands < 0.5 and bool(
                ((low == 0) & (_component(x, "high") != 0) & np.logical_not(_cancels(eqn, ins, x))).any()
            ):
                flows = True
                yield Cause(CauseKind.UNDERFLOW)
        if flows:
            return
        roundoff = max([unit_roundoff(_component(x, "low").dtype) for x in outs])
        reference = max(of_operands, roundoff)
        if relative > _GROWTH * reference and relative != inf:
            cancels = isinstance(eqn.prim, Add | Sub)
            kind = CauseKind.CANCELLATION if cancels else CauseKind.ILL_CONDITIONED
            yield digits_lost(kind, log10(relative / reference))
        elif relative == inf and isinstance(eqn.prim, Add | Sub) and operands_finite:
            yield digits_lost(CauseKind.CANCELLATION, inf)


def _eliminated(a: NDArray, pivots: NDArray) -> NDArray:
    """Return the LU decomposition with given row exchanges."""
    out = np.array(a, np.complex128 if a.dtype.kind == "c" else np.float64)
    for batch_index in np.ndindex(pivots.shape[:-1]):
        lu: Any = out[batch_index]
        for k, pivot in enumerate(pivots[batch_index]):
            lu[[k, pivot]] = lu[[pivot, k]]
            if lu[k, k] != 0:
                lu[k + 1 :, k] /= lu[k, k]
                lu[k + 1 :, k + 1 :] -= np.outer(lu[k + 1 :, k], lu[k, k + 1 :])
    return out


def _cancels(eqn: Eqn, ins: Sequence[NDArray], out: NDArray) -> NDArray:
    """Return True where the first operand of a sum is not zero: a result that is zero there has cancelled, and is no
    underflow."""
    if not isinstance(eqn.prim, Add | Sub):
        return np.zeros(out.shape, bool)
    return np.asarray(_low(ins[0]) != 0)


def _as_float(x: NDArray) -> NDArray:
    return x if x.dtype.kind in "fc" else x.astype(np.float64)
