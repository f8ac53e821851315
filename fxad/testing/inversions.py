"""Strategies for programs that can be run backwards: chains and couplings of steps that have inverses.

Each is well conditioned, so that what comes back is what was there within a small tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

import fxad.numpy as fnp
from fxad import lax, tree
from fxad.api.custom import CustomFunction
from fxad.api.inverting import Names, chosen, custom_inverse, invertible, leaves_of
from fxad.api.jit import jit
from fxad.api.rewrite import remat
from fxad.array import Array
from fxad.ir import Aval, Jaxpr, NDArray
from fxad.program import Program, trace
from fxad.testing.programs import Case
from fxad.testing.values import SEEDS, Domain, sample

State: TypeAlias = tuple[Array, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Inversion:
    """A program, operands for it, and which of them are held when it is run backwards.

    measured: its log-determinant is known.
    chain:    the steps it was made of, for messages: programs with bodies of bodies are long.
    """

    program: Jaxpr
    args: tuple[NDArray, ...]
    kept: tuple[bool, ...]
    seed: int = 0
    measured: bool = False
    chain: tuple[Move, ...] = ()

    @staticmethod
    def of(f: Callable[..., object], *args: object, keep: Names = (), measured: bool = False) -> Inversion:
        """A function at arguments; those named in `keep`, and what it closes over, are held."""
        program: Program[..., object] = f if isinstance(f, Program) else trace(f, *args)
        kept = leaves_of(program, chosen("Inversion.of", "keep", program, keep))
        values = [*program.bound, *tree.leaves(args)]
        operands = [np.asarray(x, a.dtype) for x, a in zip(values, program.jaxpr.in_avals, strict=True)]
        return Inversion(program.jaxpr, tuple(operands), (True,) * len(program.bound) + kept, 0, measured)

    @property
    def case(self) -> Case:
        """The program and its operands, for the other laws."""
        return Case(self.program, self.args, self.seed, True)

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """How hypothesis shows it."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        of = "\n".join([f"  {move}" for move in self.chain]) if self.chain else str(self.program)
        values = "\n".join([
            f"  {a}{' (held)' if k else ''}: {x.tolist()}"
            for a, x, k in zip(self.program.in_avals, self.args, self.kept, strict=True)
        ])  # fmt: skip
        return f"{of}\nat\n{values}"


@final
@dataclass(frozen=True, slots=True)
class Held:
    """Operands that are not reconstructed: an array like the state, a matrix, and a bool."""

    w: Array
    a: Array
    flag: Array


@final
@dataclass(frozen=True, slots=True)
class Move:
    """A step of a chain: its name, numbers that it is free to use, and the steps of its bodies."""

    name: str
    i: int = 0
    j: int = 0
    bodies: tuple[tuple[Move, ...], ...] = ()


Apply: TypeAlias = Callable[[State, Held, Move], State]


def through(moves: Sequence[Move], state: State, held: Held) -> State:
    """A chain of steps."""
    for move in moves:
        state = APPLY[move.name](state, held, move)
    return state


# ------------------------------------------------------------------------------------------- steps of one array or two


def _replaced(state: State, k: int, value: Array) -> State:
    return (*state[:k], value, *state[k + 1 :])


def _each(function: Callable[[Array, Held, Move], Array]) -> Apply:
    """A step that changes one array of the state."""

    def apply(state: State, held: Held, move: Move) -> State:
        k = move.i % len(state)
        return _replaced(state, k, function(state[k], held, move))

    return apply


def _slope(x: Array) -> Array:
    """A factor between 1/2 and 3/2, that depends on x."""
    return 1.0 + 0.5 * fnp.sin(x)


def _coupled(function: Callable[[Array, Array], Array]) -> Apply:
    """A step that changes one array by what another and the array held say; alone, by the latter."""

    def apply(state: State, held: Held, move: Move) -> State:
        k, by = move.i % len(state), move.j % len(state)
        other = held.w if k == by else fnp.tanh(state[by]) * held.w
        return _replaced(state, k, function(state[k], other))

    return apply


def _halves(x: Array, held: Held, move: Move) -> Array:
    """A coupling of two slices of one array."""
    n = x.shape[-1]
    cut = move.j % (n + 1)
    first, second = x[..., :cut], x[..., cut:]
    by = fnp.sum(fnp.sin(first), axis=-1, keepdims=True)
    return fnp.concatenate([first, second * _slope(by) + by * held.w[..., cut:]], axis=-1)


def _split(x: Array, _: Held, move: Move) -> Array:
    """A coupling of two parts that come back in the other order."""
    cut = move.j % (x.shape[-1] + 1)
    first, second = fnp.split(x, [cut], axis=-1)
    by = fnp.cos(fnp.sum(second, axis=-1, keepdims=True))
    return fnp.concatenate([second, first + by], axis=-1)


def _updated(x: Array, _: Held, move: Move) -> Array:
    """The first or the last element changed by the one beside it, in its place."""
    n = x.shape[-1]
    if n < 2:
        return x * 2.0
    here, there = ((0, 1), (n - 1, n - 2))[move.i % 2]
    return x.at[..., here].set(x[..., here] - fnp.sin(x[..., there]))


def _product(x: Array, held: Held, move: Move) -> Array:
    """A product with a triangular matrix."""
    n = x.shape[-1]
    low = 0.3 * fnp.tril(held.a, -1) + fnp.eye(n) * 1.5
    return (x @ low, x @ low.T, x @ (0.25 * fnp.tril(fnp.sin(held.a)) + fnp.eye(n)))[move.j % 3]


def _cubic(x: Array, *_: object) -> Array:
    """The t for which t + t^3 / 4 is x, by the hyperbolic form of its root: no rule knows the way back. In this
    direction numbers do not grow, however often the step is taken."""

    def root(x: Array) -> Array:
        size: float = 2.0 / 3.0**0.5
        return 2.0 * size * fnp.sinh(fnp.arcsinh(x * (1.5 / size)) / 3.0)

    function: CustomFunction[[Array], Array] = custom_inverse(root, lambda t: t + t * t * t * 0.25)
    return function(x)


# -------------------------------------------------------------------------------------------------- steps with bodies


def _called(state: State, held: Held, move: Move) -> State:
    return jit(lambda s, w: through(move.bodies[0], s, Held(w, held.a, held.flag)))(state, held.w)


def _again(state: State, held: Held, move: Move) -> State:
    """Around a `remat`."""
    return remat(lambda s, w: through(move.bodies[0], s, Held(w, held.a, held.flag)))(state, held.w)


def _nested(state: State, held: Held, move: Move) -> State:
    """An `invertible` inside."""
    inner = invertible(lambda s, w, a: through(move.bodies[0], s, Held(w, a, held.flag)), keep=(1, 2))
    return inner(state, held.w, held.a)


def _chosen(state: State, held: Held, move: Move) -> State:
    """Branches on what is held."""
    first, second = [lambda s, m=moves: through(m, s, held) for moves in move.bodies]
    return lax.cond(held.flag, first, second, state)


def _looped(state: State, held: Held, move: Move) -> State:
    """A loop over rows of what is held."""

    def step(carry: State, w: Array) -> tuple[State, None]:
        return through(move.bodies[0], carry, Held(w, held.a, held.flag)), None

    return lax.scan(step, state, fnp.stack([held.w, -held.w, held.w * 0.5]), reverse=bool(move.i % 2))[0]


def _counted(state: State, held: Held, move: Move) -> State:
    """A loop with a counter."""
    return lax.fori_loop(
        0, move.i % 3, lambda i, s: through(move.bodies[0], (s[0] + 0.25 * i.astype("float64"), *s[1:]), held), state
    )


SIMPLE: Final[Mapping[str, Apply]] = MappingProxyType(
    {
        "add": _coupled(lambda x, by: x + fnp.sin(by)),
        "scale": _coupled(lambda x, by: x * fnp.exp(0.5 * fnp.tanh(by))),
        "affine": _coupled(lambda x, by: (x - by) / _slope(by)),
        "from": _coupled(lambda x, by: by - x),
        "asinh": _each(lambda x, *_: fnp.arcsinh(x)),
        "atan": _each(lambda x, *_: fnp.arctan(x * 0.5)),
        "softplus": _each(lambda x, *_: fnp.log1p(fnp.exp(fnp.arcsinh(x)))),
        "weigh": _each(lambda x, held, _: x * _slope(held.w)),
        "flip": _each(lambda x, _, move: fnp.flip(x, move.j % x.ndim)),
        "roll": _each(lambda x, _, move: fnp.roll(x, move.j, -1)),
        "pass": lambda state, _, move: state[move.i % len(state) :] + state[: move.i % len(state)],
        "halves": _each(_halves),
        "split": _each(_split),
        "update": _each(_updated),
        "product": _each(_product),
        "cumsum": _each(lambda x, *_: fnp.cumsum(x, axis=-1)),
        "custom": _each(_cubic),
    }
)
NESTED: Final[Mapping[str, tuple[Apply, int]]] = MappingProxyType(
    {
        "call": (_called, 1),
        "remat": (_again, 1),
        "invertible": (_nested, 1),
        "cond": (_chosen, 2),
        "scan": (_looped, 1),
        "fori": (_counted, 1),
    }
)
APPLY: Final[Mapping[str, Apply]] = MappingProxyType({**SIMPLE, **{k: f for k, (f, _) in NESTED.items()}})
UNMEASURED: Final = frozenset({"custom"})


@st.composite
def moves(draw: st.DrawFn, *, depth: int = 2, size: int = 4, measured: bool = False) -> tuple[Move, ...]:
    """Chains of up to `size` steps with bodies nested to `depth`; with `measured`, of those with log-determinants."""
    names = [n for n in (*SIMPLE, *(NESTED if depth else ())) if not (measured and n in UNMEASURED)]
    out = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=size)):
        n = NESTED[name][1] if name in NESTED else 0
        bodies = [draw(moves(depth=depth - 1, size=2, measured=measured)) for _ in range(n)]
        out.append(Move(name, draw(st.integers(0, 5)), draw(st.integers(0, 5)), tuple(bodies)))
    return tuple(out)


@st.composite
def inversions(draw: st.DrawFn, *, depth: int = 2, size: int = 4, measured: bool = False) -> Inversion:
    """Programs of 1 to 3 arrays that move and three that are held, which come back when they are run backwards.

    Elements, slices and whole arrays are coupled, permuted, scaled by what is held, multiplied by triangular matrices;
    in calls, branches, loops, `remat` and `invertible`, and by a `custom_inverse`. `measured`: with log-determinants.
    """
    chain = draw(moves(depth=depth, size=size, measured=measured))
    n = draw(st.sampled_from((3, 2, 1, 4)))
    shape = draw(st.sampled_from(((n,), (2, n))))
    count = draw(st.integers(1, 3))
    order = draw(st.permutations(range(count)))
    seed = draw(SEEDS)
    x, domain = Aval(shape, "float64"), Domain(-1.5, 1.5)
    avals = [x] * (count + 1) + [Aval((n, n), "float64"), Aval((), "bool")]
    args = tuple([sample(a, domain, seed, k) for k, a in enumerate(avals)])

    def f(*given: Array) -> State:
        state = through(chain, given[:count], Held(*given[count:]))
        return tuple([state[k] for k in order])

    program = trace(f, *args)
    kept = (True,) * len(program.bound) + (False,) * count + (True,) * 3
    values = (*[np.asarray(b) for b in program.bound], *args)
    return Inversion(program.jaxpr, values, kept, seed, measured, chain)
