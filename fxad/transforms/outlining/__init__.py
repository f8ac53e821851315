"""Repeated sequences of equations become calls of one body."""
