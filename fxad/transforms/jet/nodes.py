"""Values that vary with t: nodes, which compute each coefficient once, when it is needed.

A value that varies with t is a result of a node, which stands for an equation over series. Equal equations are one
node. `SeriesGraph` has the nodes, and the program of the coefficients that were needed so far. How a node computes a
coefficient from those of its operands is the matter of `jet`.

A coefficient that is zero is None, and gives no equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from fxad.core.builder import Builder
from fxad.core.stack import with_enough_stack
from fxad.ir import Atom, Aval, Flags, Lit, Primitive, Source, Var
from fxad.primitives.elementwise.arithmetic import ADD, DIV, MUL
from fxad.transforms.jet.rows import Emitter, OneOrder

SeriesAtom: TypeAlias = "Var | Lit | SeriesValue"
SeriesAtoms: TypeAlias = "tuple[SeriesAtom, ...]"


@final
class SeriesValue:
    """Result `index` of a node: a value that varies with t. It is compared by identity."""

    __slots__ = ("aval", "index", "node")

    def __init__(self, node: SeriesNode, index: int, aval: Aval) -> None:
        self.node, self.index, self.aval = node, index, aval


class SeriesNode:
    """An equation over series.

    compute:        returns the coefficients of order k of its results, None where they are zero. It may add those of
                    other orders to `computed`. A leaf has none: all its coefficients are given.
    operands:       coefficient k needs those of the operands up to k + `lead`. The lead is 1 for a derivative in t,
                    whose coefficient k is made of coefficient k + 1, and else 0.
    computed:       the coefficients so far, by order.
    being_computed: `compute` has been called and has not returned.
    """

    __slots__ = ("being_computed", "compute", "computed", "lead", "operands", "outs", "source")

    def __init__(self, compute: Compute | None, source: Source, operands: SeriesAtoms = (), lead: int = 0) -> None:
        self.compute, self.source, self.operands, self.lead = compute, source, operands, lead
        self.computed: dict[int, OneOrder] = {}
        self.outs: SeriesAtoms = ()
        self.being_computed = False


Compute: TypeAlias = Callable[[SeriesNode, int], OneOrder]


class SeriesGraph(Emitter):
    """The nodes, and the program of their coefficients."""

    def __init__(self, order: int) -> None:
        self.builder: Final = Builder()
        self.order: Final = order
        self.nodes: Final[dict[tuple[Primitive, SeriesAtoms], SeriesNode]] = {}
        self._equations: dict[tuple[object, ...], tuple[Var, ...]] = {}
        self._derivatives: dict[SeriesValue, SeriesValue] = {}

    # ------------------------------------------------------------------------------------------ atoms of the program

    def emit(self, prim: Primitive, *args: Atom) -> tuple[Var, ...]:
        key = (prim, args)
        outs = None if prim.effects else self._equations.get(key)
        if outs is None:
            outs = self._equations[key] = self.builder(prim, *args)
        return outs

    def sum(self, terms: Sequence[Atom]) -> Atom | None:
        """Return the sum of terms; None if there are none."""
        total: Atom | None = None
        for term in terms:
            total = term if total is None else self.emit(ADD, total, term)[0]
        return total

    def scaled(self, a: Atom, factor: int) -> Atom:
        return a if factor == 1 else self.emit(MUL, a, Lit.of(factor, a.aval))[0]

    def divided(self, a: Atom, divisor: int) -> Atom:
        return a if divisor == 1 else self.emit(DIV, a, Lit.of(divisor, a.aval))[0]

    def at_zero(self, a: SeriesAtom) -> Atom:
        """Return coefficient 0. That of a tangent may be zero."""
        c = self.coefficient(a, 0)
        return Lit.zero(a.aval) if c is None else c

    # -------------------------------------------------------------------------------------------------------- nodes

    def leaf(self, aval: Aval, coefficients: Sequence[Atom | None]) -> SeriesValue:
        """Return the value with given coefficients."""
        node = SeriesNode(None, None)
        node.computed = {k: (c,) for k, c in enumerate(coefficients)}
        value = SeriesValue(node, 0, aval)
        node.outs = (value,)
        return value

    def node(
        self,
        prim: Primitive,
        operands: SeriesAtoms,
        compute: Compute,
        nonzero: Flags | None,
        source: Source,
    ) -> SeriesAtoms:
        """Return the results of a new node. Those that do not vary are atoms. `nonzero` marks those that vary; None:
        all of an inexact type."""
        node = SeriesNode(compute, source, operands)
        avals = prim.abstract_eval(*[a.aval for a in operands])
        self.nodes[prim, operands] = node
        node.outs = tuple([SeriesValue(node, k, a) for k, a in enumerate(avals)])
        varies = [a.inexact for a in avals] if nonzero is None else nonzero
        if not all(varies) or prim.effects:
            first = self._coefficients(node, 0)
            node.outs = tuple([
                out if v or c is None else c for out, v, c in zip(node.outs, varies, first, strict=True)
            ])  # fmt: skip
        return node.outs

    def derivative(self, a: SeriesAtom) -> SeriesAtom:
        """Return the derivative in t: coefficient k is k + 1 times coefficient k + 1."""
        assert isinstance(a, SeriesValue)
        by_order = [a.node.computed.get(k) for k in range(self.order + 1)]
        if all([cs is not None and (k < 2 or cs[a.index] is None) for k, cs in enumerate(by_order)]):
            slope = self.coefficient(a, 1)  # x(t) is x_0 + x_1 t
            return Lit.zero(a.aval) if slope is None else slope
        if a not in self._derivatives:

            def compute(_: SeriesNode, k: int) -> OneOrder:
                c = self.coefficient(a, k + 1)
                return (None if c is None else self.scaled(c, k + 1),)

            node = SeriesNode(compute, a.node.source, (a,), lead=1)
            self._derivatives[a] = SeriesValue(node, 0, a.aval)
            node.outs = (self._derivatives[a],)
        return self._derivatives[a]

    # ------------------------------------------------------------------------------------------------- coefficients

    def coefficient(self, a: SeriesAtom, k: int) -> Atom | None:
        """Return coefficient k; None if it is zero."""
        if not isinstance(a, SeriesValue):
            return a if k == 0 else None
        return self._coefficients(a.node, k)[a.index]

    def evaluate(self, a: SeriesAtom) -> None:
        """Compute all coefficients, in order."""
        for k in range(self.order + 1):
            self.coefficient(a, k)

    def up_to(self, order: int, operands: SeriesAtoms) -> list[tuple[Atom, list[Atom | None]]]:
        """Return for each operand its coefficient 0, and its coefficients 1 to `order`."""
        return [(self.at_zero(a), [self.coefficient(a, k) for k in range(1, order + 1)]) for a in operands]

    @with_enough_stack
    def _coefficients(self, node: SeriesNode, k: int) -> OneOrder:
        coefficients = node.computed.get(k)
        if coefficients is None:
            assert node.compute is not None
            source, self.builder.source = self.builder.source, node.source
            # Coefficient k may need a lower one of the same node, after which it is still being computed. A user's rule
            # may ask for coefficient 0 again, which `_by_tangent` of `jet` then gives without the rule.
            outer, node.being_computed = node.being_computed, True
            coefficients = node.compute(node, k)
            node.being_computed = outer
            self.builder.source = source
            node.computed[k] = coefficients
        return coefficients

    @with_enough_stack
    def order_in_reach(self, operands: SeriesAtoms, by_node: dict[SeriesNode, int]) -> int:
        """Return the highest order K such that coefficients 0 to K of all operands can be computed now. `by_node` has
        the orders that were found already.

        A loop is emitted for several orders at once, so it also requests higher orders of its operands than the one
        that is needed now. No coefficient waits for itself, by one invariant:

            while coefficient k of a node is computed, only coefficients below k of this node are requested.

        (`_coefficients` has the one exception, coefficient 0 of a function with a user's rule.)
        An equation that computes one coefficient at a time keeps it: y_k = d_(k-1) / k, where d is the tangent, and d
        is made of values of the same order, and of derivatives x', which come from operands. A loop keeps it by this
        method: of a node that is being computed, the coefficients that are there are in reach, and no others.

        Example: the tangent rule of y = f(x) gives d = z x', and a loop over y computes z. Then y is being computed:

            requests               of y there are     so the loop is emitted for
            y_1 -> d_0 -> z_0      y_0                order 0
            y_2 -> d_1 -> z_1      y_0, y_1           orders 0 and 1

        Example: the same rule, but z = g(y), whose tangent rule gives e = w, and a loop over y and y' computes w. The
        derivative y' has lead 1, so its order in reach is one less than that of y:

            requests                            of y there are     of y'        so the loop is emitted for
            y_2 -> d_1 -> z_1 -> e_0 = w_0      y_0, y_1           y'_0         order 0
            y_3 -> d_2 -> z_2 -> e_1 = w_1      y_0, y_1, y_2      y'_0, y'_1   orders 0 and 1
        """
        in_reach = self.order
        for a in operands:
            if not isinstance(a, SeriesValue):
                continue
            node = a.node
            if node not in by_node:
                # the coefficients so far
                order = next(k for k in range(self.order + 2) if k not in node.computed) - 1
                if order < self.order and node.operands and not node.being_computed:
                    order = max(order, self.order_in_reach(node.operands, by_node) - node.lead)
                by_node[node] = order
            in_reach = min(in_reach, by_node[node])
        return in_reach
