"""Foundations: compilation and its cache, checks of arguments, random streams."""
