"""Sparse derivatives: the pattern of a linear program, colourings, and products compressed by them.

- `relation`: sets of pairs (result element, operand element) as strided boxes and tables; `composition`: of two of
  them; `box_composition`: of two boxes; `same_pairs`: whether two large ones are equal;
- `rules`: the relation of each equation; `propagate`: that of a program; `loops`: that of a loop; `pattern`: the
  value that users see;
- `coloring`: the interface of the colourings, by shifts (`shifts`), of any pattern (`greedy`) and of symmetric ones
  (`symmetric`); `decompression`: the elements from the compressed products;
- `csr`: arrays of elements; `powers`: the relation of repeated steps; `values`: indices that are concrete when
  the pattern is found; `records`: the last pattern and derivative of a program.
"""
