r"""Widths, scales and batch sizes of robust estimators, from public moment bounds.

They trade the bias of truncation for noise, whose size is proportional to the width or
scale. ``multiplier`` z is the noise's standard deviation over one record's l2 bound.
"""

from __future__ import annotations

import math

from dpsample.optimizers.estimators import PSI_BOUND
from dpsample.privacy.budget import Budget


def median_width(
    *,
    multiplier: float,
    dim: int,
    batch_size: int,
    ratio: float,
    moment_bound: float,
    order: float,
) -> float:
    r"""Minimize noise plus truncation bias of a coordinate over the width.

    Noise :math:`z \varrho\, (Q/j) \sqrt p/(2 m)` with ``ratio`` Q/j; the bias of
    clipping to :math:`\pm\varrho/2`, for a mean within :math:`\varrho/4`, is at most

    .. math:: E(|g - Eg| - \varrho/4)_+
        \le \frac{(k-1)^{k-1}}{k^k} \Big(\frac4\varrho\Big)^{k-1} E|g - Eg|^k.
    """
    slope = 0.5 * multiplier * ratio * math.sqrt(dim) / batch_size
    if slope == 0.0:
        return math.inf
    k = order
    bias = moment_bound * ((k - 1.0) / k) ** (k - 1.0) / k * 4.0 ** (k - 1.0)
    return float(((k - 1.0) * bias / slope) ** (1.0 / k))


def printed_width(budget: Budget, *, dim: int, batch_size: int, order: float) -> float:
    r"""Width :math:`(\epsilon m/\sqrt{p \log(1/\delta)})^{1/k}` of Xie et al."""
    noise = math.sqrt(dim * math.log(1.0 / budget.delta))
    return float((budget.epsilon * batch_size / noise) ** (1.0 / order))


def catoni_scale(
    *,
    multiplier: float,
    dim: int,
    batch_size: int,
    moment_bound: float,
    precision: float,
    failure_probability: float,
) -> float:
    r"""Minimize deviation plus noise of a coordinate over the scale.

    With probability :math:`1 - 2\zeta` the estimate of a mean is within

    .. math:: \frac{\tau (1 + 1/\nu)}{2 s}
        + \frac sm \Big(\frac\nu2 + \log\frac1\zeta\Big)

    of it, and the noise within :math:`\frac sm \frac{2\sqrt2}3 z
    \sqrt{2 p \log(1/\zeta)}`.
    """
    log = math.log(1.0 / failure_probability)
    noise = PSI_BOUND * multiplier * math.sqrt(2.0 * dim * log)
    slope = 0.5 * precision + log + noise
    spread = 0.5 * moment_bound * (1.0 + 1.0 / precision)
    return math.sqrt(spread * batch_size / slope)


def printed_scale(
    budget: Budget, *, batch_size: int, moment_bound: float, failure_probability: float
) -> float:
    r"""Scale :math:`\sqrt{m\epsilon\tau}/(\log(1/\zeta) \log^{1/4}(1/\delta))`."""
    log = math.log(1.0 / failure_probability)
    size = math.sqrt(batch_size * budget.epsilon * moment_bound)
    return float(size / (log * math.log(1.0 / budget.delta) ** 0.25))


def median_batch(num_records: int, *, dim: int, epsilon: float, order: float) -> float:
    """Batch size that minimizes the rate after Corollary 1 of Xie et al."""
    k, n = order, float(num_records)
    size = k * math.log(n) + (2.0 * k - 0.5) * math.log(dim)
    return math.exp((size + (1.0 - k) * math.log(epsilon)) / (2.0 * k - 1.0))


def catoni_batch(num_records: int, *, dim: int, epsilon: float) -> float:
    """Batch size that minimizes the rate after Corollary 2 of Xie et al."""
    return float((num_records * dim) ** (2.0 / 3.0) * epsilon ** (-1.0 / 3.0))
