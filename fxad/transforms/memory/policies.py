"""Policies: values that select the equations whose results a `remat` stores for the backward pass.

>>> from fxad import policies
>>> print(policies.dots_without_batch_dims | policies.names("attention") & ~policies.names("scores"))
dots_without_batch_dims | names('attention') & ~names('scores')

`remat` evaluates its policy once, when it is applied, and marks the selected values in the program. The program holds
no function, and transformations do not evaluate the policy again. So a product without batch dimensions that was
selected stays selected under vmap, which adds a batch dimension.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import fields
from inspect import Parameter, signature
from typing import Final, TypeGuard, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, described, shown
from fxad.ir import Aval, Eqn, Primitive, operand_var, result_vars, source_location
from fxad.primitives.dot import Contraction
from fxad.primitives.marks import Name
from fxad.support.constants import BYTES_PER_MICROSECOND
from fxad.transforms.costs import microseconds
from fxad.transforms.locate import describe


class Policy(ABC):
    """Selects the equations whose results are stored. All other values are computed again.

    Rule: a value: frozen, hashable, equal to an equal one. `a | b` stores what `a` or `b` stores, `a & b` what both
          store, `~a` everything else. To write a policy, derive a frozen dataclass from this class, or use `where`.
          A policy is also a function as in JAX, of a primitive, the types of its operands and its parameters.
    """

    __slots__ = ()

    @abstractmethod
    def keeps(self, eqn: Eqn) -> bool:
        """Return True if the results of an equation are stored."""

    def __call__(self, prim: Primitive, /, *avals: Aval, **params: object) -> bool:
        """Return True if the results of a primitive are stored. The primitive itself has the parameters."""
        operands = tuple([operand_var(k, a) for k, a in enumerate(avals)])
        return decided(self, Eqn(prim, operands, result_vars(0, prim.abstract_eval(*avals)), None))

    def __or__(self, other: Policy) -> Policy:
        return Either(self, check_policy("|", other))

    def __and__(self, other: Policy) -> Policy:
        return Both(self, check_policy("&", other))

    def __invert__(self) -> Policy:
        return Negated(self)

    def __bool__(self) -> bool:
        raise ArgumentError(
            f"the policy {self} is neither true nor false", remedy="combine policies by |, & and ~, not by or, and, not"
        )


def check_policy(what: str, policy: object) -> Policy:
    """Return `policy` if it is one, and the policy of a function as in JAX. Raises: ArgumentError otherwise."""
    if isinstance(policy, Policy):
        return policy
    if _takes_parameters(policy):
        return AsInJax(policy, str(getattr(policy, "__name__", type(policy).__name__)))
    remedy = "one of fxad.policies: nothing, everything, dots, names(...), where(predicate), ..."
    if isinstance(policy, type) and issubclass(policy, Policy):
        remedy = f"make one of the class: {policy.__name__}(...)"
    elif callable(policy):
        remedy = "policies.where(f) takes a function of an equation; one as in JAX takes (prim, *avals, **params)"
    elif isinstance(policy, str):
        remedy = "policies.names(...) chooses by name"
    raise ArgumentError(f"{what}: {described(policy)} is not a policy: {shown(policy)}", remedy=remedy)


def _takes_parameters(policy: object) -> TypeGuard[Callable[..., bool]]:
    """Return True for a function that takes any number of types and any parameters, as policies of JAX do."""
    if not callable(policy) or isinstance(policy, type) or not isinstance(policy, Hashable):
        return False
    try:
        kinds = [p.kind for p in signature(policy).parameters.values()]
    except (TypeError, ValueError):
        return False
    return Parameter.VAR_POSITIONAL in kinds and Parameter.VAR_KEYWORD in kinds


def decided(policy: Policy, eqn: Eqn) -> bool:
    """Return the decision of a policy for an equation. Raises: ArgumentError for an answer that is not a bool."""
    return _as_bool(policy, policy.keeps(eqn), eqn)


def _as_bool(policy: Policy, answer: object, eqn: Eqn) -> bool:
    if isinstance(answer, bool | np.bool_):
        return bool(answer)
    where = source_location(eqn.source)
    raise ArgumentError(
        f"remat: the policy {policy} answers {described(answer)}, not a bool: {shown(answer)}",
        remedy="return True for what is stored and False for the rest; without a return a function gives None",
    ).located(equation=describe(eqn), where=str(where or ""))


@final
@dataclass(frozen=True, slots=True)
class Nothing(Policy):
    """Stores only the operands of the segment."""

    def keeps(self, eqn: Eqn) -> bool:
        return False

    def __str__(self) -> str:
        return "nothing"


@final
@dataclass(frozen=True, slots=True)
class Everything(Policy):
    """Stores every value of the program that the backward pass reads. Values that only derivatives need (cos x) are
    computed there."""

    def keeps(self, eqn: Eqn) -> bool:
        return True

    def __str__(self) -> str:
        return "everything"


@final
@dataclass(frozen=True, slots=True)
class Dots(Policy):
    """Stores the results of matrix products (`dot_general`): all of them, or only those without batch dimensions."""

    batched: bool = True

    def keeps(self, eqn: Eqn) -> bool:
        return isinstance(eqn.prim, Contraction) and (self.batched or not eqn.prim.lhs_batch)

    def __str__(self) -> str:
        return "dots" if self.batched else "dots_without_batch_dims"


@final
@dataclass(frozen=True, slots=True)
class Costly(Policy):
    """Stores the results of equations that take at least `ratio` times as long as writing their results, by the cost
    model. An elementwise operation has the ratio 1, a product of matrices a ratio that grows with the sizes that it
    contracts."""

    ratio: float

    def keeps(self, eqn: Eqn) -> bool:
        return cost_ratio(eqn) >= self.ratio

    def __str__(self) -> str:
        return f"costly({self.ratio:g})"


def cost_ratio(eqn: Eqn) -> float:
    """Return the estimated time of an equation, relative to the time to write its results."""
    written = sum([v.aval.nbytes for v in eqn.outs])
    return microseconds(eqn) * BYTES_PER_MICROSECOND / written if written else 0.0


@final
@dataclass(frozen=True, slots=True)
class Names(Policy):
    """Stores the values that `checkpoint_name` labels with one of these names. With `but`: the values with any other
    name."""

    labels: frozenset[str]
    but: bool = False

    def keeps(self, eqn: Eqn) -> bool:
        return isinstance(eqn.prim, Name) and (eqn.prim.label in self.labels) is not self.but

    def __str__(self) -> str:
        return f"names{'_except' * self.but}({', '.join(map(repr, sorted(self.labels)))})"


@final
@dataclass(frozen=True, slots=True)
class Where(Policy):
    """Stores the results of the equations for which a function returns True. Two such policies are equal if they have
    the same function."""

    predicate: Callable[[Eqn], bool]
    text: str

    def keeps(self, eqn: Eqn) -> bool:
        return _keeps_by_function(self, eqn, lambda: self.predicate(eqn))

    def __str__(self) -> str:
        return f"where({self.text})"


@final
@dataclass(frozen=True, slots=True)
class AsInJax(Policy):
    """Stores the results of the equations for which a function of JAX returns True: it takes the primitive, the types
    of the operands, and by keyword the parameters. These are the fields of the primitive, and JAX's `dimension_numbers`
    of a product and `name` of a name."""

    function: Callable[..., bool]
    text: str

    def keeps(self, eqn: Eqn) -> bool:
        avals = [a.aval for a in eqn.ins]
        return _keeps_by_function(self, eqn, lambda: self.function(eqn.prim, *avals, **_parameters_in_jax(eqn.prim)))

    def __str__(self) -> str:
        return self.text


def _keeps_by_function(policy: Policy, eqn: Eqn, answer: Callable[[], object]) -> bool:
    try:
        value = answer()
    except Exception as e:
        e.add_note(f"raised by the policy {policy} of remat, asked about the equation {describe(eqn)}")
        raise
    return _as_bool(policy, value, eqn)


def _parameters_in_jax(prim: Primitive) -> dict[str, object]:
    """Return the parameters of a primitive by name."""
    params = {f.name: getattr(prim, f.name) for f in fields(prim)}
    if isinstance(prim, Contraction):
        contract, batch = (prim.lhs_contract, prim.rhs_contract), (prim.lhs_batch, prim.rhs_batch)
        return {**params, "dimension_numbers": (contract, batch)}
    return {**params, "name": prim.label} if isinstance(prim, Name) else params


@final
@dataclass(frozen=True, slots=True)
class Either(Policy):
    """Stores the values that at least one of two policies stores."""

    left: Policy
    right: Policy

    def keeps(self, eqn: Eqn) -> bool:
        return decided(self.left, eqn) or decided(self.right, eqn)

    def __str__(self) -> str:
        return f"{self.left} | {self.right}"


@final
@dataclass(frozen=True, slots=True)
class Both(Policy):
    """Stores the values that both policies store."""

    left: Policy
    right: Policy

    def keeps(self, eqn: Eqn) -> bool:
        return decided(self.left, eqn) and decided(self.right, eqn)

    def __str__(self) -> str:
        return f"{_grouped(self.left)} & {_grouped(self.right)}"


@final
@dataclass(frozen=True, slots=True)
class Negated(Policy):
    """Stores the values that a policy does not store."""

    inner: Policy

    def keeps(self, eqn: Eqn) -> bool:
        return not decided(self.inner, eqn)

    def __str__(self) -> str:
        return f"~({self.inner})" if isinstance(self.inner, Either | Both) else f"~{self.inner}"


def _grouped(policy: Policy) -> str:
    return f"({policy})" if isinstance(policy, Either) else str(policy)


nothing: Final = Nothing()
everything: Final = Everything()
dots: Final = Dots()
dots_without_batch_dims: Final = Dots(batched=False)


def costly(ratio: float) -> Policy:
    """Return a policy that stores results which take at least `ratio` times as long to compute as to write.

    Raises: ArgumentError for a ratio that is no number >= 0.
    """
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not ratio >= 0:
        raise ArgumentError(
            f"costly: the ratio is {shown(ratio)}, not a number >= 0",
            remedy="costly(2) stores matrix products and convolutions, and recomputes elementwise operations",
        )
    return Costly(float(ratio))


def names(*labels: str) -> Policy:
    """Return a policy that stores the values that `checkpoint_name` labels with one of these names."""
    return Names(_labels("names", labels))


def names_except(*labels: str) -> Policy:
    """Return a policy that stores the values that `checkpoint_name` labels with any name except these."""
    return Names(_labels("names_except", labels), but=True)


def where(predicate: Callable[[Eqn], bool], name: str = "") -> Policy:
    """Return a policy that stores the results of the equations for which `predicate(eqn)` is true.

    Tables show the policy as `name`. Two such policies are equal only if they hold the same function object. So define
    the function once at the top of a module; a lambda is a new object at each evaluation. The predicate receives an
    equation, with its primitive, operands and types.
    """
    if not callable(predicate):
        raise ArgumentError(
            f"where: {described(predicate)} is not a function: {shown(predicate)}",
            remedy="pass a function of an equation that returns a bool; policies.names(...) chooses by name",
        )
    if not isinstance(predicate, Hashable):
        raise ArgumentError(
            f"where: {described(predicate)} has no hash, and a policy is part of a key: {shown(predicate)}",
            remedy="pass a function, or give the class a __hash__",
        )
    if not isinstance(name, str):
        raise ArgumentError(f"where: the name is {described(name)}, not a str: {shown(name)}", remedy='name="mine"')
    return Where(predicate, name or str(getattr(predicate, "__name__", type(predicate).__name__)))


def _labels(what: str, labels: tuple[str, ...]) -> frozenset[str]:
    for label in labels:
        if not isinstance(label, str):
            raise ArgumentError(
                f"{what}: {described(label)} is not a name: {shown(label)}", remedy=f'{what}("a", "b") takes strings'
            )
    return frozenset(labels)
