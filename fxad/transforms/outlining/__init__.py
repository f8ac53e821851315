"""Repeated stretches of equations as calls of one body."""
