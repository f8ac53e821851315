"""What is measured, written once over a `Face` for both libraries."""
