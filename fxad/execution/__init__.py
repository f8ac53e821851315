"""Lowered and compiled programs, and their calls: arguments, donation, results."""
