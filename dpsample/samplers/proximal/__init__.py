"""Proximal sampler: kernel, metrics, exact conditional draws, proved error."""
