"""The time of the rounding errors of a program beside its gradient, and the memory of a transformer in bfloat16.

python -m benchmarks.precision        one core, one or two minutes
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import fxad as fx
from benchmarks.harness import Row, race, show
from benchmarks.models.adbench import mixture
from benchmarks.models.dynamics import bodies
from benchmarks.models.library import OURS, Model
from benchmarks.models.networks import mlp, residual, rnn, transformer
from fxad.api.precision import weighted_executable
from fxad.core.trees import tree
from fxad.tracing.program import numpy_operands
from fxad.transforms.precision.bounds import with_bounds
from fxad.transforms.precision.rounding import is_single
from fxad.transforms.precision.taps import SumRequest

GOAL: Final = 3.0  # gradients that a table may take
ROUNDS: Final = 15
MODELS: Final[tuple[Callable[[], Model], ...]] = (
    lambda: mlp(8), lambda: transformer(2), mixture, lambda: rnn(scanned=True), lambda: residual(2), lambda: bodies(50),
)  # fmt: skip


def loss_of(model: Model) -> tuple[Any, tuple[Any, ...]]:
    """Returns the program of the loss of a model, and its arguments."""
    args = model.params, model.x, model.y
    return fx.trace(lambda p, x, y: model.loss(OURS, p, x, y), *args), args


def table_time(model: Model) -> list[Row]:
    """Returns the run time of the pass of `rounding_errors` beside that of the gradient, and the first table."""
    program, args = loss_of(model)
    gradient: Any = fx.lower(fx.value_and_grad(program)).compile()
    start = time.perf_counter()
    fx.rounding_errors(program, *args)
    first = 1e3 * (time.perf_counter() - start)
    jaxpr, operands = numpy_operands(program, args, {})
    wants = SumRequest(not is_single([a for a in jaxpr.out_avals if a.inexact]))
    run, operands = weighted_executable(with_bounds(jaxpr, operands), operands, wants)
    on_device = [fx.asarray(x) for x in operands]
    arguments = tree.map(fx.asarray, args)
    ours, peer = race(
        lambda: [x.block_until_ready() for x in run(*on_device)],
        lambda: [x.block_until_ready() for x in tree.leaves(gradient(*arguments))],
        rounds=ROUNDS,
    )
    return [
        Row(f"{model.name}: table", ours, peer, GOAL),
        Row(f"{model.name}: first table", first, first, unit="ms"),
    ]


def memory(layers: int) -> list[Row]:
    """Returns the bytes of temporaries of the gradient of a transformer in bfloat16, beside float32."""
    program, args = loss_of(transformer(layers))
    mixed = fx.cast(program, "bfloat16")
    ours, peer = [_compiled(f) for f in (mixed, program)]
    error = abs(float(np.asarray(ours(*args)[0])) / float(np.asarray(peer(*args)[0])) - 1)
    return [
        Row(
            f"transformer, {layers} layers: temporaries",
            ours.memory().temp_bytes,
            peer.memory().temp_bytes,
            unit="bytes",
        ),
        Row(
            f"transformer, {layers} layers: stored values",
            _residual_bytes(mixed),
            _residual_bytes(program),
            0.75,
            unit="bytes",
        ),
        Row("relative error of the loss", error, 1.0, unit=""),
    ]


def _compiled(program: Any) -> Any:
    return fx.lower(fx.value_and_grad(program)).compile()


def _residual_bytes(program: Any) -> int:
    return fx.residuals(program, argnums=0).bytes


def main() -> None:
    """Prints the table."""
    show("Rounding errors beside gradients", [row for model in MODELS for row in table_time(model())])
    show("bfloat16 beside float32", memory(4))


if __name__ == "__main__":
    main()
