"""What is measured, written once over a `Library` for both libraries."""
