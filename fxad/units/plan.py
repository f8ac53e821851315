"""The plan of a linked run: units, the steps that call them, and when each value dies. A value: frozen, printable.

Values live in slots, numbered as they come: the operands of the program, constants, the results of every step. A step
frees the slots that nothing reads after it. A slot that dies at a step is given to the unit as memory for its results,
where every use of the unit allows it: so a unit has one signature, and is compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from math import inf
from operator import add
from typing import Literal, TypeAlias, final

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.ir import Atom, Aval, Jaxpr, Lit, Source, place
from fxad.lower import aliases
from fxad.transforms.inversion.second_order import as_run
from fxad.transforms.outlining.merge_bodies import reunited
from fxad.transforms.outlining.outline import WASTE, outline
from fxad.units.blocks import GROUPED, SAVES, check_steps, large_enough, pays, repeated
from fxad.units.pieces import Piece, Pieces, cut_up, flat, recomputes
from fxad.units.recompute import lightened
from fxad.units.schedule import sooner
from fxad.units.weight import weigh

# "auto": the cost rule; "none": the program is one unit; else the bodies whose calls are units.
Choice: TypeAlias = Literal["auto", "none"] | tuple[Jaxpr, ...]


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """What is compiled once: a body, and the operands whose memory its results may take over."""

    body: Jaxpr
    donate: tuple[int, ...]
    uses: int
    glue: bool

    @property
    def equations(self) -> int:
        """What compiling it costs: equations as XLA gets them."""
        return weigh(self.body).equations


@final
@dataclass(frozen=True, slots=True)
class Step:
    """A call of a unit: it reads the slots `ins`, its results are the next slots, and then `frees` are empty."""

    unit: int
    ins: tuple[int, ...]
    frees: tuple[int, ...]
    live_bytes: int  # of operands and slots while it runs, its results included
    source: Source = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """How a program is compiled and run. `str(plan)` is a table.

    `slots` are the types of all values: operands, constants, what steps make; `outs` the slots of the results.
    """

    units: tuple[Unit, ...]
    steps: tuple[Step, ...]
    slots: tuple[Aval, ...]
    outs: tuple[int, ...]
    constants: tuple[Lit, ...]
    donate: tuple[int, ...]  # operands that may be overwritten
    name: str = field(compare=False)

    @property
    def equations(self) -> int:
        """What compiling it costs: equations as XLA gets them."""
        return sum([u.equations for u in self.units])

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the operands."""
        made = sum([len(self.units[s.unit].body.outs) for s in self.steps])
        return self.slots[: len(self.slots) - made - len(self.constants)]

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """Types of the results."""
        return tuple([self.slots[k] for k in self.outs])

    @property
    def peak_bytes(self) -> int:
        """The most that lives at a step, beside what its unit needs to compute."""
        return max([s.live_bytes for s in self.steps])

    @property
    def held(self) -> tuple[int, ...]:
        """Bytes in memory while each step runs, beside what its unit needs; what is taken over counts once."""
        taken = [sum([u.body.ins[k].aval.nbytes for k in u.donate]) for u in self.units]
        return tuple([s.live_bytes - taken[s.unit] for s in self.steps])

    def given_up(self, step: Step) -> tuple[int, ...]:
        """Operands of the program that die at a step, and whose memory no result of it takes over."""
        taken = {step.ins[k] for k in self.units[step.unit].donate}
        return tuple([k for k in step.frees if k in self.donate and k not in taken])

    def table(self, *, places: bool = True) -> str:
        """Units and steps as text; `places` adds the user's line to each step."""
        runs = sum([u.uses * u.equations for u in self.units])
        head = f"{self.name}: {len(self.units)} units, {len(self.steps)} steps; "
        head += f"{self.equations} equations to compile, {runs} to run\n"
        rows = [("unit", "", "uses", "equations", "donated")]
        for k, u in enumerate(self.units):
            rows.append((str(k), u.body.name, str(u.uses), str(u.equations), str(len(u.donate))))
        steps = [("step", "unit", "frees", "live bytes", "at" if places else "")]
        for k, s in enumerate(self.steps):
            what = f"{s.unit} {self.units[s.unit].body.name}"
            at = str(place(s.source) or "") if places else ""
            steps.append((str(k), what, str(len(s.frees)), f"{s.live_bytes:,}", at))
        return f"{head}{_columns(rows)}\n{_columns(steps)}"

    def __str__(self) -> str:
        return self.table()


def _columns(rows: Sequence[tuple[str, str, str, str, str]]) -> str:
    """Columns: a number, a name to the left, numbers to the right."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    a, b, c, d, e = wide
    lines = [f"{r[0]:>{a}}  {r[1]:<{b}}  {r[2]:>{c}}  {r[3]:>{d}}  {r[4]:<{e}}".rstrip() for r in rows]
    return "\n".join(lines)


def plan_of(jaxpr: Jaxpr, choice: Choice, donate: tuple[int, ...] = ()) -> Plan:
    """The plan of a program. Operands in `donate` are the program's to overwrite.

    Law: a pure function of the program's value; "auto" gives a single unit where the rule of `fxad.units.blocks` says
         that more do not pay.
    """
    # not remembered where the unit is the program itself, which a plan on it would keep alive
    return (None if choice == "none" else _linked(jaxpr, choice, donate)) or single(jaxpr, donate)


def single(jaxpr: Jaxpr, donate: tuple[int, ...] = ()) -> Plan:
    """The plan with the whole program as its only unit."""
    n = len(jaxpr.ins)
    slots = (*jaxpr.in_avals, *jaxpr.out_avals)
    step = Step(0, tuple(range(n)), (), sum([a.nbytes for a in slots]))
    return Plan((Unit(jaxpr, donate, 1, False),), (step,), slots, tuple(range(n, len(slots))), (), donate, jaxpr.name)


@by_value
def _linked(jaxpr: Jaxpr, choice: Choice, donate: tuple[int, ...]) -> Plan | None:
    """The plan with several steps, or None where there is one only."""
    jaxpr = as_run(jaxpr) if isinstance(choice, str) else jaxpr
    saves = -inf if donate or recomputes(jaxpr) else SAVES
    if isinstance(choice, str) and not large_enough(jaxpr, saves):
        return None
    # before calls that are reached once are written out: the first layer's may be nearly those of the others
    whole = outline(flat(reunited(jaxpr, WASTE)), GROUPED, WASTE) if isinstance(choice, str) else jaxpr
    units = repeated(whole) if isinstance(choice, str) else choice
    if not units:
        return None
    check_steps(whole, units)
    pieces = cut_up(whole, units, donate)
    if len(pieces.pieces) < 2:
        return None
    plan = _planned(pieces, donate, jaxpr.name)
    early = sooner(pieces, donate)
    other = plan if early is pieces else _planned(early, donate, jaxpr.name)
    plan = _lighter(early, other) if other.peak_bytes < plan.peak_bytes else _lighter(pieces, plan)
    # last, as units that hand over less have fewer kernels
    return plan if not isinstance(choice, str) or pays([u.body for u in plan.units], jaxpr, saves) else None


def _lighter(pieces: Pieces, plan: Plan) -> Plan:
    """The plan of the pieces, or of those with less that waits between them where its peak is lower for certain: also
    if all that they make again, or make and do not hand over, is in memory while they run."""
    new = lightened(pieces, plan.donate)
    if new is pieces:
        return plan
    pairs = [(a, b) for a, b in zip(pieces.pieces, new.pieces, strict=True) if b.outs or b.body.effects]
    lighter = _planned(replace(new, pieces=tuple([b for _, b in pairs])), plan.donate, plan.name)
    spared = [sum([a.aval.nbytes for a in {*a.ins, *a.outs} - {*b.ins, *b.outs}]) for a, b in pairs]
    return lighter if max(map(add, lighter.held, spared)) < max(plan.held) else plan


def _planned(pieces: Pieces, donate: tuple[int, ...], name: str) -> Plan:
    given: tuple[Atom, ...] = (*pieces.ins, *pieces.constants)
    slots = [a.aval for a in given]
    slot = {a: k for k, a in enumerate(given)}
    reads: list[tuple[int, ...]] = []
    for p in pieces.pieces:
        reads.append(tuple([slot[a] for a in p.ins]))
        for a in p.outs:
            slot[a] = len(slots)
            slots.append(a.aval)
    outs = tuple([slot[a] for a in pieces.outs])
    kept = {*outs, *[k for k in range(len(given)) if k not in donate]}
    frees = _frees(reads, [len(p.outs) for p in pieces.pieces], len(given), kept)
    units = _units(pieces.pieces, reads, frees)
    numbers = {u.body: k for k, u in enumerate(units)}
    steps = []
    live, n = sum([a.aval.nbytes for a in given]), len(given)
    for p, ins, dead in zip(pieces.pieces, reads, frees, strict=True):
        live += sum([a.nbytes for a in slots[n : n + len(p.outs)]])
        n += len(p.outs)
        steps.append(Step(numbers[p.body], ins, dead, live, p.source))
        live -= sum([slots[k].nbytes for k in dead])
    return Plan(units, tuple(steps), tuple(slots), outs, pieces.constants, donate, name)


def _frees(
    reads: Sequence[tuple[int, ...]], made: Sequence[int], n_in: int, kept: set[int]
) -> tuple[tuple[int, ...], ...]:
    """The slots that die at each step: after the last that reads them, or where they are made when none does."""
    last: dict[int, int] = {}
    n = n_in
    for k, (ins, count) in enumerate(zip(reads, made, strict=True)):
        last.update(dict.fromkeys(ins, k))
        last.update(dict.fromkeys(range(n, n + count), k))
        n += count
    last.update({k: 0 for k in range(n_in) if k not in last})  # a donated operand that nothing reads
    frees: list[list[int]] = [[] for _ in reads]
    for slot, k in sorted(last.items()):
        if slot not in kept:
            frees[k].append(slot)
    return tuple(map(tuple, frees))


def _units(
    pieces: Sequence[Piece], reads: Sequence[tuple[int, ...]], frees: Sequence[tuple[int, ...]]
) -> tuple[Unit, ...]:
    uses: dict[Jaxpr, int] = {}
    glue: dict[Jaxpr, bool] = {}
    dying: dict[Jaxpr, set[int]] = {}
    for p, ins, dead in zip(pieces, reads, frees, strict=True):
        uses[p.body] = uses.get(p.body, 0) + 1
        glue[p.body] = glue.get(p.body, True) and p.glue
        gone = {*dead}
        here = {k for k, slot in enumerate(ins) if slot in gone and ins.count(slot) == 1}
        dying[p.body] = dying.get(p.body, here) & here
    return tuple([Unit(b, _taken_over(b, dying[b]), n, glue[b]) for b, n in uses.items()])


def _taken_over(body: Jaxpr, dying: Iterable[int]) -> tuple[int, ...]:
    """The operands among `dying` whose memory a result takes over."""
    return tuple(aliases(body.in_avals, body.out_avals, sorted(dying)))
