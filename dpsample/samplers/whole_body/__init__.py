"""Draws that are exact on a whole convex body, to the last digit."""
