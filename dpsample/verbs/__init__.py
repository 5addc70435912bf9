"""Verbs: release, sample, minimize and replicate, and what they return."""
