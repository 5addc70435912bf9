"""Exact samplers: independent draws from closed forms and grids."""
