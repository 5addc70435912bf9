"""Certificates of private answers, and the ledger that adds them up."""
