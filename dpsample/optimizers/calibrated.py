"""Provable noise of the batch schemes, and the events that prove it.

A batch estimate is a sum over records divided by a public constant; one record's part
in the sum is at most ``record_bound``. Replacing a record moves the sum by twice that,
setting its loss to zero by once (`SHIFTS`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

from dpsample.privacy import gdp_from_budget, poisson_noise_multiplier
from dpsample.privacy.additive import up
from dpsample.privacy.budget import Budget
from dpsample.privacy.events import Event, GaussianEvent, PoissonGaussianEvent

SHIFTS = {"replace_one": 2.0, "zero_out": 1.0}


class Noise(NamedTuple):
    """Standard deviation of the noise of an estimate, and what it proves."""

    stddev: float
    event: Event


def full_batch(
    budget: Budget, *, record_bound: float, num_records: int, num_steps: int = 1
) -> Noise:
    """Gaussian noise of each of ``num_steps`` adaptive means over all records.

    Gaussian differential privacy composes by the root of the sum of squares.
    """
    gdp = gdp_from_budget(budget.epsilon, budget.delta)
    sensitivity = SHIFTS[budget.relation] * record_bound / num_records
    return Noise(up(sensitivity * math.sqrt(num_steps) / gdp), GaussianEvent(gdp))


def disjoint(budget: Budget, *, record_bound: float, batch_size: int) -> Noise:
    """Gaussian noise of means over disjoint batches: every record is read once."""
    return full_batch(budget, record_bound=record_bound, num_records=batch_size)


def poisson(
    budget: Budget,
    *,
    record_bound: float,
    num_records: int,
    sampling_rate: float,
    num_steps: int,
) -> Noise:
    """Gaussian noise of means over Poisson samples, by the accountant."""
    multiplier = _multiplier(budget, float(sampling_rate), int(num_steps))
    event = PoissonGaussianEvent(
        sampling_rate=sampling_rate,
        noise_multiplier=multiplier,
        num_steps=num_steps,
    )
    return Noise(up(multiplier * record_bound / (sampling_rate * num_records)), event)


@cache  # the accountant takes longer than many fits; its inputs are public
def _multiplier(budget: Budget, sampling_rate: float, num_steps: int) -> float:
    return poisson_noise_multiplier(
        budget, sampling_rate=sampling_rate, num_steps=num_steps
    )
