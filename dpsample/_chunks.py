"""Tasks of a few hundredths of a second: Ctrl-C and progress wait for no more."""

from __future__ import annotations

CHUNK_SECONDS = 0.03
LARGEST = 1_000_000  # runs shorter than one task would let the size grow forever


class ChunkSize:
    """Number of steps per task that takes about `CHUNK_SECONDS`, or a fixed one."""

    def __init__(self, fixed: int | None = None) -> None:
        self.fixed, self.size = fixed, fixed or 1

    def update(self, seconds: float) -> None:
        """Adapt to the time that the last task took."""
        if self.fixed is None:
            growth = CHUNK_SECONDS / max(seconds, 1e-6)
            size = max(1, int(self.size * min(growth, 8.0)))
            self.size = min(size, LARGEST)
