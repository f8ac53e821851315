"""Automatic differentiation: forward mode, linearization, transposition, and what is composed of them."""
