"""The laws of mask: programs of symbolic shape, and the other transformations before and after.

@given(ragged_cases())
def test_mask(case):
    check_mask(case)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np
from hypothesis import strategies as st

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.core.interpreter import run
from fxad.core.sizes import Name, Size, at_least, named_size, substitute_sizes
from fxad.core.typecheck import typecheck
from fxad.errors import FxadError, NotDifferentiableError, NotInvertibleError, SizeError
from fxad.ir import Atom, Aval, Jaxpr, Lit, NDArray, Primitive, distinct_jaxprs
from fxad.primitives.collectives import Psum
from fxad.primitives.control.bodies import instantiate_linear_outs, instantiate_outs, leading
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.scan import Scan
from fxad.primitives.control.while_ import While
from fxad.primitives.dot import DotGeneral
from fxad.primitives.elementwise.arithmetic import ADD, MUL, SUB
from fxad.primitives.elementwise.exponential import EXP, LOG, LOGISTIC
from fxad.primitives.elementwise.logic import AND, EQ, LT, OR
from fxad.primitives.elementwise.select import SELECT_N
from fxad.primitives.fft import Fft
from fxad.primitives.linalg import LINALG
from fxad.primitives.reduce import ReduceMax, extreme_value
from fxad.primitives.shape import BroadcastInDim, Iota, ReduceSum
from fxad.primitives.softmax import Softmax
from fxad.testing.applications import Specs
from fxad.testing.compare import Values, differ, fail, program_tolerance, xla
from fxad.testing.derivative_laws import has_gradient, scalarized
from fxad.testing.draw_custom import call_with_rule
from fxad.testing.growth import BOUND, INPUT, Fact, Growth
from fxad.testing.programs import growth_steps, programs
from fxad.testing.steps import GrowthStep
from fxad.testing.transform_laws import as_one_call, check_transform
from fxad.testing.values import SEEDS, Domain, ShownByRepr, sample
from fxad.transforms import (
    cse,
    dce,
    grad,
    inline,
    invertible,
    jvp,
    linearize,
    outline,
    remat,
    reroll,
    simplify,
    specialize,
    transpose,
    value_and_grad,
    vjp_fused,
    vmap,
)
from fxad.transforms.mask.contract import Padding
from fxad.transforms.mask.mask import mask
from fxad.transforms.memory.policies import dots, everything
from fxad.transforms.specialize import size_names
from fxad.transforms.vmap import vmap_named

# an infinity becomes nan in other elements of their results, in some algorithms and sizes and not in others
_SPREADING: Final[frozenset[type[Primitive]]] = frozenset([Fft, *LINALG])
PADDING: Final[Mapping[Name, int]] = MappingProxyType({Name("n"): 4, Name("m", 1): 3})


@final
@dataclass(frozen=True, slots=True, eq=False)
class RaggedCase(ShownByRepr):
    """A program of symbolic shape, the largest values of its sizes, and their values. `seed` gives the operands.

    smooth: all floats are float64 and complex128. domains: those of the first operands; by default that of programs.
    """

    program: Jaxpr
    padding: Padding
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
    def own(self) -> Padding:
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


def _with_infinities(case: RaggedCase, args: Values) -> list[NDArray]:
    """Return the operands with an infinity in one of them, preferably in one that all rows share, or with infinities
    and nan in place of some real numbers of all. What a product of complex infinities is depends on the order of its
    operations."""
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


def padded(case: RaggedCase, args: Values, avals: Sequence[Aval]) -> list[NDArray]:
    """Return operands in the corners of arrays of the padded types, whose other elements are the worst."""
    out = []
    for k, (x, aval) in enumerate(zip(args, avals, strict=True)):
        array = worst(aval, np.random.default_rng((case.seed, k, 5)))
        array[tuple([slice(n) for n in x.shape])] = x
        out.append(array)
    return out


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
    own = (*steps, *[left_out, contracted] * (1 + len(steps) // 12))
    of = programs(differentiable=differentiable, depth=depth, size=size, steps=own, sizes=PADDING)
    examples = programs(differentiable=differentiable, depth=depth, size=size, steps=steps)
    kind = draw(st.sampled_from(["sizes", "sizes", "examples"]))
    program = draw(of) if kind == "sizes" else _examples(draw, draw(examples))
    values = {
        n.name: draw(st.sampled_from([most, n.at_least, *range(n.at_least + 1, most)])) for n, most in PADDING.items()
    }
    padding = tuple(sorted([(n.name, most) for n, most in PADDING.items()]))
    return RaggedCase(program, padding, values, draw(SEEDS), differentiable)


def left_out(g: Growth, x: Atom) -> None:
    """A growth step: elements that a mask leaves out become -inf, and then a softmax, a maximum or the logarithm of a
    sum of exponentials, in which they have no part."""
    aval = x.aval
    if aval.dtype not in dtypes.FLOATING - dtypes.FLOAT8 or not aval.shape:
        return
    x = g.within(x, 3)
    # all elements, padding too, have a part in the cotangent of one number
    scale = g.builder.one(BroadcastInDim(aval.shape, ()), g.input(aval.with_shape(())))
    x = g.emit(Fact(-4.5, 4.5, False), MUL, x, scale)
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


def contracted(g: Growth, x: Atom) -> None:
    """A growth step: a product of positive numbers over an axis, with values to which each row adds an operand that it
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
        shifted = g.emit(Fact(-size, size, False), DotGeneral((a,), (0,), (), (), None), x, matrix)
        axis = axis - (axis > a)
        batch = tuple([b for b in range(aval.ndim - 1) if b != axis])
        weights = g.builder.one(ReduceMax((a,)), weights)
    else:
        shared = g.builder.one(BroadcastInDim(aval.shape, rest), g.input(aval.with_shape(shape)))
        shifted = g.emit(Fact(-2.5, 2.5, False), ADD, x, shared)
        batch = rest
    most = g.facts[shifted].size * max(g.most(shifted.aval.shape[axis]), 1)
    product = DotGeneral((axis,), (axis,), batch, batch, None)
    g.within(g.emit(Fact(-most, most, False), product, weights, shifted), 1.5)


def _examples(draw: st.DrawFn, program: Jaxpr) -> Jaxpr:
    """A stack of n examples, or of m if a rule asks whether there are any."""
    dims = tuple([draw(st.sampled_from([0, a.ndim, None])) for a in program.in_avals])
    try:
        return vmap(program, named_size("n"), dims, (0,) * len(program.outs))[0]
    except SizeError:
        return vmap(program, named_size("m", 1), dims, (0,) * len(program.outs))[0]


# ---------------------------------------------------------------------------------------------------------------- laws


def check_mask(case: RaggedCase, *, compiled: bool = False) -> bool:
    """Check the laws of `mask` on one program.

    - the valid part of the results is that of the program at the sizes, whatever the padding holds; the padding of
      results is zero;
    - the same with infinities and nan among the valid elements, but for Fourier transforms and linear algebra;
    - sizes masked one after the other, and at once, give the same;
    - a batch over sizes gives the results of its examples.

    Returns False for a program that mask refuses. `compiled`: compare in XLA too.
    """
    program = case.program
    try:
        masked = check_transform(lambda f: mask(f, case.own), program)
    except SizeError as e:
        return _refused(e)
    args = case.operands(program.in_avals)
    fixed = check_transform(lambda f: specialize(f, tuple(sorted(case.sizes.items()))), program)
    want = run(fixed, args)
    tolerance = program_tolerance(fixed, args)
    given = [*padded(case, args, masked.in_avals[: len(args)]), *case.own_sizes]
    _compare("mask", case, masked, run(masked, given), want, tolerance)
    if not _SPREADING & {type(e.prim) for body in distinct_jaxprs(program) for e in body.eqns}:
        odd = _with_infinities(case, args)
        hostile = [*padded(case, odd, masked.in_avals[: len(args)]), *case.own_sizes]
        room_of_odd = program_tolerance(fixed, odd)
        _compare("mask, with infinities", case, masked, run(masked, hostile), run(fixed, odd), room_of_odd)
    if compiled:
        _compare("mask in XLA", case, masked, xla(masked, given), want, tolerance)
    if len(case.own) > 1:
        inner, outer = case.own[1:], case.own[:1]
        nested = mask(mask(program, inner), outer)
        typecheck(nested)
        _compare(
            "mask of mask",
            case,
            nested,
            run(nested, [*given[: len(args)], *case.own_sizes[1:], *case.own_sizes[:1]]),
            want,
            tolerance,
        )
    _check_batch_of_sizes(case, masked)
    return True


def _refused(error: FxadError) -> bool:
    """Returns False for the refusal of a rule, and, if it says where it is, for a comparison that the assumptions do
    not decide and for the derivative of a window product; raises any other error again."""
    advice = "state an assumption", "name one size by the other"
    undecided = "is not decided by" in error.message and error.remedy.startswith(advice)
    # the derivative of the masked program is the remedy
    stacked = "reduce_window_prod: the derivative stacks the elements of windows" in error.message
    if "is not masked" in error.message or ((undecided or stacked) and (error.equation or error.where)):
        return False
    raise error


def _compare(law: str, case: RaggedCase, masked: Jaxpr, have: Values, want: Values, tolerance: float) -> None:
    """Raises: AssertionError for results whose valid part is not `want`, or whose padding is not zero."""
    for k, (x, y) in enumerate(zip(have, want, strict=True)):
        inside = tuple([slice(n) for n in y.shape])
        if problem := differ([x[inside]], [y], slack=tolerance, signs=False):
            fail(
                f"{law} of {dict(case.sizes)} in {dict(case.padding)}, seed {case.seed}: result {k}: {problem}",
                case.program,
                (),
                masked,
            )
        rest = np.array(x)
        rest[inside] = 0
        if rest.any():
            fail(
                f"{law} of {dict(case.sizes)}, seed {case.seed}: the padding of result {k} is not zero: {x.tolist()}",
                case.program,
                (),
                masked,
            )


def _check_batch_of_sizes(case: RaggedCase, masked: Jaxpr) -> None:
    """A ragged batch: each example has sizes of its own."""
    least = {n.name: n.at_least for n in size_names(case.program)}
    sizes = [case.sizes, {**dict(case.padding)}, {n: least.get(n, 0) for n in case.sizes}]
    examples = [replace(case, sizes=values, seed=case.seed + k) for k, values in enumerate(sizes)]
    rows = []
    for e in examples:
        args = e.operands(case.program.in_avals)
        rows.append((args, [*padded(e, args, masked.in_avals[: len(args)]), *e.own_sizes]))
    stacks = [np.stack([given[k] for _, given in rows]) for k in range(len(masked.ins))]
    batched, _ = vmap(masked, len(rows), (0,) * len(masked.ins), (0,) * len(masked.outs))
    typecheck(batched)
    have = run(batched, stacks)
    for k, (e, (args, _)) in enumerate(zip(examples, rows, strict=True)):
        fixed = specialize(case.program, tuple(sorted(e.sizes.items())))
        tolerance = program_tolerance(fixed, args)
        _compare(f"row {k} of a ragged batch", e, batched, [y[k] for y in have], run(fixed, args), tolerance)


# -------------------------------------------------------------------------------------------------------------- stacks


def _real(program: Jaxpr) -> tuple[bool, ...]:
    return tuple([a.inexact for a in program.in_avals])


def _jvp(program: Jaxpr, _: int) -> Jaxpr:
    """Results, then tangents of all inexact results."""
    forward, nonzero = jvp(program, _real(program))
    n, inexact = len(program.outs), [a.inexact for a in program.out_avals]
    b = Builder.like(forward)
    outs = b.inline(forward, forward.ins)
    return b.build([*outs[:n], *instantiate_outs(outs[n:], nonzero, program.out_avals, inexact)], program.name)


def _linearize(program: Jaxpr, _: int) -> Jaxpr:
    """Both halves, one after the other."""
    split, n = linearize(program, _real(program)), len(program.outs)
    b = Builder()
    args = b.inputs(program.in_avals)
    dots = b.inputs([a for a in program.in_avals if a.inexact])
    known = b.inline(split.primal, args)
    linear = instantiate_linear_outs(split, [a.inexact for a in program.out_avals])
    return b.build([*known[:n], *b.inline(linear, [*dots, *known[n:]])], program.name)


def _vmap(program: Jaxpr, sizes: int) -> Jaxpr:
    """Over two examples of the same sizes."""
    dims = (*(None,) * sizes, *(0,) * (len(program.ins) - sizes))
    return vmap(program, 2, dims, (0,) * len(program.outs))[0]


def _scan(program: Jaxpr, sizes: int) -> Jaxpr:
    """Two steps of a loop; each takes slices of the operands."""
    b = Builder()
    shared = b.inputs(program.in_avals[:sizes])
    slices = b.inputs([Aval((2, *a.shape), a.dtype) for a in program.in_avals[sizes:]])
    return b.build(b(Scan(program, 2, True, 1, sizes, 0), *shared, *slices), program.name)


def _cond(program: Jaxpr, _: int) -> Jaxpr:
    """A branch, chosen by an operand, beside zeros."""
    b = Builder.like(program)
    zeros = b.build([Lit.of(0, a) for a in program.out_avals], "zeros")
    b = Builder()
    args = b.inputs(program.in_avals)
    which = b.input(Aval((), dtypes.int32))
    return b.build(b(Cond((zeros, program), "select"), which, *args), program.name)


def _switch(program: Jaxpr, _: int) -> Jaxpr:
    """One of three branches, chosen by an operand."""
    b = Builder.like(program)
    zeros = b.build([Lit.of(0, a) for a in program.out_avals], "zeros")
    b = Builder()
    args = b.inputs(program.in_avals)
    which = b.input(Aval((), dtypes.int32))
    return b.build(b(Cond((zeros, program, program), "loop"), which, *args), program.name)


def _loop(program: Jaxpr, sizes: int) -> Jaxpr:
    """Two steps of a loop without slices. The sizes are carried."""
    b = Builder()
    consts = b.inputs(program.in_avals[sizes:])
    carried = b.inputs(program.in_avals[:sizes])
    b.inputs(program.out_avals)
    body = b.build([*carried, *b(Call(program), *carried, *consts)], "step")
    b = Builder()
    args = b.inputs(program.in_avals)
    start = [Lit.of(0, a) for a in program.out_avals]
    loop = Scan(body, 2, False, 1, len(consts), sizes + len(start))
    return b.build(b(loop, *args[sizes:], *args[:sizes], *start)[sizes:], program.name)


def _while(program: Jaxpr, sizes: int) -> Jaxpr:
    """A loop that stops after two steps, counted in its carry, beside the sizes."""
    count = Aval((), dtypes.int32)
    n_consts = len(program.ins) - sizes
    b = Builder()
    consts, number, carried = b.inputs(program.in_avals[sizes:]), b.input(count), b.inputs(program.in_avals[:sizes])
    b.inputs(program.out_avals)
    more = b.one(ADD, number, Lit.of(1, count))
    body = b.build([more, *carried, *b(Call(program), *carried, *consts)], "step")
    b = Builder()
    number, *_ = b.inputs([count, *program.in_avals[:sizes], *program.out_avals])
    condition = b.build([b.one(LT, number, Lit.of(2, count))], "more")
    b = Builder()
    args = b.inputs(program.in_avals)
    start = [Lit.of(0, a) for a in program.out_avals]
    loop = While(condition, body, 0, n_consts, 2)
    return b.build(b(loop, *args[sizes:], Lit.of(0, count), *args[:sizes], *start)[1 + sizes :], program.name)


def _value_and_adjoint(program: Jaxpr, _: int) -> Jaxpr:
    """The results, and the adjoint of the linear half at one cotangent for each inexact result."""
    marks, n = _real(program), len(program.outs)
    split = linearize(program, marks)
    linear = instantiate_linear_outs(split, [a.inexact for a in program.out_avals])
    adjoint = transpose(linear, leading(sum(marks), len(linear.ins)))
    b = Builder()
    args = b.inputs(program.in_avals)
    cts = b.inputs(linear.out_avals)
    known = b.inline(split.primal, args)
    return b.build([*known[:n], *b.inline(adjoint, [*cts, *known[n:]])], program.name)


def _named_axis(program: Jaxpr, sizes: int) -> Jaxpr:
    """Over two indices of a named axis, with the mean of the results over the axis, which are of the same sizes."""
    b = Builder.like(program)
    total = Psum(("i",), (2,))
    outs = [b.one(total, v) if v.aval.inexact else v for v in b.inline(program, program.ins)]
    dims = (*(None,) * sizes, *(0,) * (len(program.ins) - sizes))
    return vmap_named(b.build(outs, program.name), 2, "i", dims, (0,) * len(program.outs))[0]


def _ruled(kind: str) -> Callable[[Jaxpr, int], Jaxpr]:
    def apply(program: Jaxpr, _: int) -> Jaxpr:
        b = Builder()
        return b.build(b(call_with_rule(program, kind), *b.inputs(program.in_avals)), program.name)

    return apply


def _invertible(program: Jaxpr, sizes: int) -> Jaxpr:
    """The program under `invertible`; a program that cannot be inverted stays as it is."""
    try:
        return invertible(program, leading(sizes, len(program.ins)))
    except (NotInvertibleError, NotDifferentiableError):
        return program


def _gradient(transform: Callable[[Jaxpr, tuple[bool, ...]], Jaxpr]) -> Callable[[Jaxpr, int], Jaxpr]:
    def apply(program: Jaxpr, _: int) -> Jaxpr:
        scalar, marks = scalarized(program), _real(program)
        return transform(scalar, marks) if has_gradient(scalar, marks) else program

    return apply


def _rewriting(transform: Callable[[Jaxpr], Jaxpr]) -> Callable[[Jaxpr, int], Jaxpr]:
    return lambda program, _: transform(program)


# A transformation of a program whose first operands are sizes, so many of them.
Transformation: TypeAlias = Callable[[Jaxpr, int], Jaxpr]

MASK_STEPS: Final[Mapping[str, Transformation]] = MappingProxyType(
    {
        "jvp": _jvp,
        "linearize": _linearize,
        "vjp": lambda program, _: vjp_fused(program, _real(program)),
        "grad": _gradient(grad),
        "value_and_grad": _gradient(value_and_grad),
        "vmap": _vmap,
        "scan": _scan,
        "cond": _cond,
        "call": _rewriting(as_one_call),
        "switch": _switch,
        "loop": _loop,
        "while": _while,
        "transpose": _value_and_adjoint,
        "named axis": _named_axis,
        "rule for tangents": _ruled("jvp"),
        "rule for cotangents": _ruled("vjp"),
        "invertible": _invertible,
        "remat": _rewriting(remat),
        "remat keeping products": _rewriting(lambda f: remat(f, dots)),
        "remat keeping all": _rewriting(lambda f: remat(f, everything)),
        "dce": _rewriting(dce),
        "cse": _rewriting(cse),
        "simplify": _rewriting(simplify),
        "inline": _rewriting(inline),
        "outline": _rewriting(outline),
        "reroll": _rewriting(reroll),
    }
)


def mask_stacks(depth: int = 3) -> st.SearchStrategy[tuple[str, ...]]:
    """Draw names of up to `depth` transformations beside mask; most stacks have that depth."""
    step = st.sampled_from([None, *MASK_STEPS])
    return st.tuples(*[step] * depth).map(lambda found: tuple([n for n in found if n]))


def check_mask_stack(stack: Sequence[str], case: RaggedCase, *, compiled: bool = False) -> bool:
    """`mask` commutes with every transformation: T(mask(f)) and mask(T(f)) give T(f) at the sizes, on the valid part,
    and zeros in the padding, for each stack T. So the cotangent of padding is zero.

    Returns False for a program that mask refuses.
    """
    try:
        outer = _sizes_first(case.program, case.own)
    except SizeError as e:
        return _refused(e)
    own, sizes = case.own, case.own_sizes
    plain = case.program
    for k, name in enumerate(stack):
        try:
            plain, outer = MASK_STEPS[name](plain, 0), MASK_STEPS[name](outer, len(own))
        except FxadError as e:
            e.add_note(f"in step {k} of mask > {' > '.join(stack)} of {case}")
            return _refused(e)
    typecheck(outer)
    case = replace(case, program=plain)
    args = case.operands(plain.in_avals)
    fixed = specialize(plain, tuple(sorted(case.sizes.items())))
    want, tolerance = run(fixed, args), 10 * program_tolerance(fixed, args)
    given = [*sizes, *padded(case, args, outer.in_avals[len(own) :])]
    law = f"mask > {' > '.join(stack)}"
    _compare(law, case, outer, run(outer, given), want, tolerance)
    if compiled:
        _compare(f"{law} in XLA", case, outer, xla(outer, given), want, tolerance)
    try:
        inner = mask(plain, own)
    except SizeError as e:
        return _refused(e)  # a derivative may have an equation that has no rule
    typecheck(inner)
    given = [*padded(case, args, inner.in_avals[: len(args)]), *sizes]
    _compare(f"{' > '.join(stack)} > mask", case, inner, run(inner, given), want, tolerance)
    return True


def _sizes_first(program: Jaxpr, padding: Padding) -> Jaxpr:
    """The masked program with its sizes as the first operands."""
    masked = mask(program, padding)
    n = len(masked.ins) - len(padding)
    b = Builder()
    sizes = b.inputs(masked.in_avals[n:])
    args = b.inputs(masked.in_avals[:n])
    return b.build(b(Call(masked), *args, *sizes), masked.name)
