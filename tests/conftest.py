"""Profiles of the property tests: `ci` for every run, `deep` for `make deep`; and the compile options of
tests."""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import WorkStealingScheduling

import fxad as fx
import fxad.numpy.composites
import fxad.tracing.array
from fxad import runtime
from fxad.ir import Jaxpr
from fxad.lower import LoweredModule
from fxad.testing import compare
from fxad.testing.unit_laws import arbitrary_units
from fxad.units.plan import UnitsChoice
from fxad.xla import executable
from fxad.xla.client import Device
from fxad.xla.options import CompileOptions, xla_options
from tests.laws.budget import quick

COMMON = settings(
    deadline=None,  # the first example of a law compiles, the others do not
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.register_profile("ci", COMMON, max_examples=8, derandomize=True)
settings.register_profile("dev", COMMON, max_examples=8)
settings.register_profile("deep", COMMON, max_examples=int(os.environ.get("FXAD_EXAMPLES", "2000")))
settings.load_profile(os.environ.get("FXAD_PROFILE", "ci" if os.environ.get("CI") else "dev"))
if quick():
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # tests compare the results of jax, and not its speed


_COMPILED = "PYTHONPYCACHEPREFIX"
_folder: tempfile.TemporaryDirectory[str] | None = None


def pytest_configure() -> None:
    """Makes processes that tests start use compiled modules, which the first of them writes outside of the tree."""
    global _folder  # noqa: PLW0603
    gc.disable()  # collecting ten thousand tests triggers many collections of garbage, so it is off
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", "") and _COMPILED not in os.environ:
        _folder = tempfile.TemporaryDirectory(prefix="fxad-tests-", ignore_cleanup_errors=True)
        os.environ[_COMPILED] = _folder.name


def pytest_unconfigure() -> None:
    if _folder is not None:
        _folder.cleanup()


# Folders whose tests are sweeps over functions, primitives and operands: an ordinary run draws 1/n of the sets.
_SWEEPS: Final = {
    "conformance": 8,
    "interfaces": 10,
    "interop": 8,
    "invertible": 3,
    "jet": 2,
    "laws": 3,
    "mask": 3,
    "primitives": 4,
    "random": 8,
    "sparse": 3,
    "spmd": 2,
}


# Folders of functions, samplers and maps over devices: of their tests without parameters an ordinary run draws a half,
# except of those that depend on the version of Python or jaxlib (`smoke`); of the others at least one set.
_HALVED: Final = frozenset({"conformance", "interfaces", "random", "spmd"})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects parameter sets of sweeps: of a test marked `sweep(of)`, or in a folder of sweeps, 1/`of` of them run,
    at least 2, or 1 in a folder of functions. The oldest and the newest version of Python run different sets. All run
    in `make deep`, and when the command names a set; tests without parameters also when it names their file.
    """
    if not quick() or any("[" in arg for arg in config.args):
        return
    of_files = {Path(arg.partition("::")[0]).name for arg in config.args}
    functions: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", item.name)
        alone = (
            item.path.parent.name in _HALVED
            and item.path.name not in of_files
            and "[" not in item.name
            and not item.get_closest_marker("smoke")
        )
        functions.setdefault((item.path, "" if alone else name), []).append(item)
    left_out: set[pytest.Item] = set()
    turn = sys.version_info.minor // 2  # of 3.11 and 3.13, which CI runs, the one takes the sets after the other's
    for (path, name), sets in functions.items():
        marker = sets[0].get_closest_marker("sweep")
        of = marker.args[0] if marker else _SWEEPS.get(path.parent.name, 1) if name else 2
        kept = max(1 if path.parent.name in _HALVED or not name else 2, -(-len(sets) // of))
        if kept < len(sets):
            random.Random(f"{path.name} {name}").shuffle(sets)
            start = kept * turn % len(sets)
            left_out.update([*sets, *sets][start + kept : start + len(sets)])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish(session: pytest.Session) -> None:
    unstable = [item.nodeid for item in session.items if " at 0x" in item.nodeid]
    assert not unstable, f"named by an address, which pytest-xdist finds to be another in each process: {unstable[0]}"
    gc.collect()
    gc.freeze()  # collected tests stay to the end, so later collections skip them
    gc.enable()


def _any_units(jaxpr: Jaxpr) -> UnitsChoice:
    return arbitrary_units(jaxpr, int(jaxpr.digest[:4], 16))


def _auto(_: Jaxpr) -> UnitsChoice:
    return "auto"


# FXAD_UNITS=random: every law that runs a compiled program compiles arbitrary calls of it apart.
if (how := os.environ.get("FXAD_UNITS", "none")) != "none":
    compare.units.set({"auto": _auto, "random": _any_units}[how])


@final
class _Quickly:
    """XLA's options for a program. With `quick`, LLVM compiles programs for CPUs at level 0, in half of the time.

    XLA's passes are the same, and so are the memory and the kernels. Options that a test sets are kept. Tests marked
    `smoke` or `as_users_compile`, and `make deep`, compile as users do.
    """

    def __init__(self) -> None:
        self.quick = False
        self._of_users = xla_options

    def __call__(self, options: CompileOptions, devices: tuple[Device, ...], lowered: LoweredModule) -> Any:
        chosen_by_test = options.optimization_level is not None or options.flags
        if self.quick and not chosen_by_test and devices[0].platform == "cpu":
            options = replace(options, optimization_level=0)
        return self._of_users(options, devices, lowered)


_QUICKLY: Final = _Quickly()
pytest.MonkeyPatch().setattr(executable, "xla_options", _QUICKLY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Each process gets the tests of whole files, which share programs and fixtures. An idle process takes files from
    another."""
    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("about_cpus") and (platform := runtime.default_device().platform) != "cpu":
        pytest.skip(f"states what CPUs print or store, and the default device is a {platform}")
    markers = ("smoke", "as_users_compile")
    apart = not quick() or any(map(item.get_closest_marker, markers))
    if apart is _QUICKLY.quick:
        _QUICKLY.quick = not apart
        forget()  # the cache has the same programs compiled with the other options


def forget() -> None:
    """Drops the programs of other tests from all caches."""
    fx.cache.clear()
    fxad.numpy.composites._programs.clear()
    fxad.tracing.array.EAGER._programs.clear()  # primitives hold the programs of eager operations and their bodies
    gc.collect()


@pytest.fixture
def nothing_remembered() -> None:
    """Drops the programs of other tests. Equal programs that are alive share the name and lines of the first one, so a
    test that compares names or lines needs no equal program alive."""
    forget()


@pytest.fixture(scope="module")
def nothing_of_other_files() -> None:
    """Drops the programs of other files: enough where a file has no two equal programs."""
    forget()
