"""Automatic differentiation: forward mode, linearization, transposition, and their compositions."""
