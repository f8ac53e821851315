from .binomials import binomial as binomial, multinomial as multinomial
from .continuous import (
    cauchy as cauchy,
    exponential as exponential,
    gumbel as gumbel,
    laplace as laplace,
    logistic as logistic,
    pareto as pareto,
    rayleigh as rayleigh,
    triangular as triangular,
    weibull_min as weibull_min,
)
from .discrete import categorical as categorical, geometric as geometric, poisson as poisson
from .gammas import (
    ball as ball,
    beta as beta,
    chisquare as chisquare,
    dirichlet as dirichlet,
    f as f,
    gamma as gamma,
    generalized_normal as generalized_normal,
    loggamma as loggamma,
    student_t as student_t,
    t as t,
)
from .gaussian import (
    double_sided_maxwell as double_sided_maxwell,
    lognormal as lognormal,
    maxwell as maxwell,
    normal as normal,
    truncated_normal as truncated_normal,
    wald as wald,
)
from .keys import (
    PRNGKey as PRNGKey,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_impl as key_impl,
    split as split,
    wrap_key_data as wrap_key_data,
)
from .ordering import choice as choice, permutation as permutation
from .uniforms import (
    bernoulli as bernoulli,
    bits as bits,
    rademacher as rademacher,
    randint as randint,
    uniform as uniform,
)
from .vectors import multivariate_normal as multivariate_normal, orthogonal as orthogonal
