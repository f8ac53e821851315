"""Pytrees: nested containers <-> a flat list of leaves and a structure.

| module | what it has |
|---|---|
| `classes` | classes whose instances are containers: `dataclass`, `register` |
| `parts` | a structure as parts, and made from parts |
| `tree` | `flatten`, `unflatten`, `map` and the like; checks with the path of the leaf |
| `paths` | paths as tuples of keys, as in JAX; classes that name their own keys |
| `structure_check` | a check, compiled for one structure, that a tree has it |
"""
