from .convergence import Breakdown as Breakdown, Convergence as Convergence
from .fixed_point import fixed_point_iteration as fixed_point_iteration
from .krylov import bicgstab as bicgstab, cg as cg, gmres as gmres
from .newton_method import levenberg_marquardt as levenberg_marquardt, newton as newton
from .roots import (
    custom_fixed_point as custom_fixed_point,
    custom_minimize as custom_minimize,
    custom_root as custom_root,
)
from .sparse import Factorization as Factorization, factorize as factorize, sparse_solve as sparse_solve
from .systems import custom_linear_solve as custom_linear_solve
