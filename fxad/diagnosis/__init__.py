"""Tools that read programs for people: what is wrong with a program, and where memory, time and digits go."""
