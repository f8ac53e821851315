"""Errors of derivatives, `vmap`, loops, programs and trees: every message whole, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyrsistent
import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, transforms, tree
from fxad.core.builder import Builder
from fxad.errors import (
    ArgumentError,
    DTypeError,
    FxadError,
    NotDifferentiableError,
    NotLinearError,
    ParameterError,
    ShapeError,
    TreeError,
)
from fxad.ir import Aval, Jaxpr
from fxad.transforms.vmap import vmap as vmap_jaxpr
from tests.api.refusals import refused

X = np.ones(3, np.float32)
WHOLE = np.ones(3, np.int32)
INT, LONG = fnp.asarray(np.int32(3)), fnp.asarray(np.int64(3))
COMPLEX = np.complex64(1)


class Foreign:
    """Claims to be a vector of pyrsistent, but is none."""


pyrsistent.PVector.register(Foreign)


def double(x: Any) -> Any:
    return x + x


def pair(x: Any) -> Any:
    return fnp.sum(x), x


def squared(x: Any) -> Any:
    return x * x


def shifted(x: Any) -> Any:
    return x, fnp.ones(3)


def both(x: Any, *, k: Any) -> Any:
    return x * k


def sized(n: Any, x: Any) -> Any:
    return x * n


def unravel(vector: object) -> object:
    """Unravels a tree of one vector. The tree is raveled here, because programs that are compiled while tests are
    collected stay in the cache."""
    back: Any = tree.ravel({"a": X})[1]
    return back(vector)


def body(aval: Aval, n_out: int = 1) -> Jaxpr:
    b = Builder()
    return b.build([b.input(aval)] * n_out, "body")


fxa: Any = fx
loops: Any = lax
DOUBLE: Any = fx.trace(double, X)
BOTH: Any = fx.trace(both, X, k=X)
SCALAR: Any = fx.trace(double, 1.0)
register: Any = tree.register
F3, F7, C0 = Aval((3,), "float32"), Aval((7,), "float32"), Aval((), "complex64")

PAIR = "return a pair (result, auxiliary results)"
REDUCE = "reduce the result (sum, mean), or use jacrev, jacfwd or vjp"
FLOATING = "convert the result to a floating dtype (take the real part of a complex one)"
AUXILIARY = "return it as auxiliary: has_aux=True"
LINEAR = "transpose takes programs linear in the chosen operands, such as the linear part of linearize"
STATIC = "static_argnums takes ints, static_argnames takes strings"

Case = tuple[Callable[[], object], type[FxadError], str, str]
DERIVATIVES: list[Case] = [
    (lambda: fxa.jvp(double, X, (X,)), ArgumentError,
     "jvp: primals is an ndarray, not a tuple with an entry per argument", "jvp(f, (x, y), (x_dot, y_dot))"),
    (lambda: fxa.linearize(DOUBLE, X), ArgumentError, "linearize: a Program is split without values",
     "call the two parts of the result with them"),
    (lambda: fxa.vjp(DOUBLE, X), ArgumentError, "vjp: a Program is transformed without values, and without has_aux",
     "call the result with (primals, cotangent)"),
    (lambda: fxa.vjp(double, X, has_aux=True), ArgumentError, "vjp: has_aux=True, but double returns *", PAIR),
    (lambda: fxa.transpose(DOUBLE, 0), ArgumentError,
     "transpose: the examples do not have the types of the Program's arguments",
     "leave them out; linear arguments are named by keyword: transpose(program, argnums=0)"),
    (lambda: fxa.transpose(double), ArgumentError,
     "transpose: double is a function whose argument types are not known",
     "give examples of its arguments: transpose(f, *examples)"),
    (lambda: fx.transpose(fx.trace(double, WHOLE)), DTypeError,
     "transpose: argument x of double has type i32[3], in which nothing is linear",
     "choose the arguments that are floating or complex: argnums=..."),
    (lambda: fx.transpose(fx.trace(squared, X)), NotLinearError, "transpose: mul is not linear in operands [0, 1]",
     LINEAR),
    (lambda: fx.transpose(fx.trace(shifted, X)), NotLinearError,
     "transpose: result 1.0:f32[3] of shifted is constant, so the program is affine",
     "leave the constant out of the linear program, or choose the operands it depends on as linear"),
    (lambda: fx.grad(pair)(X), ShapeError, "grad: pair returns (*, *), not a single scalar",
     "return the scalar alone, or (scalar, auxiliary results) with has_aux=True"),
    (lambda: fx.grad(double, has_aux=True)(X), ArgumentError, "grad: has_aux=True, but double returns *",
     "return a pair (scalar, auxiliary results)"),
    (lambda: fx.grad(double)(X), ShapeError, "grad: double returns f32[3], not a scalar", REDUCE),
    (lambda: fx.grad(lambda x: COMPLEX * x)(1.0), NotDifferentiableError,
     "grad: <lambda> returns c64[], not a real floating scalar", FLOATING),
    (lambda: fx.jacrev(double, has_aux=True)(X), ArgumentError, "jacrev: has_aux=True, but double returns *", PAIR),
    (lambda: fx.jacfwd(lambda x: x > 0)(X), NotDifferentiableError,
     "jacfwd: result of <lambda> has type bool[3], not real floating", AUXILIARY),
    (lambda: fxa.grad(double, argnums="x")(1.0), ArgumentError,
     "grad: argnums is 'x', not an int or a sequence of ints",
     "number the positional arguments from 0; negative numbers count from the last"),
    (lambda: transforms.value_and_grad(body(F7, 0), (True,)), ShapeError, "grad: body has no result",
     "return the scalar to differentiate"),
    (lambda: transforms.value_and_grad(body(F7), (True,)), ShapeError, "grad: body returns f32[7], not a scalar",
     REDUCE),
    (lambda: transforms.value_and_grad(body(C0), (True,)), NotDifferentiableError,
     "grad: body returns c64[], not a real floating scalar", FLOATING),
    # equal programs share a name: this one is of no other test
    (lambda: transforms.jvp(body(Aval((1, 3, 1, 5), "int32")), (True,)), NotDifferentiableError,
     "jvp: operand 0 of body has type i32[1,3,1,5], which has no tangent",
     "differentiate with respect to floating or complex operands only, or convert it first"),
    (lambda: transforms.jacfwd(body(C0), (True,), 1), NotDifferentiableError,
     "jacfwd: body has an operand or result of type c64[], not real floating",
     "mark integer results as auxiliary; for complex numbers use jvp or vjp"),
    (lambda: fxa.diff(DOUBLE, 3), ArgumentError, "diff: takes Programs or Jaxprs, got 3", "trace the function first"),
]  # fmt: skip

MAPS: list[Case] = [
    (lambda: fx.vmap(double, in_axes=(0, 0))(X), ArgumentError,
     "vmap of double: in_axes has 2 entries for 1 positional argument",
     "give one entry per positional argument, or one int for all; keyword arguments are mapped over axis 0"),
    (lambda: fx.vmap(double, in_axes=None)(X), ArgumentError, "vmap of double: no argument is mapped",
     "give in_axes an int, or pass axis_size"),
    (lambda: fx.vmap(DOUBLE, axis_size=-1), ParameterError,
     "vmap of double: axis_size is -1, not a number of examples", "give an int >= 0"),
    (lambda: fx.vmap(double, out_axes=None)(X), ShapeError,
     "vmap of double: result varies with the mapped arguments, but its out_axes is None",
     "give the axis at which its values are to be stacked"),
    (lambda: vmap_jaxpr(body(F3), 2, (0,), (None,)), ShapeError,
     "vmap: result 0 depends on a mapped operand, but its out_axes is None",
     "give the axis at which the results are to be stacked"),
    (lambda: fx.vmap(double, spmd_axis_name=("i", "j"))(X), ParameterError,
     "vmap of double: spmd_axis_name i, j divides nothing: the function has no mesh",
     "leave it out, or use with_sharding_constraint in the function"),
]  # fmt: skip

LOOPS: list[Case] = [
    (lambda: loops.associative_scan(fnp.add, 1.0), ShapeError,
     "associative_scan: elems is f32[], without an axis to run over",
     "all leaves of elems are run over together, along axis"),
    (lambda: lax.associative_scan(fnp.add, (X, X[:2])), ShapeError,
     "associative_scan: leaves of elems differ in length along axis 0: elems[0] is f32[3], elems[1] is f32[2]",
     "all leaves are run over together"),
    (lambda: loops.associative_scan(lambda a, b: (a, b), X), TreeError,
     "associative_scan: fn <lambda> returns (*, *), elems is *", "return from fn what it was given, with new values"),
    (lambda: lax.associative_scan(lambda a, b: fnp.sum(a), X), ShapeError,
     "associative_scan: elems of <lambda> is f32[], its operands are f32[1]",
     "fn combines stacks of slices, one by one: make it elementwise, or use vmap in it"),
    (lambda: lax.associative_scan(lambda a, b: (a + b).astype("float64"), X), DTypeError,
     "associative_scan: elems of <lambda> is f64[1], its operands are f32[1]", "fn must not change the dtype"),
    (lambda: lax.scan(lambda c, x: (c, None), 0.0, (X, X[:2])), ShapeError,
     "scan: leaves of xs differ in length: xs[0] is f32[3], xs[1] is f32[2]",
     "all leaves are run over together, along axis 0"),
    (lambda: lax.fori_loop(0, INT, lambda k, c: c, 0.0, unroll=2), ParameterError,
     "fori_loop: unroll is 2, but the bounds are arrays", "give the bounds as Python ints, or leave out unroll"),
    (lambda: loops.fori_loop(0, WHOLE, lambda k, c: c, 0.0), ShapeError,
     "fori_loop: upper is i32[3], not a single number", "a bound is the same for all: reduce it, or use vmap"),
    (lambda: lax.fori_loop(INT, LONG, lambda k, c: c, 0.0), DTypeError,
     "fori_loop: lower is i32[], upper is i64[]", "convert one bound to the dtype of the other"),
]  # fmt: skip

PROGRAMS: list[Case] = [
    (lambda: DOUBLE(np.ones(2, np.float32)), ShapeError,
     "double: argument x has shape (2,), it was traced with (3,)",
     "trace again for the other shape, or use jit, which does so by itself"),
    (lambda: DOUBLE(np.ones(3)), DTypeError, "double: argument x has dtype float64, it was traced with float32",
     "convert it with astype('float32'), or trace again; nothing is converted silently"),
    (lambda: SCALAR(1j), DTypeError, "double: argument x is the Python complex 1j, it was traced as f32[]",
     "trace again with a scalar of this kind, or use jit, which does so by itself"),
    (lambda: BOTH(X), ArgumentError, "both: takes the keyword arguments k, no keyword arguments were given",
     "a program takes by keyword what it was traced with by keyword; defaults are part of its code"),
    (lambda: fx.trace(lambda x: "no", X), ArgumentError, "trace of <lambda>: result is a str, not an array: 'no'",
     "return arrays, Python numbers, or pytrees of them; register a class with fxad.tree.dataclass"),
    (lambda: fxa.jit(sized, static_argnums="n"), ParameterError,
     "jit of sized: static_argnums is 'n', not an int or a sequence of them", STATIC),
    (lambda: fx.jit(sized, static_argnums=2), ParameterError,
     "jit of sized: static_argnums has 2, the function takes 2 positional arguments",
     "number them from 0, or give static_argnames"),
    (lambda: fx.jit(sized, static_argnames="m"), ParameterError,
     "jit of sized: static_argnames has 'm', which is no parameter of the function", "its parameters are n, x"),
    (lambda: fx.jit(lambda *sizes: sizes, static_argnames="sizes"), ParameterError,
     "jit of <lambda>: static_argnames has 'sizes', which is no parameter of the function", "number its arguments"),
    (lambda: fx.jit(sized, static_argnums=0)([2], X), ArgumentError,
     "jit of sized: static argument n is a list, which is not hashable: [2]",
     "give a tuple in place of a list; an array is no static argument: leave it traced"),
]  # fmt: skip

TREES: list[Case] = [
    (lambda: tree.map(lambda a, b: a, (1, 2), (1,)), TreeError,
     "tree.map: tree 1 differs from the first: tree[1] is only in one of them (2 and 1 leaves)",
     "give trees of one structure"),
    (lambda: tree.ravel({"a": "no"}), ArgumentError, "tree.ravel: tree['a'] is a str, not an array: 'no'",
     "give a tree of arrays and numbers"),
    (lambda: tree.leaves(Foreign()), TreeError,
     "tree: Foreign is a subclass of a pyrsistent container that fxad does not know",
     "register the class: fxad.tree.register"),
    (lambda: unravel([1.0]), ArgumentError, "unravel: a list is not a vector: [1.0]",
     "give an array like the vector that ravel made"),
    (lambda: unravel(X[:2]), ShapeError, "unravel: the vector has shape (2,), the tree needs (3,)",
     "give a vector with an element for each element of the tree"),
    (lambda: unravel(np.ones(3)), DTypeError, "unravel: the vector has dtype float64, that of the tree has float32",
     "convert it with astype('float32'); nothing is converted silently"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "message", "remedy"),
    [*DERIVATIVES, *MAPS, *LOOPS, *PROGRAMS, *TREES],
    ids=lambda x: x[:50] if isinstance(x, str) else "",
)
def test_refusals(call: Callable[[], object], error: type[FxadError], message: str, remedy: str) -> None:
    assert refused(call, error, message).remedy == remedy


def test_errors_of_optree_have_a_remedy() -> None:
    with pytest.raises(TreeError, match=r"^unflatten: Too few leaves") as few:
        tree.unflatten(tree.structure((1, 2)), [1])
    assert few.value.remedy == "give as many leaves as the structure has"
    with pytest.raises(ParameterError, match=r"^tree.register: PyTree type <class 'dict'> ") as twice:
        register(dict, list, dict)
    assert twice.value.remedy == "register a class once, and none that is a container already"


def test_a_body_with_a_zero_operand_is_not_assumed_to_be_linear() -> None:
    """A zero operand of a body does not make its results zero."""
    cos = fx.jit(fnp.cos)

    def called(x: Any, y: Any) -> Any:
        return x + cos(0.0 * y)

    def stepped(x: Any, n: Any) -> Any:
        return x + lax.fori_loop(0, 3, lambda _, c: c + n, 0.0)

    refused(lambda: fx.transpose(called, 2.0, 3.0, argnums=0), NotLinearError, AFFINE)
    refused(lambda: fx.transpose(stepped, 2.0, 3.0, argnums=0), NotLinearError, AFFINE)


AFFINE = "transpose: add is not linear in operands [0]"
