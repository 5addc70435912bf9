"""Problems with exact population risk, and mirror maps in NumPy."""

import numpy as np
from scipy.special import expit

import dpsample as dps
from dpsample.numerics.norms import norm

WHOLE = dps.domains.WholeSpace()


def potential_gradient(w, s, kappa):
    """Gradient of kappa/2 |w|_s^2; 0 at 0."""
    size = norm(w, s)
    if size == 0.0:
        return np.zeros_like(w)
    return kappa * size ** (2.0 - s) * np.abs(w) ** (s - 1.0) * np.sign(w)


def potential(w, s, kappa):
    """Return kappa/2 |w|_s^2."""
    return 0.5 * kappa * norm(w, s) ** 2


def bregman(y, x, s, kappa):
    """Divergence of the potential."""
    slope = potential_gradient(x, s, kappa)
    return potential(y, s, kappa) - potential(x, s, kappa) - slope @ (y - x)


def conjugate_gradient(y, s, kappa):
    """Inverse of `potential_gradient`."""
    return potential_gradient(y, s / (s - 1.0), 1.0 / kappa)


class AxisLogistic:
    """Rows are single coordinates, labels logistic: the risk is a finite sum."""

    def __init__(self, optimum):
        self.optimum = np.asarray(optimum, dtype=float)

    def problem(self, rng, num_records, domain=WHOLE, row_norm=1.0):
        dim = len(self.optimum)
        j = rng.integers(dim, size=num_records)
        rows = np.zeros((num_records, dim))
        rows[np.arange(num_records), j] = 1.0
        response = np.where(rng.random(num_records) < expit(self.optimum[j]), 1.0, -1.0)
        return dps.Problem(
            rows,
            response,
            loss=dps.losses.Logistic(),
            domain=domain,
            row_bound=1.0,
            row_norm=row_norm,
        )

    def risk(self, theta):
        up = expit(self.optimum)
        both = up * np.logaddexp(0.0, -theta) + (1.0 - up) * np.logaddexp(0.0, theta)
        return float(both.mean())

    def excess(self, theta):
        return self.risk(theta) - self.risk(self.optimum)


def random_problem(seed, num_records, dim, *, domain=WHOLE, loss=None, row_norm=2.0):
    """Dense rows of the given norm at most 1."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((num_records, dim))
    rows *= (0.2 + 0.8 * rng.random((num_records, 1))) / norm(rows, row_norm)[:, None]
    response = np.where(rng.random(num_records) < 0.5, 1.0, -1.0)
    return dps.Problem(
        rows,
        response,
        loss=loss or dps.losses.Logistic(),
        domain=domain,
        row_bound=1.0,
        row_norm=row_norm,
        response_bound=1.0,
    )


def logistic_gradients(problem, theta):
    """Gradients of all records at theta."""
    rows, y = problem.data.dense, problem.data.response
    return (-y * expit(-y * (rows @ theta)))[:, None] * rows
