"""The primitives of the language, one family per file; elementwise ones, linear algebra and control flow are packages.

`manifest.ALL` lists all of them. These files have no primitives, and are shared by several families:

- `families`: base classes by the form of the derivative; `linearity`: linear programs;
- `axes`, `sliding`, `dimension_numbers`, `meshes`: parameters of primitives;
- `custom_rules`: the records that `custom` carries;
- `operand_checks`: errors of type rules; `stablehlo`: pieces of lowering rules; `fusion`: tables of costs.
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
