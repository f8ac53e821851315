"""Primitives that carry bodies, a chapter each."""
