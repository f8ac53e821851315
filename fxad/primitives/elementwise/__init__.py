from fxad.primitives.elementwise.arithmetic import (
    ADD as ADD, SUB as SUB, MUL as MUL, DIV as DIV, REM as REM, MAX as MAX, MIN as MIN, NEG as NEG)
from fxad.primitives.elementwise.logic import EQ as EQ, NE as NE, LT as LT, LE as LE, GT as GT, GE as GE
from fxad.primitives.elementwise.select import SELECT_N as SELECT_N, SelectN as SelectN
from fxad.primitives.elementwise.convert import ConvertElementType as ConvertElementType
