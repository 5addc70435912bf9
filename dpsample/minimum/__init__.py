"""Minima of convex objectives on their domains, with proved gaps."""
