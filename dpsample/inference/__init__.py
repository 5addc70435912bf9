"""Inference: covariance of private fits, and plans of private tuning."""
