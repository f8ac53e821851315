"""Where two runs of a program first differ: the public function is `fxad.bisect`.

bisect         the public function: passes, then units, then equations
divergence     the result, as a text and as a test
sides          the ways to run a program: interpreted, compiled, in another precision, in a child process
child          the process that runs programs under a time limit
equations      the search inside of one program, and in its bodies
counterparts   the search with the values of another program
closeness      the comparison of two values
"""
