"""jaxlib's LAPACK routines. Few programs call them, so this module is imported at its first use, after
`fxad.lowering.jaxlib`."""

from jaxlib.cpu._lapack import initialize, registrations

__all__ = ["initialize", "registrations"]
