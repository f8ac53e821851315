"""Laws of programs of symbolic shape, on generated programs: text and files, and the other transformations."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings

import fxad as fx
import fxad.numpy as fnp
from fxad import lax, text
from fxad.core.interpreter import run
from fxad.core.sizes import named_size
from fxad.core.typecheck import typecheck
from fxad.errors import SizeError
from fxad.ir import Jaxpr
from fxad.testing import MASK_STEPS, RaggedCase, ragged_cases
from fxad.testing.compare import differ, program_tolerance
from fxad.transforms import specialize
from fxad.transforms.specialize import size_names
from tests.laws.budget import share


def as_program(jaxpr: Jaxpr) -> fx.Program[..., object]:
    ins = fx.tree.structure((tuple(range(len(jaxpr.ins))), {}))
    return fx.Program(jaxpr, ins, fx.tree.structure(tuple(range(len(jaxpr.outs)))))


@given(ragged_cases())
@settings(max_examples=30, deadline=None)
def test_text_and_copies_are_the_same_object(case: RaggedCase) -> None:
    program = case.program
    typecheck(program)
    assert text.parse(str(program)) is program
    assert pickle.loads(pickle.dumps(program)) is program
    assert fx.diff(program, program) is None
    renamed = {n.name: named_size(f"{n.name}_other", n.at_least) for n in size_names(program)}
    other = specialize(program, tuple(sorted(renamed.items())))
    assert (fx.diff(program, other) is None) == (not renamed)
    back = {f"{n}_other": named_size(n, size.names[0].at_least) for n, size in renamed.items()}  # type: ignore[attr-defined]
    assert specialize(other, tuple(sorted(back.items()))) is program


@given(ragged_cases(size=6, depth=1))
@settings(max_examples=15, deadline=None)
def test_files_give_the_same_object(tmp_path_factory: pytest.TempPathFactory, case: RaggedCase) -> None:
    path: Path = tmp_path_factory.mktemp("programs") / "program"
    fx.save(as_program(case.program), path)
    assert fx.load(path).jaxpr is case.program


# The others may do more where they know the number: an axis of one element is not reversed, two shapes are equal.
EXACT = ("jvp", "linearize", "vmap", "scan", "cond", "call", "remat", "dce", "inline")


@share(10)
@given(ragged_cases(differentiable=True, size=8, depth=2))
def test_specialize_commutes_with_every_transformation(case: RaggedCase) -> None:
    """The transformed program at a size is the program at that size, transformed: the same object, or one with the same
    results. An empty axis may make an equation trivial."""
    at = tuple(sorted(case.sizes.items()))
    fixed = specialize(case.program, at)
    for name, transform in MASK_STEPS.items():
        try:
            first = transform(case.program, 0)
        except SizeError as e:
            if "reduce_prod" not in e.message:
                raise
            continue
        have, want = specialize(first, at), transform(fixed, 0)
        if have is not want:
            assert name not in EXACT or 0 in case.sizes.values(), name
            args = case.operands(first.in_avals)
            assert not differ(run(have, args), run(want, args), slack=10 * program_tolerance(want, args)), name


def test_what_reports_on_a_program_takes_one_of_symbolic_shape() -> None:
    program = fx.trace(lambda x: fnp.sin(fnp.sin(x[::-1])).sum() + lax.cumsum(x)[-1], fx.Spec("n>=1"))
    assert "8*n bytes beside the arguments" in str(fx.residuals(program))
    assert fx.simplify(program).jaxpr is program.jaxpr
    assert fx.explain_nan(program, fnp.asarray([1.0, -fnp.inf])) is not None
    assert fx.explain_nan(program, fnp.asarray([1.0, 2.0])) is None
    n = named_size("n")
    assert f"{2 * n:,} {n:d} {n:>4}" == "2*n n    n"
