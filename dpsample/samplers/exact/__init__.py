"""Exact sampler: independent draws of quadratics and of low-dimensional bodies."""
