"""The builder of programs, the only mutable object of a pass. It numbers variables and returns a frozen program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Final, Self, TypeAlias, TypeVar, final

from fxad.core.dataclasses import dataclass
from fxad.errors import FxadError
from fxad.ir import (
    Atom,
    Aval,
    Eqn,
    Jaxpr,
    Lit,
    Primitive,
    Source,
    Var,
    new_eqn,
    once,
    result_vars,
    source_text,
)

K = TypeVar("K", bound=Hashable)

# Rewrites an equation with new operands: returns the atoms of its results, or None to copy the equation.
EqnRewrite: TypeAlias = "Callable[[Builder, Eqn, tuple[Atom, ...]], Sequence[Atom] | None]"
# Returns the body of a call with new operands that is inlined, or None to keep the equation.
BodyToInline: TypeAlias = Callable[[Eqn, tuple[Atom, ...]], Jaxpr | None]

# Picks values from a list by their positions.
_PickAtoms: TypeAlias = Callable[[list[Atom]], tuple[Atom, ...]]


@final
@dataclass(frozen=True, slots=True)
class _Positions:
    """A program with positions in place of variables. Position k of a list is operand k; then come the literals, and
    the results of the equations in order.

    Of `(x) -> (sin(x * 2.0))`, position 0 is x, 1 is 2.0, 2 is the product and 3 the sine: the equations read the
    positions (0, 1) and (2,), and the result is (3,). To paste it, a list begins with the operands and the literals,
    and grows by the results of each equation that is added.
    """

    literals: tuple[Lit, ...]
    eqns: tuple[tuple[Primitive, _PickAtoms, Mapping[int, tuple[Var]], tuple[Aval, ...]], ...]
    outs: _PickAtoms


def _by_position(jaxpr: Jaxpr) -> _Positions:
    atoms = [a for e in jaxpr.eqns for a in e.ins] + list(jaxpr.outs)
    literals = tuple(dict.fromkeys([a for a in atoms if isinstance(a, Lit)]))
    listed: list[Atom] = [*jaxpr.ins, *literals, *[v for e in jaxpr.eqns for v in e.outs]]
    places = {a: k for k, a in enumerate(listed)}
    return _Positions(
        literals,
        tuple([(e.prim, _pick([places[a] for a in e.ins]), *_results(e)) for e in jaxpr.eqns]),
        _pick([places[a] for a in jaxpr.outs]),
    )


def _results(eqn: Eqn) -> tuple[Mapping[int, tuple[Var]], tuple[Aval, ...]]:
    """Return the table of the variables of the type of the only result, by index, and the types of all results.

    It is the table from which `Var` takes its variables, not a copy: it has those that are made later, too.
    """
    avals = tuple([v.aval for v in eqn.outs])
    return (avals[0]._vars if len(avals) == 1 else _NONE), avals


_NONE: Final[Mapping[int, tuple[Var]]] = MappingProxyType({})


def _pick(places: Sequence[int]) -> _PickAtoms:
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return itemgetter(*places) if places else lambda _: ()


class Builder:
    """Builds one jaxpr. Calling it adds an equation and returns its results (the `Emit` of the rules).

    `source` is the source location of the equations that are added; a pass sets it for each equation.
    """

    __slots__ = ("_types", "eqns", "ins", "n", "source")

    def __init__(self) -> None:
        self.ins: list[Var] = []
        self.eqns: list[Eqn] = []
        self.n = 0
        self.source: Source = None
        self._types: dict[tuple[object, ...], tuple[Aval, ...]] = {}  # result types by operation and operand types

    @classmethod
    def like(cls, jaxpr: Jaxpr) -> Self:
        """Return a builder with the operands of `jaxpr`."""
        self = cls()
        self.ins = list(jaxpr.ins)
        return self

    @classmethod
    def resume(cls, jaxpr: Jaxpr) -> Self:
        """Return a builder that appends to `jaxpr`: the equations are shared, not copied."""
        self = cls.like(jaxpr)
        self.eqns = list(jaxpr.eqns)
        self.n = sum([len(e.outs) for e in self.eqns])
        return self

    def input(self, aval: Aval) -> Var:
        """Add an operand."""
        (v,) = result_vars(~len(self.ins), (aval,))
        self.ins.append(v)
        return v

    def inputs(self, avals: Iterable[Aval]) -> tuple[Var, ...]:
        """Add operands."""
        return tuple([self.input(a) for a in avals])

    def __call__(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        # the hot path of every pass: no list for two operands; types are cached, because programs repeat operations
        key = (prim, args[0].aval, args[1].aval) if len(args) == 2 else (prim, *[a.aval for a in args])
        avals = self._types.get(key)
        if avals is None:
            try:
                avals = self._types[key] = prim.abstract_eval(*[a.aval for a in args])
            except FxadError as e:
                equation_text = f"{prim.name} {' '.join(map(repr, args))}"
                raise e.located(equation=equation_text, where=source_text(self.source))
        outs = result_vars(self.n, avals)
        self.n += len(outs)
        self.eqns.append(new_eqn(prim, args, outs, self.source))
        return outs

    def one(self, prim: Primitive, *args: Atom) -> Var:
        """Add an equation with a single result, and return it."""
        return self(prim, *args)[0]

    def copy(self, eqn: Eqn, ins: tuple[Atom, ...], prim: Primitive | None = None) -> tuple[Var, ...]:
        """Add `eqn` over other operands, as `prim` if given. The results keep their types: no type rule runs."""
        outs = result_vars(self.n, tuple([v.aval for v in eqn.outs]))
        self.n += len(outs)
        self.eqns.append(new_eqn(prim or eqn.prim, ins, outs, eqn.source))
        return outs

    def rollback(self, start: int) -> None:
        """Remove the equations from number `start` on, such as those of an operation that has failed."""
        self.n -= sum([len(eqn.outs) for eqn in self.eqns[start:]])
        del self.eqns[start:]

    def extend(self, eqns: Iterable[Eqn], env: dict[Atom, Atom], rule: EqnRewrite | None = None) -> None:
        """Add equations with their operands replaced as in `env`, and enter their results into `env`.

        An operand that is not in `env` stays: a literal, or a variable of this builder (see `Var`). `rule` may replace
        an equation: see `rewrite`.
        """
        if rule is None:
            for eqn in eqns:
                env.update(zip(eqn.outs, self.copy(eqn, tuple([env.get(a, a) for a in eqn.ins])), strict=True))
            return
        for eqn in eqns:
            ins = tuple([env.get(a, a) for a in eqn.ins])
            self.source = eqn.source
            outs = rule(self, eqn, ins)
            env.update(zip(eqn.outs, self.copy(eqn, ins) if outs is None else outs, strict=True))

    def inline(self, jaxpr: Jaxpr, args: Sequence[Atom], rule: EqnRewrite | None = None) -> tuple[Atom, ...]:
        """Add the equations of `jaxpr` over `args`. Return the atoms of its results. `rule`: see `rewrite`."""
        env: dict[Atom, Atom] = dict(zip(jaxpr.ins, args, strict=True))
        self.extend(jaxpr.eqns, env, rule)
        return substitute(jaxpr.outs, env)

    def inline_calls(
        self, jaxpr: Jaxpr, args: Sequence[Atom], body_to_inline: BodyToInline, rule: EqnRewrite | None = None
    ) -> tuple[Atom, ...]:
        """Add the equations of `jaxpr` as `inline` does, but in place of each call for which `body_to_inline` returns a
        body, at any depth, the equations of that body. Returns the atoms of the results.

        `rule` may replace the other equations: see `rewrite`.

        Cost: linear in the equations that are added, at any depth of nesting.
        """
        env: dict[Atom, Atom] = dict(zip(jaxpr.ins, args, strict=True))
        remaining, outs = iter(jaxpr.eqns), jaxpr.outs
        # the enclosing programs: remaining equations, results, results of the call, environment
        callers: list[tuple[Iterator[Eqn], tuple[Atom, ...], tuple[Var, ...], dict[Atom, Atom]]] = []
        while True:
            for eqn in remaining:
                ins = tuple([env.get(a, a) for a in eqn.ins])
                body = body_to_inline(eqn, ins)
                if body is not None:
                    callers.append((remaining, outs, eqn.outs, env))
                    remaining, outs, env = iter(body.eqns), body.outs, dict(zip(body.ins, ins, strict=True))
                    break
                self.source = eqn.source
                replaced = None if rule is None else rule(self, eqn, ins)
                env.update(zip(eqn.outs, self.copy(eqn, ins) if replaced is None else replaced, strict=True))
            else:
                results = tuple([env.get(a, a) for a in outs])
                if not callers:
                    return results
                remaining, outs, call_outs, env = callers.pop()
                env.update(zip(call_outs, results, strict=True))

    def paste(self, jaxpr: Jaxpr, args: Sequence[Atom]) -> tuple[Atom, ...]:
        """Add the equations of a library program as `inline` does, at the location `source` of this builder in place of
        their own. Returns the atoms of the results."""
        assert len(args) == len(jaxpr.ins), jaxpr
        form = once(jaxpr, "positions", _by_position)
        values: list[Atom] = [*args, *form.literals]
        n, source, add = self.n, self.source, self.eqns.append
        for prim, pick, variables, avals in form.eqns:  # a hot loop: tracing inlines the functions of `fxad.numpy` here
            outs = variables.get(n) or result_vars(n, avals)
            add(new_eqn(prim, pick(values), outs, source))
            values += outs
            n += len(outs)
        self.n = n
        return form.outs(values)

    def build(self, outs: Iterable[Atom], name: str = "main") -> Jaxpr:
        """Return the frozen, interned program."""
        return Jaxpr(tuple(self.ins), tuple(self.eqns), tuple(outs), name)


def single_equation(prim: Primitive, avals: Iterable[Aval], name: str = "") -> Jaxpr:
    """Return the program of one equation, over operands of these types. By default, it is named like the primitive."""
    b = Builder()
    return b.build(b(prim, *b.inputs(avals)), name or prim.name)


def subprogram(eqns: Iterable[Eqn], ins: Sequence[Atom], outs: Iterable[Atom], name: str) -> Jaxpr:
    """Return the program of equations of another one: from the values `ins` of that program to its values `outs`."""
    b = Builder()
    env: dict[Atom, Atom] = dict(zip(ins, b.inputs([a.aval for a in ins]), strict=True))
    b.extend(eqns, env)
    return b.build(substitute(outs, env), name)


def live_ins(eqns: Iterable[Eqn], outs: Iterable[Atom] = ()) -> list[Var]:
    """Return the values that equations, and then results, read and the equations do not compute: the operands of their
    `subprogram`, in the order of the reads."""
    eqns = tuple(eqns)
    computed = {v for e in eqns for v in e.outs}
    reads = dict.fromkeys([*[a for e in eqns for a in e.ins], *outs])
    return [a for a in reads if isinstance(a, Var) and a not in computed]


def producers(eqns: Iterable[Eqn]) -> dict[Var, int]:
    """Return the number of the equation that computes each value."""
    return {v: k for k, eqn in enumerate(eqns) for v in eqn.outs}


def producing_eqns(eqns: Iterable[Eqn]) -> dict[Atom, Eqn]:
    """Return the equation that computes each value."""
    return {v: eqn for eqn in eqns for v in eqn.outs}


def last_readers(eqns: Iterable[Eqn]) -> dict[Atom, int]:
    """Return the number of the last equation that reads each value."""
    return {a: k for k, eqn in enumerate(eqns) for a in eqn.ins}


def rebind_operands(
    jaxpr: Jaxpr,
    wants: Sequence[K],
    *,
    has: Sequence[K] | None = None,
    types: Mapping[K, Aval] = MappingProxyType({}),
    literals: Mapping[K, Lit] = MappingProxyType({}),
    outs: Sequence[Atom] | None = None,
) -> Jaxpr:
    """Return the program with other operands.

    Operands have keys: `has` are those of the operands of `jaxpr` (by default their numbers), `wants` those of the new
    operands. `types` are the types of those that `jaxpr` does not take. Operands in `literals` become literals, which
    get the shape of the operand. An operand of `jaxpr` that is neither in `wants` nor in `literals` must be unread.
    `outs` are other results, which are atoms of `jaxpr`.

    Of the program f of (x, y, z), `rebind_operands(f, "zux", has="xyz", types={"u": aval}, literals={"y": two})` is the
    program (z, u, x) -> f(x, 2, z), and `rebind_operands(f, (2, 0, 1))` is (z, x, y) -> f(x, y, z).
    """
    keys: Sequence[object] = range(len(jaxpr.ins)) if has is None else has
    changed = jaxpr if outs is None else jaxpr.with_outs(outs)
    if tuple(keys) == tuple(wants):
        return changed
    b = Builder()
    avals: dict[object, Aval] = dict([*types.items(), *zip(keys, jaxpr.in_avals, strict=True)])
    args: dict[object, Atom] = {k: b.input(avals[k]) for k in wants}
    args.update({k: a.with_shape(avals[k].shape) for k, a in literals.items() if k in avals})
    return b.build(b.inline(changed, [args.get(k, v) for k, v in zip(keys, jaxpr.ins, strict=True)]), jaxpr.name)


def rewrite(jaxpr: Jaxpr, rule: EqnRewrite) -> Jaxpr:
    """Replace each equation by the result of `rule(builder, eqn, ins)`. `ins` are the operands in the new program.

    The rule adds equations to the builder, which gives them the source location of `eqn`. It returns the atoms that
    replace the results of `eqn`, or None to copy `eqn`.
    Law:  `rewrite(jaxpr, lambda b, eqn, ins: None) is jaxpr`.
    """
    b = Builder.like(jaxpr)
    env: dict[Atom, Atom] = {}
    b.extend(jaxpr.eqns, env, rule)  # not `inline`: bodies may be nested deeply, and each Python call uses stack
    return b.build(substitute(jaxpr.outs, env), jaxpr.name)


def substitute(atoms: Iterable[Atom], env: Mapping[Atom, Atom]) -> tuple[Atom, ...]:
    """Return atoms, replaced as in `env`."""
    return tuple([env.get(a, a) for a in atoms])
