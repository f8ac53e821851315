"""Primitives whose parameters are programs: calls, branches, loops and rematerialization."""
