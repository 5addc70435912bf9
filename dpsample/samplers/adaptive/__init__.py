"""Samplers whose metric a warm-up learns, and the warm-up."""
