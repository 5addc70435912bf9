r"""Ratio of two normalizing constants from draws of both densities.

With unnormalized densities p~ and q~, ratio s = log(q~/p~) and as many draws of each,
Bennett's (1976) estimate of c = log(Z_q/Z_p) solves

.. math:: \sum_{x \sim q} \frac{1}{1 + e^{s(x) - c}}
          = \sum_{x \sim p} \frac{1}{1 + e^{c - s(x)}},

whose two sides have equal expectations at the true c (Meng and Wong 1996).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NUM_HALVINGS = 100


def log_constant(ratio_p: Array, ratio_q: Array) -> float:
    """Estimate log(Z_q/Z_p) from the ratios s at draws of p and of q.

    Parameters
    ----------
    ratio_p, ratio_q : array of shape (n,)
        log(q~/p~) at draws of p and at draws of q.

    Returns
    -------
    float
        The estimate; log(q/p) is s minus it.
    """
    from scipy.special import expit

    low = float(min(ratio_p.min(), ratio_q.min())) - 1.0
    high = float(max(ratio_p.max(), ratio_q.max())) + 1.0
    for _ in range(NUM_HALVINGS):
        middle = 0.5 * (low + high)
        # The difference increases in c.
        if expit(middle - ratio_q).sum() > expit(ratio_p - middle).sum():
            high = middle
        else:
            low = middle
        if high - low <= 1e-12 * max(1.0, abs(high)):
            break
    return 0.5 * (low + high)
