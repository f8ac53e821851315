"""Newton's method with `hessian`: a logistic regression fitted to the last digit of float64.

    python examples/newton.py

The model tells fours from nines. The loss is convex, so each step solves one linear system with the exact Hessian, and
the number of correct digits doubles with each step. Gradient descent would need thousands of steps.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import fxad as fx
import fxad.numpy as fnp

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
ONE, OTHER = 4, 9
RIDGE = 1e-3


def loss(w: fx.Array, x: fx.Array, sign: fx.Array) -> fx.Array:
    """Mean logistic loss of the linear score `x @ w`, with a ridge penalty that makes the minimum unique."""
    return fnp.mean(fnp.log1p(fnp.exp(-sign * (x @ w)))) + 0.5 * RIDGE * fnp.sum(w * w)


def main(argv: Sequence[str] | None = None) -> float:
    """Fits, and returns the norm of the gradient at the solution."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args(argv)

    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    table = table[np.isin(table[:, -1], (ONE, OTHER))]
    x = fnp.asarray(np.concatenate([table[:, :-1] / 16, np.ones((len(table), 1))], axis=1))
    sign = fnp.asarray(np.where(table[:, -1] == ONE, 1.0, -1.0))
    w = fnp.zeros(x.shape[1], dtype=np.float64)

    traced = fx.trace(loss, w, x, sign)
    value_and_grad = fx.lower(fx.value_and_grad(traced)).compile()
    hessian = fx.lower(fx.hessian(traced)).compile()

    print(f"{len(table)} images of {ONE} and {OTHER}; {w.shape[0]} weights")
    print("step   loss                  |gradient|")
    norm = np.inf
    for step in range(options.steps + 1):
        value, gradient = value_and_grad(w, x, sign)
        norm = float(np.linalg.norm(np.asarray(gradient)))
        print(f"{step:4d}   {float(value):.16f}   {norm:.1e}")
        if norm < 1e-14 or step == options.steps:
            break
        w = w - fnp.asarray(np.linalg.solve(np.asarray(hessian(w, x, sign)), np.asarray(gradient)))
    right = float(np.mean(np.sign(np.asarray(x) @ np.asarray(w)) == np.asarray(sign)))
    print(f"{right:.1%} of the images on the right side")
    return norm


if __name__ == "__main__":
    main()
