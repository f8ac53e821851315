"""Control flow as functions: branches and loops over pytrees, with JAX's names and argument orders."""

from fxad.lax.control.branching import cond as cond
from fxad.lax.control.branching import switch as switch
from fxad.lax.control.looping import while_loop as while_loop
