"""Algorithms as papers print them, for reproduction."""
