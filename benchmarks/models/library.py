"""The interface that models are written against, and the description of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import fxad as fx
import fxad.lax
import fxad.nn
import fxad.numpy as fnp
import fxad.random

Tree = Any


@dataclass(frozen=True, slots=True)
class Library:
    """A library: modules of the same names, and `vmap`."""

    np: ModuleType
    nn: ModuleType
    lax: ModuleType
    random: ModuleType
    vmap: Callable[..., Any]


OURS = Library(fnp, fxad.nn, fxad.lax, fxad.random, fx.vmap)


@dataclass(frozen=True, slots=True)
class Given:
    """The interface that a single line is written against: modules, two arrays, and an index."""

    np: ModuleType
    nn: ModuleType
    lax: ModuleType
    x: Any
    y: Any
    i: Any


def given(library: Library, x: Any, y: Any, i: Any = 0) -> Given:
    """Returns the modules of a library and arrays of it."""
    return Given(library.np, library.nn, library.lax, x, y, i)


Loss = Callable[[Library, Tree, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A loss over parameters and two batches (trees of arrays, as the parameters), and initial values."""

    name: str
    loss: Loss
    params: Tree
    x: Tree
    y: Tree


def normal(rng: np.random.Generator, *shape: int) -> Any:
    """Returns normal numbers in float32. A matrix is scaled so that its product with a vector keeps the size."""
    return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
