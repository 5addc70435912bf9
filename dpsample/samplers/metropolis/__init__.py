"""Metropolis samplers, one algorithm a file."""
