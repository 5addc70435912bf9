"""Samplers that learn the shape of the target in one warm-up before the first draw."""
