"""Programs as values, and the tools that read and build them: types, printing, meaning, memoisation.

`fxad.ir`, which has equations and jaxprs, divides the modules into two halves. `pyproject.toml` has the exact order of
imports.

    upper half, which reads and builds programs:
        builder, memo, passes       programs built, memoised, and rewritten by a tuple of passes
        dce, interpreter, lockstep  dead code elimination; the meaning in NumPy, of an example and of several threads
        typecheck, alignment, diff  the type checker; two programs compared
    lower half, of which programs are made:
        atoms, layout, hlo          variables, literals and types; how bodies use operands; what lowerings may write
        declaration                 the decorator of primitives, and the checks of their parameters
        printing, scalar_text, source_info, host_functions
        sizes, trees, flags, numbers, exact_key, dataclasses
        stack, frames, single_flight, lru, weak, lazy_exports

`diff` is imported at its first use.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
