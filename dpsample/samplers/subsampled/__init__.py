"""Samplers that read a few records a step."""
