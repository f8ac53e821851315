"""Sizes: polynomials with integer coefficients in named sizes, the dimensions of programs of symbolic shape.

A dimension is an int or a `Size`. A polynomial without names is an int, so a `Size` is never equal to an int. Each name
has an assumption, the least number that it may be. No dimension is larger than `LARGEST_SIZE`.

| file, in the order of imports | contents |
|---|---|
| `bent_lines` | piecewise linear functions of one whole number |
| `polynomials` | names, monomials, `+`, `-`, `*`, the normal form, the text |
| `lower_bounds` | lower bounds from the assumptions: they decide an order |
| `size` | `Size`: division, order, refusals; `maximum`, `minimum`; values in place of names |
| `upper_bounds` | upper bounds of sizes whose names are bounded: padding |
| `equations` | values of names from the shapes of arguments |
| `text` | the language of shapes, read |
"""

from fxad.core.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
