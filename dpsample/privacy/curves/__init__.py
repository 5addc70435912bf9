"""Privacy curves of single mechanisms."""
