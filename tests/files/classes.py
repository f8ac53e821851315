"""Pytree classes at module level, which a file can name."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyrsistent

from fxad import tree


class Pair(NamedTuple):
    left: Any
    right: Any


@tree.dataclass
class Layer:
    w: Any
    b: Any
    kind: str = tree.static(default="dense")
    sizes: Any = tree.static(default=())


class Record(pyrsistent.PRecord):  # type: ignore[type-arg]
    x: Any = pyrsistent.field()
    y: Any = pyrsistent.field()


class Boxed:
    """A class that is registered by hand, with static data beside its child."""

    def __init__(self, inside: Any, label: Any) -> None:
        self.inside, self.label = inside, label


tree.register(Boxed, lambda x: ([x.inside], x.label, ["inside"]), lambda label, xs: Boxed(next(iter(xs)), label))


class Plain:
    """A class that is no pytree."""
