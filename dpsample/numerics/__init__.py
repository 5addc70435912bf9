"""Numerics: special functions in log space, norms and their regularity."""
