"""A call of a function with custom rules, in a trace: the function and its rules are traced, and become one equation.

Rules are traced once for each function, types of arguments and values of `nondiff_argnums`. A call of the function in
its own rule, or in the rule of a function that its rules call, is a named call (`primitives.named_calls`). So functions
whose rules call each other become one module: a strongly connected component of the call graph. Tarjan's algorithm finds
the components while it traces. If a rule calls its function with other types or values, that is another function, whose
rules are traced in turn: as deep as derivatives are taken around the call, and at least `DEPTH`.

For example, `sin` has the rule x_dot * cos(x), and `cos` has the rule -x_dot * sin(x). A call of `sin` is traced so:

    function 0: sin             its body is traced
      rule of sin               calls cos, which is met for the first time
        function 1: cos         its body is traced
          rule of cos           calls sin: a named call of 0, which is active, so the lowlink of 1 becomes 0
        1 is open               its lowlink is not its index:  it belongs to the component of 0
    0 is closed                 its lowlink is its index:  the equation is call_with_rules[sin, module=(sin, cos)]

A factory may make another function in each rule, so that no call is one of an active function: the rule of f calls f',
whose rule calls f'', and so on. Then the last function is traced without rules, as if it referred to the first one:

    functions 0, 1, 2: f, f', f''     each is met in the rule of the one before
      function 3: f'''                three rules of this code are traced around it: it gets none, and its lowlink and
                                      those of 2 and 1 become 0
    0 is closed                       the module is (f, f', f'', f'''), and a later call does not find f''' without rules

Decisions: docs/adr/0047, docs/adr/0048, docs/adr/0080.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, count
from typing import Any, Final, final

import numpy as np

from fxad.api.custom.rule_signature import Signature, traced
from fxad.api.custom.traced_rules import TracedRule, UserRules
from fxad.core.exact_key import exact_key
from fxad.core.frames import Scoped
from fxad.core.trees import tree
from fxad.core.trees.tree import Structure
from fxad.ir import Jaxpr
from fxad.lax.control.traced_functions import TracedFunction, common_operands
from fxad.operations.number_types import NumberType
from fxad.operations.promotion import NumberKind
from fxad.primitives.custom import CallWithRules, module_call
from fxad.primitives.custom_rules import Function, Refusal, Rules
from fxad.primitives.named_calls import NamedCall
from fxad.tracing.array import Array
from fxad.tracing.context import (
    TraceDependencies,
    depend_on_outer_trace,
    depend_on_transforms,
    derivative_order,
    enclosing_transforms,
    record_in_outer,
    recording_dependencies,
    replay_position,
    skip_in_replay,
    tracing_repeatedly,
)
from fxad.tracing.traced_numbers import DifferentiatedNumber, is_number, number_array
from fxad.tracing.tracer import Tracer, active_trace, bind
from fxad.transforms.ad.jvp import add_dependent_values
from fxad.transforms.vmap import over_stack

DEPTH: Final = 3
_MAX_RETRACED: Final = 8  # times that rules are traced again to find the values that they close over


@final
class TracedCall:
    """One call of a function with rules, in a trace.

    The function is *active* while it and its rules are traced. Then it is *open* if a named call in it refers to an
    active function with a lower index: it belongs to the component of that function. Or it is *closed*: its component
    is complete, and `prim` is its equation, which depends on no trace around it. `index` and `lowlink` are those of
    Tarjan's algorithm: the order in which functions are met, and the lowest index of an active function that this one
    reaches.
    """

    def __init__(self, rules: UserRules, args: tuple[object, ...]) -> None:
        self.rules = rules
        all_arrays = bool(rules.vmap) or any([rule.takes_arrays for rule in rules.transform_rules])
        self.signature, self.leaves = Signature.of(rules.fun, rules.nondiff_argnums, args, all_arrays)
        self.index = self.lowlink = 0
        self.body: TracedFunction | None = None  # over the operands that a named call of it takes
        self.referable = True  # False: a call of it is traced again, as its operands change with each trace
        self.referred = False  # a named call refers to it
        self.function: Function | None = None  # None while it is active
        self.prim: CallWithRules | None = None
        self.transforms_around = enclosing_transforms()
        self.on_transforms = False
        # what its trace makes for a replay, from `start` to `end`: a replay that does not trace it again skips this part
        self.start = self.end = replay_position()

    def run(self) -> Any:
        """Bind the equation. Return the results in the tree of the function."""
        scope = _scope.get()
        if scope is None:
            with _scope(_Scope()):
                return self.run()
        function = scope.traced(self)
        assert function.body is not None
        prim = function.prim or scope.named_call(function, function.body)
        leaves = [
            number_array(x, a.dtype) if is_number(x) else x
            for x, a in zip(self.leaves, function.signature.in_avals, strict=True)
        ]
        return tree.unflatten(function.signature.out_tree, bind(prim, *function.body.captured, *leaves))

    def same(self, other: TracedCall) -> bool:
        """Return True if a later call is of the same function, with the same types and the same values of
        `nondiff_argnums`."""
        a, b = self.signature, other.signature
        if self.rules is not other.rules or not a.takes(b) or exact_key(a.in_tree) != exact_key(b.in_tree):
            return False
        numbers_a, numbers_b = a.passed_numbers, b.passed_numbers
        if numbers_a.keys() != numbers_b.keys() or not all([numbers_a[k].same(numbers_b[k]) for k in numbers_a]):
            return False
        return a.nondiff.keys() == b.nondiff.keys() and all(map(_equal_values, a.nondiff_values, b.nondiff_values))

    @property
    def is_active(self) -> bool:
        """Return True while the function and its rules are traced."""
        return self.function is None

    @property
    def traces_rules(self) -> bool:
        """Return True while the rules of the function are traced."""
        return self.is_active and self.body is not None

    def serves(self, call: TracedCall) -> bool:
        """Return True if `call` is a call of this function, and the values that it closes over are valid here."""
        if self.body is None or not self.referable or not self.same(call):
            return False
        return self.is_active or (
            self.transforms_around == enclosing_transforms()
            and self.perturbed == call.perturbed
            and all([x.reachable for x in self.body.captured if isinstance(x, Tracer)])
        )

    def trace_body(self) -> TracedFunction:
        """Trace the function. Its rules are checked against its signature."""
        out_tree: Structure | None = None

        def flat(*leaves: object) -> object:
            nonlocal out_tree
            values, out_tree = tree.flatten(self.rules.fun(*self.signature.arguments(leaves)))
            return values

        # the function serves calls with other numbers, so no number is a constant of it
        types = [
            DifferentiatedNumber(t) if isinstance(t, NumberType) and t.kind >= NumberKind.FLOATING else t
            for t in self.signature.in_types
        ]
        body = traced(self.signature.name, self.rules.fun, flat, types)
        assert out_tree is not None
        self.signature = self.signature.traced_as(body.jaxpr, out_tree)
        return body

    def perturbed_sets(self) -> list[tuple[bool, ...]]:
        """Return the sets of perturbed arguments for which a rule with `symbolic_zeros` is traced, as marks of leaves;
        the other arguments have symbolic zeros. The sets are all perturbed arguments, and each proper subset of up to
        three of them; of more arguments, each alone. For other sets the rule for all arguments is used."""
        parts = self.signature.in_tree.children()
        leaves = [k for k, part in enumerate(parts) for _ in range(part.num_leaves)]
        arguments = list(dict.fromkeys([k for k, m in zip(leaves, self.perturbed, strict=True) if m]))
        sizes = range(1, len(arguments) + 1) if len(arguments) <= 3 else (1, len(arguments))
        sets = [subset for size in sizes for subset in combinations(arguments, size)]
        return [tuple([m and k in subset for k, m in zip(leaves, self.perturbed, strict=True)]) for subset in sets]

    @cached_property
    def perturbed(self) -> tuple[bool, ...]:
        """Marks the perturbed leaves, which depend on operands of the trace by equations with a derivative. Empty if no
        rule has `symbolic_zeros`."""
        active = active_trace()
        if active is None or not (self.rules.jvp_zeros or self.rules.vjp_zeros):
            return ()
        reached = active.values_with_tangents(add_dependent_values)

        def may_have_tangent(x: object) -> bool:
            variable = active.variable_of(x)
            # a tracer without a variable here is of a trace around this one, where it may depend on anything
            return isinstance(x, Tracer) and (variable is None or variable in reached)

        pairs = zip(self.leaves, self.signature.in_avals, strict=True)
        return tuple([a.inexact and may_have_tangent(x) for x, a in pairs])


# --------------------------------------------------------------------------------------- functions that are traced


@final
class _Scope:
    """The functions that are traced for one call of a function with rules, in the order in which they were met.

    `stack` is the stack of Tarjan's algorithm: functions that are active or open. Among them stand the closed functions
    that later calls reuse: of a component that is complete, its root alone.
    """

    def __init__(self) -> None:
        self.stack: list[TracedCall] = []
        self.indices = count()

    def traced(self, call: TracedCall) -> TracedCall:
        """Return the function of a call: one that is traced already, or else this one, which is traced now."""
        function = next((f for f in reversed(self.stack) if f.serves(call)), None)
        if function is None:
            self._trace(call)
            return call
        if not function.is_active:
            skip_in_replay(function.start, function.end)
            if function.on_transforms:
                depend_on_transforms()
        return function

    def named_call(self, function: TracedCall, body: TracedFunction) -> NamedCall:
        """Return a call of a function that is active or open."""
        function.referred = True
        self._refer(function.lowlink)
        return NamedCall(body.jaxpr, function.index)

    def _refer(self, index: int) -> None:
        """Record that the active functions refer to a function around them."""
        depend_on_outer_trace()
        for function in self.stack:
            if function.is_active:
                function.lowlink = min(function.lowlink, index)

    def _trace(self, call: TracedCall) -> None:
        """Trace a function that is met for the first time."""
        call.index = call.lowlink = index = next(self.indices)
        dependencies, place = TraceDependencies(), len(self.stack)
        self.stack.append(call)
        try:
            with recording_dependencies(dependencies):
                body = call.body = call.trace_body()
                levels = self._levels_of_rules(call)
                # a derivative of order n runs n levels of rules; DEPTH levels serve derivatives that are taken later
                if len(levels) < max(DEPTH, derivative_order()):
                    call.function = self._with_rules(call, body)
                else:
                    # A function without derivatives is no answer to a later call outside of these rules. As part of the
                    # component of the outermost level it is dropped with it, and a later call is traced anew.
                    self._refer(levels[0].index)
                    call.function = _without_rules(call, body)
        except BaseException:
            del self.stack[place:]
            raise
        record_in_outer(dependencies)
        call.on_transforms, call.end = dependencies.on_transforms, replay_position()
        if call.lowlink == index:  # the root of its component, whose functions lie above it on the stack
            component = [f for f in self.stack[place:] if f.prim is None]
            module = {f.index: f.function for f in component if f.function is not None}
            call.prim = module_call(module, index, over_stack)
            self.stack = [f for f in self.stack if f is call or f not in component]

    def _levels_of_rules(self, call: TracedCall) -> list[TracedCall]:
        """Return the functions of the same code whose rules are being traced around this call, the outermost first. For
        rules that call other functions with rules, made by one factory: the rule of f calls f', whose rule calls f''.
        """
        code = _code(call.rules.fun)
        return [f for f in self.stack if f is not call and f.traces_rules and _code(f.rules.fun) is code]

    def _with_rules(self, call: TracedCall, body: TracedFunction) -> Function:
        """Return the function with its rules.

        A named call takes the values that the function and all its rules close over. The rules are traced under an
        assumption of what these are: first, those of the body. If the traced rules close over others, they are traced
        again, with these as the assumption. For a body that closes over a, and a rule that calls the function and
        closes over b:

            trace    assumed    body and rules close over
            1        a          a, b                         named calls lack b
            2        a, b       a, b                         the function

        `call.body` has the assumption while the rules are traced: `serves` finds it there, and `run` binds a named call to
        its captured values.

        If the assumption does not grow, each trace closes over new values. Then the function is not `referable`: where
        a rule calls it, it is traced again, and not referred to. So `referred` stays False, and the loop ends. The
        function that is traced again is another `TracedCall`, which is referable: the calls in its own rules refer to it.
        If it is not either, `_levels_of_rules` counts these levels, and `DEPTH` ends them. For a rule that calls the
        function, and makes an equal constant c in each trace:

            trace    assumed    body and rules close over
            1        a          a, c1
            2        a, c1      a, c2                        c1 is equal, and one object stands for both
            3        a, c2      a, c3                        not referable: no named call, the function

        A rule that makes another constant in each trace adds one to the assumption: `_MAX_RETRACED` ends that.
        """
        before_rules = {*self.stack}
        block, rewind = tracing_repeatedly()

        def trace() -> tuple[list[TracedRule], tuple[Jaxpr, ...], tuple[object, ...]]:
            rewind()
            self.stack = [f for f in self.stack if f in before_rules or f.prim is not None]
            call.referred = False
            rules = list(call.rules.traced(call.signature, call.perturbed_sets))
            return rules, *common_operands(_same_constants([body, *[b for rule in rules for b in rule.bodies]]))

        assumed, retraced = body.captured, 0
        with block:
            rules, jaxprs, captured = trace()
            while call.referred and [id(v) for v in captured] != [id(v) for v in assumed]:
                retraced += 1
                grows = len(captured) > len(assumed)
                call.referable = grows and retraced <= _MAX_RETRACED
                call.body, assumed = replace(body, jaxpr=jaxprs[0], captured=captured), captured
                rules, jaxprs, captured = trace()
        call.body = replace(body, jaxpr=jaxprs[0], captured=captured)
        call.referable = True  # its operands change no more: the rules of other functions may refer to it
        return _function(rules, jaxprs, len(captured))


# Set while a function with rules is traced.
_scope: Final[Scoped[_Scope | None]] = Scoped("fxad_functions_with_rules", None)


def _function(rules: Sequence[TracedRule], jaxprs: Sequence[Jaxpr], n: int) -> Function:
    """Return the function of traced programs: its body, then those of its rules, over `n` captured operands."""
    body, *rest = jaxprs
    programs = iter(rest)
    parts = [rule.finish(body, [next(programs) for _ in rule.bodies]) for rule in rules]
    jvp = tuple([rule for part in parts for rule in part.jvp])
    # A part with `further` and a vjp is that of a `UserTransformRule` that gives a derivative, such as an inverse
    # (`gives_derivative`): it is taken if the user gave no other. Batching rules also have `further`, but no vjp.
    given = tuple([rule for part in parts if not part.further for rule in part.vjp])
    implied = tuple([rule for part in parts if part.further for rule in part.vjp])
    vjp = given if jvp or given else implied
    batch = tuple([rule for part in parts for rule in part.batch])
    return Function(body, n, Rules(jvp, vjp, batch, further=tuple([rule for part in parts for rule in part.further])))


def _without_rules(call: TracedCall, body: TracedFunction) -> Function:
    """Return the function in the rules of rules, at the depth at which these are not traced: it has no derivative."""
    n = len(body.captured)
    message = (
        f"the rule of {body.jaxpr.name} calls functions with rules that are others in each derivative, and those of "
        "this order were not traced"
    )
    remedy = "differentiate the function, not a program of it: it is traced as deep as derivatives are taken"
    refusal = Refusal((*[False] * n, *[a.inexact for a in call.signature.in_avals]), message, remedy)
    return Function(body.jaxpr, n, Rules(jvp=(refusal,) if call.rules.have_derivative else ()))


def _code(fun: object) -> object:
    """Identify functions that are made again and again, by a factory or in a rule."""
    return getattr(fun, "__code__", fun)


def _equal_values(a: object, b: object) -> bool:
    """Return True if two values of `nondiff_argnums` are equal, bit for bit. Functions are equal if they are one
    object."""
    if a is b:
        return True
    try:
        return type(a) is type(b) and hash(a) == hash(b) and exact_key(a) == exact_key(b)
    except TypeError:
        return False


def _same_constants(bodies: Sequence[TracedFunction]) -> list[TracedFunction]:
    """Return the bodies with one object for equal constants: a rule that is traced again makes new arrays."""
    captured = [v for body in bodies for v in body.captured]
    arrays = {id(v): v for v in captured if isinstance(v, np.ndarray | Array) and not isinstance(v, Tracer)}
    objects_of_type = Counter([(v.shape, v.dtype) for v in arrays.values()])
    by_content: dict[object, object] = {}

    def shared(value: object) -> object:
        array = arrays.get(id(value))
        if array is None or objects_of_type[array.shape, array.dtype] == 1:
            return value  # nothing can be equal to it: its elements, maybe many and on a device, are not read
        return by_content.setdefault((array.shape, array.dtype, np.asarray(array).tobytes()), value)

    return [replace(body, captured=tuple([shared(v) for v in body.captured])) for body in bodies]
