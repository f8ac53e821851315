"""Programs on several devices: the division of their operands, and their communication."""
