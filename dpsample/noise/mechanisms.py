"""Mechanisms that add Gaussian, Laplace, geometric or K-norm noise, and others."""

import json
from typing import Any

from dpsample.core import check
from dpsample.domains import Domain
from dpsample.noise.elementary import DiscreteLaplace, Gaussian, Laplace
from dpsample.noise.generalized_gaussian import GeneralizedGaussian
from dpsample.noise.k_norm import KNorm, k_norm_table
from dpsample.noise.mechanism import AdditiveMechanism, certify
from dpsample.noise.noise import MAX_QUERY_STEPS
from dpsample.noise.schatten import SchattenGaussian, schatten_plan
from dpsample.numerics.norms import dual, regularity
from dpsample.privacy.accounting.events import GaussianEvent, PureEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.calibration.exponent_choice import best_exponent
from dpsample.privacy.curves.additive import (
    NoiseCalibration,
    gaussian_stddev,
    generalized_gaussian_gdp,
    generalized_gaussian_sigma,
    pure_scale,
    round_up,
)


@check.unwrap_numpy
def gaussian_mechanism(
    budget: Budget, *, sensitivity: float, calibration: NoiseCalibration = "exact"
) -> AdditiveMechanism:
    """Return a mechanism with Gaussian noise, calibrated by `gaussian_stddev`.

    Parameters
    ----------
    budget : Budget
        Epsilon, delta and the relation that the sensitivity is for.
    sensitivity : float
        Bound > 0 of the l2 norm of the query's change between neighbors.
    calibration : {"exact", "paper"}
        "paper" reproduces Lemma 2 of arXiv:2303.18047 and is never releasable. Its
        certificate states the true epsilon.

    Returns
    -------
    AdditiveMechanism
        For queries with any number of coordinates.

    Raises
    ------
    ValueError
        If the sensitivity is not a number from 1e-60 to 1e60, or ``calibration`` is
        unknown.

    Guarantee
    ---------
    With "exact", each release is (epsilon, delta)-DP with the bits that are returned.
    They are the rounded sum of query and noise in real arithmetic, and rounding is
    post-processing (`dpsample.noise.noise`). No smaller stddev has this guarantee.

    Examples
    --------
    >>> mech = gaussian_mechanism(Budget(epsilon=1.0, delta=1e-6), sensitivity=1.0)
    >>> round(mech.gdp, 5)
    0.2367
    """
    stddev = gaussian_stddev(budget, sensitivity, calibration=calibration)
    return certify(
        Gaussian(stddev),
        budget,
        inputs={"sensitivity": sensitivity, "norm": "l2", "stddev": stddev},
        event=GaussianEvent(round_up(sensitivity / stddev)),
        norm=2.0,
        calibration=calibration,
    )


@check.unwrap_numpy
def generalized_gaussian_mechanism(
    budget: Budget,
    *,
    dim: int,
    sensitivity: float,
    p: float,
    r: float | None = None,
    calibration: NoiseCalibration = "exact",
) -> AdditiveMechanism:
    """Return a mechanism with generalized Gaussian noise.

    `generalized_gaussian_sigma` calibrates its scale.

    Parameters
    ----------
    budget : Budget
        Epsilon, delta and the relation that the sensitivity is for.
    dim : int
        Number of coordinates of the query.
    sensitivity : float
        Bound > 0 of the l_q norm of the query's change between neighbors.
    p : float
        Exponent in [1, inf] of the dual norm, q = p/(p-1).
    r : float, optional
        Exponent of the noise, 2 <= r < inf. By default the least noisy one of
        `best_exponent`, which is usually r = 2, plain Gaussian noise. With "paper" it
        is the published one.
    calibration : {"exact", "paper"}
        "paper" reproduces Lemma 3 of arXiv:2303.18047 (1 <= p <= 2) and is never
        releasable. Its certificate states the epsilon that is proved.

    Returns
    -------
    AdditiveMechanism
        For queries with ``dim`` coordinates.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    With "exact", each release is (epsilon, delta)-DP (docs/generalized-gaussian.md).
    For r = 2 or dim = 1 this holds for the bits that are returned, as in
    `gaussian_mechanism`. Otherwise it holds in real arithmetic, and no release is
    releasable.

    Examples
    --------
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> case = {"dim": 50, "sensitivity": 1.0, "p": 1.5}
    >>> generalized_gaussian_mechanism(budget, **case).noise.r
    2.0
    >>> printed = generalized_gaussian_mechanism(budget, **case, calibration="paper")
    >>> printed.noise.r, round(printed.certificate.epsilon_proved, 3)
    (3.0, 0.79)
    """
    check.one_of(("exact", "paper"), calibration=calibration)
    if r is None and calibration == "exact":
        r = best_exponent(dim, p).r
    elif r is None:
        r = regularity(p, dim=dim, r="printed").r
    case: dict[str, Any] = {"sensitivity": sensitivity, "dim": dim, "p": p, "r": r}
    sigma = generalized_gaussian_sigma(budget, **case, calibration=calibration)
    return certify(
        GeneralizedGaussian(r, sigma),
        budget,
        inputs=case | {"norm": f"l_{dual(p):g}", "sigma": sigma},
        event=GaussianEvent(generalized_gaussian_gdp(**case, sigma=sigma)),
        norm=dual(p),
        calibration=calibration,
        dim=dim,
    )


@check.unwrap_numpy
def schatten_gaussian_mechanism(
    budget: Budget, *, shape: tuple[int, int], sensitivity: float, p: float, r: float
) -> AdditiveMechanism:
    """Return a mechanism with generalized Gaussian noise in a Schatten norm.

    Its queries are matrices.

    Parameters
    ----------
    budget, p
        As in `generalized_gaussian_mechanism`.
    shape : tuple of two int
        Rows and columns. The query is flattened row by row.
    sensitivity : float
        Bound > 0 of the Schatten-q norm of the query's change between neighbors.
    r : float
        Exponent of the noise, 2 <= r < inf. 2 is plain Gaussian noise.

    Returns
    -------
    AdditiveMechanism
        For flattened matrices of this shape.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Guarantee
    ---------
    Each release is (epsilon, delta)-DP (docs/generalized-gaussian.md). For r = 2 or a
    single row or column this holds for the bits that are returned, as in
    `gaussian_mechanism`. Otherwise it holds in real arithmetic, and no release is
    releasable.

    Examples
    --------
    >>> mech = schatten_gaussian_mechanism(Budget(epsilon=1.0, delta=1e-6),
    ...     shape=(2, 3), sensitivity=1.0, p=1.0, r=4.0)
    >>> mech.dim, round(mech.noise.sigma, 3)
    (6, 8.702)
    """
    shape = SchattenGaussian(2.0, 1.0, shape).shape  # converts NumPy's integers
    # The Schatten norm is the l_p norm of the singular values, of which there are as
    # many as the smaller side has entries.
    side = min(shape)
    case: dict[str, Any] = {"sensitivity": sensitivity, "dim": side, "p": p, "r": r}
    sigma = generalized_gaussian_sigma(budget, **case)
    schatten_plan(shape, r)  # raises if it cannot be drawn
    return certify(
        SchattenGaussian(r, sigma, shape),
        budget,
        inputs={"rows": shape[0], "columns": shape[1], "sensitivity": sensitivity}
        | {"p": p, "norm": f"Schatten-{dual(p):g}", "r": r, "sigma": sigma},
        event=GaussianEvent(generalized_gaussian_gdp(**case, sigma=sigma)),
        norm=dual(p),
        dim=shape[0] * shape[1],
    )


@check.unwrap_numpy
def laplace_mechanism(budget: Budget, *, sensitivity: float) -> AdditiveMechanism:
    """Return a mechanism with Laplace noise of scale sensitivity / epsilon.

    Parameters
    ----------
    budget : Budget
        Epsilon and the relation that the sensitivity is for. Delta is not spent.
    sensitivity : float
        Bound > 0 of the l1 norm of the query's change between neighbors.

    Returns
    -------
    AdditiveMechanism
        For queries with any number of coordinates.

    Raises
    ------
    ValueError
        If the sensitivity is not a number from 1e-60 to 1e60.

    Guarantee
    ---------
    Each release is (epsilon, 0)-DP with the bits that are returned. They are the
    rounded sum of query and noise in real arithmetic, and rounding is post-processing
    (`dpsample.noise.noise`). If the budget has delta = 0, the sum is rounded with as
    many random digits as that takes, and no error probability is left.

    Examples
    --------
    >>> mech = laplace_mechanism(Budget(epsilon=0.5, delta=1e-6), sensitivity=1.0)
    >>> round(mech.noise.scale, 9), mech.gdp
    (2.0, None)
    """
    return _l1_mechanism(Laplace, budget, sensitivity)


@check.unwrap_numpy
def geometric_mechanism(budget: Budget, *, sensitivity: int) -> AdditiveMechanism:
    """Return a mechanism with discrete Laplace noise, for counts and other integers.

    Answers are integers. The noise is two-sided geometric, with probabilities
    proportional to exp(-epsilon |z| / sensitivity) (Ghosh, Roughgarden and
    Sundararajan 2012).

    Parameters
    ----------
    budget : Budget
        Epsilon and the relation that the sensitivity is for. Delta is not spent.
    sensitivity : int
        Bound >= 1 of the l1 norm of the query's change between neighbors. It is 1 for a
        count under both relations. It is 2 for all counts of a histogram together under
        "replace_one", because a replaced record leaves one bin and enters another.

    Returns
    -------
    AdditiveMechanism
        For queries with any number of integers. What is not an integer is rounded down,
        and the sensitivity must hold for the query after that.

    Raises
    ------
    ValueError
        If the sensitivity is not an integer from 1 to 2^51.

    Guarantee
    ---------
    Each release is (epsilon, 0)-DP with the integers that are returned, because the
    noise is drawn in whole numbers without rounding (`dpsample.noise.DiscreteLaplace`).

    Examples
    --------
    >>> mech = geometric_mechanism(Budget(epsilon=1.0, delta=0.0), sensitivity=1)
    >>> answer = mech.release(18202)
    >>> type(answer.value).__name__, answer.releasable
    ('int', True)
    """
    # A query is cut off at MAX_QUERY_STEPS, so no larger change can occur.
    check.integer(1, maximum=int(MAX_QUERY_STEPS), sensitivity=sensitivity)
    return _l1_mechanism(DiscreteLaplace, budget, sensitivity)


def _l1_mechanism(
    kind: type[Laplace] | type[DiscreteLaplace], budget: Budget, sensitivity: float
) -> AdditiveMechanism:
    """Return the pure mechanism of noise whose log density falls with the l1 norm."""
    scale = pure_scale(budget, sensitivity)
    return certify(
        kind(scale),
        budget,
        inputs={"sensitivity": sensitivity, "norm": "l1", "scale": scale},
        event=PureEvent(budget.epsilon),  # the scale is rounded up
        norm=1.0,
    )


@check.unwrap_numpy
def k_norm_mechanism(
    budget: Budget, *, domain: Domain, dim: int, sensitivity: float
) -> AdditiveMechanism:
    """Return a mechanism with K-norm noise of scale sensitivity / epsilon.

    Parameters
    ----------
    budget : Budget
        Epsilon and the relation that the sensitivity is for. Delta is not spent.
    domain : Ball, Box, SchattenBall or Polytope
        Body K, symmetric about 0, that contains every change of the query between
        neighbors when it is scaled by ``sensitivity``.
    dim : int
        Number of coordinates of the query.
    sensitivity : float
        Bound > 0 of the gauge of the query's change between neighbors.

    Returns
    -------
    AdditiveMechanism
        For queries with ``dim`` coordinates.

    Raises
    ------
    ValueError
        If an argument is out of its range or the body is not supported.

    Guarantee
    ---------
    Each release is (epsilon, 0)-DP. For an l_1 ball this holds for the bits that are
    returned, as in `laplace_mechanism`. Otherwise it holds in real arithmetic, and no
    release is releasable.

    Examples
    --------
    >>> from dpsample.domains import Box
    >>> mech = k_norm_mechanism(Budget(epsilon=0.5, delta=1e-6),
    ...     domain=Box(-1.0, 1.0), dim=3, sensitivity=2.0)
    >>> round(mech.noise.scale, 9)
    4.0
    """
    check.instance(Domain, domain=domain)
    scale = pure_scale(budget, sensitivity)
    noise = KNorm(domain, scale)
    k_norm_table(domain, dim)  # raises if it cannot be drawn
    # Inputs of a certificate are numbers and texts, so the body is a text.
    body = json.dumps(domain.to_dict())
    return certify(
        noise,
        budget,
        inputs={"dim": dim, "sensitivity": sensitivity, "K": body, "scale": scale},
        event=PureEvent(budget.epsilon),  # the scale is rounded up
        dim=dim,
        norm=None,
    )
