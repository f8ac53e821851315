"""Networks of nested blocks: loops in functions with custom rules, functions with custom rules in loops, branches.

A block takes a state [..., 32] and weights [32, 32], and returns a state. A tree of words names a block, so a failing
example is a short text: `("vjp", "kept", ("scan", 12, "product"))` is a function with a rule, whose body is a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from hypothesis import strategies as st

import fxad as fx
import fxad.numpy as fnp
from fxad import lax
from fxad.testing import Case

SIDE: Final = 32
X: Final = (np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE) % 11 - 5) / 16
W: Final = (np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE) % 7 - 3) / 64
LENGTHS: Final = (4, 12, 13, 24)  # 13 is prime: no segment length divides it

Block: TypeAlias = Callable[[Any, Any], Any]
Tree: TypeAlias = "str | tuple[Any, ...]"  # a word, or a tuple of a word, numbers, words and trees

LEAVES: Final[dict[str, Block]] = {
    "product": lambda x, w: fnp.tanh(x @ w) + x,
    "elementwise": lambda x, w: fnp.sin(x) * fnp.exp(-(x**2)) + w[0],
    "chain": lambda x, w: fnp.sin(fnp.tanh(fnp.cos(x @ w) @ w) @ w),
}


def scan(f: Block, length: int) -> Block:
    return lambda x, w: lax.scan(lambda h, _: (f(h, w), None), x, None, length=length)[0]


def rows(f: Block, length: int) -> Block:
    """A loop that reads one row and returns one row in each step."""

    def g(x: Any, w: Any) -> Any:
        def step(h: Any, t: Any) -> Any:
            h = f(h * t, w)
            return h, fnp.sin(h)

        h, ys = lax.scan(step, x, fnp.arange(length, dtype="float32") / length + 0.5, reverse=True)
        return h + fnp.mean(ys, axis=0)

    return g


def repeat(f: Block, length: int) -> Block:
    """A loop that ends by a predicate before its bound."""
    most = length + 3

    def g(x: Any, w: Any) -> Any:
        return lax.while_loop(
            lambda s: s[0] < length, lambda s: (s[0] + 1, f(s[1], w)), (np.int32(0), x), max_steps=most
        )[1]

    return g


def jvp(f: Block) -> Block:
    """A function with a rule for tangents, which halves those of the state."""
    g = fx.custom_jvp(f)
    g.defjvp(lambda primals, tangents: fx.jvp(f, primals, (0.5 * tangents[0], tangents[1])))
    return g


def vjp(f: Block, stores: str) -> Block:
    """A function with a rule for cotangents that stores its operands, its result, or the values that its derivative
    needs."""
    g = fx.custom_vjp(f)

    def of_operands(operands: Any, ct: Any) -> Any:
        return fx.vjp(f, *operands)[1](0.5 * ct)

    def of_result(kept: Any, ct: Any) -> Any:
        h, w = kept
        return ct * (1 - fnp.tanh(h) ** 2), fnp.sum(ct * h) * w

    def forward(x: Any, w: Any) -> Any:
        y = f(x, w)
        return y, (y, w)

    if stores == "operands":
        g.defvjp(lambda x, w: (f(x, w), (x, w)), of_operands)
    elif stores == "result":
        g.defvjp(forward, of_result)
    else:
        g.defvjp(lambda x, w: fx.vjp(f, x, w), lambda pull, ct: pull(ct))
    return g


def cond(f: Block, g: Block) -> Block:
    return lambda x, w: lax.cond(fnp.sum(x) > 0, f, g, x, w)


def sequence(*blocks: Block) -> Block:
    def f(x: Any, w: Any) -> Any:
        for block in blocks:
            x = 0.5 * block(x, w)
        return x

    return f


def block_of(tree: Tree) -> Block:
    """Returns the block that a tree of words names."""
    match tree:
        case str():
            return LEAVES[tree]
        case ("scan" | "rows" | "repeat" as word, int(length), body):
            return {"scan": scan, "rows": rows, "repeat": repeat}[word](block_of(body), length)
        case ("jvp", body):
            return jvp(block_of(body))
        case ("vjp", str(stores), body):
            return vjp(block_of(body), stores)
        case ("cond", one, other):
            return cond(block_of(one), block_of(other))
        case ("jit", body):
            return fx.jit(block_of(body))
        case ("remat", body):
            return fx.remat(block_of(body))
        case ("sequence", *bodies):
            return sequence(*map(block_of, bodies))
        case _:
            raise AssertionError(tree)


_LEAVES: Final = st.sampled_from(sorted(LEAVES))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Draws a block within two or three others, of which most are loops and functions with rules."""
    tree: Tree = draw(_LEAVES)
    for depth in range(draw(st.integers(2, 3))):
        match draw(st.sampled_from(["loop", "rule", "loop", "rule", "cond", "call", "sequence"])):
            case "loop":
                length = draw(st.sampled_from(LENGTHS if depth else LENGTHS[:2]))
                tree = (draw(st.sampled_from(["scan", "rows", "repeat"])), length, tree)
            case "rule":
                rules = [("jvp",), ("vjp", "operands"), ("vjp", "result"), ("vjp", "kept")]
                tree = (*draw(st.sampled_from(rules)), tree)
            case "cond":
                tree = ("cond", *draw(st.permutations([tree, draw(_LEAVES)])))
            case "call":
                tree = (draw(st.sampled_from(["jit", "remat"])), tree)
            case _:
                tree = ("sequence", *draw(st.permutations([tree, draw(_LEAVES)])))
    return tree


def case_of(tree: Tree, times: int) -> Case:
    """Returns the loss of a network that applies a block several times."""
    network = sequence(*[block_of(tree)] * times)
    program = fx.trace(lambda x, w: fnp.sum(network(x, w)), X, W)
    return Case(program.jaxpr, (*map(np.asarray, program.bound), X, W))


def words(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Returns each word of a tree after the words around it."""
    if isinstance(tree, str):
        yield (*above, tree)
    elif isinstance(tree, tuple):
        path = (*above, tree[0])
        yield path
        for part in tree[1:]:
            if isinstance(part, tuple) or part in LEAVES:
                yield from words(part, path)


KINDS: Final = ("loop in rule", "rule in loop", "loop in loop", "rule in rule", "in branch")


def nested_kinds(tree: Tree) -> Counter[str]:
    """Counts the nestings that the law covers: loops in rules, rules in loops, loops in loops, rules and loops in
    branches."""
    out: Counter[str] = Counter()
    loops, rules = {"scan", "rows", "repeat"}, {"jvp", "vjp"}
    for *above, word in words(tree):
        around = {*above}
        out["loop in rule"] += word in loops and bool(around & rules)
        out["rule in loop"] += word in rules and bool(around & loops)
        out["loop in loop"] += word in loops and bool(around & loops)
        out["rule in rule"] += word in rules and bool(around & rules)
        out["in branch"] += word in loops | rules and "cond" in around
    return out
