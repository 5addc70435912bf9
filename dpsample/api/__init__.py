"""Top-level functions: release, sample, minimize and the others that users call."""
