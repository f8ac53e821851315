"""Trees of arrays in files of the safetensors format: `fxad.tree.save` and `fxad.tree.load`.

The format is that of the `safetensors` library, which other frameworks read and write. The metadata of the file hold
the structure of the tree. A leaf is named by its path: `layers.0.w`. If two leaves would have one name, a dot in a key
is written with a backslash. Two dtypes that the format lacks, complex128 and float8_e4m3b11fnuz, are stored as bytes
with one axis more, and the metadata name their dtype.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, TypeVar, overload

import numpy as np
import safetensors

from fxad import dtypes
from fxad.core.trees import tree
from fxad.core.trees.paths import NamedKey, key_value
from fxad.core.trees.tree import Accessor, Structure
from fxad.errors import (
    ArgumentError,
    DTypeError,
    ExecutionError,
    FileFormatError,
    FxadError,
    ShapeError,
    described,
    shown,
)
from fxad.ir import NDArray
from fxad.operations.arguments import is_unicode
from fxad.storage.paths import absolute_path, open_regular, path_to_write
from fxad.storage.tree_structure import Json, key_paths, structure_from_json, structure_to_json
from fxad.support.atomic_file import write_whole
from fxad.tracing.array import Array, asarray, aval_of
from fxad.tracing.program import count_text
from fxad.tracing.tracer import Tracer

T = TypeVar("T")

_METADATA: Final = "fxad"
_VERSION: Final = 1
_AS_BYTES: Final = frozenset({dtypes.complex128, dtypes.float8_e4m3b11fnuz})
# Dtypes of the format that NumPy has no name for: the library cannot make arrays of them.
_FLOAT8: Final[Mapping[str, dtypes.DType]] = MappingProxyType(
    {
        "F8_E4M3": dtypes.float8_e4m3fn,
        "F8_E5M2": dtypes.float8_e5m2,
        "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz,
        "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz,
    }
)
_FLOAT8_DTYPES: Final = frozenset(_FLOAT8.values())
_SMALL: Final = 2**16  # bytes
_REMEDY: Final = "name a file of the safetensors format, as fxad.tree.save writes it"
_GIVE_LIKE: Final = "give `like=` a tree of the structure that was saved, or a part of it"
_AS_IT_WAS: Final = "define the class as it was when the tree was saved, or load arrays by `like=`"
_CHOOSE: Final = "load the file without `like=`, and choose among its arrays"


def save(path: str | os.PathLike[str], values: object) -> None:
    """Write a tree of arrays to a file of the safetensors format, whole or not at all.

    Numbers are saved as the arrays that `fxad.numpy.asarray` makes of them. Every dtype of fxad can be saved.

    Law:    `load(path)` is the tree, with arrays of the same shapes, dtypes and bits.
    Raises: ArgumentError for a leaf that is not an array, for tracers, for a tree that no file can describe and
            for what is no path; ExecutionError for an array that was deleted, or is on devices of other processes;
            FileFormatError for a folder; OSError.
    Cost:   a copy in host memory of the leaves that are on another device.
    """
    absolute = path_to_write("tree.save", path)
    flat, shape = tree.flatten(values)
    arrays = [_on_host(x, name) for x, name in zip(flat, tree.paths(shape, "tree"), strict=True)]
    names = _leaf_names(shape)
    for name in names:
        if not is_unicode(name):
            raise ArgumentError(
                f"tree.save: the name {shown(name)} of a leaf is no text of Unicode",
                remedy="rename the keys on its path: a surrogate alone is no character",
            )
    stored: dict[str, NDArray] = {}
    as_bytes: dict[str, str] = {}
    for name, array in zip(names, arrays, strict=True):
        if array.dtype in _AS_BYTES:
            as_bytes[name] = array.dtype.name
            stored[name] = np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, array.dtype.itemsize)
        else:
            stored[name] = np.ascontiguousarray(array).reshape(array.shape)
    head = {
        "version": _VERSION,
        "tree": structure_to_json(shape, "tree.save"),
        "names": names,
        "dtypes": as_bytes,
    }

    write_whole(absolute, _parts(stored, json.dumps(head)), 0o666)


def _parts(arrays: Mapping[str, NDArray], metadata: str) -> list[bytes | memoryview]:
    """Return the parts of a file of the format: the length of the header, the header and the bytes of the arrays.

    The library writes a temporary file of its own, which a killed process would leave for ever.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # so all arrays are aligned
    header: dict[str, object] = {"__metadata__": {_METADATA: metadata}}
    end = 0
    for name in order:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _CODES[array.dtype], "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text]
    numbers = [arrays[name].reshape(-1).view(np.uint8).data for name in order if arrays[name].nbytes]
    for small, several in groupby(numbers, lambda x: x.nbytes <= _SMALL):
        of_one_kind = list(several)
        parts += [b"".join(of_one_kind)] if small else of_one_kind  # thousands of leaves are written at once
    return parts


@overload
def load(path: str | os.PathLike[str], like: None = None, *, trusted: bool = False) -> Any: ...
@overload
def load(path: str | os.PathLike[str], like: T, *, trusted: bool = False) -> T: ...
def load(path: str | os.PathLike[str], like: object = None, *, trusted: bool = False) -> object:
    """Return the tree of arrays of a file of the safetensors format.

    `like`: a tree of arrays, of `fxad.Spec`s, or of anything with `shape` and `dtype`. Only its leaves are read. They
    are found by their paths, else by their names in the file, and must have its shapes and dtypes:
    `like={"params": params}` reads part of a checkpoint.
    Without `like`, the tree is the one that was saved. A file that fxad did not write is a dict from the names of its
    arrays. `trusted`: the modules of the classes in the tree may be imported, which runs them.

    Raises: FileFormatError for a file that is damaged or of another format, and for leaves that it does not have;
            ShapeError, DTypeError for leaves of other types; ArgumentError for what is no path; OSError.
    Cost:   leaves are read one after the other. Those of a file with float8 leaves are read at once.
    """
    absolute = absolute_path("tree.load", path)
    what = f"tree.load: {absolute}"
    open_regular(what, absolute, _REMEDY).close()
    try:
        with safetensors.safe_open(absolute, "numpy") as file:
            return _tree(what, _File(what, absolute, file), like, trusted)
    except FxadError:
        raise
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise FileFormatError(f"{what} cannot be read: {e}", remedy=_REMEDY) from e


def is_instance(path: str) -> bool:
    """Return True for a file of `save` whose tree is an instance of a registered class, not a container of Python."""
    try:
        with safetensors.safe_open(path, "numpy") as file:
            head = json.loads((file.metadata() or {})[_METADATA])
            return isinstance(head["tree"], dict) and "class" in head["tree"]
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        return False


class _File:
    """An open file: the names of its arrays, what fxad wrote about them, and the arrays."""

    def __init__(self, what: str, path: str, file: Any) -> None:
        self.what, self.path, self.file = what, path, file
        self.names = frozenset(file.keys())
        metadata = file.metadata() or {}
        self.head: dict[str, Any] | None = _head(what, metadata[_METADATA]) if _METADATA in metadata else None
        self._all: dict[str, NDArray] | None = None
        self._types: dict[str, tuple[tuple[int, ...], dtypes.DType]] = {}

    def type(self, name: str) -> tuple[tuple[int, ...], dtypes.DType]:
        """Return the shape and the dtype of an array, which is not read."""
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = self._read_type(name)
        return found

    def _read_type(self, name: str) -> tuple[tuple[int, ...], dtypes.DType]:
        view = self.file.get_slice(name)
        shape, stored = tuple(view.get_shape()), view.get_dtype()
        if self.head is not None and name in self.head["dtypes"]:
            dtype = dtypes.as_dtype(self.head["dtypes"][name])
            if dtype not in _AS_BYTES or stored != "U8" or shape[-1:] != (dtype.itemsize,):
                raise FileFormatError(f"{self.what}: {name} is not the bytes of a {dtype.name} array", remedy=_REMEDY)
            return shape[:-1], dtype
        if stored not in _STORED:
            raise FileFormatError(f"{self.what}: {name} has dtype {stored}, which fxad does not have", remedy=_REMEDY)
        return shape, _STORED[stored]

    def paths(self) -> dict[str, tuple[object, ...]]:
        """Return the paths of the leaves of the tree that was saved, by name; none in a file that fxad did not
        write."""
        if self.head is None:
            return {}
        paths, names = key_paths(self.head["tree"], self.what), self.head["names"]
        self.check_names(len(paths))
        return dict(zip(names, paths, strict=True))

    def check_names(self, leaves: int) -> None:
        """Raise FileFormatError unless the metadata have a name for each leaf of the tree."""
        if self.head is not None and len(self.head["names"]) != leaves:
            raise FileFormatError(
                f"{self.what}: the tree has {leaves} leaves and {len(self.head['names'])} names", remedy=_REMEDY
            )

    def absent(self, names: Sequence[str]) -> FileFormatError:
        """Return the error for arrays that the file does not have."""
        return FileFormatError(
            f"{self.what} has no {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''};"
            f" it has {', '.join(sorted(self.names)[:6]) or 'no arrays'}{', ...' if len(self.names) > 6 else ''}",
            remedy=_GIVE_LIKE,
        )

    def read(self, name: str) -> Array:
        """Return an array."""
        shape, dtype = self.type(name)
        if dtype in _FLOAT8_DTYPES:
            value = self._bytes_of_all()[name].view(dtype).reshape(shape)
        else:
            value = self.file.get_tensor(name)
            if value.dtype != dtype:  # stored as bytes
                value = value.reshape(-1).view(dtype).reshape(shape)
        return asarray(value)

    def _bytes_of_all(self) -> dict[str, NDArray]:
        """Return the bytes of all arrays."""
        if self._all is None:
            with open(self.path, "rb") as file:
                entries = safetensors.deserialize(file.read())  # type: ignore[no-untyped-call] # its stub has no types
            self._all = {name: np.frombuffer(entry["data"], np.uint8) for name, entry in entries}
        return self._all


def _tree(what: str, file: _File, like: object, trusted: bool) -> Any:
    if like is not None:
        flat, shape = tree.flatten(like)
        return tree.unflatten(shape, _read_leaves(file, _names_of(shape, file), flat))
    if file.head is None:
        return {name: file.read(name) for name in sorted(file.names)}
    structure, names = structure_from_json(file.head["tree"], what, trusted), file.head["names"]
    file.check_names(structure.num_leaves)
    arrays = _read_leaves(file, names, [None] * len(names))
    try:
        loaded = tree.unflatten(structure, arrays)
        same = tree.structure(loaded) == structure
    except Exception as e:  # the user's classes
        raise FileFormatError(
            f"{what}: a class does not take what was saved: {type(e).__name__}: {e}", remedy=_AS_IT_WAS
        ) from e
    if not same:
        raise FileFormatError(
            f"{what}: a class has changed: {tree.difference(structure, tree.structure(loaded))}", remedy=_AS_IT_WAS
        )
    return loaded


def _read_leaves(file: _File, names: Sequence[str], like: Sequence[object]) -> list[Array]:
    """Return the arrays of these names. All are checked before one is read."""
    absent = [name for name in names if name not in file.names]
    if absent:
        raise file.absent(absent)
    for name, leaf in zip(names, like, strict=True):
        shape, dtype = file.type(name)
        if leaf is None:
            continue
        expected: object = leaf.shape if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf).shape
        if isinstance(expected, Iterable):
            expected = tuple(expected)
        if expected != shape:
            raise ShapeError(f"{file.what}: {name} has shape {shape}, like has {expected}", remedy=_GIVE_LIKE)
        if hasattr(leaf, "dtype") and (problem := _dtype_problem(leaf.dtype, dtype)):
            raise DTypeError(f"{file.what}: {name} has dtype {dtype.name}, like has {problem}", remedy=_GIVE_LIKE)
    return [file.read(name) for name in names]


def _dtype_problem(of_like: object, dtype: dtypes.DType) -> str:
    """Return the dtype of a leaf of `like` as text if it is not the one in the file; else empty."""
    try:
        wanted = dtypes.as_dtype(of_like)
    except DTypeError:  # one that fxad does not have, such as the other byte order
        return str(of_like)[:60]
    return "" if wanted == dtype else wanted.name


def _on_host(leaf: object, path: str) -> NDArray:
    if isinstance(leaf, Tracer):
        raise ArgumentError(f"tree.save: {path} is {leaf!r} of a trace", remedy="save values: call tree.save eagerly")
    if isinstance(leaf, Array):
        try:
            return np.asarray(leaf)
        except ExecutionError as e:  # it was deleted, or is on devices of other processes
            problem = e.message.removeprefix("to_numpy: ")
            raise ExecutionError(f"tree.save: {path}: {problem}", remedy=e.remedy) from e
    if type(leaf) is np.ndarray and leaf.dtype in dtypes.ALL:
        return leaf
    try:
        if type(leaf) in (bool, int, float, complex):
            return np.asarray(leaf, aval_of(leaf, "asarray: argument 0").dtype)
        return np.asarray(asarray(leaf))
    except FxadError as e:
        problem = e.message.removeprefix("asarray: argument 0: ")
        if isinstance(e, DTypeError):
            raise DTypeError(f"tree.save: {path}: {problem}", remedy=e.remedy) from e
        if isinstance(leaf, np.ndarray):  # a masked one
            raise ArgumentError(f"tree.save: {path}: {problem}", remedy=e.remedy) from e
        raise ArgumentError(
            f"tree.save: {path} is {described(leaf)}, not an array: {shown(leaf)}",
            remedy="save a tree of arrays and numbers",
        ) from e


def _leaf_names(structure: Structure) -> list[str]:
    r"""Return the names of the leaves: their paths, with dots.

    If two leaves have one name, a dot in a key is written with a backslash: "a.b" for `tree["a"]["b"]`, and "a\.b" for
    `tree["a.b"]`. If they still have one name (the keys 1 and "1"), a number stands behind it. `load` finds the leaves
    by the tree in the metadata, and not by these names.
    """
    paths = [_path(accessor) for accessor in structure.accessors()]
    plain = [_dotted(path) for path in paths]
    count = Counter(plain)
    names: dict[str, None] = {}
    for path, dotted in zip(paths, plain, strict=True):
        name = base = dotted if count[dotted] == 1 else _escaped(path)
        number = 1
        while name in names or name == "__metadata__":
            number += 1
            name = f"{base}#{number}"
        names[name] = None
    return list(names)


def _names_of(structure: Structure, file: _File) -> list[str]:
    """Return the names in the file of the leaves of `like`.

    A leaf is found by its path in the tree of the file. If the tree does not have the path, it is found by the texts of
    its keys (`{"0": x}` for `[x]`), else by its name (`{"a.b": x}` for `{"a": {"b": x}}`). Leaves of one path,
    those of a class that gives two children one key, are found in order.
    Raises: FileFormatError for leaves that the file does not have, and for those that fit several arrays.
    """
    accessors = structure.accessors()
    paths, stored = [_path(accessor) for accessor in accessors], file.paths()
    name_of: dict[int, str] = {}
    for key_of in (_hashable, _texts, _dotted):
        leaves: dict[Hashable, list[int]] = {}
        for number, path in enumerate(paths):
            if number not in name_of:
                leaves.setdefault(key_of(path), []).append(number)
        arrays: dict[Hashable, dict[str, None]] = {}
        for name, path in stored.items():
            arrays.setdefault(key_of(path), {})[name] = None
        if key_of is _dotted:
            for name in file.names:
                arrays.setdefault(name, {})[name] = None
        taken = {*name_of.values()}
        for key, numbers in leaves.items():
            names = arrays.get(key, {})
            if not names or not taken.isdisjoint(names):
                continue
            if len(names) != len(numbers) or (len(names) > 1 and key_of is not _hashable):
                which = ", ".join([accessors[number].codify("like") for number in numbers[:3]])
                raise FileFormatError(
                    f"{file.what}: {count_text(len(numbers), 'leaf', 'leaves')} of like ({which}) may be each of "
                    f"{count_text(len(names), 'array', 'arrays')} ({', '.join([*names][:3])})",
                    remedy=_CHOOSE,
                )
            name_of.update(zip(numbers, names, strict=True))
    missing = [number for number in range(len(paths)) if number not in name_of]
    if missing:
        raise file.absent([
            name if (name := _dotted(paths[number])) not in file.names else accessors[number].codify("like")
            for number in missing
        ])  # fmt: skip
    return [name_of[number] for number in range(len(paths))]


def _path(accessor: Accessor) -> tuple[object, ...]:
    """Return the keys on the path of a leaf."""
    return tuple([key_value(entry.entry) if isinstance(entry, NamedKey) else entry.entry for entry in accessor])


def _hashable(path: tuple[object, ...]) -> Hashable:
    try:
        hash(path)
    except TypeError:  # optree may give lists as keys
        return repr(path)
    return path


def _texts(path: tuple[object, ...]) -> tuple[str, ...]:
    return tuple([str(key) for key in path])


def _dotted(path: tuple[object, ...]) -> str:
    return ".".join(_texts(path)) or "value"


def _escaped(path: tuple[object, ...]) -> str:
    """Return the path with dots, where a dot in a key has a backslash."""
    return ".".join([text.replace("\\", r"\\").replace(".", r"\.") for text in _texts(path)]) or "value"


def _head(what: str, text: str) -> dict[str, Any]:
    """Return the metadata that `save` wrote."""
    try:
        head = json.loads(text)
        version, names, as_bytes = head["version"], head["names"], head["dtypes"]
        structure: Json = head["tree"]
        fits = all([isinstance(name, str) for name in names]) and all(
            [isinstance(part, str) for item in as_bytes.items() for part in item]
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fits, version, names, as_bytes, structure = False, _VERSION, [], {}, None
    if type(version) is not int or not 1 <= version <= _VERSION:
        raise FileFormatError(
            f"{what} was written by a version of fxad that writes version {shown(version, 20)},"
            f" this one reads {_VERSION}",
            remedy="install a later fxad",
        )
    if not fits or not isinstance(names, list):
        raise FileFormatError(f"{what}: its metadata do not describe a tree", remedy=_REMEDY)
    return {"tree": structure, "names": names, "dtypes": as_bytes}


_STORED: Final[Mapping[str, dtypes.DType]] = MappingProxyType(
    {
        "BOOL": dtypes.bool_,
        "BF16": dtypes.bfloat16,
        "C64": dtypes.complex64,
        **{
            f"{kind}{bits}": np.dtype(f"{word}{bits}")
            for kind, word in (("I", "int"), ("U", "uint"))
            for bits in (8, 16, 32, 64)
        },
        **{f"F{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
        **_FLOAT8,
    }
)
_CODES: Final[Mapping[dtypes.DType, str]] = MappingProxyType({dtype: code for code, dtype in _STORED.items()})
