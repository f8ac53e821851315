"""Sweeps over programs that are drawn, without compilations:

    python -m tests.equal.sweep --kind drawn --programs 100000 --seed 0
    python -m tests.equal.sweep --kind twins --programs 1000000 --seed 0 --processes 2
    python -m tests.equal.sweep --kind searched --programs 20000 --seed 0
    python -m tests.equal.sweep --kind mutants --programs 2000 --seed 0

drawn:    programs of `fxad.testing.cases`: how many are decided. The laws of the transformations take turns.
twins:    pairs that are equal by construction. None may be found different.
searched: the same pairs, searched for a difference in float64 as if the fields had decided none.
mutants:  twins with one planted fault. None may be proved equal, if floats show the fault.

Normal forms are left out: they would be a proof at once for most pairs. The log has a line for each portion, and every
false alarm and wrong proof with the seed that repeats it. The exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias
from unittest import mock

import numpy as np
from hypothesis import given, seed
from hypothesis.strategies import SearchStrategy

from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.diagnosis.equality import decide as deciding
from fxad.diagnosis.equality.decide import decide
from fxad.diagnosis.equality.verdict import Counterexample, Proof, Question, Unknown, Verdict
from fxad.errors import SizeError
from fxad.ir import Jaxpr, Lit
from fxad.primitives.slicing import Pad, Slice
from fxad.testing import EQUAL_PAIRS, Case, RaggedCase, cases, ragged_cases
from fxad.testing.compare import differ
from fxad.testing.equality_laws import verdict
from fxad.testing.equality_pairs import ProgramPair, rewrites_by
from fxad.testing.mask_laws import raise_unless_refused
from fxad.testing.ragged_cases import masked_operands
from fxad.testing.transform_laws import as_one_call
from fxad.transforms import outline, reroll
from fxad.transforms.mask.mask import mask
from fxad.transforms.specialize import specialize
from tests.equal.mutants import mutants
from tests.equal.twins import twins
from tests.laws.budget import sweep_of

Counts: TypeAlias = Mapping[str, int]


def padded(case: RaggedCase) -> Iterator[ProgramPair]:
    """A masked program of padded operands, and the program at the sizes, of their valid parts: equal whatever the
    padding holds. The padding of results is zero."""
    try:
        masked = mask(case.program, case.own)
    except SizeError as e:
        raise_unless_refused(e)
        return
    args = case.operands(case.program.in_avals)
    given = masked_operands(case, args, masked)
    fixed = specialize(case.program, tuple(sorted(case.sizes.items())))
    n = len(args)
    left, right = Builder(), Builder()
    avals = [a.with_shape(np.shape(x)) for a, x in zip(masked.in_avals[:n], given, strict=False)]
    sizes = [Lit.of(x, a) for a, x in zip(masked.in_avals[n:], given[n:], strict=True)]
    ours = right.inline(masked, (*right.inputs(avals), *sizes))
    valid = [
        left.one(Slice((0,) * v.aval.ndim, v.aval.shape, (1,) * v.aval.ndim), x)
        for v, x in zip(fixed.ins, left.inputs(avals), strict=True)
    ]
    theirs = []
    for y, aval in zip(left.inline(fixed, valid), masked.out_avals, strict=True):
        zero, k = (0,) * aval.ndim, zip(aval.shape, y.aval.shape, strict=True)
        theirs.append(left.one(Pad(zero, tuple([a - b for a, b in k]), zero), y, Lit.of(0, aval.with_shape(()))))
    yield (
        left.build(theirs, "unpadded"),
        right.build(ours, "masked"),
        [None if a.inexact else x for a, x in zip(avals, given, strict=False)],
    )


REWRITES: Final = rewrites_by(outline, reroll, as_one_call)
DIFFERENTIABLE: Final = frozenset({"gradients", "transposes", "tangents", "differences"})
LAWS: Final = (*EQUAL_PAIRS, "other rewrites", "padded")


def judge(law: str, programs: int, start: int = 0, size: int = 10) -> Counts:
    """Decide all pairs of a law for drawn programs, without normal forms. Returns the number of programs whose pairs
    are all proved, and of others by what is not decided. A counterexample is an error."""
    counts = Counter[str]()

    def count(pairs: Iterator[ProgramPair]) -> None:
        verdicts = [verdict(*pair) for pair in pairs]
        undecided = [found for found in verdicts if not isinstance(found, Proof)]
        if verdicts:
            counts[str(undecided[0]) if undecided else Proof.__name__] += 1

    drawn: SearchStrategy[Case | RaggedCase]
    drawn = ragged_cases() if law == "padded" else cases(differentiable=law in DIFFERENTIABLE, size=size)

    @seed(start)
    @sweep_of(programs)
    @given(drawn)
    def sweep(case: Case | RaggedCase) -> None:
        if isinstance(case, RaggedCase):
            count(padded(case))
        else:
            count(EQUAL_PAIRS.get(law, REWRITES)(case))

    with mock.patch.object(deciding, "bitwise_normal_form", lambda jaxpr: jaxpr):
        sweep()
    return MappingProxyType(counts)


# ------------------------------------------------------------------------------------------- portions of the sweeps


def drawn_portion(portion: int, programs: int) -> Counts:
    """Count decided programs; a counterexample is shown."""
    law = LAWS[portion % len(LAWS)]
    try:
        counts = judge(law, programs, portion, size=6)
    except AssertionError as e:
        return {f"false alarm: {law}, portion {portion}\n{e}": 1}
    decided, every = counts.get(Proof.__name__, 0), sum(counts.values())
    return {"programs": every, "decided": decided, f"{law}: not decided": every - decided}


def twins_portion(portion: int, programs: int) -> Counts:
    """Count verdicts of pairs that are equal by construction; a counterexample is shown."""
    counts = Counter[str]()
    for k in range(portion * programs, (portion + 1) * programs):
        a, b, hard = twins(k)
        if a is b:
            counts["identical, not counted"] += 1
            continue
        found = _decided(a, b)
        counts["pairs"] += 1
        counts[type(found).__name__ + " beyond the fields" * hard] += 1
        if isinstance(found, Counterexample):
            counts[f"false alarm: seed {k}: {found}\n{a}\n{b}"] += 1
    return counts


def searched_portion(portion: int, programs: int) -> Counts:
    """Count verdicts of twins as if the fields decided none: only the search calls equal programs different, and of the
    twins it sees one in fifty."""
    with mock.patch.object(deciding, "_same_expressions", return_value=Unknown("", "not asked")):
        return twins_portion(portion, programs)


def mutants_portion(portion: int, programs: int) -> Counts:
    """Count verdicts of pairs with a planted fault that floats show; a proof is shown."""
    counts = Counter[str]()
    for k in range(portion * programs, (portion + 1) * programs):
        a, b, _ = twins(k)
        planted = mutants(b)
        if not planted or not isinstance(_decided(a, b), Proof):  # a quotient by zero, such as x / (y - y)
            continue
        what, changed = planted[k % len(planted)]
        found = _decided(a, changed)
        source = np.random.default_rng(k)
        args = [np.asarray(source.uniform(0.5, 2.0, v.aval.shape) * 4).astype(v.aval.dtype) for v in a.ins]
        with np.errstate(all="ignore"):  # beside the program of the fault: twins round differently
            have, want = run(changed, args), run(b, args)
        finite = all([np.isfinite(y).all() for y in have if y.dtype.kind in "fc"])
        shown = differ(have, want, slack=1e-3) if finite else ""  # of a nan that is made, equality says nothing
        counts["faults that floats show" if shown else "faults that floats do not show"] += 1
        counts[type(found).__name__ + " of what floats show" * bool(shown)] += 1
        if isinstance(found, Proof) and shown:
            counts[f"wrong proof: seed {k}: {what}: {shown}\n{a}\n{changed}"] += 1
        elif isinstance(found, Unknown) and shown:
            counts[f"missed: seed {k}: {what}"] += 1
    return counts


def _decided(a: Jaxpr, b: Jaxpr) -> Verdict:
    with mock.patch.object(deciding, "bitwise_normal_form", lambda jaxpr: jaxpr):
        return decide(Question((a, b), ((), ()), [None] * len(a.ins)))


PORTIONS: Final[Mapping[str, Callable[[int, int], Counts]]] = MappingProxyType(
    {"drawn": drawn_portion, "twins": twins_portion, "searched": searched_portion, "mutants": mutants_portion}
)


def _portion(kind: str, programs: int, portion: int) -> Counts:
    return PORTIONS[kind](portion, programs)


def main() -> int:
    """Run a sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=PORTIONS, default="drawn")
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first portion")
    parser.add_argument("--portion", type=int, default=200, help="programs at a time")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    portions = range(options.seed, options.seed + -(-options.programs // options.portion))
    one, start, total = partial(_portion, options.kind, options.portion), time.monotonic(), Counter[str]()
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=50) as pool:
        for k, counts in enumerate(pool.imap(one, portions), 1):
            faults = [text for text in counts if text.startswith(("false alarm", "wrong proof", "missed"))]
            total.update({text.split(":")[0] if text in faults else text: n for text, n in counts.items()})
            figures = ", ".join([f"{n} {text}" for text, n in sorted(total.items())])
            lines = [*faults, f"portion {portions[k - 1]}, {time.monotonic() - start:.0f} s: {figures}"]
            print(*lines, sep="\n", flush=True)  # noqa: T201 -- the log
    return int(total["false alarm"] + total["wrong proof"] > 0)


if __name__ == "__main__":
    sys.exit(main())
