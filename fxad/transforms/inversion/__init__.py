"""Programs run backwards: `inverse`, and `invertible`, whose backward pass reconstructs the values it needs.

Words: a *kept operand* is stored beside the results. A value is *known* from the start, or computed from known values.
The *residuals* are the values that the forward program returns for the backward program. See docs/glossary.md.

An example. The function is a coupling: its results determine its operands.

    >>> import math
    >>> import fxad as fx
    >>> import fxad.numpy as fnp
    >>> def f(a, b):
    ...     a = a + fnp.sin(b)
    ...     return a, b * fnp.exp(a)
    >>> x = fx.Spec((4,), "float32")
    >>> jaxpr = fx.trace(f, x, x).jaxpr
    >>> print(jaxpr, end="")
    main @f(%arg0: f32[4], %arg1: f32[4]) -> (f32[4], f32[4]) {
      %0: f32[4] = sin %arg1
      %1: f32[4] = add %arg0, %0
      %2: f32[4] = exp %1
      %3: f32[4] = mul %arg1, %2
      return %1, %3
    }

The solver starts from the results `%1` and `%3`. It computes an equation whose operands are known, and runs an equation
backwards whose results are known, until nothing changes. The plan lists the values in the order in which they become
known: `%1`, `%3`, `%2`, `%arg1`, `%0`, `%arg0`.

    >>> from fxad.transforms.inversion.plans import BackwardStep
    >>> from fxad.transforms.inversion.rules import INVERSE_RULES
    >>> from fxad.transforms.inversion.solver import find_plan
    >>> plan = find_plan(jaxpr, jaxpr.outs, INVERSE_RULES)
    >>> for value, step in plan.computed_by.items():
    ...     if step is None:
    ...         print("known from the start")
    ...     elif isinstance(step, BackwardStep):
    ...         print([eqn.prim.name for eqn in step.inverts], "backward")
    ...     else:
    ...         print(step.prim.name, "forward")
    known from the start
    known from the start
    exp forward
    ['mul'] backward
    sin forward
    ['add'] backward

`invertible` returns one `call_with_rules`. Its forward program returns the results, then the residuals, which are the
results again. (A tolerance of infinity leaves out the sketches of step 7.) Plain reverse mode stores three more arrays:
`cos %arg1`, `%2` and `%arg1`.

    >>> from fxad.transforms.inversion.invertible import invertible
    >>> call = invertible(jaxpr, kept=(False, False), tolerance=math.inf)
    >>> (derivative,) = call.eqns[0].prim.rules.vjp
    >>> print(derivative.forward, end="")
    main @f(%arg0: f32[4], %arg1: f32[4]) -> (f32[4], f32[4], f32[4], f32[4]) {
      %0: f32[4] = sin %arg1
      %1: f32[4] = add %arg0, %0
      %2: f32[4] = exp %1
      %3: f32[4] = mul %arg1, %2
      return %1, %3, %1, %3
    }

The backward program takes the cotangents of the results, then the residuals. `%0` is `exp` again. `%1` to `%8`
reconstruct `b`, by the inverse rule of `mul`: a quotient, and nan where it is not finite or may have underflowed. The
other equations are the transpose of the linear program. None of them reads the operand `a`, so it is not reconstructed.

    >>> print(derivative.pull, end="")
    main @ivjp_f(%arg0: f32[4], %arg1: f32[4], %arg2: f32[4], %arg3: f32[4]) -> (f32[4], f32[4]) {
      %0: f32[4] = exp %arg2
      %1: f32[4] = div %arg3, %0
      %2: f32[4] = abs %0
      %3: bool[4] = ge %2, 9.8607613e-32:f32[4]
      %4: bool[4] = is_finite %1
      %5: bool[4] = ne %arg3, 0.0:f32[4]
      %6: bool[4] = or %5, %3
      %7: bool[4] = and %4, %6
      %8: f32[4] = select_n %7, nan:f32[4], %1
      %9: f32[4] = mul %arg1, %8
      %10: f32[4] = mul %arg1, %0
      %11: f32[4] = mul %9, %0
      %12: f32[4] = add %arg0, %11
      %13: f32[4] = cos %8
      %14: f32[4] = mul %12, %13
      %15: f32[4] = add %10, %14
      return %12, %15
    }

The steps of `invertible`, and the file of each:

1. `merge_invertible.py`: a pass joins chains of `invertible` calls, before the program is differentiated.
2. `invertible.py`: chooses the kept operands: those that the user names, and integers and bools that the results do not
   determine. It puts the programs of the other steps together as the rules of one call.
3. `normal_form.py`: removes dead and duplicate equations, effects and checks.
4. `solver.py`, `find_plan`: searches the dataflow graph and returns a plan (`plans.py`). `rules/` has the inverse rule
   of each primitive (`rules/contract.py` is their interface). `mask_couplings.py` rewrites sums of masked values as
   choices.
5. `reversible_adjoint.py`, `eqns_with_ivjp`: finds the calls, branches and loops that are inverted and transposed
   together, as one equation each.
6. `derivatives_from_results.py`: linearizes the normal form, cut at these equations (`cut_linearization.py`), and emits
   the transpose from the last equation to the first. The values that it reads are emitted at their first read, by the
   plan (`LazyValues` of `plans.py`). So reconstruction and cotangents proceed together.
7. `reconstruction_check.py`: sketches of original and reconstructed values are compared. Derivatives are nan if they
   differ.
8. `fxad/transforms/memory/segments.py`: splits the forward and the backward program into segments, so that XLA keeps
   the order of equations.
9. `second_order.py`: gives the backward program derivatives of its own, if the function has custom derivatives.

`inverse.py` uses steps 3 and 4 alone. If a value is not determined, the reason (`Refused`) is an equation of the normal
form. Then `inverse` and `invertible` work once more with `located`, and the error names an equation of the program.
"""
