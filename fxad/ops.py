"""Sums, products and extrema of segments, under the names of `jax.ops`."""

from fxad.numpy.segments import segment_max, segment_min, segment_prod, segment_sum

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]
