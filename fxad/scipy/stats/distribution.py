"""The base classes of distributions: they bind arguments, apply location and scale, derive densities from logarithms.

A distribution is a value: the names of its shape parameters, and functions of the standardized variable. The functions
of a user, such as `norm.logpdf(x, loc, scale)`, are derived from these.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import ClassVar, TypeAlias, final

import fxad.numpy as fnp
from fxad.api.custom_function import custom_jvp
from fxad.api.directional import jvp
from fxad.api.symbolic_zeros import SymbolicZero
from fxad.errors import ArgumentError, FxadError
from fxad.numpy.composites import jit_composite
from fxad.scipy.arguments import reals
from fxad.tracing.array import Array, ArrayLike

ArrayFunction: TypeAlias = Callable[..., Array]
SupportInterval: TypeAlias = tuple[float, float] | Callable[..., tuple[ArrayLike, ArrayLike]]  # from the shapes


@dataclass(frozen=True, eq=False)
class Distribution(ABC):
    """A distribution with shape parameters `shapes`, and others that have defaults."""

    name: str
    shapes: Sequence[str]
    defaults: ClassVar[Mapping[str, ArrayLike]] = MappingProxyType({})

    def __reduce__(self) -> tuple[object, ...]:
        return _by_name, (self.name,)

    def _bind(self, method: str, args: Sequence[ArrayLike], named: Mapping[str, ArrayLike]) -> list[ArrayLike]:
        """Return the parameters in order. Raises: ArgumentError for one that is missing, unknown or given twice."""
        name, names = f"{self.name}.{method}", [*self.shapes, *self.defaults]
        remedy = f"the parameters are {' '.join(names)}"
        if len(args) > len(names):
            raise ArgumentError(f"{name}: got {len(args)} parameters", remedy=remedy)
        parameters = dict(zip(names, args, strict=False))
        for key, value in named.items():
            if key not in names:
                raise ArgumentError(f"{name}: no parameter {key}", remedy=remedy)
            if key in parameters:
                raise ArgumentError(f"{name}: parameter {key} is given twice", remedy="give it by place or by name")
            parameters[key] = value
        for key in names:
            if key not in parameters and key not in self.defaults:
                raise ArgumentError(f"{name}: parameter {key} is missing", remedy=remedy)
        return [parameters[key] if key in parameters else self.defaults[key] for key in names]

    def _apply(self, method: str, x: ArrayLike, args: Sequence[ArrayLike], named: Mapping[str, ArrayLike]) -> Array:
        return jit_composite(
            NamedMethod(self, method), *reals(f"{self.name}.{method}", x, *self._bind(method, args, named))
        )

    @abstractmethod
    def compute(self, method: str, x: Array, *parameters: Array) -> Array:
        """Return a function of the distribution, of arrays."""

    @abstractmethod
    def are_possible(self, *parameters: Array) -> ArrayLike:
        """Return True where the distribution exists. Elsewhere all of its functions are nan, as in SciPy."""


def all_positive(*shapes: Array) -> ArrayLike:
    """Return True where all shape parameters are positive."""
    possible: ArrayLike = True
    for shape in shapes:
        possible = (shape > 0) & possible
    return possible


def _by_name(name: str) -> object:
    """Return the distribution of `fxad.scipy.stats` with the name of a pickled one."""
    return getattr(sys.modules["fxad.scipy.stats"], name)


@final
@dataclass(frozen=True)
class NamedMethod:
    """A function of a distribution, named for programs."""

    distribution: Distribution
    method: str

    @property
    def __name__(self) -> str:
        return f"{self.distribution.name}_{self.method}"

    def __call__(self, x: Array, *parameters: Array) -> Array:
        value = self.distribution.compute(self.method, x, *parameters)
        return fnp.where(self.distribution.are_possible(*parameters), value, fnp.nan)


def with_slope(value: ArrayFunction, slope: ArrayFunction, x: Array, *parameters: Array) -> Array:
    """Return `value(x, *parameters)`, whose derivative in x is `slope(out, x, *parameters)`, where `out` is the
    value."""

    def tangent(primals: tuple[Array, ...], tangents: tuple[Array | SymbolicZero, ...]) -> tuple[Array, object]:
        (x, *parameters), (x_dot, *parameter_tangents) = primals, tangents
        perturbed = [k for k, t in enumerate(parameter_tangents) if not isinstance(t, SymbolicZero)]

        def of_perturbed(*moved: Array) -> Array:
            new = dict(zip(perturbed, moved, strict=True))
            return value(x, *[new.get(k, p) for k, p in enumerate(parameters)])

        if perturbed:
            out, dot = jvp(
                of_perturbed,
                tuple([parameters[k] for k in perturbed]),
                tuple([parameter_tangents[k] for k in perturbed]),
            )
        else:
            out, dot = value(x, *parameters), None
        if isinstance(x_dot, SymbolicZero):
            return out, x_dot if dot is None else dot
        along_x = (slope(out, x, *parameters) * x_dot).astype(out.dtype)  # densities of half types are float32
        return out, along_x if dot is None else along_x + dot

    function = custom_jvp(value)
    function.defjvp(tangent, symbolic_zeros=True)
    return function(x, *parameters)


def _exp(log: ArrayFunction, x: Array, *parameters: Array) -> Array:
    """Return `exp(log(x, *parameters))`. Where it is 0, so is its derivative in x, also where that of the logarithm is
    infinite."""

    def slope(out: Array, x: Array, *parameters: Array) -> Array:
        _, log_slope = jvp(lambda x: log(x, *parameters), (x,), (fnp.ones_like(x),))
        return fnp.where(out == 0, 0, out * log_slope)

    return with_slope(lambda *args: fnp.exp(log(*args)), slope, x, *parameters)


def _from_formulas(
    functions: Mapping[str, ArrayFunction], formula: ArrayFunction, method: str, *operands: Array
) -> Array:
    """Return cdf, sf, logcdf or logsf from those that have a formula; `formula` reports one that is missing."""
    if method in functions:
        return functions[method](*operands)
    kind = method.removeprefix("log")
    other = {"sf": "cdf", "cdf": "sf"}[kind]
    if kind not in functions:
        rest = formula(other if other in functions else kind, *operands)
        return fnp.log1p(-rest) if method.startswith("log") else 1 - rest
    value = functions[kind](*operands)
    if other not in functions:
        return fnp.log(value)
    near_1 = value > 0.5  # there the other probability has the digits
    rest = fnp.where(near_1, functions[other](*operands), 0)
    return fnp.where(near_1, fnp.log1p(-rest), fnp.log(fnp.where(near_1, 1, value)))


@final
@dataclass(frozen=True, eq=False)
class Continuous(Distribution):
    """A distribution with a density. All functions take the standardized variable y = (x - loc) / scale, then shapes.

    `log_density`: the logarithm of the density inside of the support.
    `functions`:   those of cdf sf logcdf logsf ppf isf that have a formula.
    `support`:     the ends of the support, from the shapes.
    `inside`:      a point of the support at which `log_density` is finite; it replaces points outside, so that
                   derivatives are finite there.
    `possible`:    True for the shapes for which the distribution exists; by default for positive ones.
    `slopes`:      derivatives of those of logcdf logsf for which the density divided by the probability is not close
                   enough: its own derivative is a difference of nearly equal numbers.
    """

    log_density: ArrayFunction
    functions: Mapping[str, ArrayFunction] = field(default_factory=dict)
    support: SupportInterval = (-float("inf"), float("inf"))
    inside: float | ArrayFunction = 0.0
    possible: Callable[..., ArrayLike] = all_positive
    slopes: Mapping[str, ArrayFunction] = field(default_factory=dict)
    defaults: ClassVar[Mapping[str, ArrayLike]] = MappingProxyType({"loc": 0.0, "scale": 1.0})

    def compute(self, method: str, x: Array, *parameters: Array) -> Array:
        *shapes, loc, scale = parameters
        if method in ("ppf", "isf"):
            valid = (x >= 0) & (x <= 1)
            return fnp.where(valid, self._formula(method, fnp.where(valid, x, 0.5), *shapes) * scale + loc, fnp.nan)
        if method == "pdf":
            return _exp(partial(self.compute, "logpdf"), x, *parameters)
        y = (x - loc) / scale
        if method == "logpdf":
            return self._logpdf(y, *shapes) - fnp.log(scale)
        return self._probability(method, y, *shapes)

    def are_possible(self, *parameters: Array) -> ArrayLike:
        *shapes, _, scale = parameters
        return (scale > 0) & self.possible(*shapes)

    def _ends(self, *shapes: Array) -> tuple[ArrayLike, ArrayLike]:
        if isinstance(self.support, tuple):
            return self.support
        low, high = self.support(*shapes)
        return low, high

    def _logpdf(self, y: Array, *shapes: Array) -> Array:
        low, high = self._ends(*shapes)
        inside = (y >= low) & (y <= high)
        point = self.inside(*shapes) if callable(self.inside) else self.inside
        value = self.log_density(fnp.where(inside, y, point), *shapes)
        # nan stays nan
        return fnp.where(inside, value, fnp.where(fnp.isnan(y), fnp.nan, -fnp.inf))

    def _formula(self, method: str, y: Array, *shapes: Array) -> Array:
        if method in self.functions:
            return self.functions[method](y, *shapes)
        if method == "isf" and "ppf" in self.functions:
            return self.functions["ppf"](1 - y, *shapes)
        raise FxadError(
            f"{self.name}.{method} has no formula here",
            remedy=f"{self.name} has {' '.join(['pdf', 'logpdf', *self.functions])}",
        )

    def _probability(self, method: str, y: Array, *shapes: Array) -> Array:
        """Return a probability whose derivative in y is the density, also at points where that of its formula is
        nan."""

        def slope(out: Array, y: Array, *shapes: Array) -> Array:
            if method in self.slopes:
                return self.slopes[method](y, *shapes)
            if method.startswith("log"):
                log_density = self._logpdf(y, *shapes)
                density = fnp.where(log_density == -fnp.inf, 0, fnp.exp(log_density - out))
            else:
                density = _exp(self._logpdf, y, *shapes)
            return -density if method.endswith("sf") else density

        return with_slope(lambda *args: self._probability_value(method, *args), slope, y, *shapes)

    def _probability_value(self, method: str, y: Array, *shapes: Array) -> Array:
        low, high = self._ends(*shapes)
        return _from_formulas(self.functions, self._formula, method, fnp.clip(y, low, high), *shapes)

    def pdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the density at x."""
        return self._apply("pdf", x, args, named)

    def logpdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the logarithm of the density at x; -inf outside of the support."""
        return self._apply("logpdf", x, args, named)

    def cdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the probability of values up to x."""
        return self._apply("cdf", x, args, named)

    def logcdf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the logarithm of `cdf`."""
        return self._apply("logcdf", x, args, named)

    def sf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the probability of values above x."""
        return self._apply("sf", x, args, named)

    def logsf(self, x: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the logarithm of `sf`."""
        return self._apply("logsf", x, args, named)

    def ppf(self, q: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the x with cdf(x) = q; nan for q outside of [0, 1]."""
        return self._apply("ppf", q, args, named)

    def isf(self, q: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the x with sf(x) = q; nan for q outside of [0, 1]."""
        return self._apply("isf", q, args, named)


@dataclass(frozen=True, eq=False)
class Discrete(Distribution):
    """A distribution of whole numbers. Functions take k - loc, then shapes.

    `log_mass`:  the logarithm of the probability of a whole number in the support.
    `functions`: those of cdf sf logcdf logsf ppf that have a formula.
    `support`:   the first and the last whole number, from the shapes.
    `possible`:  True for the shapes for which the distribution exists; by default for positive ones.
    """

    log_mass: ArrayFunction
    functions: Mapping[str, ArrayFunction] = field(default_factory=dict)
    support: SupportInterval = (0.0, float("inf"))
    possible: Callable[..., ArrayLike] = all_positive
    defaults: ClassVar[Mapping[str, ArrayLike]] = MappingProxyType({"loc": 0.0})

    def compute(self, method: str, x: Array, *parameters: Array) -> Array:
        *shapes, loc = parameters
        if method == "ppf":
            valid = (x >= 0) & (x <= 1)
            return fnp.where(valid, self._formula(method, x, *shapes) + loc, fnp.nan)
        k = x - loc
        low, high = self.support if isinstance(self.support, tuple) else self.support(*shapes)
        if method not in ("pmf", "logpmf"):
            whole = fnp.floor(k)
            inside = (whole >= low) & (whole < high)
            value = _from_formulas(self.functions, self._formula, method, fnp.where(inside, whole, low), *shapes)
            below, above = {"cdf": (0, 1), "sf": (1, 0), "logcdf": (-fnp.inf, 0), "logsf": (0, -fnp.inf)}[method]
            beyond = fnp.where(whole < low, below, above)
            return fnp.where(inside, value, fnp.where(fnp.isnan(k), fnp.nan, beyond)).astype(k.dtype)
        inside = (k >= low) & (k <= high) & (k == fnp.floor(k))
        value = self.log_mass(fnp.where(inside, k, low), *shapes)
        result = fnp.where(inside, value, fnp.where(fnp.isnan(k), fnp.nan, -fnp.inf))
        return fnp.exp(result) if method == "pmf" else result

    def are_possible(self, *parameters: Array) -> ArrayLike:
        *shapes, _ = parameters
        return self.possible(*shapes)

    def _formula(self, method: str, k: Array, *shapes: Array) -> Array:
        if method not in self.functions:
            raise FxadError(
                f"{self.name}.{method} has no formula here",
                remedy=f"{self.name} has {' '.join(['pmf', 'logpmf', *self.functions])}",
            )
        return self.functions[method](k, *shapes)

    def pmf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the probability of k; 0 if k is not a whole number of the support."""
        return self._apply("pmf", k, args, named)

    def logpmf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the logarithm of `pmf`."""
        return self._apply("logpmf", k, args, named)

    def cdf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the probability of values up to k."""
        return self._apply("cdf", k, args, named)

    def logcdf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the logarithm of `cdf`."""
        return self._apply("logcdf", k, args, named)

    def sf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the probability of values above k."""
        return self._apply("sf", k, args, named)

    def logsf(self, k: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the logarithm of `sf`."""
        return self._apply("logsf", k, args, named)

    def ppf(self, q: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """Return the least k with cdf(k) >= q; nan for q outside of [0, 1]."""
        return self._apply("ppf", q, args, named)
