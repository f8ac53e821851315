"""Compilation units: the choice of the parts that are compiled separately, and the plan that links them. Nothing is
compiled or run here."""
