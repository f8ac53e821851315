"""Models to measure, written once over a `Library` for both libraries."""
