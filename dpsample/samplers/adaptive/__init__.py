"""Samplers that learn the target's shape before their first draw."""
