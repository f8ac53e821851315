"""Programs of symbolic shape with operands for some sizes, padded by the values that disturb most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

import numpy as np
from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.dataclasses import dataclass
from fxad.core.sizes.lower_bounds import at_least
from fxad.core.sizes.polynomials import SizeName
from fxad.core.sizes.size import Size, named_size, substitute_sizes
from fxad.errors import SizeError
from fxad.ir import Atom, Aval, Jaxpr, Lit, NDArray
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import ADD, MUL, SUB
from fxad.primitives.elementwise.exponential import EXP, LOG
from fxad.primitives.elementwise.logic import AND, EQ, LT, OR
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.elementwise.sigmoid import LOGISTIC
from fxad.primitives.reduce import ReduceMax, extreme_value
from fxad.primitives.shape import BroadcastInDim, Iota, ReduceSum
from fxad.primitives.softmax import Softmax
from fxad.testing.applications import Specs
from fxad.testing.compare import HostArrays
from fxad.testing.growth import BOUND, INPUT, Fact, Growth, up_to
from fxad.testing.programs import growth_steps, programs
from fxad.testing.steps import GrowthStep
from fxad.testing.values import SEEDS, Domain, ShownByRepr, sample
from fxad.transforms.mask.padded_builder import SizeBounds
from fxad.transforms.specialize import size_names
from fxad.transforms.vmap import vmap

PADDING: Final[Mapping[SizeName, int]] = MappingProxyType({SizeName("n"): 4, SizeName("m", 1): 3})


@final
@dataclass(frozen=True, slots=True, eq=False)
class RaggedCase(ShownByRepr):
    """A program of symbolic shape, the largest values of its sizes, and their values. `seed` gives the operands.

    smooth: all floats are float64 and complex128. domains: those of the first operands; by default that of programs.
    """

    program: Jaxpr
    padding: SizeBounds
    sizes: Mapping[str, int]
    seed: int = 0
    smooth: bool = False
    domains: tuple[Domain, ...] = ()

    def __repr__(self) -> str:
        return f"{self.program}of {dict(self.sizes)} in {dict(self.padding)}, seed {self.seed}"

    def shape(self, aval: Aval) -> tuple[int, ...]:
        """Return a shape at the sizes."""
        return tuple([substitute_sizes(n, self.sizes) for n in aval.shape])

    def operands(self, avals: Sequence[Aval]) -> list[NDArray]:
        """Return operands of these types at the sizes."""
        other = Domain(INPUT.low, INPUT.high, zeros=not self.smooth)
        domains = [*self.domains, *[other] * len(avals)]
        given = zip(avals, domains, strict=False)
        return [sample(Aval(self.shape(a), a.dtype), domain, self.seed, k) for k, (a, domain) in enumerate(given)]

    @property
    def own(self) -> SizeBounds:
        """The padding of the sizes that the program has."""
        known = {n.name for n in size_names(self.program)}
        return tuple([(n, most) for n, most in self.padding if n in known])

    @property
    def own_sizes(self) -> list[NDArray]:
        """The operands for the sizes that the program has."""
        return [np.asarray(self.sizes[n], np.int32) for n, _ in self.own]


def worst(aval: Aval, rng: np.random.Generator) -> NDArray:
    """Return an array of the values that disturb most: nan, infinities, -0.0 and huge numbers; the extreme integers."""
    if aval.dtype == dtypes.bool_:
        return np.asarray(rng.random(aval.shape) < 0.5)
    if aval.dtype in dtypes.INEXACT:
        values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e30, 1.0])
        with np.errstate(all="ignore"):
            real = rng.choice(values, aval.shape, p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
            return np.asarray(real).astype(aval.dtype)
    ends = [extreme_value(aval.dtype, sign).value for sign in (-1, 1)]
    return np.where(rng.random(aval.shape) < 0.5, np.asarray(ends[0], aval.dtype), np.asarray(ends[1], aval.dtype))


def with_infinities(case: RaggedCase, args: HostArrays) -> list[NDArray]:
    """Return the operands with an infinity in one of them, preferably in one that all rows share, or with infinities
    and nan in place of some real numbers of all. Complex operands get none: a product of complex infinities depends on
    the order of its operations."""
    rng = np.random.default_rng((case.seed, 11))
    real = [k for k, x in enumerate(args) if x.dtype in dtypes.FLOATING and x.size]
    out = list(args)
    if real and rng.random() < 0.7:
        shared = [k for k in real if not case.program.in_avals[k].symbolic]
        k = rng.choice(shared if shared and rng.random() < 0.7 else real)
        out[k] = np.array(args[k])
        out[k].flat[rng.integers(args[k].size)] = np.inf
        return out
    for k in real:
        odd = rng.choice(np.array([np.inf, -np.inf, np.nan]), args[k].shape).astype(args[k].dtype)
        out[k] = np.where(rng.random(args[k].shape) < 0.15, odd, args[k])
    return out


def padded(case: RaggedCase, args: HostArrays, avals: Sequence[Aval]) -> list[NDArray]:
    """Return operands in the corners of arrays of the padded types, whose other elements are the worst."""
    out = []
    for k, (x, aval) in enumerate(zip(args, avals, strict=True)):
        array = worst(aval, np.random.default_rng((case.seed, k, 5)))
        array[tuple([slice(n) for n in x.shape])] = x
        out.append(array)
    return out


def masked_operands(case: RaggedCase, args: HostArrays, masked: Jaxpr) -> list[NDArray]:
    """Return operands of the masked program: padded ones, then the sizes."""
    return [*padded(case, args, masked.in_avals[: len(args)]), *case.own_sizes]


@st.composite
def ragged_cases(
    draw: st.DrawFn,
    *,
    differentiable: bool = False,
    depth: int = 2,
    size: int = 10,
    steps: Sequence[GrowthStep] | None = None,
    primitives: Sequence[Specs] = (),
) -> RaggedCase:
    """Draw programs of symbolic shape: programs of `programs` with sizes as dimensions, or a stack of n examples of a
    program of fixed shape, so that every primitive is there. The sizes 0 and full are drawn often."""
    steps = growth_steps(steps, primitives)
    own = (*steps, *[excluded_elements_step, contraction_step] * (1 + len(steps) // 12))
    of = programs(differentiable=differentiable, depth=depth, size=size, steps=own, sizes=PADDING)
    examples = programs(differentiable=differentiable, depth=depth, size=size, steps=steps)
    kind = draw(st.sampled_from(["sizes", "sizes", "examples"]))
    program = draw(of) if kind == "sizes" else _examples(draw, draw(examples))
    values = {
        n.name: draw(st.sampled_from([most, n.at_least, *range(n.at_least + 1, most)])) for n, most in PADDING.items()
    }
    padding = tuple(sorted([(n.name, most) for n, most in PADDING.items()]))
    return RaggedCase(program, padding, values, draw(SEEDS), differentiable)


def _examples(draw: st.DrawFn, program: Jaxpr) -> Jaxpr:
    """Return a stack of n examples, or of m if a rule asks whether there are any."""
    dims = tuple([draw(st.sampled_from([0, a.ndim, None])) for a in program.in_avals])
    try:
        return vmap(program, named_size("n"), dims, (0,) * len(program.outs))[0]
    except SizeError:
        return vmap(program, named_size("m", 1), dims, (0,) * len(program.outs))[0]


# -------------------------------------------------------------------------------------------------------- growth steps


def excluded_elements_step(g: Growth, x: Atom) -> None:
    """Set elements that a mask leaves out to -inf, then take a softmax, a maximum or the logarithm of a
    sum of exponentials, in which they have no part."""
    aval = x.aval
    if aval.dtype not in dtypes.FLOATING - dtypes.FLOAT8 or not aval.shape:
        return
    x = g.within(x, 3)
    # all elements, padding too, have a part in the cotangent of one number
    scale = g.builder.one(BroadcastInDim(aval.shape, ()), g.input(aval.with_shape(())))
    x = g.emit(up_to(4.5), MUL, x, scale)
    axis = g.draw(st.integers(0, aval.ndim - 1))
    b, fact, where = g.builder, g.facts[x], Aval(aval.shape, dtypes.int32)
    first = b.one(EQ, b.one(Iota(aval.shape, dtypes.int32, axis)), Lit.of(0, where))
    for a, n in enumerate(aval.shape):  # rows of the padding keep no element
        if a != axis and type(n) is Size:
            first = b.one(AND, first, b.one(LT, b.one(Iota(aval.shape, dtypes.int32, a)), Lit.sized(n, where)))
    keep = b.one(OR, g.like(Aval(aval.shape, dtypes.bool_)), first)
    least = Lit.of(-np.inf, aval)
    if g.draw(st.booleans()):
        scores = b.one(ADD, x, b.one(SELECT_N, keep, least, Lit.of(0, aval)))
    else:
        scores = b.one(SELECT_N, keep, least, x)
    kind = g.draw(st.sampled_from(["softmax", "max", "logsumexp"]))
    if kind == "softmax" or not at_least(aval.shape[axis], 1):
        g.emit(Fact(0, 1, False), Softmax((axis,)), scores)
        return
    top = b.one(ReduceMax((axis,)), scores)
    if kind == "max":
        g.add(top, fact)
        return
    back = BroadcastInDim(aval.shape, tuple([a for a in range(aval.ndim) if a != axis]))
    total = b.one(ReduceSum((axis,)), b.one(EXP, b.one(SUB, scores, b.one(back, top))))
    g.emit(Fact(fact.low, fact.high + 2, False), ADD, b.one(LOG, total), top)


def contraction_step(g: Growth, x: Atom) -> None:
    """Add a product of positive numbers over an axis, with values to which each row adds an operand that it
    shares with the others, or in which it is multiplied by one. If an element of this is infinite, the padding of one
    factor is infinite or nan, whatever the other's is."""
    if x.aval.dtype not in (dtypes.float32, dtypes.float64) or not x.aval.symbolic:
        x = g.input(Aval((g.draw(st.sampled_from(g.sizes)), 2), g.dtypes[0]))
    aval = x.aval
    axes = [a for a, n in enumerate(aval.shape) if type(n) is Size]
    axis = g.draw(st.sampled_from(axes))
    rest = tuple([a for a in range(aval.ndim) if a != axis])
    shape = tuple([aval.shape[a] for a in rest])
    weights = g.emit(Fact(0.002, 1, False), LOGISTIC, g.within(g.like(aval), BOUND))
    x = g.within(x, 1.0)
    fixed = [a for a in rest if type(aval.shape[a]) is int and aval.shape[a] > 0]
    if fixed and bool(g.draw(st.booleans())):
        a = g.draw(st.sampled_from(fixed))
        matrix = g.input(aval.with_shape((aval.shape[a], 2)))
        size = 1.5 * aval.shape[a]
        shifted = g.emit(up_to(size), DotGeneral((a,), (0,), (), (), None), x, matrix)
        axis = axis - (axis > a)
        batch = tuple([b for b in range(aval.ndim - 1) if b != axis])
        weights = g.builder.one(ReduceMax((a,)), weights)
    else:
        shared = g.builder.one(BroadcastInDim(aval.shape, rest), g.input(aval.with_shape(shape)))
        shifted = g.emit(up_to(2.5), ADD, x, shared)
        batch = rest
    most = g.facts[shifted].size * max(g.most(shifted.aval.shape[axis]), 1)
    product = DotGeneral((axis,), (axis,), batch, batch, None)
    g.within(g.emit(up_to(most), product, weights, shifted), 1.5)
