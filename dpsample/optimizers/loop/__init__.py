"""The compiled loop, its pieces, and public numbers that algorithms share."""
