"""The products of `fxad.numpy` that the array API standard has in `linalg` too."""

from fxad.numpy.products import matmul as matmul, outer as outer, tensordot as tensordot, vecdot as vecdot
from fxad.numpy.shapes import matrix_transpose as matrix_transpose
