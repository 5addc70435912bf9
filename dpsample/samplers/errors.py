"""Failures of samplers: as codes inside kernels, in words at the door."""

OK = 0
FUNCTION_FAILED = 1
BOUND_VIOLATED = 2
EXHAUSTED = 3
UNCOVERED = 4
DRAW_FAILED = 5
ROUGH = 6

TEXTS = {
    FUNCTION_FAILED: (
        "A loss, regularizer or domain raised or returned NaN. If the loss is your "
        "own, evaluate it at the margins that the domain allows."
    ),
    BOUND_VIOLATED: (
        "An acceptance ratio above 1 was met: a declared curvature or margin bound "
        "does not hold on the domain, so no draw would be exact. Correct the bound."
    ),
    EXHAUSTED: (
        "No proposal was accepted within the allowed tries. A step_size may be too "
        "long: leave it to the pilot run, or reduce it. Or the density is too steep "
        "at a wall for this sampler: take another one, first Localized or Proximal."
    ),
    UNCOVERED: (
        "The energy was not seen to grow in every direction: the regularizer's weight "
        "may be too small for numbers. Choose a bounded domain or a larger mu."
    ),
    DRAW_FAILED: (
        "The sampler's own draw, of a Gaussian on the domain or along a line, returned "
        "no number, though loss, regularizer and domain did. Scale the features, and "
        "with them domain and mu, so that numbers are near 1, or take another sampler."
    ),
    ROUGH: (
        "Energies where the mass is are so large that rounding errors would decide "
        "what is accepted. Take Localized or Proximal, which work with differences "
        "where they can, or a smaller k."
    ),
}


class NoCertificate(ValueError):
    """No proof of the sampler's error exists for this target; the message says why."""


class SamplingError(RuntimeError):
    """A kernel failed: nothing was drawn, nothing is released."""


class WorkLimitError(SamplingError):
    """A release needs more work than it may do: nothing is released."""

    def __init__(self) -> None:
        super().__init__(
            "max_work passes over the records do not suffice. Nothing is released, and "
            "the budget counts as spent: that it came to this depends on the records, "
            "do not publish it. Allow more work, or use a smaller domain or a larger "
            "weight of the regularizer."
        )


class DeadlineError(SamplingError):
    """A release is not finished by its public deadline: nothing is released."""

    def __init__(self) -> None:
        super().__init__(
            "The draw was not finished by the deadline, or failed. Nothing is "
            "released, and the budget counts as spent: that it came to this depends on "
            "the records, do not publish it."
        )


class BottomError(SamplingError):
    """All passes of a constant-time draw are made, and there is no answer."""

    def __init__(self) -> None:
        super().__init__(
            "The passes of a constant-time draw did not suffice. Nothing is released, "
            "and the budget counts as spent. This may be told: in real arithmetic "
            "its probability is at most gamma / 10 on every data set, which delta pays "
            "for."
        )


def raise_unless_ok(code: int) -> None:
    """Turn a kernel's code into words: a `SamplingError` for each but `OK`."""
    if code != OK:
        raise SamplingError(TEXTS[int(code)])
