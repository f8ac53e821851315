"""Programs on several devices: how their operands are divided, and what they communicate."""
