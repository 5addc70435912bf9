"""Calibration of mechanisms to a budget."""
