"""Exact rejection on the small region that holds all but gamma of the target."""
