"""The table of the values that reverse mode stores for a program. An edited table is a plan for `remat`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, SupportsIndex, final

from fxad.core.builder import Builder, producing_eqns, rewrite
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dce, read_operands
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Atom, Atoms, Aval, Eqn, Flags, HigherOrder, Jaxpr, Primitive, SourceLocation, Var
from fxad.primitives.control.call import callee
from fxad.primitives.custom import for_used_results
from fxad.primitives.marks import Keep, Mark, Name, unmarked_values
from fxad.support.tables import ShownSummary, Table, as_row_number
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.cleanup.derivative_rules import drop_derivative_rules
from fxad.transforms.cleanup.inline import inline
from fxad.transforms.locate import innermost, lines_of
from fxad.transforms.memory.remat import as_remat

_MAX_LINES: Final = 15  # of calls in each other that are named


@final
@dataclass(frozen=True, slots=True)
class Residual:
    """A value that reverse mode stores between the forward and the backward program.

    `made_by` is the primitive that computes it, `lines` are the user's lines of that equation and of those whose bodies
    contain it, the outermost first, `read_by` is the primitive that first reads it. A line after the first one may be
    that of an equal function: equal bodies are one program. `decided_by` is the reason why it is stored: it is an
    argument, a policy selected it, or neither. `values` are the values of the program (its calls inlined) that must be
    kept for it: the value itself, or, for a value that only the derivative computes (cos x), the values it is computed
    from. `operand` is the number of the operand of the program that it is, None for a computed value. A plan changes
    `stored`.
    """

    aval: Aval
    made_by: str
    lines: tuple[SourceLocation, ...]
    read_by: str
    decided_by: str
    values: tuple[Var, ...]
    operand: int | None = None
    stored: bool = True

    @property
    def is_argument(self) -> bool:
        """Return True if the value is an operand of the program. The caller stores it."""
        return self.operand is not None

    @property
    def where(self) -> SourceLocation | None:
        """The line of the equation itself."""
        return innermost(self.lines)

    @property
    def bytes(self) -> int:
        """The size of the value in bytes."""
        return self.aval.size * self.aval.dtype.itemsize


@final
@dataclass(frozen=True, slots=True)
class Residuals(ShownSummary[Residual]):
    """The residuals of a program: arguments first, then in the order of computation. `print` shows a table.

    `without(k, ...)` and `keep(k, ...)` return a copy in which rows are computed again, or stored. Such a copy is a
    plan for `remat(program, plan=...)`. `wrt` marks the operands with respect to which the program is differentiated.
    `names` are the names of the operands, if there are any.
    """

    jaxpr: Jaxpr
    wrt: Flags
    rows: tuple[Residual, ...]
    names: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of the stored values, without arguments, which the caller holds."""
        return sum([r.bytes for r in self.rows if r.stored and not r.is_argument])

    def without(self, *rows: SupportsIndex) -> Residuals:
        """Return a copy in which these rows are computed again. Raises: ArgumentError for a row that does not exist,
        and for an argument."""
        return self._with(rows, False)

    def keep(self, *rows: SupportsIndex) -> Residuals:
        """Return a copy in which these rows are stored. Raises: ArgumentError for a row that does not exist."""
        return self._with(rows, True)

    def _with(self, rows: tuple[SupportsIndex, ...], stored: bool) -> Residuals:
        out = list(self.rows)
        for row in rows:
            if (k := as_row_number(row)) is None:
                raise ArgumentError(
                    f"residuals: {shown(row)} is not the number of a row",
                    remedy="rows are numbered from 0: table.without(*[k for k, r in enumerate(table) if ...])",
                )
            if not 0 <= k < len(out):
                raise ArgumentError(
                    f"residuals: row {k} does not exist: there are {len(out)}",
                    remedy="rows are numbered from 0, as print(table) shows them",
                )
            if out[k].is_argument and not stored:
                raise ArgumentError(
                    f"residuals: row {k} is an argument of {self.jaxpr.name}: it is stored by whoever passes it",
                    remedy="leave out rows that the program computes",
                )
            out[k] = replace(out[k], stored=stored)
        return replace(self, rows=tuple(out))

    def named(self, names: Sequence[str]) -> Residuals:
        """Return a copy that shows arguments by these names, one for each operand."""
        rows = [r if r.operand is None else replace(r, made_by=names[r.operand]) for r in self.rows]
        return replace(self, rows=tuple(rows), names=tuple(names))

    def __repr__(self) -> str:
        return f"<Residuals of {self.jaxpr.name}: {_rows(self.rows)}, {self._total}>"

    @property
    def _total(self) -> str:
        return f"{self.bytes:,} bytes beside the arguments"

    @property
    def _table(self) -> Table:
        head = ("", "bytes", "type", "made by", "where", "read by", "decided by")
        return Table(head, tuple([_cells(k, r) for k, r in enumerate(self.rows)]), right=(0, 1))

    @property
    def _title(self) -> str:
        return f"Residuals of {self.jaxpr.name}"


def _cells(k: int, r: Residual) -> tuple[str, ...]:
    decided = r.decided_by if r.stored else "plan: computed again"
    return str(k), f"{r.bytes:,}", str(r.aval), r.made_by, _line(r), r.read_by, decided


def _line(r: Residual) -> str:
    """Return the lines of a row: `model.py:5 > 4`, the outermost first, with the file where it changes, and the scope
    of the last one."""
    files = ["", *[line.file for line in r.lines]]
    places = zip(r.lines, files, strict=False)
    text = " > ".join([f"{at.line}" if at.file == file else at.short for at, file in places])
    return f"{text}, {r.lines[-1].scope}" if r.lines and r.lines[-1].scope else text


@by_value
def residuals(jaxpr: Jaxpr, wrt: Flags) -> Residuals:
    """Return the table of the values that `linearize` stores for derivatives with respect to the marked operands.

    Law:  the rows are the distinct residuals that the linear program reads, without literals.
    Cost: one `linearize`.
    """
    program = for_used_results(jaxpr)
    flat = inline(program)
    n, values = len(flat.outs), [v for e in flat.eqns for v in e.outs]
    # every value is made a result, so that the results of the primal program show where each value is computed
    linearized = linearize(flat.with_outs((*flat.outs, *values)), wrt)
    primal, tangents = linearized.primal, linearized.linear.outs[: sum(linearized.out_nonzero[:n])]
    linear = dce(Jaxpr(linearized.linear.ins, linearized.linear.eqns, tangents, flat.name))
    is_read_of = read_operands(drop_derivative_rules(linear, True))
    origins = _PrimalOrigins(program, flat, primal, primal.outs[n : n + len(values)])
    n_tangents = sum(wrt)
    rows: dict[Atom, Residual] = {}
    for a, v, is_read in zip(
        primal.outs[n + len(values) :], linear.ins[n_tangents:], is_read_of[n_tangents:], strict=True
    ):
        value = origins.unmarked.get(a, a)
        if is_read and isinstance(value, Var) and value not in rows:
            rows[value] = origins.row(value, _reader(linear, v))
    return Residuals(jaxpr, wrt, tuple([rows[a] for a in (*primal.ins, *origins.producer) if a in rows]))


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Occurrence:
    """An equation of a program that computes or reads a value: the position of its first result in the primal program,
    and the calls around it, from the outside in."""

    eqn: Eqn
    position: int
    calls: tuple[Eqn, ...]


@final
class _PrimalOrigins:
    """Relates the values of a primal program to those of the program that it was linearized from."""

    __slots__ = ("_ins", "_position", "_uses", "_value_of", "producer", "unmarked")

    def __init__(self, jaxpr: Jaxpr, flat: Jaxpr, primal: Jaxpr, computed: Sequence[Atom]) -> None:
        """Relate the values. `flat` is `jaxpr` with its calls inlined. `computed` has, for each result of an equation
        of `flat`, the same value in the primal program."""
        self._ins = primal.ins
        self.unmarked = unmarked_values(primal.eqns)
        self.producer = producing_eqns(primal.eqns)
        self._position: dict[Atom, int] = {v: k for k, v in enumerate(self.producer)}
        self._value_of: dict[Atom, Var] = {}  # for a value of the primal program, the value of `flat`
        position: dict[Var, int] = {}
        for v, a in zip([v for e in flat.eqns for v in e.outs], computed, strict=True):
            value = self.unmarked.get(a, a)
            self._value_of.setdefault(value, v)
            position[v] = self._position.get(value, 0)
        self._uses: dict[Atom, list[_Occurrence]] = {}
        for eqn, calls in zip(flat.eqns, _calls(jaxpr), strict=True):
            for a in {*eqn.outs, *eqn.ins} if eqn.outs else ():
                self._uses.setdefault(a, []).append(_Occurrence(eqn, position[eqn.outs[0]], calls))

    def row(self, value: Var, reader: str) -> Residual:
        """Return the row of a value of the primal program."""
        if value not in self.producer:
            k = self._ins.index(value)
            return Residual(value.aval, f"argument {k}", (), reader, "argument", (), operand=k)
        eqns, policy = _producers(self.producer[value], value)
        values = self._values(value)
        lines = lines_of((*self._calls_around(eqns[0], self._position[value], values), *eqns))
        return Residual(value.aval, _equation_label(eqns[-1].prim), lines, reader, policy or "no policy", values)

    def _values(self, value: Var) -> tuple[Var, ...]:
        """Return the values of the program from which a value of the primal program is computed."""
        out: dict[Var, None] = {}
        stack: list[Atom] = [value]
        seen: set[Atom] = set()
        while stack:
            a = stack.pop()
            if a in self._value_of:
                out[self._value_of[a]] = None
            elif a in self.producer and a not in seen:
                seen.add(a)
                stack.extend(self.producer[a].ins)
        return tuple(out)

    def _calls_around(self, eqn: Eqn, position: int, values: Sequence[Var]) -> tuple[Eqn, ...]:
        """Return the calls around the equation of the program from whose rule an equation comes: it is on the same
        line, computes or reads one of the `values`, and its results are nearest."""
        uses = [use for v in values for use in self._uses.get(v, ()) if use.eqn.source == eqn.source]
        nearest = min(uses, key=lambda use: abs(use.position - position), default=None)
        return () if nearest is None else nearest.calls


def _equation_label(prim: Primitive) -> str:
    return f"name {prim.label!r}" if isinstance(prim, Name) else prim.name


def _reader(jaxpr: Jaxpr, v: Var) -> str:
    """Return the name of the operation that first reads a value, also inside calls and recomputations."""
    while (eqn := next((e for e in jaxpr.eqns if v in e.ins), None)) is not None:
        layout = eqn.prim.layout if isinstance(eqn.prim, HigherOrder) else None
        if layout is None or not layout.transparent or layout.once is None:
            return _equation_label(eqn.prim)
        jaxpr = layout.bodies[layout.once].jaxpr
        v = jaxpr.ins[layout.operand_indices(layout.once).index(eqn.ins.index(v))]
    return "result"


def _calls(jaxpr: Jaxpr) -> list[tuple[Eqn, ...]]:
    """Return, for each equation of `inline(jaxpr)`, the calls around it in `jaxpr`, from the outside in."""
    out: list[tuple[Eqn, ...]] = []
    stack: list[tuple[Iterator[Eqn], tuple[Eqn, ...]]] = [(iter(jaxpr.eqns), ())]
    while stack:
        rest, inside = stack.pop()
        for eqn in rest:
            if (body := callee(eqn)) is not None:
                stack += [(rest, inside), (iter(body.eqns), (*inside[:_MAX_LINES], eqn))]
                break
            out.append(inside)
    return out


def _producers(eqn: Eqn, v: Var) -> tuple[list[Eqn], str]:
    """Return the equation that computes result `v` of `eqn`, after those whose bodies contain it, and the policy that
    marks it there: from `eqn` into the body that computes the value, past marks, as far as there are bodies.

    Of the policies of nested `remat` equations, the outermost one decides. For example, in
    `remat(remat(x -> cos(sin(x)), everything), sines)` the body of the inner `remat` marks the sine by
    `keep[by=everything, also_kept_by=(sines,)]`. It is `level` 1 deep, so the policy is `deciders[1]`, the text
    of sines. The cosine is marked by `keep[by=everything]`: it has no `deciders[1]`, because sines does not select it.
    """
    by, level, producers = "", -1, [eqn]  # `level`: the number of `remat` equations around the body, less 1
    while isinstance(eqn.prim, HigherOrder) and (layout := eqn.prim.layout).transparent:
        level += layout.remat
        result_number = eqn.outs.index(v)
        # branches share residuals: take the first branch that computes a variable for this result
        bodies = [(layout.bodies[k].jaxpr, layout.result_indices(k)) for k in layout.running]
        pairs = [
            (body, a) for body, results in bodies for q, a in zip(results, body.outs, strict=True) if q == result_number
        ]
        body, out = next(((body, a) for body, a in pairs if isinstance(a, Var)), pairs[0])
        producer = producing_eqns(body.eqns)
        while out in producer and isinstance(producer[out].prim, Mark):
            mark = producer[out]
            if isinstance(mark.prim, Keep):
                by = by or "".join(mark.prim.deciders[max(level, 0) :][:1])
            elif isinstance(mark.prim, Name):
                return [*producers, mark], by
            out = mark.ins[0]
        if not isinstance(out, Var) or out not in producer:
            break
        eqn, v = producer[out], out
        producers.append(eqn)
    return producers, by


def with_planned_residuals(jaxpr: Jaxpr, plan: Residuals) -> Jaxpr:
    """Return the program, its calls inlined, as one `remat` equation that stores its operands and the values of the
    plan.

    Raises: ArgumentError for a plan of another program, and for rows that are not in the table of this program.
    """
    if plan.jaxpr is not jaxpr:
        raise ArgumentError(
            f"remat: the plan is for another program: {plan.jaxpr!r}, this is {jaxpr!r}",
            remedy="make it with residuals(program) of this very program",
        )
    own_table = residuals(jaxpr, plan.wrt)
    table, rows = (own_table.named(plan.names) if plan.names else own_table).rows, tuple(plan.rows)
    remedy = "edit a table by without(...) and keep(...), which leave every row in its place"
    if len(rows) != len(table):
        raise ArgumentError(
            f"remat: the plan has {_rows(rows)}, residuals({jaxpr.name}) gives {len(table)}",
            remedy=remedy,
        )
    for k, (row, actual) in enumerate(zip(rows, table, strict=True)):
        if row != actual and (actual.is_argument or row != replace(actual, stored=False)):
            raise ArgumentError(
                f"remat: row {k} of the plan is {_row_text(row)}, that of residuals({jaxpr.name}) is"
                f" {_row_text(actual)}",
                remedy=remedy,
            )
    return _remat_that_stores(jaxpr, frozenset([v for r in rows if r.stored for v in r.values]))


def _rows(rows: Sequence[object]) -> str:
    return f"{len(rows)} row{'s' * (len(rows) != 1)}"


def _row_text(row: object) -> str:
    """Describe a row of a plan, which may be any object."""
    if not isinstance(row, Residual):
        return f"{described(row)}: {shown(row)}"
    where = f" ({row.where.short})" if row.where else ""
    return f"{row.made_by} {row.aval}{where}{'' if row.stored else ', computed again'}"


@by_value
def _remat_that_stores(jaxpr: Jaxpr, stored: frozenset[Var]) -> Jaxpr:
    """Return the program, its calls inlined, as one `remat` equation that stores its operands and the chosen
    values."""
    body = inline(for_used_results(jaxpr))

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom]:
        pairs = zip(eqn.outs, b.copy(eqn, ins), strict=True)
        return [b.one(Keep("plan"), w) if v in stored else w for v, w in pairs]

    return as_remat(rewrite(body, rule))
