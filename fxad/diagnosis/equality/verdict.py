"""The answers to the question whether two programs are equal, and the question."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, TypeAlias, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.core.memo import by_value
from fxad.diagnosis.equality.domain import ExactValue
from fxad.ir import Aval, Jaxpr, Lit, NDArray, distinct_jaxprs
from fxad.support.tables import preformatted

_SHOWN: Final = 200  # greatest number of elements of an operand in a text
OperandArrays: TypeAlias = Sequence[NDArray]


@final
@dataclass(frozen=True, slots=True)
class Proof:
    """Two programs are equal.

    how:         "identity" if both have one normal form; else "evaluation", at random points of finite fields.
    of:          "bits" for the same floating operations on the same values; "real functions" for equal functions of
                 real and complex numbers. Floating programs may round them differently.
    error:       -log2 of a bound of the probability, over the points, that the proof is wrong; inf for "identity".
    known:       the operands whose values were given. The proof holds for these values of them.
    assumptions: what the proof takes for granted beyond rounding: that floats are finite, that no denominator is zero,
                 and others. A proof by "identity", or of "bits", needs none.
    """

    how: str
    of: str
    error: float
    known: tuple[int, ...] = ()
    assumptions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        lines = [f"equal as {self.of if self.of != 'bits' else 'sequences of floating operations'}, by {self.how}"]
        if self.how != "identity":
            lines.append(f"  wrong with probability at most 2^-{int(self.error)}")
        if self.known:
            lines.append(f"  for the given values of operands {', '.join(map(str, self.known))}")
        lines += [f"  assuming that {a}" for a in self.assumptions]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """Two programs differ: their results for some operands.

    args:   operands, of the types of the programs.
    result, index: the number of a result, and the place of an element that differs.
    left, right:   the element in each program: in float64, or in the program's own dtypes for `of` "bits".
    """

    args: tuple[NDArray, ...]
    result: int
    index: tuple[int, ...]
    left: object
    right: object
    of: str = "real functions"

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        at = f"result {self.result}" + (f"[{', '.join(map(str, self.index))}]" if self.index else "")
        lines = [f"different: {at} is {self.left} and {self.right} at"]
        return "\n".join([*lines, *[f"  operand {k}: {_elements(a)}" for k, a in enumerate(self.args)]])

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _elements(x: NDArray) -> str:
    """Return the elements of an array as nested lists; the first and the last of a large one."""
    array = np.asarray(x)
    return str(array.tolist()) if array.size <= _SHOWN else np.array2string(array, threshold=_SHOWN, separator=", ")


@final
@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither equality nor a difference was found.

    equation: the equation that was not decided, with its program; of the second program, the first whose values the
              first program does not have; "" if it is none in particular.
    reason:   why.
    where:    the user's line of the equation.
    """

    equation: str
    reason: str
    where: str = ""

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        at = f" at {self.equation}" * bool(self.equation) + f", {self.where}" * bool(self.where)
        return f"not decided{at}: {self.reason}"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


Verdict: TypeAlias = "Proof | Counterexample | Unknown"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Two programs, and what is known of their operands.

    bound: for each program, the values of its first operands. avals: the types of the others, which both programs have.
    known: their values, or None. `seed` is that of the operands that are drawn.
    """

    programs: tuple[Jaxpr, Jaxpr]
    bound: tuple[OperandArrays, OperandArrays]
    known: Sequence[NDArray | None]
    seed: int = 0

    @property
    def avals(self) -> tuple[Aval, ...]:
        """The types of the operands that both programs have."""
        return self.programs[0].in_avals[len(self.bound[0]) :]

    @property
    def field_seed(self) -> int:
        """The seed of the primes and the random functions. Every constant of the question changes it: a program that
        was written with the primes or the points of another question meets other ones."""
        bits = hashlib.blake2b(b"".join([str(self.seed).encode(), *map(_hash, self.programs)]), digest_size=16)
        for x in (*self.bound[0], *self.bound[1], *[x for x in self.known if x is not None]):
            bits.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
        return int.from_bytes(bits.digest(), "little")

    def operands(self, args: Sequence[ExactValue]) -> tuple[list[ExactValue], list[ExactValue]]:
        """Return the operands of each program."""
        left, right = self.bound
        return [*left, *args], [*right, *args]


@by_value
def _hash(jaxpr: Jaxpr) -> bytes:
    """Return a hash of the constants and parameters of a program; unlike `digest`, also of those that have no text."""
    bodies = distinct_jaxprs(jaxpr)
    parts = [f"{e.prim!r}{[a for a in e.ins if isinstance(a, Lit)]}" for body in bodies for e in body.eqns]
    return hashlib.blake2b("\n".join(parts).encode()).digest()


def bytes_differ(x: NDArray, y: NDArray) -> NDArray:
    """Return where two arrays of one type have other bytes."""
    words = [np.ascontiguousarray(z).reshape(-1).view(f"V{z.dtype.itemsize}").reshape(z.shape) for z in (x, y)]
    return np.asarray(words[0] != words[1])
