"""Small simulations of published algorithms on one worst pair, for audits.

All are in one dimension. The data are the gradient of the record that differs, in units
of the bound of gradients.
"""

import math

import numpy as np
from scipy.stats import binom, norm


def with_replacement_step(*, num_records, batch_size, stddev):
    """One noisy step on a batch drawn with replacement, and its log ratio.

    The record is in the batch Binomial(batch_size, 1/num_records) times; all others
    have gradient 1, so that the mean says how often.
    """
    law = binom(batch_size, 1.0 / num_records)
    times = np.arange(int(law.isf(1e-15)) + 1)

    def mechanism(gradient, rng, num_draws):
        copies = rng.binomial(batch_size, 1.0 / num_records, num_draws)
        mean = 1.0 + (gradient - 1.0) * copies / batch_size
        return mean + stddev * rng.standard_normal(num_draws)

    def log_ratio(outputs):
        # Outputs in units of the noise; gradient -1 moves them by -2 copies.
        z = (outputs[:, 0] - 1.0) / stddev
        shifts = 2.0 * times / (batch_size * stddev)
        weights = law.pmf(times) * np.exp(-0.5 * shifts**2)
        terms = zip(weights, shifts, strict=True)
        return np.log(sum(weight * np.exp(-shift * z) for weight, shift in terms))

    return mechanism, log_ratio


def printed_nsgd(epsilon, delta, *, num_records=10_000, num_steps=1):
    """Batch size and noise of Bassily et al. (2019), Theorem 3.1, as printed."""
    batch_size = math.ceil(
        max(1.0, num_records * math.sqrt(epsilon / (4.0 * num_steps)))
    )
    variance = 8.0 * num_steps * math.log(1.0 / delta) / (num_records * epsilon) ** 2
    return {
        "num_records": num_records,
        "batch_size": batch_size,
        "stddev": math.sqrt(variance),
    }


def poisson_descent(*, sampling_rate, noise_multiplier, num_steps):
    """Last iterate of noisy steps, the record in each with probability q."""

    def mechanism(gradient, rng, num_draws):
        theta = np.zeros(num_draws)
        for _ in range(num_steps):
            is_in = rng.random(num_draws) < sampling_rate
            noise = noise_multiplier * rng.standard_normal(num_draws)
            theta -= gradient * is_in + noise
        return theta

    return mechanism


def descend_against(rows):
    """Score of last iterates: steps against the neighbor's smaller gradient."""
    return rows[:, 0]


def perturbed_logistic(features, labels, *, ridge, stddev):
    """Minimizer of sum of logistic losses + ridge theta^2 / 2 + b theta, in 1-d.

    Returns the mechanism of data = the last label, and the log density of outputs.
    The gradient condition gives b as a decreasing function of theta.
    """

    def slope_and_curvature(theta, last):
        signed = np.append(labels[:-1], last) * features
        share = 1.0 / (1.0 + np.exp(signed * theta[:, None]))
        slope = -(signed * share).sum(axis=1) + ridge * theta
        return slope, (signed**2 * share * (1.0 - share)).sum(axis=1) + ridge

    def mechanism(last, rng, num_draws):
        force = stddev * rng.standard_normal(num_draws)
        theta = np.zeros(num_draws)
        reach = (np.abs(force) + np.abs(features).sum()) / ridge
        low, high = -reach, reach
        for _ in range(15):
            slope, curvature = slope_and_curvature(theta, last)
            gap = slope + force
            low, high = np.where(gap < 0, theta, low), np.where(gap > 0, theta, high)
            step = theta - gap / curvature
            outside = (step <= low) | (step >= high)
            theta = np.where(outside, 0.5 * (low + high), step)
        return theta

    def log_density(theta, last):
        slope, curvature = slope_and_curvature(theta, last)
        return norm.logpdf(slope, scale=stddev) + np.log(curvature)

    def log_ratio(rows):
        return log_density(rows[:, 0], -1.0) - log_density(rows[:, 0], 1.0)

    return mechanism, log_ratio
