"""Samplers along coordinates and lines, by exact one-dimensional draws."""
