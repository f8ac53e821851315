"""What reverse mode stores of a program, as a table that can be read, edited and given back as a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from os.path import basename
from typing import SupportsIndex, final, overload

from fxad.core.builder import Builder, rewrite
from fxad.core.dataclasses import dataclass
from fxad.core.layout import Layout
from fxad.core.liveness import dce, narrow
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, described
from fxad.ir import Atom, Aval, Eqn, HigherOrder, Jaxpr, Place, Primitive, Var, place
from fxad.primitives.control.remat import Remat
from fxad.primitives.naming import Keep, Mark, Name, sources
from fxad.transforms.ad.linearize import linearize
from fxad.transforms.cleanup.inline import inline
from fxad.transforms.inversion.second_order import drop_derivative_rules


@final
@dataclass(frozen=True, slots=True)
class Residual:
    """A value that reverse mode stores between the forward and the backward program.

    `made_by` and `read_by` are the primitives that give it and that first ask for it, `where` the user's line that
    gives it. `decided_by` says why it is stored: an argument is there anyway, a policy chose it, or nobody did.
    `values` are the values of the program (its calls inlined) that have to be kept for it: itself, or, for what only
    the derivative computes (cos x), what that is computed from. `stored` is what a plan changes.
    """

    aval: Aval
    made_by: str
    where: Place | None
    read_by: str
    decided_by: str
    values: tuple[Var, ...]
    is_argument: bool = False
    stored: bool = True

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.aval.size * self.aval.dtype.itemsize


@final
@dataclass(frozen=True, slots=True)
class Residuals(Sequence[Residual]):
    """The residuals of a program, in the order in which they are made; arguments first. `print` shows a table.

    `without(k, ...)` and `keep(k, ...)` give a copy in which rows are computed again, or stored; such a copy is a plan
    for `remat(program, plan=...)`. `wrt` marks the operands with respect to which derivatives are meant.
    """

    jaxpr: Jaxpr
    wrt: tuple[bool, ...]
    rows: tuple[Residual, ...]

    @overload
    def __getitem__(self, k: int) -> Residual: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[Residual]: ...
    def __getitem__(self, k: int | slice) -> Residual | Sequence[Residual]:
        return self.rows[k]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Residual]:
        return iter(self.rows)

    @property
    def bytes(self) -> int:
        """Bytes of what is stored, without arguments, which are there anyway."""
        return sum([r.bytes for r in self.rows if r.stored and not r.is_argument])

    def without(self, *rows: SupportsIndex) -> Residuals:
        """A copy in which these rows are computed again. Raises: ArgumentError for no row, and for an argument."""
        return self._with(rows, False)

    def keep(self, *rows: SupportsIndex) -> Residuals:
        """A copy in which these rows are stored. Raises: ArgumentError for no row."""
        return self._with(rows, True)

    def _with(self, rows: tuple[SupportsIndex, ...], stored: bool) -> Residuals:
        out = list(self.rows)
        for row in rows:
            if not isinstance(row, SupportsIndex) or isinstance(row, bool):
                raise ArgumentError(
                    f"residuals: {row!r:.60} is not the number of a row",
                    remedy="rows are numbered from 0: table.without(*[k for k, r in enumerate(table) if ...])",
                )
            k = row.__index__()
            if not -len(out) <= k < len(out):
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

    def __repr__(self) -> str:
        return f"<Residuals of {self.jaxpr.name}: {_rows(self.rows)}, {self._total}>"

    @property
    def _total(self) -> str:
        return f"{self.bytes:,} bytes beside the arguments"

    def __str__(self) -> str:
        head = ("", "bytes", "type", "made by", "where", "read by", "decided by")
        table = [head, *[_cells(k, r) for k, r in enumerate(self.rows)]]
        widths = [max([len(row[i]) for row in table]) for i in range(len(head))]
        lines = [
            "  ".join([_aligned(i, c, w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]) for row in table
        ]
        return "\n".join([*[line.rstrip() for line in lines], self._total])


def _cells(k: int, r: Residual) -> tuple[str, ...]:
    decided = r.decided_by if r.stored else "plan: computed again"
    return str(k), f"{r.bytes:,}", str(r.aval), r.made_by, _line(r), r.read_by, decided


def _line(r: Residual) -> str:
    return f"{basename(r.where.file)}:{r.where.line}" if r.where else ""


def _aligned(column: int, text: str, width: int) -> str:
    return text.rjust(width) if column < 2 else text.ljust(width)


@by_value
def residuals(jaxpr: Jaxpr, wrt: tuple[bool, ...]) -> Residuals:
    """What `linearize` stores for derivatives with respect to the marked operands.

    Law:  the rows are the distinct residuals that the linear program reads, without literals.
    Cost: one `linearize`.
    """
    body = inline(jaxpr)
    n, values = len(body.outs), [v for e in body.eqns for v in e.outs]
    # with every value for a result, the primal program says where each of them is
    split = linearize(Jaxpr(body.ins, body.eqns, (*body.outs, *values), body.name), wrt)
    primal = split.primal
    n_all, n_dots = n + len(values), sum(wrt)
    tangents = split.linear.outs[: sum(split.out_nonzero[:n])]
    linear = dce(Jaxpr(split.linear.ins, split.linear.eqns, tangents, body.name))
    needed = narrow(drop_derivative_rules(linear, True))[1][n_dots:]
    before = sources(primal.eqns)
    home: dict[Atom, Var] = {}
    for a, v in zip(primal.outs[n:n_all], values, strict=True):
        home.setdefault(before.get(a, a), v)
    made = {v: e for e in primal.eqns for v in e.outs}
    rows: dict[Atom, Residual] = {}
    for a, v, needs in zip(primal.outs[n_all:], linear.ins[n_dots:], needed, strict=True):
        root = before.get(a, a)
        if needs and isinstance(root, Var) and root not in rows:
            reader = _reader(linear, v)
            if root in made:
                eqn, by = _maker(made[root], root)
                origin = _values(root, home, made)
                rows[root] = Residual(a.aval, _named(eqn.prim), place(eqn.source), reader, by or "no policy", origin)
            else:
                what = f"argument {primal.ins.index(root)}"
                rows[root] = Residual(a.aval, what, None, reader, "argument", (), is_argument=True)
    return Residuals(jaxpr, wrt, tuple([rows[a] for a in (*primal.ins, *made) if a in rows]))


def _named(prim: Primitive) -> str:
    return f"name {prim.label!r}" if isinstance(prim, Name) else prim.name


def _reader(jaxpr: Jaxpr, v: Var) -> str:
    """The operation that first reads a value, in calls and recomputations too."""
    while (eqn := next((e for e in jaxpr.eqns if v in e.ins), None)) is not None:
        layout = eqn.prim.layout if isinstance(eqn.prim, HigherOrder) else None
        if layout is None or not layout.transparent or layout.once is None:
            return _named(eqn.prim)
        jaxpr = layout.bodies[layout.once].jaxpr
        v = jaxpr.ins[layout.takes(layout.once).index(eqn.ins.index(v))]
    return "result"


def _maker(eqn: Eqn, v: Var) -> tuple[Eqn, str]:
    """The equation that gives a value, in calls and loops too, and the policy that marks it to be kept there."""
    by, level = "", -1
    while isinstance(eqn.prim, HigherOrder) and (layout := eqn.prim.layout).transparent:
        level += layout.segment
        at = eqn.outs.index(v)
        # of the branches, which share places, the first that has something there
        given = [(layout.bodies[k].jaxpr, a) for k in layout.running for q, a in _given(layout, k) if q == at]
        body, out = next(((body, a) for body, a in given if isinstance(a, Var)), given[0])
        made = {w: e for e in body.eqns for w in e.outs}
        while out in made and isinstance(made[out].prim, Mark):
            mark = made[out]
            if isinstance(mark.prim, Keep):
                by = by or "".join(mark.prim.deciders[max(level, 0) :][:1])
            elif isinstance(mark.prim, Name):
                return mark, by
            out = mark.ins[0]
        if not isinstance(out, Var) or out not in made:
            break
        eqn, v = made[out], out
    return eqn, by


def _given(layout: Layout, body: int) -> Iterator[tuple[int | None, Atom]]:
    """For each result of a body, the result of the equation that it gives."""
    return zip(layout.gives(body), layout.bodies[body].jaxpr.outs, strict=True)


def _values(value: Var, home: dict[Atom, Var], made: dict[Var, Eqn]) -> tuple[Var, ...]:
    """The values of the program from which one of the primal program is had."""
    out: dict[Var, None] = {}
    stack: list[Atom] = [value]
    seen: set[Atom] = set()
    while stack:
        a = stack.pop()
        if a in home:
            out[home[a]] = None
        elif isinstance(a, Var) and a in made and a not in seen:
            seen.add(a)
            stack.extend(made[a].ins)
    return tuple(out)


def planned(jaxpr: Jaxpr, plan: Residuals) -> Jaxpr:
    """The program, its calls inlined, as one `remat` equation that stores what a plan says, and its operands.

    Raises: ArgumentError for a plan of another program, and for rows that are not those of its table.
    """
    if plan.jaxpr is not jaxpr:
        raise ArgumentError(
            f"remat: the plan is for another program: {plan.jaxpr!r}, this is {jaxpr!r}",
            remedy="make it with residuals(program) of this very program",
        )
    table, rows = residuals(jaxpr, plan.wrt).rows, tuple(plan.rows)
    remedy = "edit a table by without(...) and keep(...), which leave every row in its place"
    if len(rows) != len(table):
        raise ArgumentError(
            f"remat: the plan has {_rows(rows)}, residuals({jaxpr.name}) gives {len(table)}",
            remedy=remedy,
        )
    for k, (row, own) in enumerate(zip(rows, table, strict=True)):
        if row != own and (own.is_argument or row != replace(own, stored=False)):
            raise ArgumentError(
                f"remat: row {k} of the plan is {_brief(row)}, that of residuals({jaxpr.name}) is {_brief(own)}",
                remedy=remedy,
            )
    return _planned(jaxpr, frozenset([v for r in rows if r.stored for v in r.values]))


def _rows(rows: Sequence[object]) -> str:
    return f"{len(rows)} row{'s' * (len(rows) != 1)}"


def _brief(row: object) -> str:
    """A row of a plan, which may be anything."""
    if not isinstance(row, Residual):
        return f"{described(row)}: {row!r:.60}"
    where = f" ({line})" if (line := _line(row)) else ""
    return f"{row.made_by} {row.aval}{where}{'' if row.stored else ', computed again'}"


@by_value
def _planned(jaxpr: Jaxpr, chosen: frozenset[Var]) -> Jaxpr:
    """The program, its calls inlined, as one `remat` equation that stores the chosen values, and its operands."""
    body = inline(jaxpr)

    def rule(b: Builder, eqn: Eqn, ins: tuple[Atom, ...]) -> Sequence[Atom]:
        pairs = zip(eqn.outs, b.copy(eqn, ins), strict=True)
        return [b.one(Keep("plan"), w) if v in chosen else w for v, w in pairs]

    marked = rewrite(body, rule)
    b = Builder.like(jaxpr)
    return b.build(b(Remat(marked), *jaxpr.ins), f"remat_{jaxpr.name}")
