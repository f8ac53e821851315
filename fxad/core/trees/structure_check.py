"""`has_structure`: a check, compiled for one structure, that a tree has it. A call of a compiled program runs one."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, final

from fxad.core.exact_key import exact_keys_of_mapping
from fxad.core.trees.classes import NAMESPACE, NO_STATIC_DATA, registration_of
from fxad.core.trees.parts import one_level_of, outermost_node
from fxad.core.trees.tree import MAPPINGS, Structure


def has_structure(structure: Structure, *, ordered: bool) -> Callable[[Any], bool]:
    """Return a predicate of trees: True if a tree has this structure up to subtrees at its leaves; with `ordered`, this
    exact structure. `flatten_up_to` then returns the leaves.

    `flatten_up_to` itself takes dicts, OrderedDicts and defaultdicts for each other, in any order, and deques of other
    lengths; and the message of its error has the text of the tree, arrays included. The predicate is compiled from
    generated text, so that a call runs in one frame.
    """
    check = _StructureCheck(ordered)
    check.visit(structure, "x")
    exec(compile(f"def check(x):\n return {' and '.join(check.conditions) or 'True'}", __file__, "exec"), check.scope)
    predicate: Callable[[Any], bool] = check.scope["check"]
    return predicate


@final
class _StructureCheck:
    """The conditions of `has_structure` as text, and the objects that the text names."""

    __slots__ = ("conditions", "ordered", "scope")

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.conditions: list[str] = []
        self.scope: dict[str, Any] = {"keys_of": exact_keys_of_mapping}

    def visit(self, structure: Structure, x: str) -> None:
        """Add the conditions for the value of an expression."""
        kind: Any = structure.type
        if kind is None:
            return
        if kind is type(None):
            self.conditions.append(f"{x} is None")
            return
        v = f"v{len(self.conditions)}"
        self.conditions.append(f"type({v} := {x}) is {self._name(kind)}")
        registration = registration_of(kind)
        n = structure.num_children
        if kind in MAPPINGS:
            self._add_keys(one_level_of(structure), v)
            children = [f"{v}[{self._name(key)}]" for key in structure.entries()]
        elif registration is not None and registration.namespace == NAMESPACE:
            children = self._add_instance(structure, registration.flatten_func, v)
        else:
            self.conditions.append(f"len({v}) == {n}")
            children = [f"{v}[{k}]" for k in range(n)]
            if kind is deque:
                self.conditions.append(f"{v}.maxlen == {one_level_of(structure).maxlen}")
        for child, item in zip(structure.children(), children, strict=True):
            self.visit(child, item)

    def _add_keys(self, mapping: Any, v: str) -> None:
        """Add the conditions for the keys of a mapping."""
        keys, ordered = list(mapping), self.ordered or type(mapping) is OrderedDict
        if type(mapping) is defaultdict:
            self.conditions.append(f"{v}.default_factory == {self._name(mapping.default_factory)}")
        if not ordered:
            self.conditions.append(f"{v}.keys() == {self._name(mapping.keys())}")
        elif {type(k) for k in keys} <= {str}:  # the usual case
            kinds = [type(k) for k in keys]
            self.conditions.append(f"[*{v}] == {self._name(keys)} and [*map(type, {v})] == {self._name(kinds)}")
        else:
            self.conditions.append(f"keys_of({v}) == {self._name(exact_keys_of_mapping(mapping))}")

    def _add_instance(self, structure: Structure, flatten_node: Callable[[Any], object], v: str) -> list[str]:
        """Add the conditions for an instance of a registered class. Return the expressions of its children."""
        static, n = outermost_node(structure).static, structure.num_children
        if static is NO_STATIC_DATA and structure.num_nodes == n + 1 and structure.num_leaves == n:
            return ["None"] * n  # the class says all: there are no static data, and leaves may be anything
        parts, data = f"{v}_parts", self._name(static)
        self.conditions.append(f"(({parts} := {self._name(flatten_node)}({v}))[1] is {data} or {parts}[1] == {data})")
        self.conditions.append(f"len({v}_children := [*{parts}[0]]) == {n}")
        return [f"{v}_children[{k}]" for k in range(n)]

    def _name(self, value: object) -> str:
        """Return the name of an object in the text."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name
