"""Calibration: the parameters of a mechanism that meet a budget."""
