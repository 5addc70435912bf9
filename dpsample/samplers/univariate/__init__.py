"""Draws of univariate log-concave distributions and of lines through a body."""
