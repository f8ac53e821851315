"""Explains a cache miss: the most similar program in the cache, and the first difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias, final, runtime_checkable

from fxad import core
from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.passes import plan_of
from fxad.xla.client import Device
from fxad.xla.options import CompileOptions

if TYPE_CHECKING:
    from fxad.core.diff import Difference

CompileTarget: TypeAlias = tuple[CompileOptions, Device]
CacheKey: TypeAlias = tuple[Jaxpr, CompileTarget]


@runtime_checkable
class HasJaxpr(Protocol):
    """The interface of `fxad.Program`, which this layer must not import."""

    @property
    def jaxpr(self) -> Jaxpr:
        """The program."""


def to_jaxpr(value: object) -> Jaxpr:
    """Return the program of a `Program`, or itself. Raises: ArgumentError."""
    if isinstance(value, Jaxpr):
        return value
    if isinstance(value, HasJaxpr) and isinstance(value.jaxpr, Jaxpr):
        return value.jaxpr
    raise ArgumentError(
        f"cache.explain: {described(value)} is not a program: {shown(value)}", remedy="trace the function first"
    )


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of the cache for a program: if it is held, the most similar other entry, and their first difference.

    `nearest` is the same program if only the options or the device differ. A program that runs as units is held if all
    its units are. Otherwise, `program` is its largest unit that is not held.
    """

    program: Jaxpr
    held: bool
    nearest: Jaxpr | None
    difference: Difference | None

    def __str__(self) -> str:
        lines = [f"{self.program!r}: {'held' if self.held else 'not held'}"]
        if self.nearest is not None:
            lines += [f"  nearest       {self.nearest!r}", f"  differs at    {self.difference}"]
            if self.difference is not None and self.difference.where:
                lines.append(f"  traced at     {self.difference.where}")
        return "\n".join(lines)


def explain_miss_of_units(key: CacheKey, held: Sequence[CacheKey]) -> Explanation:
    """Return the explanation of a program, or of its largest missing unit. The program may be held as a whole or as
    units."""
    explanation = explain_miss(key, held)
    jaxpr, (options, device) = key
    plan = plan_of(jaxpr, "auto", options.donate)
    if explanation.held or explanation.nearest is jaxpr or len(plan.steps) == 1:
        return explanation
    for unit in sorted(plan.units, key=lambda u: -u.equations):
        part = explain_miss((unit.body, (replace(options, donate=unit.donate), device)), held)
        if not part.held:
            return part
    return Explanation(jaxpr, True, None, None)


def explain_miss(key: CacheKey, held: Sequence[CacheKey]) -> Explanation:
    """Return the explanation of a program, given the held ones, most recently used first.

    The nearest is the program itself for another target, else the one that shares the most equations with it.
    """
    jaxpr, target = key
    others = [other for other in held if other != key]
    is_held = len(others) != len(held)
    same = next((other for program, other in others if program is jaxpr), None)
    if same is not None:
        return Explanation(jaxpr, is_held, jaxpr, _target_difference(target, same))
    if not others:
        return Explanation(jaxpr, is_held, None, None)
    features = _features(jaxpr)
    nearest = max(dict.fromkeys([program for program, _ in others]), key=lambda other: _similarity(features, other))
    return Explanation(jaxpr, is_held, nearest, core.diff.diff(jaxpr, nearest))


def _target_difference(a: CompileTarget, b: CompileTarget) -> Difference:
    for f in fields(CompileOptions):
        left, right = (getattr(options, f.name) for options, _ in (a, b))
        if repr(left) != repr(right):  # flags of 1 and True are two
            return core.diff.Difference(("options", f.name), repr(left), repr(right))
    return core.diff.Difference(("device",), str(a[1]), str(b[1]))


def _similarity(features: Mapping[Hashable, int], other: Jaxpr) -> float:
    """Return the similarity of two programs: 1 if equal, 0 if they share nothing."""
    others = _features(other)
    shared = sum([min(n, others.get(what, 0)) for what, n in features.items()])
    return 2 * shared / (sum(features.values()) + sum(others.values()))


@by_value
def _features(jaxpr: Jaxpr) -> Mapping[Hashable, int]:
    """Return features of a program for the similarity: its types, and counts of operations and of operations with
    types."""
    counts: Counter[Hashable] = Counter([jaxpr.in_avals, jaxpr.out_avals])
    for body in distinct_jaxprs(jaxpr):
        for eqn in body.eqns:
            avals = tuple([x.aval for x in eqn.ins])
            counts[eqn.prim.name] += 1
            counts[eqn.prim, avals] += 1
    return MappingProxyType(dict(counts))
