"""Planning beside XLA: the time of passes, cost rules and plans of each program that tests compile.

    python -m benchmarks.planning tests/units tests/test_examples.py tests/interop    the programs of these tests
    python -m benchmarks.planning models                                              the gradients of benchmarks.models
    python -m benchmarks.planning stretches                                           what docs/adr/0092 decides
    python -m benchmarks.planning budgets                                             the planner of docs/adr/0095

Planning is `BEFORE_DIFFERENTIATION`, `plan_of`, and whether it is compiled without fusion; compilation is XLA's part
alone. The times are processor time. The table has the programs whose planning takes more than `PART` of their
compilation, longest planning first, and the totals. A pass that runs before differentiation counts for the program that
is compiled next.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest import mock

import numpy as np
import pytest

import fxad as fx
import fxad.numpy as fnp
from benchmarks.bench_units import first, ours_of
from benchmarks.models.adbench import bundle, mixture
from benchmarks.models.dynamics import bodies
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import residual, rnn, transformer, transformer_block
from fxad.api import lift
from fxad.execution import executable
from fxad.ir import Jaxpr, distinct_jaxprs
from fxad.passes import plan_of
from fxad.support.tables import Table
from fxad.transforms.memory_plans.plan import memory_passes
from fxad.xla import executable as xla_executable
from fxad.xla.compat import WITHOUT_FUSION

PART: Final = 0.1  # of the compilation that planning may take
LEAST_MS: Final = 5.0  # of planning; shorter ones are noise


@dataclass(frozen=True, slots=True)
class Planned:
    """A program that was compiled: its distinct equations, and the milliseconds of planning and of XLA."""

    name: str
    equations: int
    planning: float
    xla: float
    where: str


class Meter:
    """Measures each program that is compiled in a `with` block of `running`."""

    def __init__(self) -> None:
        self.programs: list[Planned] = []
        self.where = ""
        self._planning = self._xla = 0.0
        self._inside = False

    @contextmanager
    def running(self) -> Iterator[Meter]:
        """Measures while the block runs."""
        with ExitStack() as stack:
            for module, name in (
                (lift, "run_passes"),
                (executable, "plan_of"),
                (xla_executable, "is_compiled_without_fusion"),
            ):
                stack.enter_context(mock.patch.object(module, name, self._timed(getattr(module, name), "_planning")))
            compile_module = self._timed(xla_executable.compile_module, "_xla")
            stack.enter_context(mock.patch.object(xla_executable, "compile_module", compile_module))
            load_program = executable.load_program

            def measured(jaxpr: Jaxpr, *rest: Any) -> Any:
                self._xla = 0.0
                out = load_program(jaxpr, *rest)
                if self._xla:
                    size = sum([len(body.eqns) for body in distinct_jaxprs(jaxpr)])
                    self.programs.append(Planned(jaxpr.name, size, self._planning, self._xla, self.where))
                    self._planning = 0.0
                return out

            stack.enter_context(mock.patch.object(executable, "load_program", measured))
            yield self

    def _timed(self, f: Callable[..., Any], total: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return f(*args, **kwargs)
            clock = time.process_time if total == "_xla" else time.thread_time  # XLA has threads of its own
            self._inside, start = True, clock()
            try:
                return f(*args, **kwargs)
            finally:
                self._inside = False
                setattr(self, total, getattr(self, total) + 1e3 * (clock() - start))

        return timed

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The test that runs, as a plug-in of pytest."""
        self.where = item.nodeid


def offenders(programs: Sequence[Planned]) -> list[Planned]:
    """Returns the programs that plan for too long, the longest planning first."""
    long = [p for p in programs if p.planning > max(LEAST_MS, PART * p.xla)]
    return sorted(long, key=lambda p: -p.planning)


def run_models(*models: Callable[[], Model]) -> None:
    """Compiles the gradients of models."""
    for make in models:
        f, given = ours_of(make())
        f.lower(*given).compile()


def stretches(sizes: Sequence[int] = (20, 50, 100)) -> None:
    """Prints what Hessians of irregular steps take to compile and to run: whole, without fusion, and as planned."""
    steps = (fnp.sin, fnp.cos, lambda x: x * x * 0.5, lambda x: x + 1.0, fnp.tanh, lambda x: x * 0.9)
    x = fx.asarray(np.full(5, 0.3, np.float32))
    rows = []
    for n in sizes:
        choices = np.random.default_rng(0).integers(0, len(steps), n).tolist()

        def f(x: Any, choices: list[int] = choices) -> Any:
            for k in choices:
                x = steps[k](x)
            return fnp.sum(x)

        program = fx.trace(fx.hessian(f), x)
        unfused = fx.CompileOptions(flags=WITHOUT_FUSION)
        full = fx.CompileOptions(flags=(("xla_cpu_enable_fast_math", False),))
        forms: Any = (("whole", "none", full), ("unfused", "none", unfused), ("planned", "auto", None))
        for name, units, options in forms:
            lowered, start = fx.lower(program, units=units), time.process_time()
            run = lowered.compile(*([options] if options else []))
            seconds = time.process_time() - start
            ms = min([first(lambda run=run: run(x).block_until_ready()) for _ in range(30)])  # type: ignore[misc]
            rows.append((f"{n} steps", name, f"{seconds:.2f}", f"{ms:.3f}"))
    print(Table(("Hessian of", "form", "compile s", "run ms"), tuple(rows), right=(2, 3)).text())


def budgets() -> None:
    """Prints the time of the planner of budgets beside that of XLA for the plain program: up to the first plan, which
    most budgets take, and for all plans."""
    from benchmarks.models.blocks import Way, convolutional, recurrent, transformer  # these need JAX

    rows = []
    meter = Meter()
    for network in (transformer(2), transformer(), convolutional(), recurrent(300)):  # the first imports what is needed
        args = [fx.tree.map(fx.asarray, a) for a in (network.layers, network.start, network.xs)]
        program = fx.trace(fx.value_and_grad(partial(network.loss, OURS, Way())), *args)
        with meter.running():
            fx.lower(program).compile()
        whole = sum([p.xla for p in meter.programs])
        meter.programs.clear()
        start, times = time.thread_time(), []
        for p in memory_passes(program.jaxpr):
            plan_of(program.jaxpr, "auto", passes=(p,))
            times.append(1e3 * (time.thread_time() - start))
        first_ms, all_ms = [f"{ms:.0f} ({ms / whole:.2f})" for ms in (times[0], times[-1])]
        rows.append((network.name, f"{whole:.0f}", first_ms, f"{len(times)}: {all_ms}"))
    print(Table(("value_and_grad of", "XLA ms", "first plan ms", "plans ms"), tuple(rows[1:]), right=(1, 2, 3)).text())


def main(what: Sequence[str]) -> None:
    """Measures the programs of models and tests, and prints the table."""
    if "stretches" in what or "budgets" in what:
        (stretches if "stretches" in what else budgets)()
        return
    meter = Meter()
    tests = [w for w in what if w != "models"]
    run_models(rnn)  # imports what planning needs
    with meter.running():
        if "models" in what:
            meter.where = "models"
            run_models(mixture, bundle, bodies, residual, transformer, transformer_block)
        if tests:
            pytest.main(["-q", "--no-header", "--no-summary", *tests], plugins=[meter])
    rows = [
        (p.name, f"{p.equations:,}", f"{p.planning:.0f}", f"{p.xla:.0f}", f"{p.planning / p.xla:.2f}", p.where)
        for p in offenders(meter.programs)
    ]
    print(
        Table(("program", "equations", "planning ms", "XLA ms", "ratio", "in"), tuple(rows), right=(1, 2, 3, 4)).text()
    )
    planning, xla = sum([p.planning for p in meter.programs]), sum([p.xla for p in meter.programs])
    print(f"{len(meter.programs)} programs, {len(rows)} too long; planning {planning:,.0f} ms, XLA {xla:,.0f} ms")


if __name__ == "__main__":
    main(sys.argv[1:] or ["models"])
