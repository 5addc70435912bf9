"""Slopes of Moreau envelopes of a loss of the margin.

The gradient of min_v phi(<a, v>) + lambda/2 |w - v|^2 at w is lambda (s - s+)/|a|^2 a,
s = <a, w>, c = |a|^2/lambda and s+ = argmin over u of phi(u) + (u - s)^2/(2 c).
"""

from __future__ import annotations

import numpy as np

from dpsample._jit import kernel

MAX_HALVINGS = 100


@kernel
def smooth_slopes(data, pieces, estimator, count, memory):
    """Replace margins by slopes of the envelope; False if the loss failed.

    s+ solves u + c phi'(u) = s. The left side increases, jumps included, so bisection
    closes in on s+ between s and s - c phi'(s); all records of a block advance
    together. The slope that counts is (s - s+)/c, bounded as phi' is.
    """
    margins, slopes = memory.margins, memory.slopes
    low, high, trial = memory.low, memory.high, memory.trial
    memory.out[0] = np.nan
    trial[:count] = margins[:count]
    pieces.loss_slope(
        data.loss_params,
        trial[:count],
        memory.response[:count],
        slopes[:count],
        memory.out,
    )
    if memory.out[0] != memory.out[0]:
        return False
    for i in range(count):
        c = estimator.norms[memory.rows[i]] ** 2 / estimator.smoothing
        reach = margins[i] - c * slopes[i]
        low[i], high[i] = min(margins[i], reach), max(margins[i], reach)
    for _ in range(MAX_HALVINGS):
        widest = 0.0
        for i in range(count):
            trial[i] = 0.5 * (low[i] + high[i])
        pieces.loss_slope(
            data.loss_params,
            trial[:count],
            memory.response[:count],
            slopes[:count],
            memory.out,
        )
        for i in range(count):
            middle = 0.5 * (low[i] + high[i])
            c = estimator.norms[memory.rows[i]] ** 2 / estimator.smoothing
            if middle + c * slopes[i] > margins[i]:
                high[i] = middle
            else:
                low[i] = middle
            scale = 1e-16 * max(abs(low[i]), abs(high[i]))
            widest = max(widest, (high[i] - low[i]) - 4.0 * scale)
        if widest <= 0.0:
            break
    for i in range(count):
        c = estimator.norms[memory.rows[i]] ** 2 / estimator.smoothing
        if c > 0.0:
            slopes[i] = (margins[i] - 0.5 * (low[i] + high[i])) / c
        else:
            slopes[i] = 0.0  # a row of zeros has no gradient
    return True
