"""Audits: what refutes a claim of privacy."""
