"""The plan of a linked run: units, the steps that call them, and the liveness of each value. Frozen and printable.

Values are stored in slots, numbered in order: the operands of the program, constants, the results of every step. A step
frees the slots that no later step reads. If an operand of a unit dies at every use of the unit, the unit reuses its
memory for results. So a unit has one signature, and is compiled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from operator import add
from typing import Literal, TypeAlias, final

from fxad import units
from fxad.core.dataclasses import dataclass
from fxad.ir import Atoms, Aval, Jaxpr, Lit, Source, source_text
from fxad.lower import aliases
from fxad.primitives.control.shard_map import runs_on_devices
from fxad.support.tables import ROWS, Shown, Table, headed
from fxad.transforms.costs import weight_of_nested
from fxad.units.cost_rule import check_steps
from fxad.units.min_cut_recompute import recompute_operands
from fxad.units.pieces import Piece, Pieces, partition

# "auto": the cost rule selects; "none": the program is one unit; a tuple: calls of these bodies are units.
UnitsChoice: TypeAlias = Literal["auto", "none"] | tuple[Jaxpr, ...]


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """A body that is compiled once, and the operands that its results may overwrite."""

    body: Jaxpr
    donate: tuple[int, ...]
    uses: int
    remainder: bool  # True for equations between calls of the chosen bodies, False for such a body

    @property
    def equations(self) -> int:
        """The cost of compilation: the number of equations that XLA gets."""
        return weight_of_nested(self.body).equations


@final
@dataclass(frozen=True, slots=True)
class UnitCall:
    """A call of a unit. It reads the slots `ins`, writes its results to the next slots, and then frees `frees`."""

    unit: int
    ins: tuple[int, ...]
    frees: tuple[int, ...]
    live_bytes: int  # of all live slots while it runs, with its results
    source: Source = field(default=None, compare=False, repr=False)


@final
@dataclass(frozen=True, slots=True)
class UnitPlan(Shown):
    """The units and steps of a program. `str(plan)` is a table.

    `slots` are the types of all values: operands, constants, results of steps. `outs` are the slots of the results.
    """

    units: tuple[Unit, ...]
    steps: tuple[UnitCall, ...]
    slots: tuple[Aval, ...]
    outs: tuple[int, ...]
    constants: tuple[Lit, ...]
    donate: tuple[int, ...]  # operands that may be overwritten
    name: str = field(compare=False)

    @property
    def equations(self) -> int:
        """The cost of compilation: the number of equations that XLA gets."""
        return sum([u.equations for u in self.units])

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Types of the operands."""
        computed = sum([len(self.units[s.unit].body.outs) for s in self.steps])
        return self.slots[: len(self.slots) - computed - len(self.constants)]

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """Types of the results."""
        return tuple([self.slots[k] for k in self.outs])

    @property
    def peak_bytes(self) -> int:
        """The maximum of the live bytes of the steps, without temporaries of the units. Donated memory counts twice,
        but not in `bytes_held`."""
        return max([s.live_bytes for s in self.steps])

    @property
    def bytes_held(self) -> tuple[int, ...]:
        """Bytes in memory while each step runs, without temporaries of its unit. Donated memory counts once."""
        reused = [sum([u.body.ins[k].aval.nbytes for k in u.donate]) for u in self.units]
        return tuple([s.live_bytes - reused[s.unit] for s in self.steps])

    def donated_at(self, step: UnitCall) -> tuple[int, ...]:
        """Donated operands of the program that die at a step, and whose memory its results do not reuse."""
        reused = {step.ins[k] for k in self.units[step.unit].donate}
        return tuple([k for k in step.frees if k in self.donate and k not in reused])

    def table(self, *, places: bool = True) -> str:
        """Return units and steps as text; `places` adds the user's line to each step."""
        return "\n".join([self._head, *[table.text() for table in self._tables(places)]])

    def __str__(self) -> str:
        return self.table()

    def svg(self) -> str:
        """Return a picture as SVG: a bar for each step, as high as the bytes that are live while it runs."""
        named = [(u.body.name, u.equations, u.uses) for u in self.units]
        return units.picture.picture(named, [(s.unit, s.live_bytes) for s in self.steps])

    def _repr_html_(self) -> str:
        head, tables = self._shown()
        drawn = [self.svg()] if 1 < len(self.steps) <= ROWS else []
        return headed(head, *drawn, *[table.html() for table in tables])

    def _shown(self) -> tuple[str, Sequence[Table]]:
        return self._head, self._tables(True)

    @property
    def summary(self) -> str:
        """The numbers of units, of steps and of equations, in a line."""
        runs = sum([u.uses * u.equations for u in self.units])
        sizes = f"{len(self.units)} units, {len(self.steps)} steps"
        return f"{self.name}: {sizes}; {self.equations} equations to compile, {runs} to run"

    @property
    def _head(self) -> str:
        if len(self.units) == 1 and runs_on_devices(self.units[0].body):
            return f"{self.summary}\none unit: a program on several devices is compiled whole"
        return self.summary

    def _tables(self, places: bool) -> tuple[Table, Table]:
        """Return the units, and the steps."""
        unit_rows = [
            (str(k), u.body.name, str(u.uses), str(u.equations), str(len(u.donate))) for k, u in enumerate(self.units)
        ]
        steps = []
        for k, s in enumerate(self.steps):
            unit_text = f"{s.unit} {self.units[s.unit].body.name}"
            line = source_text(s.source) if places else ""
            steps.append((str(k), unit_text, str(len(s.frees)), f"{s.live_bytes:,}", line))
        right = (0, 2, 3)  # numbers
        return (
            Table(("unit", "", "uses", "equations", "donated"), tuple(unit_rows), right),
            Table(("step", "unit", "frees", "live bytes", "at" if places else ""), tuple(steps), right),
        )


def single_unit(jaxpr: Jaxpr, donate: tuple[int, ...] = ()) -> UnitPlan:
    """Return the plan with the whole program as its only unit. The program may overwrite operands in `donate`."""
    n = len(jaxpr.ins)
    slots = (*jaxpr.in_avals, *jaxpr.out_avals)
    step = UnitCall(0, tuple(range(n)), (), sum([a.nbytes for a in slots]))
    return UnitPlan(
        (Unit(jaxpr, donate, 1, False),), (step,), slots, tuple(range(n, len(slots))), (), donate, jaxpr.name
    )


def linked_plan(jaxpr: Jaxpr, chosen: tuple[Jaxpr, ...], donate: tuple[int, ...], name: str) -> UnitPlan | None:
    """Return the plan that compiles the calls of the bodies `chosen` separately, for a program named `name`; None if it
    has one step only. Its units are these bodies, and the equations between their calls.

    It partitions the program into pieces, and recomputes cheap values if that stores fewer bytes between steps.

    Raises: ParameterError if the calls of these bodies exceed the maximum number of steps.
    """
    if not chosen:
        return None
    check_steps(jaxpr, chosen)
    pieces = partition(jaxpr, chosen, donate)
    if len(pieces.pieces) < 2:
        return None
    return _with_recompute(pieces, _plan_of_pieces(pieces, donate, name))


def _with_recompute(pieces: Pieces, plan: UnitPlan) -> UnitPlan:
    """Return the plan with cheap values recomputed if its peak is certainly lower, else `plan`. The comparison assumes
    that all recomputed values, and all values that a piece no longer returns, are in memory while the piece runs."""
    recomputing = recompute_operands(pieces, plan.donate)
    if recomputing is pieces:
        return plan
    # a piece whose results are all recomputed by their readers is left out
    pairs = [
        (old, new) for old, new in zip(pieces.pieces, recomputing.pieces, strict=True) if new.outs or new.body.effects
    ]
    other = _plan_of_pieces(replace(recomputing, pieces=tuple([new for _, new in pairs])), plan.donate, plan.name)
    # bytes of the values that a piece took or returned, and has inside now
    inside = [sum([a.aval.nbytes for a in {*old.ins, *old.outs} - {*new.ins, *new.outs}]) for old, new in pairs]
    return other if max(map(add, other.bytes_held, inside)) < max(plan.bytes_held) else plan


def _plan_of_pieces(pieces: Pieces, donate: tuple[int, ...], name: str) -> UnitPlan:
    """Convert pieces to units and steps over slots, with the liveness of each slot."""
    inputs: Atoms = (*pieces.ins, *pieces.constants)
    slots = [a.aval for a in inputs]
    slot = {a: k for k, a in enumerate(inputs)}
    reads: list[tuple[int, ...]] = []
    for p in pieces.pieces:
        reads.append(tuple([slot[a] for a in p.ins]))
        for a in p.outs:
            slot[a] = len(slots)
            slots.append(a.aval)
    outs = tuple([slot[a] for a in pieces.outs])
    kept_slots = {*outs, *[k for k in range(len(inputs)) if k not in donate]}
    frees = _slots_that_die(reads, [len(p.outs) for p in pieces.pieces], len(inputs), kept_slots)
    compiled = _units(pieces.pieces, reads, frees)
    numbers = {u.body: k for k, u in enumerate(compiled)}
    steps = []
    live, n = sum([a.aval.nbytes for a in inputs]), len(inputs)
    for p, ins, dead in zip(pieces.pieces, reads, frees, strict=True):
        live += sum([a.nbytes for a in slots[n : n + len(p.outs)]])
        n += len(p.outs)
        steps.append(UnitCall(numbers[p.body], ins, dead, live, p.source))
        live -= sum([slots[k].nbytes for k in dead])
    return UnitPlan(compiled, tuple(steps), tuple(slots), outs, pieces.constants, donate, name)


def _slots_that_die(
    reads: Sequence[tuple[int, ...]], results: Sequence[int], n_in: int, kept_slots: set[int]
) -> tuple[tuple[int, ...], ...]:
    """Liveness: the slots that die at each step. A slot dies after its last read, or where it is defined if no step
    reads it. `reads` are the slots that each step reads, `results` the numbers of its results."""
    last_step: dict[int, int] = {}
    n = n_in
    for k, (ins, count) in enumerate(zip(reads, results, strict=True)):
        last_step.update(dict.fromkeys(ins, k))
        last_step.update(dict.fromkeys(range(n, n + count), k))
        n += count
    last_step.update({k: 0 for k in range(n_in) if k not in last_step})  # donated operands that no step reads
    frees: list[list[int]] = [[] for _ in reads]
    for slot, k in sorted(last_step.items()):
        if slot not in kept_slots:
            frees[k].append(slot)
    return tuple(map(tuple, frees))


def _units(
    pieces: Sequence[Piece], reads: Sequence[tuple[int, ...]], frees: Sequence[tuple[int, ...]]
) -> tuple[Unit, ...]:
    uses: dict[Jaxpr, int] = {}
    remainder: dict[Jaxpr, bool] = {}
    dying: dict[Jaxpr, set[int]] = {}
    for p, ins, dead in zip(pieces, reads, frees, strict=True):
        uses[p.body] = uses.get(p.body, 0) + 1
        remainder[p.body] = remainder.get(p.body, True) and p.remainder
        freed = {*dead}
        dying_slots = {k for k, slot in enumerate(ins) if slot in freed and ins.count(slot) == 1}
        dying[p.body] = dying.get(p.body, dying_slots) & dying_slots
    reused = {b: tuple(aliases(b.in_avals, b.out_avals, sorted(dying[b]))) for b in uses}
    return tuple([Unit(b, reused[b], n, remainder[b]) for b, n in uses.items()])
