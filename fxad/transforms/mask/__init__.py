"""`mask`: one program for every length. A program of symbolic shape becomes a program on padded arrays and sizes.

Values
------
An array of shape (n, 2), for n up to 4, is padded to f32[4,2], and n is a further operand. The rows from n on are the
padding. It may hold anything, nan included. The valid elements of a result depend on valid elements only.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> from fxad.transforms.mask.mask import mask
    >>> def f(x):
    ...     return fnp.exp(x).sum(axis=0)
    >>> jaxpr = fx.trace(f, fx.Spec("n, 2", "float32")).jaxpr
    >>> print(jaxpr, end="")
    main @f(%arg0: f32[n,2]) -> (f32[2]) {
      %0: f32[n,2] = exp %arg0
      %1: f32[2] = reduce_sum[axes=(0,)] %0
      return %1
    }
    >>> print(mask(jaxpr, (("n", 4),)), end="")
    main @mask_f(%arg0: f32[4,2], %arg1: i32[]) -> (f32[2]) {
      %0: i32[4] = iota[shape=(4,), dtype=i32, axis=0]
      %1: i32[4] = broadcast_in_dim[shape=(4,), dims=()] %arg1
      %2: bool[4] = lt %0, %1
      %3: bool[4,2] = broadcast_in_dim[shape=(4, 2), dims=(0,)] %2
      %4: f32[4,2] = select_n %3, 0.0:f32[4,2], %arg0
      %5: f32[4,2] = exp %4
      %6: f32[4,2] = select_n %3, 0.0:f32[4,2], %5
      %7: f32[2] = reduce_sum[axes=(0,)] %6
      return %7
    }

Step by step:

    %0 to %3   True at the valid elements (`inside`), added once
    %4         the operand, *cleared*: the padding is replaced by 0
    %5         `exp` is applied to the padded array as it is (`lanewise`): each row of the result depends on one row
    %6         `reduce_sum` combines rows, so its rule fills the padding with the neutral element, 0
    %7         the result has no axis of size n, so no padding

With `sin` in place of `exp`, the padding of %5 is known to be 0 (`PaddingFacts`), and %6 is left out. A fill is a
select and not a product, because 0 * nan is nan.

Derivatives
-----------
They have no nan either: the derivative of a masked program is that of `f` at the valid elements, and 0 in the padding.
The transposed program drops the cotangents of padding that was filled. So a rule also clears the padding of a result
where a value goes to several lanes (a broadcast), or where a lane of padding reads a valid element (a slice): the
transposed program adds up these lanes.

Finite padding need not be cleared at once. It does not reach valid elements, so the cotangents there are zero. They
stay zero as long as no derivative multiplies them by an infinite slope: 0 * inf is nan. So the context only records
that the padding is *pending* (`MaskCtx.pending`). It clears pending padding before an equation that may have an
infinite slope there, and in the results of the program. In between, the results of equations are pending where their
operands are.

In `sqrt(x @ w)`, the padding of the product is 0, where the slope of `sqrt` is infinite. So it is filled, with 1,
before the `sqrt`. The slope of `tanh` is finite, so in `tanh(x @ w)` only the result is filled.

    >>> def operations(g):
    ...     jaxpr = fx.trace(lambda x, w: g(x @ w), fx.Spec("n, 2", "float32"), fx.Spec((2, 3))).jaxpr
    ...     return [eqn.prim.name for eqn in mask(jaxpr, (("n", 4),)).eqns[4:]]
    >>> operations(fnp.sqrt)
    ['select_n', 'dot_general', 'broadcast_in_dim', 'select_n', 'sqrt', 'select_n']
    >>> operations(fnp.tanh)
    ['select_n', 'dot_general', 'tanh', 'broadcast_in_dim', 'select_n']

Files
-----
1. `mask.py` walks the equations. An equation without masked sizes is copied.
2. `contract.py` is the interface of rules, and `rules/` has the rule of each primitive.
3. `context.py` has `MaskCtx`, the builder that rules get. It fills and clears padding, now or later. Its base, in
   `padded_builder.py`, gives the padded shapes, the values of sizes and the valid elements.
4. `padding_facts.py` derives the facts about the padding of each value (zero, finite, a lower bound) that save selects.

Decisions: docs/adr/0050, docs/adr/0079.
"""
