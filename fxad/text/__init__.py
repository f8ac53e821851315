"""Programs as text: `parse` reads what `str(jaxpr)` writes."""

from fxad.text.parser import PRIMITIVES as PRIMITIVES
from fxad.text.parser import parse as parse
from fxad.text.parser import to_text as to_text
