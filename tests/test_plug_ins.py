"""The rest of fxad works without its plug-ins: they are deleted from a copy, in which tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.deletion import PLUG_INS, copy_without

# Tests of the whole package that name no plug-in: every module is imported; programs, lowering, the runtime, files.
SHORT = ("tests/test_smoke.py", "tests/test_lower.py", "tests/ir/test_digest.py")
LONG = (*SHORT, "tests/test_runtime.py", "tests/test_stubs.py", "tests/api/test_export.py")
_RUN = """
import sys, fxad, pytest
assert fxad.__file__.startswith(sys.argv[1]), fxad.__file__
sys.exit(pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]))
"""


def run_tests(folder: Path, files: Sequence[str]) -> str:
    """Runs tests of a copy of the repository in a process of their own. Returns what they print."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"PYTHONPATH": str(folder)}
    # a folder of its own for temporary files: pytest leaves a scan open where another process deletes an old one
    command = [sys.executable, "-c", _RUN, str(folder), f"--basetemp={folder.with_name('temporary')}", *files]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-5000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.plug_ins
def test_the_rest_works_without_any_plug_in(tmp_path: Path) -> None:
    copy_without(frozenset(PLUG_INS), tmp_path)
    run_tests(tmp_path, SHORT)


@pytest.mark.plug_ins
@pytest.mark.parametrize("name", sorted(PLUG_INS))
def test_the_rest_works_without_a_plug_in(name: str, tmp_path: Path) -> None:
    copy_without(frozenset({name}), tmp_path)
    run_tests(tmp_path, LONG)


def test_what_still_needs_a_deleted_plug_in_is_found(tmp_path: Path) -> None:
    """A table that uses a plug-in in another way than as an entry is an error of the deletion."""
    copy_without(frozenset(), tmp_path)
    passes = tmp_path / "fxad/passes.py"
    passes.write_text(passes.read_text(encoding="utf-8") + "\nCHECKED = outline(None)\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"fxad\.passes needs what is deleted: CHECKED = outline\(None\)"):
        copy_without(frozenset({"outlining"}), tmp_path / "again", passes.parent.parent)


# ------------------------------------------------------------------------------------------- new members of families

# What a new primitive touches, as CONTRIBUTING says: the class, the tuple of its family, a strategy. By file: pairs of
# a text and the text that takes its place.
Edits: TypeAlias = Mapping[str, Sequence[tuple[str, str]]]
SOFTPLUS = '''
@final
@primitive
class Softplus(Unary):
    """log(1 + exp(x)).

    Type:   a float operand.
    Rule:   d = logistic(x).
    """

    name: ClassVar[str] = "softplus"
    hlo_name: ClassVar[str] = ""
    takes: ClassVar[frozenset[DType]] = dtypes.FLOATING - dtypes.FLOAT8

    def compute(self, x: NDArray) -> object:
        return np.logaddexp(x, np.zeros_like(x))

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        return hlo.op("stablehlo.log_plus_one", hlo.op("stablehlo.exponential", args, ins), outs)

    def tangent(self, ctx: JvpCtx, x: Atom, y: Atom, t: Tangent) -> Tangent:
        return scale_tangent(ctx, t, ctx.one(LOGISTIC, x))


TANH: Final = Tanh()'''
EVERY = '''
@final
@primitive
class ReduceEvery(LogicalReduction):
    """True if all elements along `axes` are True.

    Type: x bool or integer; the dtype is kept.
    """

    name: ClassVar[str] = "reduce_every"
    monoid: ClassVar[Monoid] = ALL_BITS


REDUCE: Final = (ReduceEvery, '''
ARGSORT = '''
@final
@primitive
class Places(SortLike, WithoutTangent):
    """The places of the elements along an axis in ascending order.

    Type: results int32.
    Rule: integers have no tangent.
    """

    name: ClassVar[str] = "places"
    axis: int

    def ordered_axis(self, ndim: int) -> int:
        return self.axis

    def last_value(self, dtype: DType) -> Lit:
        return Sort(self.axis, 1).last_value(dtype)

    def abstract_eval(self, *avals: Aval) -> tuple[Aval, ...]:
        (x,) = avals
        check_axis("places", self.axis, x.ndim)
        return (x.with_dtype(dtypes.int32),)

    def impl(self, *args: NDArray) -> tuple[NDArray, ...]:
        return (np.lexsort((as_accumulated(args[0]),), self.axis).astype(np.int32),)

    def lower(self, hlo: Hlo, args: HloValues, ins: Avals, outs: Avals) -> HloValues:
        b = Builder()
        iota = b.one(Iota(ins[0].shape, dtypes.int32, self.axis))
        return hlo.call(b.build(b(Sort(self.axis, 1), b.input(ins[0]), iota)[1:], "places"), args)

    def batch(self, ctx: BatchCtx, args: Atoms, dims: Dims) -> tuple[Atoms, Dims]:
        args, at = align_to_first(ctx, args, dims)
        return ctx(Places(axis_after_insert(self.axis, at)), *args), (at,)


SORT: Final = (Places, '''
DRAWN = """
def _places(draw: st.DrawFn, smooth: bool) -> Spec:
    shape = draw(shapes(min_rank=1))
    aval = Aval(shape, dtype_of(draw, ORDERED, smooth))
    return Places(draw(st.integers(0, len(shape) - 1))), [(aval, any_values(smooth))]


OWN: Final["""
STRATEGIES = "fxad/testing/draw_reductions.py"
CHECK = "from fxad.primitives.operand_checks"
WITHOUT_TANGENT = "from fxad.primitives.families import WithoutTangent\n"
EVERY_PRIMITIVE = ("tests/mask/test_mask.py", "tests/invertible/test_inverse_refusals.py")
MEMBERS: Mapping[str, Edits] = {
    "softplus": {
        "fxad/primitives/elementwise/sigmoid.py": [("\nTANH: Final = Tanh()", SOFTPLUS)],
        "fxad/primitives/elementwise/__init__.py": [
            ("    Sech2 as Sech2,\n", "    Sech2 as Sech2,\n    Softplus as Softplus,\n"),
            ("    Sech2,\n", "    Sech2,\n    Softplus,\n"),
        ],
    },
    "reduce_every": {
        "fxad/primitives/reduce.py": [("\nREDUCE: Final = (", EVERY)],
        STRATEGIES: [
            ("import ReduceAnd, ", "import ReduceEvery, ReduceAnd, "),
            ("for kind in (ReduceMax, ReduceMin, Re", "for kind in (ReduceEvery, ReduceMax, ReduceMin, Re"),
        ],
    },
    "places": {
        "fxad/primitives/sort.py": [("\nSORT: Final = (", ARGSORT), (CHECK, f"{WITHOUT_TANGENT}{CHECK}")],
        STRATEGIES: [
            ("import Sort\n", "import Places, Sort\n"),
            ("\nOWN: Final[", DRAWN),
            ("        Sort: _sort,\n", "        Sort: _sort,\n        Places: _places,\n"),
        ],
    },
}


@pytest.mark.plug_ins
def test_a_new_member_of_a_family_touches_its_class_its_tuple_and_its_strategy(tmp_path: Path) -> None:
    copy_without(frozenset(), tmp_path)
    for edits in MEMBERS.values():
        assert len(edits) == 2, "the family and the strategy, or the two files of the elementwise family"
        for name, pairs in edits.items():
            path = tmp_path / name
            source = path.read_text(encoding="utf-8")
            for text, other in pairs:
                assert text in source, f"{name} has no {text}"
                source = source.replace(text, other, 1)
            path.write_text(source, encoding="utf-8")
    # a name with brackets: no parameter set is left out (tests/conftest.py)
    named = f"tests/laws/test_primitive_laws.py::test_types[{min(MEMBERS)}]"
    files = (named, "tests/laws/test_primitive_laws.py", "tests/laws/test_coverage.py")
    ran = run_tests(tmp_path, [*files, *EVERY_PRIMITIVE, "-rp", "-k", " or ".join(["every_primitive", *MEMBERS])])
    laws = ["test_types", "test_lowering", "test_batch", "test_jvp", "test_every_rule_is_exercised"]
    assert [f"{law}[{name}]" for law in laws for name in MEMBERS if f"{law}[{name}]" not in ran] == []
