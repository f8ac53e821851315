"""Modules that several layers use and that know no program: names of JAX that fxad does not have, tables of text and
HTML, measured constants, atomic files.
"""
