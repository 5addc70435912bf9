"""Slopes of Moreau envelopes of a loss of the margin.

The gradient of min_v phi(<a, v>) + lambda/2 |w - v|^2 at w is g a, where g solves g =
phi'(s - c g), s = <a, w>, c = |a|^2/lambda: s - c g is the proximal point of phi. The
right side decreases in g, so g lies between 0 and phi'(s). Where the slope is the same
at s and at s - c phi'(s) it is the envelope's; the other records of a block keep a
bracket each, which they narrow together.
"""

from __future__ import annotations

import numpy as np

from dpsample._jit import kernel

MAX_GUESSES = 12
MAX_ROUNDS = 80
ROUNDING = 1e-15
LEAST_JUMP = 1e-4
# Rows of the matrix that holds one bracket in every column. A miss phi' - g is halved
# when its end has stayed (Illinois).
RECORD, RESPONSE, LOW, HIGH, GUESS = range(5)
VALUE_LOW, VALUE_HIGH, SLOPE_LOW, SLOPE_HIGH, MISS_LOW, MISS_HIGH = range(5, 11)
VALUE, SLOPE = 11, 12  # margins going in, phi and phi' coming out
NUM_ROWS = 13


@kernel
def smooth_slopes(data, pieces, estimator, count, memory):
    """Replace margins by slopes of the envelope; False if the loss failed."""
    margins, slopes, trial = memory.margins, memory.slopes, memory.trial
    params, out = data.loss_params, memory.out
    response = memory.response[:count]
    trial[:count] = margins[:count]
    out[0] = np.nan
    pieces.loss_slope(params, trial[:count], response, slopes[:count], out)
    if out[0] != out[0]:
        return False
    memory.low[:count] = trial[:count]
    memory.high[:count] = slopes[:count]
    for i in range(count):
        c = estimator.norms[memory.rows[i]] ** 2 / estimator.smoothing
        trial[i] = margins[i] - c * slopes[i]
    out[0] = np.nan
    pieces.loss_slope(params, trial[:count], response, slopes[:count], out)
    if out[0] != out[0]:
        return False
    num_open = 0
    for i in range(count):
        num_open += slopes[i] != memory.high[i]
    if num_open > 0:
        b = open_brackets(count, num_open, memory)
        for round_number in range(MAX_ROUNDS):
            for k in range(num_open):
                i = int(b[RECORD, k])
                c = estimator.norms[memory.rows[i]] ** 2 / estimator.smoothing
                b[GUESS, k] = next_guess(b, k, c, round_number)
                b[VALUE, k] = margins[i] - c * b[GUESS, k]
            out[0] = np.nan
            pieces.loss_slope(
                params,
                b[VALUE][:num_open],
                b[RESPONSE][:num_open],
                b[SLOPE][:num_open],
                out,
            )
            if out[0] != out[0]:
                return False
            num_open = narrow(b, estimator, num_open, round_number, memory)
            if num_open == 0:
                break
    return True


@kernel(forceinline=True)
def open_brackets(count, num_open, memory):
    """Brackets [0, phi'(s)] of the records whose slope changes on the way."""
    b = np.zeros((NUM_ROWS, num_open))
    k = 0
    for i in range(count):
        top, slope = memory.high[i], memory.slopes[i]
        if slope != top:
            b[RECORD, k], b[RESPONSE, k], b[HIGH, k] = i, memory.response[i], top
            b[VALUE_LOW, k], b[VALUE_HIGH, k] = memory.low[i], memory.trial[i]
            b[SLOPE_LOW, k], b[SLOPE_HIGH, k] = top, slope
            b[MISS_LOW, k], b[MISS_HIGH, k] = top, slope - top
            k += 1
    return b


@kernel(forceinline=True)
def is_at_kink(b, k, round_number):
    """Whether the guess is where two tangents meet: every other one, at a jump."""
    jump = abs(b[SLOPE_LOW, k] - b[SLOPE_HIGH, k])
    top = abs(b[SLOPE_LOW, k]) + abs(b[SLOPE_HIGH, k])
    return (
        round_number < MAX_GUESSES
        and round_number % 2 == 0
        and (jump > LEAST_JUMP * top)
    )


@kernel(forceinline=True)
def next_guess(b, k, c, round_number):
    """Where two tangents meet, the secant's zero, or the middle."""
    width = b[HIGH, k] - b[LOW, k]
    if is_at_kink(b, k, round_number):
        fall = b[VALUE_LOW, k] - b[VALUE_HIGH, k] - b[SLOPE_HIGH, k] * c * width
        return b[LOW, k] + fall / (c * (b[SLOPE_LOW, k] - b[SLOPE_HIGH, k]))
    if round_number < MAX_GUESSES:
        return b[LOW, k] + width * b[MISS_LOW, k] / (b[MISS_LOW, k] - b[MISS_HIGH, k])
    return b[LOW, k] + 0.5 * width


@kernel(forceinline=True)
def narrow(b, estimator, num_open, round_number, memory):
    """Move an end of every bracket to its guess; keep those that are still open."""
    kept = 0
    for k in range(num_open):
        i = int(b[RECORD, k])
        found = b[GUESS, k]
        miss = b[SLOPE, k] - found
        c = estimator.norms[memory.rows[i]] ** 2 / estimator.smoothing
        # Rounding the margin moves phi' by its rounding error times phi''.
        curved = abs(b[SLOPE_LOW, k] - b[SLOPE_HIGH, k]) / abs(b[HIGH, k] - b[LOW, k])
        tolerance = ROUNDING * (abs(found) + curved / c * abs(memory.margins[i]))
        is_done = abs(miss) <= tolerance
        if is_at_kink(b, k, round_number):
            fall = b[SLOPE_LOW, k] * c * (found - b[LOW, k])
            scale = abs(b[VALUE_LOW, k]) + abs(b[SLOPE_LOW, k] * memory.margins[i])
            if abs(b[VALUE_LOW, k] - fall - b[VALUE, k]) <= 4.0 * ROUNDING * scale:
                # The loss has two pieces here: its slopes bound the envelope's.
                least = min(b[SLOPE_LOW, k], b[SLOPE_HIGH, k])
                found = min(max(found, least), max(b[SLOPE_LOW, k], b[SLOPE_HIGH, k]))
                is_done = True
        if not is_done:
            if (miss > 0.0) == (b[HIGH, k] > b[LOW, k]):
                b[LOW, k], b[VALUE_LOW, k] = found, b[VALUE, k]
                b[SLOPE_LOW, k], b[MISS_LOW, k] = b[SLOPE, k], miss
                b[MISS_HIGH, k] *= 0.5
            else:
                b[HIGH, k], b[VALUE_HIGH, k] = found, b[VALUE, k]
                b[SLOPE_HIGH, k], b[MISS_HIGH, k] = b[SLOPE, k], miss
                b[MISS_LOW, k] *= 0.5
            is_done = abs(b[HIGH, k] - b[LOW, k]) <= ROUNDING * abs(found)
        memory.slopes[i] = found
        if not is_done:
            for row in range(NUM_ROWS):
                b[row, kept] = b[row, k]
            kept += 1
    return kept
