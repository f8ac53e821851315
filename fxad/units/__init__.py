"""Units: which parts of a program are compiled apart, once each, and how they are linked. Values, nothing runs here."""
