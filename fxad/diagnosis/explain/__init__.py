"""One page that explains a program: where bytes, time and digits go, by the user's own lines."""

from fxad.diagnosis.explain.error_tables import ErrorRow, ErrorTable
from fxad.diagnosis.explain.explain import explain
from fxad.diagnosis.explain.memory_rows import MemoryRow
from fxad.diagnosis.explain.page import Page
from fxad.diagnosis.explain.time_rows import TimeRow

__all__ = ["ErrorRow", "ErrorTable", "MemoryRow", "Page", "TimeRow", "explain"]
