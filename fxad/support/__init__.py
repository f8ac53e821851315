"""What several layers use and what knows no program: names of JAX that fxad does not have, tables of text and HTML,
measured constants, atomic files."""
