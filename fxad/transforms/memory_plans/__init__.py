"""The memory planner: which values a program stores, and which it computes again, within a budget of bytes."""
