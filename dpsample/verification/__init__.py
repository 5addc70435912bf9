"""Verification: recompute every number of a certificate from its public inputs."""
