"""Benchmarks that asv runs."""
