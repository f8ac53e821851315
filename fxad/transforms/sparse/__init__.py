"""Sparse derivatives: colourings of patterns, and products with them."""
