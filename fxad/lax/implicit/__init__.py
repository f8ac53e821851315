"""Values defined by equations, differentiated by the implicit function theorem, and solvers of linear systems."""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.lax.implicit.convergence import Breakdown as Breakdown, Convergence as Convergence
    from fxad.lax.implicit.fixed_point import fixed_point_iteration as fixed_point_iteration
    from fxad.lax.implicit.krylov import bicgstab as bicgstab, cg as cg, gmres as gmres
    from fxad.lax.implicit.roots import (
        custom_fixed_point as custom_fixed_point,
        custom_minimize as custom_minimize,
        custom_root as custom_root,
    )
    from fxad.lax.implicit.systems import custom_linear_solve as custom_linear_solve
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.lax.implicit.krylov": "bicgstab cg gmres",
            "fxad.lax.implicit.fixed_point": "fixed_point_iteration",
            "fxad.lax.implicit.convergence": "Breakdown Convergence",
            "fxad.lax.implicit.roots": "custom_fixed_point custom_minimize custom_root",
            "fxad.lax.implicit.systems": "custom_linear_solve",
        },
    )
