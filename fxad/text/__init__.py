"""Programs as text: `parse` reads what `str(jaxpr)` writes."""

from fxad.text.parser import (
    PRIMITIVES as PRIMITIVES,
    OwnPrimitives as OwnPrimitives,
    Vocabulary as Vocabulary,
    parse as parse,
    to_text as to_text,
    vocabulary as vocabulary,
)
