"""`mask`: one program for every length. A program of symbolic shape becomes a program on padded arrays and sizes.

Example. The size n may be up to 4. The array f32[n,2] is padded to f32[4,2]; n is a further operand.

    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> from fxad.transforms.mask.mask import mask
    >>> def f(x):
    ...     return fnp.exp(x).sum(axis=0)
    >>> jaxpr = fx.trace(f, fx.Spec("n, 2", "float32")).jaxpr
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

`%3` is True at the valid elements. `%4` clears the padding of the operand, so whatever the caller has there does not
matter. `exp` is applied to the padded array as it is: a row of its result depends on the same row of the operand only.
The sum combines rows, so its rule fills the padding with 0. If the program has `sin` in place of `exp`, the padding is
known to be 0 already, and `%6` is left out.

1. `mask.py` walks the equations. An equation without masked sizes is copied.
2. `contract.py` is the interface of rules, with `MaskCtx`, the builder with which rules fill and clear padding.
3. `rules/` has the rule of each primitive.
4. `knowledge.py` follows what is known about the padding (zero, finite), so that needless selects are left out.
"""
