"""Programs as text: `parse` reads what `str(jaxpr)` writes."""

from fxad.text.parser import PRIMITIVES as PRIMITIVES
from fxad.text.parser import OwnPrimitives as OwnPrimitives
from fxad.text.parser import Vocabulary as Vocabulary
from fxad.text.parser import parse as parse
from fxad.text.parser import to_text as to_text
from fxad.text.parser import vocabulary as vocabulary
