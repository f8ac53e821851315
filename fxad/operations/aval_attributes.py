"""The attributes of an array's type, by their NumPy names."""

from __future__ import annotations

from abc import abstractmethod

from fxad import dtypes
from fxad.ir import Aval


class Typed:
    """A value that has a type in the IR."""

    __slots__ = ()

    @property
    @abstractmethod
    def aval(self) -> Aval:
        """Shape and dtype together."""

    def settled(self) -> Typed:
        """Return the array itself. A traced Python number becomes an array of its own dtype."""
        return self

    def beside(self, dtype: dtypes.DType) -> Typed:
        """Return the array itself. A traced Python number becomes an array of the dtype that it takes beside
        `dtype`."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> dtypes.DType:
        """NumPy dtype of the elements."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.aval.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.aval.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.aval.dtype.itemsize
