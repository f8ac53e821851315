"""The structure of a pytree as a description in JSON, and back, without pickle.

Python's own containers have a keyword each; a user's class is named by module and qualified name. The static data of a
class (static fields, keys) must consist of None, bools, numbers, strings, bytes, dtypes and tuples of these. A leaf is
`"*"`. Dicts list their keys in the order of the leaves, and beside them the order of their insertion. So the structure
of `{"w": x, "layers": [y, (z, None)]}` is

    {"dict": [["layers", {"list": ["*", {"tuple": ["*", null]}]}], ["w", "*"]], "order": [1, 0]}

The description cannot choose code to run: a class is looked up in imported modules, must be registered with `fxad.tree`
or be a namedtuple, and its structure is made without its functions (`core.trees.parts`). Only a class of which Python
makes no empty instance, such as a subclass of `functools.partial`, is made by its registered function.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from fxad import dtypes
from fxad.core.trees import parts as tree_parts, tree
from fxad.core.trees.paths import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey, key_value
from fxad.core.trees.tree import Structure
from fxad.errors import ArgumentError, FileFormatError, StorageWarning, shown, warn

Json: TypeAlias = "None | bool | int | str | list[Json] | dict[str, Json]"

_LEAF: Final = "*"
# The keys of classes that name their children.
_KEYS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {"key": DictKey, "index": SequenceKey, "attribute": GetAttrKey, "flat index": FlattenedIndexKey}
)
_SEQUENCES: Final = MappingProxyType({"tuple": tuple, "list": list})
_MAPPINGS: Final = MappingProxyType({"dict": dict, "ordered": OrderedDict})
_FACTORIES: Final = MappingProxyType({f.__name__: f for f in (list, dict, tuple, set, int, float, complex, str, bool)})


# ------------------------------------------------------------------------------------------------------- describing


def structure_to_json(structure: Structure, what: str = "save") -> Json:
    """Return a structure in JSON. `what` is the caller, for messages.

    Raises: ArgumentError for a class that another process could not find, or static data that a file cannot hold.
    """
    kind: Any = structure.type
    if kind is None:
        return _LEAF
    if kind is type(None):
        return None
    children: list[Json] = [structure_to_json(c, what) for c in structure.children()]
    for word, cls in _SEQUENCES.items():
        if kind is cls:
            return {word: children}
    node = tree_parts.outermost_node(structure)
    data, entries = node.data, node.keys
    for word, cls in _MAPPINGS.items():
        if kind is cls:
            return _mapping_to_json(word, entries, children, tree_parts.insertion_order(structure), what)
    if kind is deque:
        return {"deque": children, "maxlen": data}
    if kind is defaultdict:
        items = _mapping_to_json("defaultdict", entries, children, tree_parts.insertion_order(structure), what)
        return {**items, "factory": _factory(data[0], what)}
    name = _class_name(kind, what)
    if _is_namedtuple(kind):
        return {"namedtuple": name, "fields": list(kind._fields), "children": children}
    return {
        "class": name,
        "data": _value_to_json(data, f"what {kind.__qualname__} keeps beside its children", what),
        "entries": [_value_to_json(e, "a key", what) for e in entries],
        "children": children,
    }


def _mapping_to_json(
    word: str, entries: Sequence[object], children: Sequence[Json], order: Sequence[int], what: str
) -> dict[str, Json]:
    """Return the items of a mapping in the order of the leaves; "order" has their order in the mapping, if it is
    another."""
    items: Json = [[_value_to_json(k, "a key", what), c] for k, c in zip(entries, children, strict=True)]
    return {word: items} if list(order) == sorted(order) else {word: items, "order": list(order)}


def _factory(factory: object, what: str) -> str | None:
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise ArgumentError(
            f"{what}: a defaultdict makes its values with {shown(factory)}, which a file cannot hold",
            remedy=f"use one of {', '.join(_FACTORIES)}, or a dict",
        )
    return name


def _class_name(cls: type, what: str) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    if _attribute(sys.modules.get(cls.__module__), cls.__qualname__) is not cls:
        raise ArgumentError(
            f"{what}: the class {name} cannot be found again under its name",
            remedy="define it at the top of a module: a file holds the name of a class, not its code",
        )
    if cls.__module__ == "__main__":
        warn(
            f"{what}: the class {name} is found only where a class of this name is in the script that runs;"
            " define it in a module that the scripts import",
            StorageWarning,
        )
    return name


def _value_to_json(value: object, part: str, what: str) -> Json:
    if value is None or type(value) in (bool, int, str):
        return value  # type: ignore[return-value]  # mypy does not narrow by `type(value) in`
    if isinstance(value, tuple) and type(value) is tuple:
        return {"tuple": [_value_to_json(v, part, what) for v in value]}
    if type(value) is list:  # optree gives keys so
        return {"list": [_value_to_json(v, part, what) for v in value]}
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if type(value) is bytes:
        return {"bytes": value.hex()}
    if isinstance(value, np.dtype | dtypes.ScalarType) and value in dtypes.ALL:
        return {"dtype": value.name}
    for word, key in _KEYS.items():
        if isinstance(value, key):
            return {word: _value_to_json(key_value(value), part, what)}
    raise ArgumentError(
        f"{what}: {part} has {shown(value)}, which a file cannot hold",
        remedy="None, bools, numbers, strings, bytes, dtypes and tuples of these are what a file holds",
    )


# ------------------------------------------------------------------------------------------------------------ paths


def key_paths(described: Json, what: str) -> list[tuple[object, ...]]:
    """Return the path of each leaf of a description: keys of mappings and classes, places in sequences and namedtuples.

    No class is looked up. Raises: FileFormatError if the description is malformed.
    """
    return _paths_below(described, (), _StructureReader(what, False))


def _paths_below(d: Json, above: tuple[object, ...], reader: _StructureReader) -> list[tuple[object, ...]]:
    if d is None:
        return []
    if d == _LEAF:
        return [above]
    if not isinstance(d, dict):
        raise reader.fail(f"{shown(d)} describes no pytree")
    for word in (*_MAPPINGS, "defaultdict"):
        if word in d:
            pairs = [_pair(pair, d[word], reader) for pair in _checked_list(d[word], reader)]
            keys = [_value_from_json(k, reader) for k, _ in pairs]
            return _paths_of_children(keys, [c for _, c in pairs], above, reader)
    word = next((word for word in (*_SEQUENCES, "deque") if word in d), "children")
    children = _checked_list(d.get(word), reader)
    if "class" not in d:
        return _paths_of_children(range(len(children)), children, above, reader)
    entries = [key_value(_value_from_json(e, reader)) for e in _checked_list(d.get("entries"), reader)]
    if len(entries) != len(children):
        raise reader.fail(f"{shown(d['class'])} has {len(entries)} keys and {len(children)} children")
    return _paths_of_children(entries, children, above, reader)


def _paths_of_children(
    keys: Sequence[object], children: Sequence[Json], above: tuple[object, ...], reader: _StructureReader
) -> list[tuple[object, ...]]:
    return [path for k, c in zip(keys, children, strict=True) for path in _paths_below(c, (*above, k), reader)]


# ------------------------------------------------------------------------------------------------------- rebuilding


def structure_from_json(described: Json, what: str, imports: bool) -> Structure:
    """Return the structure of a description. `what` names the operation and the file. `imports` permits imports of
    modules.

    Law:    `structure_from_json(structure_to_json(s)) == s`.
    Raises: FileFormatError if the description is malformed, and for a class that does not exist, is not a pytree, or
            has changed.
    """
    reader = _StructureReader(what, imports)
    try:
        structure = _structure_of(_tree_from_json(described, reader))
        hash(structure)  # static data of a class must be hashable: programs are compared by it
    except FileFormatError:
        raise
    except RecursionError:
        raise reader.fail("the tree is nested too deeply") from None
    except Exception as e:  # the user's classes
        raise reader.fail(f"the tree cannot be made: {type(e).__name__}: {e}", _AS_IT_WAS) from e
    return structure


_SAVE_AGAIN: Final = "take another copy of what was saved, or save the program again"


class _StructureReader:
    """The name of the operation and the file, for messages, and the permission to import modules."""

    def __init__(self, what: str, imports: bool) -> None:
        self.what, self.imports = what, imports

    def fail(self, problem: str, remedy: str = _SAVE_AGAIN) -> FileFormatError:
        return FileFormatError(f"{self.what}: {problem}", remedy=remedy)

    def pytree(self, name: object) -> type[Any]:
        """Return the class of a name."""
        if not isinstance(name, str):
            raise self.fail(f"{shown(name)} is not the name of a class")
        module, _, qualname = name.partition(":")
        loaded = sys.modules.get(module)
        if loaded is None and (
            self.imports or module.startswith("fxad.")
        ):  # an import of fxad runs no code of the file
            try:
                loaded = import_module(module)
            except Exception as e:  # the module's code
                raise self.fail(f"the class {name} of a pytree cannot be imported: {e}", _INSTALL) from e
        if loaded is None:
            raise self.fail(
                f"the class {name} of a pytree is in a module that is not imported",
                f"import {module} first, or let load import it: load(path, trusted=True)",
            )
        try:
            cls = _attribute(loaded, qualname)
        except Exception as e:  # of the module's `__getattr__`
            raise self.fail(f"the class {name} of a pytree cannot be read: {type(e).__name__}: {e}", _INSTALL) from e
        if not isinstance(cls, type):
            raise self.fail(f"the class {name} of a pytree does not exist", _AS_IT_WAS)
        return cls


_INSTALL: Final = "install what has the module, and put it on sys.path"
_AS_IT_WAS: Final = "define the class as it was when the program was saved, or save the program again"


def _structure_of(described: object) -> Structure:
    """Return the structure of what `_tree_from_json` returns."""
    subtrees, outer = tree.flatten(described)
    return tree_parts.with_subtrees(outer, subtrees)


def _tree_from_json(d: Json, reader: _StructureReader) -> object:
    """Return a tree of the described structure, of Python's own containers. In place of leaves and of instances of
    users' classes it has their structures: no function of the classes is called."""
    if d is None:
        return None
    if d == _LEAF:
        return tree.LEAF
    if not isinstance(d, dict):
        raise reader.fail(f"{shown(d)} describes no pytree")
    for word, make in _SEQUENCES.items():
        if word in d:
            return make([_tree_from_json(c, reader) for c in _checked_list(d[word], reader)])
    for word, mapping in _MAPPINGS.items():
        if word in d:
            return mapping(_items_from_json(d, word, reader))
    if "deque" in d:
        items, most = [_tree_from_json(c, reader) for c in _checked_list(d["deque"], reader)], d.get("maxlen")
        if most is None:
            return deque(items)
        if not isinstance(most, int) or isinstance(most, bool) or not len(items) <= most <= sys.maxsize:
            raise reader.fail(f"a deque of {len(items)} has maxlen {shown(most)}")
        return deque(items, most)
    if "defaultdict" in d:
        name = d.get("factory")
        factory: Callable[[], object] | None = _FACTORIES.get(name) if isinstance(name, str) else None
        if factory is None and name is not None:
            raise reader.fail(f"{shown(name)} makes no values of a defaultdict")
        return defaultdict(factory, _items_from_json(d, "defaultdict", reader))
    return _instance_from_json(d, reader)


def _instance_from_json(d: dict[str, Json], reader: _StructureReader) -> object:
    children = [_tree_from_json(c, reader) for c in _checked_list(d.get("children"), reader)]
    if "namedtuple" in d:
        cls = reader.pytree(d["namedtuple"])
        if not _is_namedtuple(cls) or list(cls._fields) != d.get("fields"):
            raise reader.fail(
                f"{d['namedtuple']} is not the namedtuple of the fields {d.get('fields')} that was saved", _AS_IT_WAS
            )
        if len(children) != len(cls._fields):
            raise reader.fail(f"{d['namedtuple']} has {len(cls._fields)} fields, here are {len(children)}")
        return tuple.__new__(cls, children)
    if "class" not in d:
        raise reader.fail(f"{shown(d)} describes no pytree")
    cls, name = reader.pytree(d["class"]), d["class"]
    entries = tuple([_value_from_json(e, reader) for e in _checked_list(d.get("entries"), reader)])
    make = tree_parts.unflattener(cls)
    if make is None:
        raise reader.fail(f"the class {name} is not a pytree here", "register it with fxad.tree, as when it was saved")
    if len(entries) != len(children):
        raise reader.fail(f"{name} has {len(entries)} keys and {len(children)} children")
    data, subtrees = _value_from_json(d.get("data"), reader), [_structure_of(c) for c in children]
    try:
        structure = tree_parts.structure_of_instance(cls, data, entries, subtrees)
    except ValueError as e:
        raise reader.fail(f"the class {name} has changed: {e}", _AS_IT_WAS) from e
    if structure is not None:
        return structure
    try:  # a class of Python or of pyrsistent
        outer = tree.structure(make(data, [0] * len(children)))
        keys = tuple(tree_parts.outermost_node(outer).keys)
    except Exception as e:
        raise reader.fail(f"the class {name} does not take what was saved: {type(e).__name__}: {e}", _AS_IT_WAS) from e
    if keys != entries:
        raise reader.fail(f"the class {name} has changed: its children were {entries}, they are {keys}", _AS_IT_WAS)
    return tree_parts.with_subtrees(outer, subtrees)


def _items_from_json(described: dict[str, Json], word: str, reader: _StructureReader) -> list[tuple[object, object]]:
    """Return the items of a mapping, in its order."""
    d = described[word]
    pairs = [_pair(pair, d, reader) for pair in _checked_list(d, reader)]
    items = [(_key_from_json(k, reader), _tree_from_json(c, reader)) for k, c in pairs]
    if len(dict(items)) != len(items):
        raise reader.fail(f"{shown(d)} has a key twice")
    if "order" not in described:
        return items
    order = _checked_list(described["order"], reader)
    numbers = [k for k in order if type(k) is int]
    if len(numbers) != len(order) or sorted(numbers) != list(range(len(items))):
        raise reader.fail(f"{shown(order)} is no order of {len(items)} keys")
    return [items[k] for k in numbers]


def _pair(pair: Json, d: Json, reader: _StructureReader) -> tuple[Json, Json]:
    items = _checked_list(pair, reader)
    if len(items) != 2:
        raise reader.fail(f"{shown(d)} describes no keys and values")
    return items[0], items[1]


def _key_from_json(d: Json, reader: _StructureReader) -> object:
    key = _value_from_json(d, reader)
    try:
        hash(key)
    except TypeError:
        raise reader.fail(f"{shown(d)} is not a key") from None
    return key


def _checked_list(d: Json, reader: _StructureReader) -> list[Json]:
    if not isinstance(d, list):
        raise reader.fail(f"{shown(d)} is not a list")
    return d


def _value_from_json(d: Json, reader: _StructureReader) -> object:
    """Return the value that `_value_to_json` encoded."""
    if d is None or isinstance(d, bool | int | str):
        return d
    if not isinstance(d, dict):
        raise reader.fail(f"{shown(d)} is not a value")
    word = next(iter(d), "")
    try:
        match word, d.get(word):
            case (("tuple" | "list"), list(items)):
                return _SEQUENCES[word]([_value_from_json(v, reader) for v in items])
            case "float", str(text):
                return float.fromhex(text)
            case "complex", [str(re), str(im)]:
                return complex(float.fromhex(re), float.fromhex(im))
            case "bytes", str(text):
                return bytes.fromhex(text)
            case "dtype", str(text):
                return dtypes.as_dtype(text)
            case key, value if key in _KEYS:
                return _KEYS[key](_value_from_json(value, reader))
            case _:
                pass
    except (ValueError, OverflowError, TypeError):
        pass
    raise reader.fail(f"{shown(d)} is not a value")


# ---------------------------------------------------------------------------------------------------------- classes


def _is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _attribute(module: object, qualname: str) -> object:
    for part in qualname.split("."):
        module = getattr(module, part, None)
    return module
