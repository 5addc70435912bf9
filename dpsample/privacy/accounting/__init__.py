"""Accounting: events and the best of several upper bounds of their privacy."""
