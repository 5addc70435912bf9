"""Exact draws from one-dimensional densities."""
