"""Random numbers: keys are values, and a draw is a function of its key.

>>> import fxad as fx
>>> from fxad import random
>>> key = random.key(0)
>>> key, sub = random.split(key)
>>> random.normal(sub, (3,)).shape
(3,)

A key is an array u32[2]. The functions have the names and argument orders of `jax.random`, and from the same key data
those that say so give the same bits. There is no hidden state: a key used twice gives the same numbers twice, so
`split` it. Everything goes through `jit`, `vmap` (over keys, parameters or both) and `grad` (with respect to
parameters, wherever a draw is a differentiable function of them).

Parameters broadcast to `shape`, the shape of the result; where it is left out, the result has their common shape. The
dtype of floating results is the one asked for, else that of the parameters that are floating arrays, else float32.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.random.binomials import binomial, multinomial
    from fxad.random.continuous import (
        cauchy,
        exponential,
        gumbel,
        laplace,
        logistic,
        pareto,
        rayleigh,
        triangular,
        weibull_min,
    )
    from fxad.random.discrete import categorical, geometric, poisson
    from fxad.random.gammas import (
        ball,
        beta,
        chisquare,
        dirichlet,
        f,
        gamma,
        generalized_normal,
        loggamma,
        student_t,
        t,
    )
    from fxad.random.gaussian import double_sided_maxwell, lognormal, maxwell, normal, truncated_normal, wald
    from fxad.random.keys import PRNGKey, clone, fold_in, key, key_data, key_impl, split, wrap_key_data
    from fxad.random.ordering import choice, permutation
    from fxad.random.uniforms import bernoulli, bits, rademacher, randint, uniform
    from fxad.random.vectors import multivariate_normal, orthogonal
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.random.binomials": "binomial multinomial",
            "fxad.random.continuous": (
                "cauchy exponential gumbel laplace logistic pareto rayleigh triangular weibull_min"
            ),
            "fxad.random.discrete": "categorical geometric poisson",
            "fxad.random.uniforms": "bernoulli bits rademacher randint uniform",
            "fxad.random.gammas": "ball beta chisquare dirichlet f gamma generalized_normal loggamma student_t t",
            "fxad.random.gaussian": "double_sided_maxwell lognormal maxwell normal truncated_normal wald",
            "fxad.random.keys": "PRNGKey clone fold_in key key_data key_impl split wrap_key_data",
            "fxad.random.ordering": "choice permutation",
            "fxad.random.vectors": "multivariate_normal orthogonal",
        },
    )

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice", "clone",
    "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal", "geometric",
    "gumbel", "key", "key_data", "key_impl", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multinomial",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher", "randint",
    "rayleigh", "split", "student_t", "t", "triangular", "truncated_normal", "uniform", "wald", "weibull_min",
    "wrap_key_data",
]  # fmt: skip
