"""Derivatives of the steps of `scan` and `while`: forward mode, linearization and transposition.

A loop is `Steps`: a body (constants, carry, slices) -> (carry, stacked results). Its derivatives are loops too, and
functions here return their bodies. A tangent of the carry that is zero in the first step can be nonzero later; so can a
cotangent. A fixpoint over the body finds those that are zero in all steps: the body is differentiated, the carries that
it returns with a nonzero tangent are marked as operands with one, and this is repeated until no mark is added.

1. `fuse_tangents`: forward mode. One loop computes results and tangents.
2. `linearize_steps`: two loops. The primal loop computes the results and stacks residuals. The linear loop has the
   tangents as carry and runs over the residuals. A residual is not stacked if the linear loop can read it elsewhere:
   a loop invariant (a constant of the linear loop), a counter (an `iota` outside), or a slice of an operand or result.
3. `transpose_steps`: the linear loop, transposed. It runs in the opposite direction. Its carry is the cotangents of
   the carry, and the sums of the cotangents of the constants, which every step reads. It runs over the cotangents of
   the stacked results, and over the residuals.
4. `split_known_carries`: before 3, the carries that depend on nothing linear go to a loop of their own, which stacks
   their values before each step.

In the example, each step is `sin(w * c)` under `remat`. The linear loop takes the tangent of `w` and `w` as constants,
the tangent of `c` as carry, and the stacked carries `c` as slices. It recomputes `w * c`. The transposed loop runs in
reverse; its carry is the sum of the cotangents of `w`, then the cotangent of `c`.

>>> import fxad as fx, fxad.numpy as fnp
>>> from fxad.transforms import linearize, transpose
>>> def step(w, c):
...     return fnp.sin(w * c * 2.5)
>>> def loop(w, c):
...     return fx.lax.scan(lambda c, _: (fx.remat(step)(w, c), None), c, None, length=4)[0]
>>> x = fx.Spec((3,), "float32")
>>> halves = linearize(fx.trace(loop, x, x).jaxpr, (True, True))
>>> print(halves.linear)  # doctest: +NORMALIZE_WHITESPACE
fn @again_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[3]) -> (f32[3]) {
  %0: f32[3] = mul %arg2, %arg3
  %1: f32[3] = mul %0, 2.5:f32[3]
  %2: f32[3] = cos %1
  %3: f32[3] = mul %arg0, %arg3
  %4: f32[3] = mul %arg1, %arg2
  %5: f32[3] = add %3, %4
  %6: f32[3] = mul %5, 2.5:f32[3]
  %7: f32[3] = mul %6, %2
  return %7
}
<BLANKLINE>
fn @linear_remat_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[3]) -> (f32[3]) {
  %0: f32[3] = remat[body=@again_step, opaque=false] %arg0, %arg2, %arg1, %arg3
  return %0
}
<BLANKLINE>
main @linear_loop(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[4,3]) -> (f32[3]) {
  %0: f32[3] = scan[body=@linear_remat_step, length=4, reverse=false, unroll=1,
                       n_consts=2, n_carry=1, upto=false] %arg0, %arg2, %arg1, %arg3
  return %0
}
<BLANKLINE>
>>> print(transpose(halves.linear, (True, True, False, False)))  # doctest: +NORMALIZE_WHITESPACE
fn @transpose_again_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3]) -> (f32[3], f32[3]) {
  %0: f32[3] = mul %arg1, %arg2
  %1: f32[3] = mul %0, 2.5:f32[3]
  %2: f32[3] = cos %1
  %3: f32[3] = mul %arg0, %2
  %4: f32[3] = mul %3, 2.5:f32[3]
  %5: f32[3] = mul %4, %arg1
  %6: f32[3] = mul %4, %arg2
  return %6, %5
}
<BLANKLINE>
fn @transpose_linear_remat_step(%arg0: f32[3], %arg1: f32[3], %arg2: f32[3], %arg3: f32[3]) -> (f32[3], f32[3]) {
  %0: f32[3], %1: f32[3] = remat[body=@transpose_again_step, opaque=false] %arg2, %arg0, %arg3
  %2: f32[3] = add %arg1, %0
  return %2, %1
}
<BLANKLINE>
main @transpose_linear_loop(%arg0: f32[3], %arg1: f32[3], %arg2: f32[4,3]) -> (f32[3], f32[3]) {
  %0: f32[3], %1: f32[3] = scan[body=@transpose_linear_remat_step, length=4, reverse=true, unroll=1,
                                  n_consts=1, n_carry=2, upto=false] %arg1, 0.0:f32[3], %arg0, %arg2
  return %0, %1
}
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, final

from fxad.core.builder import Builder, rebind_operands, substitute
from fxad.core.dataclasses import dataclass
from fxad.core.dce import dependent_values, live_eqns, read_operands, remove_dead_eqns
from fxad.core.flags import select_by_flags, split_by_flags
from fxad.core.memo import by_value
from fxad.ir import Atom, Atoms, Emit, Flags, Jaxpr, LinearizedBody, Lit, Tangent, Tangents, Var
from fxad.primitives.control.bodies import instantiate_linear_outs, instantiate_outs
from fxad.primitives.control.loop_residuals import LoopInvariants, counters, drop_cheap_residuals, loop_invariants
from fxad.primitives.control.loop_steps import Steps, carry_fixpoint
from fxad.primitives.control.remat import is_opaque, without_opaque
from fxad.primitives.elementwise.arithmetic import ADD, MUL, SUB
from fxad.primitives.linearity import is_linear, is_zero
from fxad.primitives.shape import Iota, emit_broadcast

T = TypeVar("T")

# ------------------------------------------------------------------------------------------------------ forward mode


@final
@dataclass(frozen=True, slots=True)
class FusedSteps:
    """Steps that compute tangents together with results. Each group of operands, the carry and the stacked results are
    followed by their tangents. `in_nonzero` and `out_nonzero` mark the operands and the results that have a tangent;
    both hold the fixpoint for the carry."""

    steps: Steps
    in_nonzero: Flags
    out_nonzero: Flags

    def split_results(self, outs: Sequence[T], n_carry: int) -> tuple[tuple[T, ...], tuple[T, ...]]:
        """Split the results of a loop over these steps into the results of the loop without tangents, which begin with
        `n_carry` carries, and the tangents of the marked ones."""
        n_fused = self.steps.n_carry
        ys_end = n_fused + len(self.out_nonzero) - n_carry
        return (*outs[:n_carry], *outs[n_fused:ys_end]), (*outs[n_carry:n_fused], *outs[ys_end:])


def fuse_tangents(steps: Steps, recur: Callable[[Jaxpr, Flags], tuple[Jaxpr, Flags]], nonzero: Flags) -> FusedSteps:
    """Return the forward mode of the steps, for tangents of the marked operands."""
    consts, first_carry, xs = steps.split(nonzero)
    body, body_out_nonzero, carry = carry_fixpoint(first_carry, lambda marks: recur(steps.body, (*consts, *marks, *xs)))
    in_nonzero, out_nonzero = (*consts, *carry, *xs), (*carry, *body_out_nonzero[steps.n_carry :])
    # the body takes all operands, then all tangents: operand k is k, and the tangents are numbered from n on
    n, n_out, n_carry_tangents = len(in_nonzero), len(out_nonzero), sum(carry)
    tangent_of = dict(zip([k for k, m in enumerate(in_nonzero) if m], range(n, len(body.ins)), strict=True))
    order = [k for group in steps.split(range(n)) for k in (*group, *[tangent_of[j] for j in group if in_nonzero[j]])]
    primal = body.outs[:n_out]
    tangents = instantiate_outs(body.outs[n_out:], body_out_nonzero, steps.body.out_avals, out_nonzero)
    results = (
        *primal[: steps.n_carry],
        *tangents[:n_carry_tangents],
        *primal[steps.n_carry :],
        *tangents[n_carry_tangents:],
    )
    body = rebind_operands(body, order, outs=results)
    fused = Steps(body, steps.n_consts + sum(consts), steps.n_carry + n_carry_tangents)
    return FusedSteps(fused, in_nonzero, out_nonzero)


# ---------------------------------------------------------------------------------------------------- linearization


@final
@dataclass(frozen=True, slots=True)
class LinearizedSteps:
    """The primal and the linear half of the steps. Each residual is stored once.

    `primal` takes `hoisted` as further constants, and stacks residuals as further results. `linear` takes

    - as constants: the tangents of the constants, then `invariant`, the residuals that are loop invariants;
    - as carry: the tangents of the carry;
    - as slices: the tangents of the slices, then the residuals that vary. `residual_slices` are the numbers of their
      arrays among the arrays that `primal` runs over, `counter_values`, and the arrays that `primal` stacks.

    `in_nonzero` and `out_nonzero` mark the values with a tangent, as in `FusedSteps`.
    """

    primal: Steps
    hoisted: tuple[Atom, ...]
    linear: Steps
    invariant: tuple[Atom, ...]
    counter_values: tuple[Atom, ...]
    residual_slices: tuple[int, ...]
    in_nonzero: Flags
    out_nonzero: Flags

    def linear_operands(
        self, tangents: tuple[Tangents, Tangents, Tangents], xs: Sequence[Atom], ys: Sequence[Atom]
    ) -> list[Tangent | Atom]:
        """Return the operands of the linear loop. `tangents` are those of the constants, the carry and the slices; `xs`
        are the arrays that the primal loop runs over, `ys` those that it stacks: results of the body, then residuals.
        """
        consts, carry, slices = tangents
        arrays = (*xs, *self.counter_values, *ys)
        return [*consts, *self.invariant, *carry, *slices, *[arrays[k] for k in self.residual_slices]]


@final
@dataclass(frozen=True, slots=True)
class LoopContext:
    """The context of a loop: a way to emit equations outside it, its operands, length and direction.

    `is_loop`: it is compiled as a loop, not unrolled. Then both halves are loops, and XLA does not merge computations
    of two loops. `is_start_known`: the index of the first step is known. It is not known of a reversed loop over a
    count, which begins with the last of the steps that it takes.
    """

    emit: Emit
    operands: tuple[Atom, ...]
    length: int
    reverse: bool
    is_loop: bool
    is_start_known: bool


def linearize_steps(
    outside: LoopContext, steps: Steps, recur: Callable[[Jaxpr, Flags], LinearizedBody], nonzero: Flags
) -> LinearizedSteps:
    """Linearize steps with respect to the marked operands.

    The body is linearized. Then `classify_residuals` says where the linear half reads each residual, and the steps of
    both loops are built accordingly.
    """
    consts, first_carry, xs = steps.split(nonzero)

    def linearize_body(marks: Flags) -> tuple[LinearizedBody, Flags]:
        linearized = recur(steps.body, (*consts, *marks, *xs))
        return linearized, linearized.out_nonzero

    linearized, body_out_nonzero, carry = carry_fixpoint(first_carry, linearize_body)
    in_nonzero, out_nonzero = (*consts, *carry, *xs), (*carry, *body_out_nonzero[steps.n_carry :])
    n_out = len(out_nonzero)
    primal = Steps(linearized.primal.with_outs(linearized.primal.outs[:n_out]), steps.n_consts, steps.n_carry)
    invariants = loop_invariants(primal)
    increments = counters(primal) if outside.is_start_known else {}
    _, _, slices = primal.split(primal.body.ins)
    ys = primal.body.outs[primal.n_carry :]
    free = {a for a in (*invariants.values, *increments, *slices, *ys) if isinstance(a, Var)}
    linearized = drop_cheap_residuals(linearized, n_out, free)
    residuals = linearized.primal.outs[n_out:]

    hoisted = _hoist(outside, primal, invariants, residuals)
    sources = classify_residuals(primal, residuals, hoisted, increments)
    stacking, hoisted_operands = _without_hoisted(primal, hoisted, (*primal.body.outs, *sources.stacked))
    linear = _linear_steps(primal, in_nonzero, instantiate_linear_outs(linearized, out_nonzero), residuals, sources)
    if outside.is_loop and not is_opaque(stacking.body):
        linear = Steps(without_opaque(linear.body), linear.n_consts, linear.n_carry)
    return LinearizedSteps(
        primal=stacking,
        hoisted=hoisted_operands,
        linear=linear,
        invariant=tuple(sources.invariant.values()),
        counter_values=tuple([_counter_values(outside, primal, v, increments[v]) for v in sources.counters]),
        residual_slices=tuple(sources.slices.values()),
        in_nonzero=in_nonzero,
        out_nonzero=out_nonzero,
    )


@final
@dataclass(frozen=True, slots=True)
class ResidualSources:
    """Where the linear half of a loop reads each residual of the body: as a literal, a constant or a slice.

    literals:  the residuals that are a literal in every step.
    invariant: the other residuals that are the same in every step, with their values outside of the loop.
    slices:    all other residuals, with the number of the array that holds their values. The arrays are, in this order:
               those that the primal half runs over, those of `counters`, those that the primal half stacks as results,
               and those of `stacked`.
    counters:  the residuals whose array is computed outside of the loop, from an `iota`.
    stacked:   the residuals that the primal half stacks, as further results. Only these need memory of their own.
    """

    literals: dict[Atom, Lit]
    invariant: dict[Atom, Atom]
    slices: dict[Atom, int]
    counters: tuple[Var, ...]
    stacked: tuple[Atom, ...]


def classify_residuals(
    primal: Steps, residuals: Sequence[Atom], outside: Mapping[Atom, Atom], increments: Mapping[Var, Lit]
) -> ResidualSources:
    """Return the sources of the residuals of a body. `outside` maps values of the body to their values outside of the
    loop, if they are computed there. `increments` are the counters of the body.

    In the example, a step takes the constant w, the carries i and c, and the slice x. The last five results of its
    primal half are residuals: x, y, sin(w), c and i.

    >>> import fxad as fx, fxad.numpy as fnp
    >>> from fxad.transforms import linearize
    >>> def step(w, i, c, x):
    ...     y = fnp.exp(c * x)
    ...     return i + 2, fnp.sin(w) * y + i.astype("float32") * c * c, y
    >>> f32 = fx.Spec((), "float32")
    >>> body = fx.trace(step, f32, fx.Spec((), "int32"), f32, f32).jaxpr
    >>> split = linearize(body, (False, False, True, False))
    >>> primal = Steps(split.primal.with_outs(split.primal.outs[:3]), n_consts=1, n_carry=2)
    >>> free = {*primal.body.ins[3:], *counters(primal)}
    >>> split = drop_cheap_residuals(split, 3, free)  # i in place of its conversion to f32
    >>> print(split.primal)  # doctest: +NORMALIZE_WHITESPACE
    main @step(%arg0: f32[], %arg1: i32[], %arg2: f32[], %arg3: f32[])
            -> (i32[], f32[], f32[], f32[], f32[], f32[], f32[], i32[]) {
      %0: f32[] = mul %arg2, %arg3
      %1: f32[] = exp %0
      %2: i32[] = add %arg1, 2:i32[]
      %3: f32[] = sin %arg0
      %4: f32[] = mul %3, %1
      %5: f32[] = convert_element_type[dtype=f32] %arg1
      %6: f32[] = mul %5, %arg2
      %7: f32[] = mul %6, %arg2
      %8: f32[] = add %4, %7
      return %2, %8, %1, %arg3, %1, %3, %arg2, %arg1
    }
    <BLANKLINE>
    >>> outside = {v: v for v in loop_invariants(primal).values}  # w and sin(w)
    >>> sources = classify_residuals(primal, split.primal.outs[3:], outside, counters(primal))
    >>> list(sources.invariant)
    [%3:f32[]]
    >>> sources.counters, sources.stacked  # i is an `iota`, and c needs memory
    ((%arg1:i32[],), (%arg2:f32[],))
    >>> sources.slices  # of the arrays: those of x, of i, of the result y, and of c
    {%arg3:f32[]: 0, %1:f32[]: 2, %arg2:f32[]: 3, %arg1:i32[]: 1}
    """
    _, _, slices = primal.split(primal.body.ins)
    ys = primal.body.outs[primal.n_carry :]
    constant = {r: outside[r] for r in residuals if r in outside}
    read_counters = tuple([v for v in increments if v in residuals])
    in_arrays = {*slices, *read_counters, *ys}
    stacked = tuple([r for r in residuals if r not in constant and r not in in_arrays])
    array_of: dict[Atom, int] = {}
    for k, a in enumerate((*slices, *read_counters, *ys, *stacked)):
        array_of.setdefault(a, k)
    return ResidualSources(
        literals={r: a for r, a in constant.items() if isinstance(a, Lit)},
        invariant={r: a for r, a in constant.items() if not isinstance(a, Lit)},
        slices={r: array_of[r] for r in residuals if r not in constant},
        counters=read_counters,
        stacked=stacked,
    )


def _linear_steps(
    steps: Steps, in_nonzero: Flags, linear: Jaxpr, residuals: Sequence[Atom], sources: ResidualSources
) -> Steps:
    """Return the linear half (tangents, residuals) -> tangents as steps: its constants are the tangents of constants,
    then invariant residuals; its carry is the tangents of the carry; its slices are the tangents of slices, then the
    residuals that vary."""
    # the key of the tangent of operand k is k; the key of a residual is the residual
    consts, carry, xs = steps.split_marked(range(len(in_nonzero)), in_nonzero)
    takes: list[int | Atom] = [*consts, *carry, *xs, *residuals]
    wants: list[int | Atom] = [*consts, *sources.invariant, *carry, *xs, *sources.slices]
    literals: dict[int | Atom, Lit] = dict(sources.literals.items())
    body = rebind_operands(linear, wants, has=takes, literals=literals)
    return Steps(body, len(consts) + len(sources.invariant), len(carry))


def _hoist(
    outside: LoopContext, steps: Steps, invariants: LoopInvariants, residuals: Sequence[Atom]
) -> dict[Atom, Atom]:
    """Compute the loop invariants among `residuals` outside the loop. Return a map from variables of the body to values
    outside: these, the values that they need, and slices of literals."""
    hoisted: dict[Atom, Atom] = {
        v: a for v, a in zip(steps.body.ins, outside.operands, strict=True) if v in invariants.values
    }
    _, _, slices = steps.split(steps.body.ins)
    for v, a in zip(slices, steps.split(outside.operands)[2], strict=True):
        if isinstance(a, Lit):  # a slice of a literal
            hoisted[v] = a.with_shape(v.aval.shape)
    for eqn in live_eqns(invariants.eqns, residuals, effects=False):
        hoisted.update(zip(eqn.outs, outside.emit(eqn.prim, *[hoisted.get(a, a) for a in eqn.ins]), strict=True))
    return hoisted


def _counter_values(outside: LoopContext, steps: Steps, v: Var, step: Lit) -> Atom:
    """Return the value of a counter before each step, stacked."""
    emit, index = outside.emit, v.aval.with_shape((outside.length,))
    count: Atom = emit.one(Iota(index.shape, index.dtype, 0))
    if outside.reverse:
        count = emit.one(SUB, Lit.of(outside.length - 1, index), count)
    count = emit.one(MUL, count, step.with_shape(index.shape))
    first = outside.operands[steps.body.ins.index(v)]
    return emit.one(ADD, emit_broadcast(emit, first, index.shape, ()), count)


def _without_hoisted(steps: Steps, hoisted: dict[Atom, Atom], outs: Atoms) -> tuple[Steps, Atoms]:
    """Return the steps with other results and without the equations whose results are in `hoisted`, and the values of
    the further constants: the hoisted values that the remaining equations read."""
    body = steps.body
    remaining_eqns = [e for e in body.eqns if hoisted.keys().isdisjoint(e.outs)]
    if len(remaining_eqns) == len(body.eqns):
        return Steps(body.with_outs(outs), steps.n_consts, steps.n_carry), ()
    values_read = {*outs, *[a for e in remaining_eqns for a in e.ins]}
    added_consts = [v for e in body.eqns if not hoisted.keys().isdisjoint(e.outs) for v in e.outs if v in values_read]
    consts, carry, xs = steps.split(body.ins)
    b = Builder()
    env: dict[Atom, Atom] = {v: b.input(v.aval) for v in (*consts, *added_consts, *carry, *xs)}
    b.extend(remaining_eqns, env)
    smaller = Steps(b.build(substitute(outs, env), body.name), steps.n_consts + len(added_consts), steps.n_carry)
    return smaller, tuple([hoisted[v] for v in added_consts])


# ------------------------------------------------------------------------------------------------------ transposition


@by_value
def is_linear_body(body: Jaxpr, n_consts: int, n_carry: int, flags: Flags) -> bool:
    """Return True if the carries and stacked results of the steps are linear in the marked operands.

    Carries that are not marked (known carries) must not depend on marked operands, and must have an integer or bool
    type. The same holds for stacked results that are not linear. These have no cotangent.
    """
    dependent = dependent_values(body.eqns, select_by_flags(body.ins, flags))
    has_cotangent = [a in dependent or a.aval.inexact for a in body.outs]
    linear_carry = flags[n_consts : n_consts + n_carry]
    _, known_has_cotangent = split_by_flags(has_cotangent[:n_carry], linear_carry)
    linear_outs = select_by_flags(body.outs, (*linear_carry, *has_cotangent[n_carry:]))
    return not any(known_has_cotangent) and is_linear(body.with_outs(linear_outs), flags)


@final
@dataclass(frozen=True, slots=True)
class SplitKnownCarries:
    """The steps of a scan, split by the carries that depend on nothing linear (the known ones).

    `known` computes only these carries, and stacks their values before each step. `linear` computes the other carries
    and all results, and takes these stacks as its last slices. Operands are numbered as those of the scan; the stacks
    have the next numbers.
    """

    known: Steps
    known_operands: tuple[int, ...]
    linear: Steps
    linear_operands: tuple[int, ...]


def split_known_carries(steps: Steps, flags: Flags) -> SplitKnownCarries:
    """Compute the carries that are not marked in a scan of their own. All carries of the remaining steps are linear.

    The step (w, i, c) -> (i + 1, w[i] * c), linear in c, becomes

    - `known`: i -> (i + 1, i), which stacks i. `known_operands` are (1,).
    - `linear`: (w, c, i) -> w[i] * c, which runs over the stack. `linear_operands` are (0, 2, 3); 3 is the stack.
    """
    body, n, n_consts = steps.body, len(steps.body.ins), steps.n_consts
    consts, carry, xs = steps.split(range(n))
    linear_carry, known_carry = split_by_flags(carry, steps.split(flags)[1])
    next_values, values = [body.outs[k - n_consts] for k in known_carry], [body.ins[k] for k in known_carry]
    known_body = remove_dead_eqns(body.with_outs([*next_values, *values]))
    reads = read_operands(known_body)
    known_consts, known_xs = [k for k in consts if reads[k]], [k for k in xs if reads[k]]
    known_operands = (*known_consts, *known_carry, *known_xs)
    known_steps = Steps(rebind_operands(known_body, known_operands), len(known_consts), len(known_carry))
    results = (*[body.outs[k - n_consts] for k in linear_carry], *body.outs[steps.n_carry :])
    operands = (*consts, *linear_carry, *xs)
    linear = Steps(rebind_operands(body, (*operands, *known_carry), outs=results), n_consts, len(linear_carry))
    return SplitKnownCarries(known_steps, known_operands, linear, (*operands, *range(n, n + len(known_carry))))


@final
@dataclass(frozen=True, slots=True)
class TransposedSteps:
    """The steps of a transposed scan.

    Constants: the known constants.
    Carry:     the sums of the cotangents of linear constants, then the cotangents of the carry.
    Slices:    the cotangents of stacked results, then the known slices.
    Results:   this carry, then the cotangents of linear slices.

    Cotangents that are zero in every step are left out. The flags mark the linear constants, carries and linear slices
    of the scan that have a cotangent.
    """

    steps: Steps
    consts_nonzero: Flags
    carry_nonzero: Flags
    xs_nonzero: Flags


def transpose_steps(
    steps: Steps, recur: Callable[[Jaxpr, Flags], Jaxpr], flags: Flags, final_carry_nonzero: Flags, ys_nonzero: Flags
) -> TransposedSteps:
    """Transpose steps that are linear in the operands marked in `flags`, which include all carries. The others mark the
    results of the loop whose cotangent is not zero: final carries and stacked results."""
    body, n_carry = steps.body, steps.n_carry
    linear_consts, _, _ = steps.split(flags)
    n_linear, n_known = linear_consts.count(True), linear_consts.count(False)

    def transposed(carry: Flags) -> tuple[Jaxpr, Flags]:
        back = recur(body.with_outs(select_by_flags(body.outs, (*carry, *ys_nonzero))), flags)
        return back, tuple([not is_zero(a) for a in back.outs[n_linear:]])

    # of the body: (cotangents of the carry and the rows, known operands) -> cotangents of linear consts, carry, xs
    back, carry_and_xs_nonzero, carry = carry_fixpoint(final_carry_nonzero, transposed)
    consts, xs = tuple([not is_zero(a) for a in back.outs[:n_linear]]), carry_and_xs_nonzero[n_carry:]
    n_cts, n_rows = sum(carry), sum(ys_nonzero)
    ct_types, row_types = back.in_avals[:n_cts], back.in_avals[n_cts : n_cts + n_rows]
    known_types = back.in_avals[n_cts + n_rows :]
    b = Builder()
    known_consts = b.inputs(known_types[:n_known])
    sums = b.inputs(select_by_flags(back.out_avals[:n_linear], consts))
    cts = b.inputs(ct_types)
    rows = b.inputs(row_types)
    slices = b.inputs(known_types[n_known:])
    bars = b.inline(back, [*cts, *rows, *known_consts, *slices])
    new_sums = [b.one(ADD, s, d) for s, d in zip(sums, select_by_flags(bars[:n_linear], consts), strict=True)]
    new_carry_and_rows = select_by_flags(bars[n_linear:], (*carry, *xs))
    step = b.build((*new_sums, *new_carry_and_rows), back.name)
    return TransposedSteps(Steps(step, n_known, len(sums) + len(cts)), consts, carry, xs)
