"""Running: the chain loop and the descent driver, with progress and checkpoints."""
