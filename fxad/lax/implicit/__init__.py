"""Values defined by equations, differentiated by the implicit function theorem, and solvers of linear systems."""

from fxad.lax.implicit.krylov import bicgstab as bicgstab
from fxad.lax.implicit.krylov import cg as cg
from fxad.lax.implicit.krylov import gmres as gmres
from fxad.lax.implicit.picard import fixed_point_iteration as fixed_point_iteration
from fxad.lax.implicit.report import Breakdown as Breakdown
from fxad.lax.implicit.report import Convergence as Convergence
from fxad.lax.implicit.roots import custom_fixed_point as custom_fixed_point
from fxad.lax.implicit.roots import custom_minimize as custom_minimize
from fxad.lax.implicit.roots import custom_root as custom_root
from fxad.lax.implicit.systems import custom_linear_solve as custom_linear_solve
