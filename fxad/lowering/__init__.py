"""Rooms behind `fxad.lower`: how types, constants, places and modules are written as MLIR text."""
