"""Failures of samplers: codes that kernels return, and the errors that users see.

A kernel cannot raise with a message, so it returns one of the codes, and
`raise_unless_ok` raises its text.
"""

from typing import Protocol

# The codes are below `core.pauses.PAUSED`, which kernels return, too. `TEXTS` says what
# they mean for a user.
OK = 0
# A C function wrote nothing, or NaN.
FUNCTION_FAILED = 1
# A number contradicts a declared bound, on which a proof rests.
BOUND_VIOLATED = 2
# The largest number of proposals was reached.
EXHAUSTED = 3
# Draws on a line need an energy that grows at both ends.
UNCOVERED = 4
# A draw of the sampler itself was NaN.
DRAW_FAILED = 5
# Rounding errors of the energies would decide about proposals.
ROUGH = 6
# A path along the boundary has too many parts.
STUCK = 7

TEXTS = {
    FUNCTION_FAILED: (
        "A loss, regularizer or domain raised or returned NaN. If the loss is your "
        "own, evaluate it at the margins that the domain allows."
    ),
    BOUND_VIOLATED: (
        "An acceptance ratio was above 1. A declared curvature or margin bound does "
        "not hold on the domain, so no draw would be exact. Correct the bound."
    ),
    EXHAUSTED: (
        "No proposal was accepted within the allowed number. The step_size may be too "
        "long. Leave it to the pilot run, or reduce it. Or the density is too steep at "
        "the boundary for this sampler. Then use another one, first Localized or "
        "Proximal."
    ),
    UNCOVERED: (
        "The energy does not seem to grow in every direction. The regularizer's weight "
        "may be too small for floating-point numbers. Choose a bounded domain or a "
        "larger mu."
    ),
    DRAW_FAILED: (
        "The sampler's own draw, from a Gaussian on the domain or along a line, was "
        "not a number, although loss, regularizer and domain were finite. Scale the "
        "features, and with them domain and mu, so that numbers are near 1, or use "
        "another sampler."
    ),
    ROUGH: (
        "Energies of typical points are so large that rounding errors would decide "
        "which proposals are accepted. Use Localized or Proximal, which work with "
        "differences where they can, or a smaller k."
    ),
    STUCK: (
        "The path of a trajectory could not be followed along the boundary of the "
        "domain in a million parts. A domain of your own may not be convex, or its "
        "functions not deterministic. If it is, use ChordSlice."
    ),
}


class NoCertificate(ValueError):
    """No proof of the sampler's error exists for this target. The message says why."""


class SamplingError(RuntimeError):
    """A kernel failed. Nothing was drawn, and nothing is released."""


class WorkLimitError(SamplingError):
    """A release needs more work than is allowed. Nothing is released."""

    def __init__(self) -> None:
        super().__init__(
            "max_work passes over the records are not enough. Nothing is released, and "
            "the budget counts as spent. This error depends on the records, so do not "
            "publish it. Allow more work, or use a smaller domain or a larger weight "
            "of the regularizer."
        )


class DeadlineError(SamplingError):
    """A release is not finished by its public deadline. Nothing is released."""

    def __init__(self) -> None:
        super().__init__(
            "The draw was not finished by the deadline, or failed. Nothing is "
            "released, and the budget counts as spent. This error depends on the "
            "records, so do not publish it."
        )


class BottomError(SamplingError):
    """All passes of a constant-time draw were made without a result.

    gamma in the message is the part of delta that the sampler's error may use.
    """

    def __init__(self) -> None:
        super().__init__(
            "The passes of a constant-time draw were not enough. Nothing is released, "
            "and the budget counts as spent. This error may be published. In real "
            "arithmetic its probability is at most gamma / 10 on every data set, which "
            "is included in delta."
        )


class Describable(Protocol):
    """A target, which knows what its functions did last."""

    def describe_failure(self) -> str:
        """Return what is wrong with a function of the user that failed, or ""."""


def raise_unless_ok(code: int, target: Describable | None = None) -> None:
    """Raise a `SamplingError` with the text of a kernel's code, unless it is `OK`."""
    if code == OK:
        return
    text = ""
    if code == FUNCTION_FAILED and target is not None:
        text = target.describe_failure()
    raise SamplingError(text or TEXTS[int(code)])
