"""`explain_nan`: finds the equation that computes the first nan of a run, its operands and its source line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

import numpy as np

from fxad.api.lift import bind_passed_arguments, bind_static_arguments, check_function
from fxad.core.builder import producing_eqns
from fxad.core.dataclasses import dataclass
from fxad.core.interpreter import run_by_layout
from fxad.core.layout import PREDICATE
from fxad.core.lockstep import gather_from_runs
from fxad.ir import Atom, Eqn, HigherOrder, Jaxpr, Lit, NDArray, SourceLocation
from fxad.primitives.collectives import Collective
from fxad.primitives.control.shard_map import ShardMap
from fxad.support.tables import preformatted
from fxad.tracing.program import Program, function_name, numpy_operands
from fxad.tracing.static_args import static_arguments
from fxad.tracing.trace import trace_for_call
from fxad.transforms.locate import body_label, describe, innermost, lines_of, locate

_SHOWN: Final = 4  # greatest number of operands whose values are shown


@final
@dataclass(frozen=True, slots=True)
class NanOrigin:
    """The origin of a nan or an inf: an equation whose result has one, while no operand has. `what` is "nan" or "inf".

    `inside` lists the calls, steps and branches that contain it, from the outside in. `lines` are the lines of the
    equations with those bodies, the outermost first, and then its own, which may be that of an equal function: equal
    bodies are one program. `operands` are the values of its operands; `at` is the index of the first such element of
    the result. `nearest` are the arguments from which the fewest equations lead to it: in a network that a Python loop
    wrote, they tell the layer.
    """

    what: str
    equation: str
    lines: tuple[SourceLocation, ...]
    inside: tuple[str, ...]
    operands: tuple[NDArray, ...]
    result: NDArray
    at: tuple[int, ...]
    count: int
    nearest: tuple[str, ...] = ()

    @property
    def where(self) -> SourceLocation | None:
        """The line of the equation itself."""
        return innermost(self.lines)

    def __str__(self) -> str:
        """Format it over several lines, as in an error."""
        elements = f"{self.count} of {self.result.size} elements" if self.result.ndim else "its result"
        from_literal = any([_contains(np.isnan, x) for x in self.operands]) and self.what == "nan"
        cause = "from one that is written in the program" if from_literal else "and no operand has one"
        lines = [f"{self.what} was made in {elements}, {cause}", f"  equation      {self.equation}"]
        for label, line in zip(("traced at", *["in a body at"] * len(self.lines)), self.lines, strict=False):
            lines.append(f"  {label:12}  {line}")
        if len(self.lines) > 1:
            lines[-1] += ", or in an equal function"
        lines += [f"  inside        {', '.join(self.inside)}"] if self.inside else []
        more = ", ..." if len(self.nearest) > _SHOWN else ""
        lines += [f"  nearest       {', '.join(self.nearest[:_SHOWN])}{more}"] if self.nearest else []
        for k, x in enumerate(self.operands[:_SHOWN]):
            same = x.shape == self.result.shape
            value = f"{x[self.at]} at {list(self.at)}" if same and self.at else _short(x)
            lines.append(f"  operand {k}     {value}")
        return "\n".join(lines)


@final
@dataclass(frozen=True, slots=True)
class NanExplanation:
    """The origin of the first nan of a run, and of the first inf before it, if there is one."""

    nan: NanOrigin
    inf: NanOrigin | None

    def __str__(self) -> str:
        before = f"\nbefore it, {self.inf}" if self.inf else ""
        return f"explain_nan: {self.nan}{before}"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def explain_nan(f: Callable[..., object], /, *args: object, **kwargs: object) -> NanExplanation | None:
    """Return the equation that makes the first nan when a program runs on these arguments; None if there is none.

    A function is traced for the arguments: those that it declares static, Python numbers, and values that are no arrays
    are passed to it unchanged. The program is interpreted in NumPy, equation by equation,
    including calls, the steps of loops, the branch that is taken, and all indices of a map over devices. A nan in an
    argument is not reported. A nan literal is reported at its first reader. The nan need not reach a result: a nan that
    `where` excludes from the value can return in the gradient.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> explanation = fx.explain_nan(lambda x: fnp.log(x).sum(), fnp.asarray([1.0, -1.0]))
    >>> explanation.nan.equation, explanation.nan.at
    ('%0:f32[2] = log %arg0:f32[2]', (1,))

    Raises: what a call of the program raises for arguments that do not fit; ArgumentError for what is not a function.
    """
    check_function("explain_nan", f)
    if isinstance(f, Program):
        program = f
    else:
        statics = static_arguments(f"explain_nan of {function_name(f)}", f)
        g, args, kwargs = bind_static_arguments("explain_nan", f, statics, args, kwargs)
        g, args, kwargs = bind_passed_arguments(g, args, kwargs, ())
        program = trace_for_call(g, args, kwargs)
    jaxpr, operands = numpy_operands(program, args, kwargs)

    def name(k: int) -> str:
        if k < len(program.bound) and np.ndim(operands[k]) == 0:  # also one that was computed of Python numbers
            return f"the number {operands[k]}"
        return program.operand_path(k).removeprefix("argument ")

    walker = _NanInterpreter(name)
    with np.errstate(all="ignore"):
        walker.run(jaxpr, operands, _EnclosingBodies())
    return NanExplanation(walker.nan, walker.inf) if walker.nan else None


@final
@dataclass(frozen=True, slots=True)
class _EnclosingBodies:
    """The bodies around an equation, from the outside in: their labels, the equations that have them, the programs of
    these equations, and, for each body, the operands of the equation that are its operands, if that is known."""

    labels: tuple[str, ...] = ()
    eqns: tuple[Eqn, ...] = ()
    programs: tuple[Jaxpr, ...] = ()
    operands: tuple[tuple[int, ...] | None, ...] = ()

    def enter(self, label: str, eqn: Eqn, program: Jaxpr, operands: tuple[int, ...] | None) -> _EnclosingBodies:
        return _EnclosingBodies(
            (*self.labels, label), (*self.eqns, eqn), (*self.programs, program), (*self.operands, operands)
        )

    def nearest(self, program: Jaxpr, eqn: Eqn) -> tuple[int, ...]:
        """Return the operands of the outermost program from which the fewest equations lead to an equation of
        `program`, inside of each body; empty if the operands of a body are parts of those of its equation."""
        found = _nearest(program, eqn.ins)
        for outer, of, operands in zip(self.programs[::-1], self.eqns[::-1], self.operands[::-1], strict=True):
            if operands is None:
                return ()
            found = _nearest(outer, [of.ins[operands[k]] for k in found])
        return found


def _nearest(program: Jaxpr, atoms: Iterable[Atom]) -> tuple[int, ...]:
    """Return the operands of a program from which the fewest equations lead to some values."""
    operands = {v: k for k, v in enumerate(program.ins)}
    producer = producing_eqns(program.eqns)
    frontier = dict.fromkeys([a for a in atoms if not isinstance(a, Lit)])
    seen = set(frontier)
    while frontier and operands.keys().isdisjoint(frontier):
        frontier = dict.fromkeys(
            [a for v in frontier for a in producer[v].ins if not isinstance(a, Lit) and a not in seen]
        )
        seen.update(frontier)
    return tuple(sorted([operands[a] for a in frontier if a in operands]))


@final
class _NanInterpreter:
    """Interprets a program until an equation makes a nan. Records it, and the first equation that made an inf.

    In a map over devices each index has a walker. It interprets its program to the end, because the other ones may wait
    for it in a collective.
    """

    __slots__ = ("_path", "_to_the_end", "equations", "inf", "nan")

    def __init__(self, path: Callable[[int], str], to_the_end: bool = False) -> None:
        self._path = path
        self.nan: NanOrigin | None = None
        self.inf: NanOrigin | None = None
        self.equations = 0  # up to the first nan
        self._to_the_end = to_the_end

    def _done(self) -> bool:
        return self.nan is not None and not self._to_the_end

    def run(self, jaxpr: Jaxpr, args: Sequence[NDArray], inside: _EnclosingBodies) -> list[NDArray]:
        """Return the results, as far as they are computed when a nan is found."""
        env: dict[Atom, NDArray] = dict(zip(jaxpr.ins, args, strict=True))
        for eqn in jaxpr.eqns:
            ins = [a.array if isinstance(a, Lit) else env[a] for a in eqn.ins]
            outs = self._run_bodies(jaxpr, eqn, ins, inside)
            if self._done():
                return []
            if outs is None:
                outs = _run_equation(eqn, ins)
                self._look_for_origins(jaxpr, eqn, ins, outs, inside)
                if self._done():
                    return []
            env.update(zip(eqn.outs, outs, strict=True))
        return [a.array if isinstance(a, Lit) else env[a] for a in jaxpr.outs]

    def _run_bodies(self, jaxpr: Jaxpr, eqn: Eqn, ins: list[NDArray], inside: _EnclosingBodies) -> list[NDArray] | None:
        """Return the results of an equation with bodies by interpreting them, or None if it has no body to
        interpret."""
        prim = eqn.prim
        # a map runs its body for each device, on a part of the operands
        if isinstance(prim, ShardMap):
            return self._run_map(prim, jaxpr, eqn, ins, inside)
        if not isinstance(prim, HigherOrder) or not prim.layout.states_results:
            return None
        layout = prim.layout

        def run_body(at: int, step: int | None, args: list[NDArray]) -> list[NDArray] | None:
            body = layout.bodies[at]
            if step is None:
                label = body_label(eqn, body.jaxpr)
            else:
                label = f"{'predicate' if body.results == (PREDICATE,) else 'step'} {step} of {prim.name}"
            whole = layout.operand_indices(at) if step is None else None
            outs = self.run(body.jaxpr, args, inside.enter(label, eqn, jaxpr, whole))
            return None if self._done() else outs

        return run_by_layout(layout, ins, [v.aval for v in eqn.outs], run_body)

    def _run_map(
        self, prim: ShardMap, jaxpr: Jaxpr, eqn: Eqn, ins: list[NDArray], inside: _EnclosingBodies
    ) -> list[NDArray]:
        """Return the results of a map over devices, all indices at the same time. The first nan is the one that takes
        an index the fewest equations."""
        walkers: dict[tuple[int, ...], _NanInterpreter] = {}

        def part(index: tuple[int, ...], parts: Sequence[NDArray]) -> list[NDArray]:
            walkers[index] = _NanInterpreter(self._path, to_the_end=True)
            at = ", ".join([f"{name} = {k}" for name, k in zip(prim.names, index, strict=True)])
            return walkers[index].run(prim.body, parts, inside.enter(f"index {at} of {prim.name}", eqn, jaxpr, None))

        outs = list(prim.run_parts(ins, part))
        if self.nan is None:
            order = [w for _, w in sorted(walkers.items(), key=lambda item: (item[1].equations, item[0]))]
            self.inf = self.inf or next((w.inf for w in order if w.inf), None)
            self.nan = next((w.nan for w in order if w.nan), None)
        self._count(max([w.equations for w in walkers.values()]))
        return outs

    def _count(self, equations: int) -> None:
        if self.nan is None:
            self.equations += equations

    def _look_for_origins(
        self, jaxpr: Jaxpr, eqn: Eqn, operands: list[NDArray], outs: list[NDArray], inside: _EnclosingBodies
    ) -> None:
        ins, atoms = operands, eqn.ins
        if isinstance(eqn.prim, Collective):  # its operands are those of all indices
            ins = gather_from_runs(eqn.prim.names, eqn.prim.sizes, operands[0])
            atoms = eqn.ins * len(ins)
        self._count(1)
        if self.nan is not None:
            return
        for what, has in (("inf", np.isinf), ("nan", np.isnan)):
            if what == "inf" and (self.inf or any([_contains(np.isnan, x) for x in ins])):
                continue
            # a nan literal is an origin; an inf literal is common and harmless
            if any(
                [_contains(has, x) for a, x in zip(atoms, ins, strict=True) if what == "inf" or not isinstance(a, Lit)]
            ):
                continue
            for out in outs:
                if _contains(has, out):
                    marks = has(_comparable(out))
                    at = tuple([int(k) for k in np.argwhere(marks)[0]])
                    origin = NanOrigin(
                        what,
                        describe(eqn),
                        lines_of((*inside.eqns, eqn)),
                        inside.labels,
                        tuple(ins),
                        out,
                        at,
                        int(marks.sum()),
                        tuple(map(self._path, inside.nearest(jaxpr, eqn))),
                    )
                    if what == "inf":
                        self.inf = origin
                    else:
                        self.nan = origin
                    break


def _run_equation(eqn: Eqn, ins: list[NDArray]) -> list[NDArray]:
    try:
        return [np.asarray(x) for x in eqn.prim.impl(*ins)]
    except Exception as e:  # from a check or a host function
        locate(e, eqn)
        raise


def _comparable(x: NDArray) -> NDArray:
    """Return `x` in a dtype that NumPy's tests support."""
    return x if x.dtype.kind in "fc" else x.astype(np.float32)


def _contains(has: Callable[[NDArray], NDArray], x: NDArray) -> bool:
    return bool(x.dtype.kind not in "biu" and has(_comparable(x)).any())


def _short(x: NDArray) -> str:
    text = np.array2string(x, threshold=8, edgeitems=2).replace("\n", "")
    return f"{text} {x.dtype}{list(x.shape)}"
