"""A call of a function with rules, in a trace: the function and its rules are traced, and become one equation.

A rule that calls its own function, with arguments of the same types, does not have it traced again: the call is a
reference to the equation whose rule it is in (`again` of `custom_call`), so derivatives go on to any order. With other
types, or other values of `nondiff_argnums`, it is another function, whose rules are traced in turn; and those of that
one: as deep as derivatives are taken around the call, and at least `DEPTH`. What is made for a call in a rule is kept for
other such calls until the outermost function is traced: decision 47.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, count
from operator import is_
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, final

import numpy as np

from fxad import tree
from fxad.api.custom_inverses import GivenInverse, InverseBodies, inverse_bodies, inverse_rule
from fxad.api.custom_rules import (
    RuleError,
    Signature,
    TracedRule,
    check_takes,
    cotangent_rule,
    split_cotangent_rule,
    split_tangent_rule,
    stacked_rule,
    static_arguments,
    tangent_rule,
    traced,
)
from fxad.core.dataclasses import dataclass
from fxad.core.frames import Scoped
from fxad.errors import ArgumentError
from fxad.ir import Aval, Jaxpr
from fxad.lax.control.bodies import Body, common_operands
from fxad.primitives.custom import CustomCall
from fxad.tracing.array import Array, aval_of
from fxad.tracing.context import (
    Surroundings,
    Watch,
    ask,
    ask_orders,
    ask_sizes,
    inside_rule,
    place_on_tape,
    skip,
    surroundings,
    told,
    traced_again,
    watching,
)
from fxad.tracing.program import argument_path, function_name
from fxad.tracing.tracer import Tracer, bind
from fxad.tree import Structure

Rule: TypeAlias = Callable[..., Any]
Key: TypeAlias = tuple[str, int | tuple[bool, ...]]
Q = ParamSpec("Q")
T = TypeVar("T")
DEPTH: Final = 3
_RETRACED: Final = 8  # times that a rule is traced to find out what it closes over


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """What a user gave for a function, by the transformation that it is for."""

    jvp: Rule | None = None
    vjp: tuple[Rule, Rule] | None = None
    vmap: tuple[Rule, tuple[int, ...] | None] | None = None  # and the sizes that it is for; None: any
    inverse: GivenInverse | None = None
    zeros: frozenset[str] = frozenset()  # of "jvp" and "vjp", which are told what vanishes

    @property
    def names(self) -> tuple[str, ...]:
        """Of "jvp", "vjp", "vmap", and "inverse" or "ivjp"."""
        back = "ivjp" if self.inverse and self.inverse.fused else "inverse"
        found = (("jvp", self.jvp), ("vjp", self.vjp), ("vmap", self.vmap), (back, self.inverse))
        return tuple([name for name, rule in found if rule])


@final
class _Open:
    """A function whose rules are being traced: a call of it in there is a reference to it.

    `operands` are what it is taken to close over, `body` is the function over them and its arguments.
    """

    __slots__ = ("body", "call", "closed", "met", "operands")

    def __init__(self, call: Call, body: Body, closed: bool = False) -> None:
        self.call = call
        self.body = body.jaxpr
        self.operands = body.captured
        self.closed = closed  # it is not referred to: its rules are traced again instead
        self.met = False


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """An equation that was made for a call in a rule, for other such calls of the function.

    `stack`: the functions whose rules were being traced around; `reach`: the number of those that it does not depend
    on, from the outside in. `asked` and `made` say what a trace around has to know of it.
    """

    call: Call
    prim: CustomCall
    operands: tuple[object, ...]
    around: Surroundings
    stack: tuple[_Open, ...]
    reach: int
    asked: bool
    made: tuple[int, int]

    def serves(self, call: Call, stack: tuple[_Open, ...]) -> bool:
        """Returns True if another call would become the same equation."""
        depends = self.reach < len(self.stack)
        same = not depends or (len(stack) == len(self.stack) and all(map(is_, stack, self.stack)))
        return same and self.around == surroundings() and self.call.same(call) and all(map(_reachable, self.operands))


@final
class _Reach:
    """The outermost of the functions around that something depends on, while it is traced."""

    __slots__ = ("lowest",)

    def __init__(self) -> None:
        self.lowest = sys.maxsize


# Functions whose rules are being traced, the outermost first; what depends on them; and what was made in the rules.
_open: Final[Scoped[tuple[_Open, ...]]] = Scoped("fxad_open_rules", ())
_reaches: Final[Scoped[tuple[_Reach, ...]]] = Scoped("fxad_reaches_of_rules", ())
_kept: Final[Scoped[list[_Kept] | None]] = Scoped("fxad_kept_rules", None)


def _depend_on(level: int) -> None:
    """Records that the running trace depends on the enclosing function number `level`."""
    for reach in _reaches.get():
        reach.lowest = min(reach.lowest, level)


def _reachable(operand: object) -> bool:
    """Returns True if a value captured in another rule is valid here. A tracer made in a rule is not."""
    return not isinstance(operand, Tracer) or operand.reachable


@final
class Call:
    """One call of a function with rules, in a trace. `owner` is what a user calls, `fun` the function in it."""

    def __init__(
        self, owner: object, fun: Callable[..., Any], places: Sequence[int], rules: Rules, args: tuple[object, ...]
    ) -> None:
        self.owner = owner
        self.fun = fun
        self.rules = rules
        self.args = args
        self.name = function_name(fun)
        self.static = static_arguments(self.name, places, len(args))
        dynamic = tuple([a for k, a in enumerate(args) if k not in self.static])
        self.leaves, self.in_tree = tree.flatten(dynamic)
        self.paths = self._paths()
        self.avals = tuple([_type(x, f"{self.name}: {p}") for x, p in zip(self.leaves, self.paths, strict=True)])
        self.kept: tuple[bool, ...] = ()

    def _names(self) -> list[str]:
        """What the arguments are called."""
        try:
            names = list(inspect.signature(self.fun).parameters)
        except (TypeError, ValueError):
            names = []
        return [names[k] if k < len(names) else f"args[{k}]" for k in range(len(self.args))]

    def _paths(self) -> tuple[str, ...]:
        known = tuple([name for k, name in enumerate(self._names()) if k not in self.static])
        return tuple([argument_path(a, known) for a in _as_call(self.in_tree).accessors()])

    def whole(self, dynamic: Sequence[object]) -> list[object]:
        """All arguments, given those that are not in `nondiff_argnums`."""
        given = iter(dynamic)
        return [a if k in self.static else next(given) for k, a in enumerate(self.args)]

    def run(self) -> object:
        """Bind the equation; the results, as the function gives them."""
        around = _open.get()
        for level, function in enumerate(reversed(around)):
            if not function.closed and function.call.same(self):
                function.met = True
                _depend_on(len(around) - 1 - level)
                inside_rule()
                n = len(function.operands)
                prim = CustomCall(function.body, n, (), (), (), again=level)
                outs = bind(prim, *function.operands, *self.leaves)
                return tree.unflatten(function.call.signature.out_tree, outs)
        kept = next((k for k in _kept.get() or () if k.serves(self, around)), None)
        if kept is None:
            kept = self._made_once(around)
        else:
            _depend_on(kept.reach)
            if kept.asked:
                ask()
            if kept.reach < len(around):
                inside_rule()
            skip(*kept.made)
        outs = bind(kept.prim, *kept.operands, *self.leaves)
        return tree.unflatten(kept.call.signature.out_tree, outs)

    def _made_once(self, around: tuple[_Open, ...]) -> _Kept:
        """The equation, traced; kept for other calls in the rules that are being traced."""
        reach, watch, outer = _Reach(), Watch(), _kept.get()
        found = [] if outer is None else outer  # kept until the outermost function is traced
        with _reaches((*_reaches.get(), reach)), _kept(found), watching(watch):
            start = place_on_tape()
            body = self._traced()
            same = [k for k, function in enumerate(around) if _code(function.call.fun) is _code(self.fun)]
            if same:
                _depend_on(same[0])
                inside_rule()
            if len(same) >= DEPTH and len(same) >= ask_orders():
                prim, operands = self._exhausted(body), body.captured
            else:
                prim, operands = self._equation(body)
            lowest = min(reach.lowest, len(around))
            kept = _Kept(self, prim, operands, surroundings(), around, lowest, watch.asked, (start, place_on_tape()))
        told(watch)
        found.append(kept)
        return kept

    def _exhausted(self, body: Body) -> CustomCall:
        """The function in the rule of a rule, as deep as such are traced: no further derivative is known."""
        n = len(body.captured)
        message = (
            f"the rule of {body.jaxpr.name} calls functions with rules that are others in each derivative, and those of "
            "this order were not traced"
        )
        remedy = "differentiate the function, not a program of it: it is traced as deep as derivatives are taken"
        moving = (*[False] * n, *[a.inexact for a in self.avals])
        given = not {"jvp", "vjp", "ivjp"}.isdisjoint(self.rules.names)
        return CustomCall(body.jaxpr, n, (), (), (), (("jvp", moving, message, remedy),) if given else ())

    def same(self, other: Call) -> bool:
        """Whether another call is one of the same function on arguments of the same types."""
        if self.owner is not other.owner or self.avals != other.avals or self.in_tree != other.in_tree:
            return False
        return self.static == other.static and all([_alike(self.args[k], other.args[k]) for k in self.static])

    def _traced(self) -> Body:
        """The function itself, which says what its rules have to fit."""
        out_tree: Structure | None = None

        def flat(*leaves: object) -> object:
            nonlocal out_tree
            values, out_tree = tree.flatten(self.fun(*self.whole(tree.unflatten(self.in_tree, leaves))))
            return values

        body = traced(self.name, self.fun, flat, self.avals)
        assert out_tree is not None
        self.signature = Signature(self.name, self.in_tree, self.avals, self.paths, out_tree, body.jaxpr.out_avals)
        return body

    # --------------------------------------------------------------------------------------------------------- rules

    def _equation(self, body: Body) -> tuple[CustomCall, tuple[object, ...]]:
        """The function with its rules, and what they close over.

        A reference to the function closes over what the function and all its rules do, which is known when they are
        traced: then they are traced once more.
        """
        block, rewind = traced_again()
        with block:
            return self._settled(body, rewind)

    def _settled(self, body: Body, rewind: Callable[[], None]) -> tuple[CustomCall, tuple[object, ...]]:
        function = _Open(self, body)
        for times in count():
            rewind()
            with _open((*_open.get(), function)):
                rules = self._rules()
            traced_rules = [rule for rule in rules.values() if isinstance(rule, TracedRule)]
            bodies = _same_constants([body, *[b for rule in traced_rules for b in rule.bodies]])
            jaxprs, captured = common_operands(bodies)
            if not function.met or _places(captured) == _places(function.operands):
                return self._made(rules, jaxprs, len(captured)), captured
            wider = len(captured) > len(function.operands) and times < _RETRACED
            function = _Open(self, replace(body, jaxpr=jaxprs[0], captured=captured), closed=not wider)
        raise AssertionError("a function that is not referred to is not met")

    def _made(self, rules: dict[Key, TracedRule | RuleError], jaxprs: Sequence[Jaxpr], n: int) -> CustomCall:
        body, *rest = jaxprs
        found: dict[str, tuple[Jaxpr, ...]] = {"jvp": (), "vjp": ()}
        stacked: list[tuple[int, Jaxpr]] = []
        partial: list[tuple[tuple[bool, ...], tuple[Jaxpr, ...]]] = []
        refused: list[tuple[str, tuple[bool, ...], str, str]] = []
        back = InverseBodies((), (), ())
        for (kind, which), rule in rules.items():
            live = () if isinstance(which, int) else (*[False] * n, *which)
            if isinstance(rule, RuleError):
                refused.append((kind, live, rule.message, rule.remedy))
                continue
            mine, rest = rest[: len(rule.bodies)], rest[len(rule.bodies) :]
            names = [b.name for b in rule.bodies]
            if isinstance(which, int):
                stacked.append((which, mine[0]))
            elif kind == "inverse":
                assert self.rules.inverse is not None
                back = inverse_bodies(self.signature, self.rules.inverse, body, mine[0], self.kept)
            else:
                if kind == "jvp":
                    made = split_tangent_rule(self.signature, names[0], mine[0], which)
                else:
                    made = split_cotangent_rule(self.signature, names[1], n, rule.n_res, *mine)
                if which == self._moving:
                    found[kind] = made
                else:
                    partial.append((live, made))
        given = found["jvp"] or partial or refused
        vjp = found["vjp"] or (() if given else back.vjp)
        fewer = tuple(partial)
        prim = CustomCall(
            body, n, found["jvp"], vjp, tuple(stacked), tuple(refused), back.rule, back.held, partial=fewer
        )
        return prim.settled()

    @property
    def _moving(self) -> tuple[bool, ...]:
        return tuple([a.inexact for a in self.avals])

    def _rules(self) -> dict[Key, TracedRule | RuleError]:
        """The rules traced, by what they are for: for all tangents first, then for fewer; for the size of an axis. One
        that raises an error may not be needed: the error is in its place."""
        given, sig = self.rules, self.signature
        static = [self.args[k] for k in self.static]
        self._check_rules()
        rules: dict[Key, TracedRule | RuleError] = {}
        every = self._moving
        # a rule about no tangents is not asked for any
        sets = {kind: (every, *(self._fewer() if kind in given.zeros else ())) for kind in ("jvp", "vjp") if any(every)}
        if given.jvp:
            jvp = partial(given.jvp, *static)
            for live in sets.get("jvp", ()):
                rules["jvp", live] = _or_raised(tangent_rule, sig, given.jvp, jvp, live)
        if given.vjp:
            fwd, bwd = given.vjp
            forward, backward, wrapped = self._over(fwd), partial(bwd, *static), "vjp" in given.zeros
            for live in sets.get("vjp", ()):
                rules["vjp", live] = _or_raised(cotangent_rule, sig, fwd, bwd, forward, backward, live, wrapped)
        if given.vmap:
            rule, sizes = given.vmap

            def stacked(size: int, mapped: tuple[Any, ...], args: tuple[Any, ...]) -> object:
                marks = iter(mapped)
                which = [False if k in self.static else next(marks) for k in range(len(self.args))]
                return rule(size, which, *self.whole(args))

            known = dict.fromkeys(ask_sizes()) if sizes is None else sizes
            rules |= {("vmap", size): stacked_rule(sig, rule, size, stacked) for size in known}
        if given.inverse:
            places = [k for k in range(len(self.args)) if k not in self.static]
            inverse = partial(given.inverse.rule, *static)
            found = _or_raised(inverse_rule, sig, places, given.inverse, inverse)
            if isinstance(found, RuleError):
                rules["inverse", (False,) * len(every)] = found
            else:
                rules["inverse", ()], self.kept = found
        return rules

    def _check_rules(self) -> None:
        """Raises: ArgumentError for a rule that does not take what it is given."""
        given, names = self.rules, self._names()
        static = [names[k] for k in self.static]
        if given.jvp:
            check_takes("defjvp", self.name, given.jvp, [*static, "primals", "tangents"])
        if given.vjp:
            check_takes("defvjp", self.name, given.vjp[0], names)
            check_takes("defvjp", self.name, given.vjp[1], [*static, "residuals", "cotangents"])
        if given.vmap:
            check_takes("def_vmap", self.name, given.vmap[0], ["axis_size", "in_batched", *names])
        if given.inverse:
            cts = ["cotangents"] if given.inverse.fused else []
            kept = [names[k] for k in given.inverse.keep if k < len(names)]
            check_takes(given.inverse.role, self.name, given.inverse.rule, [*static, "results", *cts, *kept])

    def _fewer(self) -> list[tuple[bool, ...]]:
        """The sets of arguments that may have tangents without the others, as marks of leaves: each set of up to
        three, of more each alone; for others the rule for all serves, with zeros."""
        parts = self.in_tree.children()
        leaves = [k for k, part in enumerate(parts) for _ in range(part.num_leaves)]
        moving = list(dict.fromkeys([k for k, a in zip(leaves, self.avals, strict=True) if a.inexact]))
        sizes = range(1, len(moving)) if len(moving) <= 3 else (1,)
        sets = [some for size in sizes for some in combinations(moving, size)] if len(moving) > 1 else []
        return [tuple([a.inexact and k in some for k, a in zip(leaves, self.avals, strict=True)]) for some in sets]

    def _over(self, fwd: Rule) -> Rule:
        return lambda *dynamic: fwd(*self.whole(dynamic))


def _or_raised(trace: Callable[Q, T], *args: Q.args, **kwargs: Q.kwargs) -> T | RuleError:
    """Returns the traced rule, or the error that the rule raised."""
    try:
        return trace(*args, **kwargs)
    except RuleError as e:
        return e.with_traceback(None)


def _code(fun: object) -> object:
    """What tells functions apart that are made again and again: by a factory, in a rule."""
    return getattr(fun, "__code__", fun)


def _alike(a: object, b: object) -> bool:
    """Whether two values that are no operands are the same. Functions are, where they are one object."""
    if a is b:
        return True
    try:
        return type(a) is type(b) and hash(a) == hash(b) and bool(a == b)
    except TypeError:
        return False


def _places(values: Sequence[object]) -> list[int]:
    return [id(v) for v in values]


def _same_constants(bodies: Sequence[Body]) -> list[Body]:
    """The bodies with one object for equal constants: a rule that is traced again makes its own again."""
    first: dict[object, object] = {}

    def one(value: object) -> object:
        if isinstance(value, Tracer) or not isinstance(value, np.ndarray | Array):
            return value
        held = np.asarray(value)
        return first.setdefault((held.shape, held.dtype, held.tobytes()), value)

    return [replace(body, captured=tuple([one(v) for v in body.captured])) for body in bodies]


def _type(x: object, what: str) -> Aval:
    try:
        return aval_of(x, what)
    except ArgumentError as e:
        raise ArgumentError(e.message, remedy=f"{e.remedy}; what is none goes into nondiff_argnums") from None


def _as_call(in_tree: Structure) -> Structure:
    return tree.structure((in_tree.unflatten(range(in_tree.num_leaves)), {}))
