"""The primitives of random numbers: a block cipher, and the derivative of a draw found by rejection.

All random numbers in fxad are Threefry-2x32 of a key and a counter. So a draw depends only on its key: not on the order
of draws, the device or batching. Keys, counters and distributions are composites in `fxad.random`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final, final

import numpy as np

from fxad import dtypes
from fxad.core.builder import Builder
from fxad.dtypes import DType
from fxad.errors import DTypeError, ShapeError
from fxad.ir import (
    Atom,
    Atoms,
    Aval,
    Avals,
    BatchCtx,
    Dims,
    Emit,
    Hlo,
    HloValues,
    Jaxpr,
    JvpCtx,
    Lit,
    NDArray,
    Primitive,
    Tangent,
    Zero,
    primitive,
)
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MAX, SUB, scale_tangent
from fxad.primitives.elementwise.exponential import EXP
from fxad.primitives.elementwise.family import FLOAT_ABOVE_8, Binary, batch_elementwise, literal_like
from fxad.primitives.elementwise.gamma import RANDOM_GAMMA_GRAD
from fxad.primitives.elementwise.logic import AND, LT, NE, OR, SHIFT_LEFT, SHIFT_RIGHT_LOGICAL, XOR
from fxad.primitives.elementwise.select import emit_where
from fxad.primitives.elementwise.special import DIGAMMA
from fxad.primitives.families import WithoutTangent
from fxad.primitives.operand_checks import check_count
from fxad.primitives.shape import BroadcastInDim

# Salmon et al., table 2 (Threefry-2x32) and the key schedule's parity word of section 4.2
_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA
_OPERANDS: Final = ("key word 0", "key word 1", "counter word 0", "counter word 1")


@final
@primitive
class Threefry2x32(WithoutTangent):
    """The Threefry-2x32 cipher, element by element: two words of a counter, encrypted under two words of a key.

    Type:   four u32 arrays of one shape (key, key, counter, counter) -> two of that shape.
    Rule:   integers: no derivative.
    Cost:   one function in StableHLO per shape. XLA fuses the straight-line form with the consumers of the bits into
            one vectorised kernel, which compiles and runs 3 times as fast as a loop over the rounds. If the bits are
            keys of further ciphers, XLA would duplicate the cipher in the kernel of each consumer and compile for
            seconds; `loop` prevents this.
    Source: Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC11,
            https://doi.org/10.1145/2063384.2063405
    """

    name: ClassVar[str] = "threefry2x32"
    loop: bool

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        key, *others = check_count(self, avals, 4)
        for what, aval in zip(_OPERANDS, avals, strict=True):
            if aval.dtype != dtypes.uint32:
                raise DTypeError(f"threefry2x32: takes uint32 operands, got {aval} as {what}")
        for what, aval in zip(_OPERANDS[1:], others, strict=True):
            if aval is not key:
                raise ShapeError(
                    f"threefry2x32: shapes differ: {_OPERANDS[0]} {key}, {what} {aval}",
                    remedy="broadcast the operands to one shape first",
                )
        return key, key

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        k0, k1, x0, x1 = [a.astype(np.uint32) for a in args]
        with np.errstate(over="ignore"):
            ks = (k0, k1, k0 ^ k1 ^ np.uint32(_PARITY))
            x0, x1 = x0 + ks[0], x1 + ks[1]
            for i in range(5):
                for r in _ROTATIONS[i % 2]:
                    x0 = x0 + x1
                    x1 = x0 ^ ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r)))
                x0, x1 = x0 + ks[(i + 1) % 3], x1 + ks[(i + 2) % 3] + np.uint32(i + 1)
        return np.asarray(x0), np.asarray(x1)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        if not self.loop:
            return hlo.call(_cipher_program(ins[0]), args)
        regions = _loop_regions(ins[0])
        count = regions[0].in_avals[0]
        carry = hlo.call(_initial_carry(ins[0]), args)
        types = (count, *ins, ins[0])
        return hlo.op("stablehlo.while", (hlo.constant(Lit.of(0, count)), *carry), types, {}, regions)[1:3]

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        outs, (at,) = batch_elementwise(self, ctx, args, dims)
        return outs, (at, at)


def _cipher_program(aval: Aval) -> Jaxpr:
    """Return the program of the twenty rounds."""
    b = Builder()
    x0, x1, *ks = _key_schedule(b, *b.inputs((aval,) * 4))
    for i in range(5):
        x0, x1 = _four_rounds(b, x0, x1, [literal_like(r, x0) for r in _ROTATIONS[i % 2]])
        x0 = b.one(ADD, x0, ks[(i + 1) % 3])
        x1 = b.one(ADD, b.one(ADD, x1, ks[(i + 2) % 3]), literal_like(i + 1, x1))
    return b.build((x0, x1), "threefry2x32")


def _initial_carry(aval: Aval) -> Jaxpr:
    """Return the program of the initial carry of the loop, without its count: the words of the counter, then those of
    the key schedule."""
    b = Builder()
    x0, x1, *ks = _key_schedule(b, *b.inputs((aval,) * 4))
    return b.build((x0, x1, ks[1], ks[2], ks[0]), "threefry2x32_initial_carry")


def _loop_regions(aval: Aval) -> tuple[Jaxpr, Jaxpr]:
    """Return the predicate and the body of the loop: four rounds per iteration."""
    count = aval.with_shape(())
    b = Builder()
    i, *_ = b.inputs((count, *[aval] * 5))
    predicate = b.build((b.one(LT, i, Lit.of(5, count)),), "threefry2x32_predicate")
    b = Builder()
    i, x0, x1, ka, kb, kc = b.inputs((count, *[aval] * 5))
    is_odd = b.one(NE, b.one(AND, i, Lit.of(1, count)), Lit.of(0, count))
    chosen = [emit_where(b, is_odd, Lit.of(s, count), Lit.of(r, count)) for r, s in zip(*_ROTATIONS, strict=True)]
    y0, y1 = _four_rounds(b, x0, x1, [_broadcast_scalar(b, r, aval) for r in chosen])
    following = b.one(ADD, i, Lit.of(1, count))
    y0, y1 = b.one(ADD, y0, ka), b.one(ADD, b.one(ADD, y1, kb), _broadcast_scalar(b, following, aval))
    return predicate, b.build((following, y0, y1, kb, kc, ka), "threefry2x32_body")


def _key_schedule(emit: Emit, k0: Atom, k1: Atom, x0: Atom, x1: Atom) -> Atoms:
    """Return the counter with the key added, and the three words of the key."""
    third = emit.one(XOR, emit.one(XOR, k0, k1), literal_like(_PARITY, k0))
    return emit.one(ADD, x0, k0), emit.one(ADD, x1, k1), k0, k1, third


def _four_rounds(emit: Emit, x0: Atom, x1: Atom, rotations: Sequence[Atom]) -> tuple[Atom, Atom]:
    """Return four rounds."""
    for r in rotations:
        x0 = emit.one(ADD, x0, x1)
        x1 = emit.one(XOR, x0, _rotate_left(emit, x1, r))
    return x0, x1


def _broadcast_scalar(emit: Emit, x: Atom, aval: Aval) -> Atom:
    """Return an array of type `aval` with `x`, 0-d, in all its elements."""
    return x if x.aval is aval else emit.one(BroadcastInDim(aval.shape, ()), x)


def _rotate_left(emit: Emit, x: Atom, r: Atom) -> Atom:
    back = literal_like(32 - r.integer, r) if isinstance(r, Lit) else emit.one(SUB, literal_like(32, r), r)
    return emit.one(OR, emit.one(SHIFT_LEFT, x, r), emit.one(SHIFT_RIGHT_LOGICAL, x, back))


# ----------------------------------------------------------------------------------------------- gamma's derivative


@final
@primitive
class GammaSample(Binary):
    """The second operand x, with the derivative of a draw from the gamma distribution in the first, its shape a. It
    computes nothing: x must be such a draw.

    x is usually found by rejection, which has no derivative. Implicit reparameterisation instead moves x with a so that
    the value of the distribution function at x stays the same.

    Type:   a, x: two float operands of one type, not float8. For `log`, x is the logarithm of the draw.
    Rule:   dx/da = random_gamma_grad(a, x), dx/dx = 1; the limit of these where the draw underflows. The second
            derivative in a is an error, as that of random_gamma_grad is.
    Source: Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients (2018), equation 7.
    """

    name: ClassVar[str] = "gamma_sample"
    takes: ClassVar[frozenset[DType]] = FLOAT_ABOVE_8
    log: bool

    def compute(self, a: NDArray, x: NDArray) -> object:
        return x

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return args[1:]

    def tangent(self, ctx: JvpCtx, a: Atom, x: Atom, out: Atom, a_dot: Tangent, x_dot: Tangent) -> Tangent:
        if isinstance(a_dot, Zero):
            return x_dot
        rate = _log_rate(ctx, a, out) if self.log else ctx.one(RANDOM_GAMMA_GRAD, a, out)
        return ctx.add(scale_tangent(ctx, a_dot, rate), x_dot)


def _log_rate(emit: Emit, a: Atom, log: Atom) -> Atom:
    """Return the derivative in a of the logarithm of a draw."""
    # below the limit the distribution function is u = x^a / gamma(a + 1) to the last digit, so
    # log x = (log u + lgamma(a + 1)) / a, whose derivative in a at a fixed u is (digamma(a + 1) - log x) / a
    limit = literal_like(math.log(float(np.spacing(np.ones((), a.aval.dtype)))), a)
    below = emit.one(LT, log, limit)
    draw = emit.one(EXP, emit.one(MAX, log, limit))
    rate = emit.one(DIV, emit.one(RANDOM_GAMMA_GRAD, a, draw), draw)
    rate_below = emit.one(DIV, emit.one(SUB, emit.one(DIGAMMA, emit.one(ADD, a, literal_like(1, a))), log), a)
    return emit_where(emit, below, rate_below, rate)


THREEFRY2X32: Final = Threefry2x32(loop=False)  # for bits of samples
THREEFRY2X32_LOOP: Final = Threefry2x32(loop=True)  # for keys
RANDOM: Final[tuple[type[Primitive], ...]] = (Threefry2x32, GammaSample)
