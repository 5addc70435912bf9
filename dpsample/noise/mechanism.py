"""Additive noise as a private mechanism: calibrated noise and its releases."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Values
from dpsample.core.markup import describe
from dpsample.core.streams import release_streams
from dpsample.noise.elementary import DiscreteLaplace, Gaussian, Laplace
from dpsample.noise.generalized_gaussian import GeneralizedGaussian
from dpsample.noise.k_norm import KNorm
from dpsample.noise.noise import Noise
from dpsample.noise.schatten import SchattenGaussian
from dpsample.numerics.norms import norm, schatten
from dpsample.privacy.accounting.events import GaussianEvent, PureEvent
from dpsample.privacy.budget import Budget
from dpsample.privacy.certificates.event_certificate import EventCertificate
from dpsample.privacy.certificates.ledger import Ledger
from dpsample.privacy.certificates.ledger_file import LedgerFile, spend
from dpsample.privacy.curves.additive import NoiseCalibration


@dataclass(frozen=True, kw_only=True)
class NoisyAnswer:
    """One noisy value of a query and the certificate of its privacy.

    Attributes
    ----------
    value : float or ndarray, shape (d,)
        The query plus noise. Numbers are integers if the noise has integers.
    certificate : EventCertificate
        Guarantee. It is not releasable if the noise has a seed.

    Examples
    --------
    >>> from dpsample.noise import gaussian_mechanism
    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> gaussian_mechanism(budget, sensitivity=0.1).release([3.0]).releasable
    True
    """

    value: Any
    certificate: EventCertificate

    @property
    def releasable(self) -> bool:
        """Whether the guarantee holds for this value."""
        return self.certificate.releasable


@dataclass(frozen=True, kw_only=True)
class AdditiveMechanism:
    """Calibrated noise for one query, made by the functions named after the noise.

    Attributes
    ----------
    noise : Noise
        Distribution of the noise.
    sensitivity : float
        Declared bound of the query's change between neighbors.
    budget : Budget
        Budget of one release.
    calibration : {"exact", "paper"}
        "paper" reproduces a published noise and has no guarantee.
    certificate : EventCertificate
        Certificate of a release without a seed.
    gdp : float or None
        The release is gdp-GDP. None for purely private noise.
    dim : int or None
        Number of coordinates of the query. None where any number is allowed.
    norm : float or None
        Exponent q of the l_q norm of the sensitivity, or of Schatten-q for Schatten
        noise. None for K-norm noise, whose norm is the gauge of its body.

    Examples
    --------
    >>> from dpsample.noise import gaussian_mechanism
    >>> mech = gaussian_mechanism(Budget(epsilon=1.0, delta=1e-6), sensitivity=0.1)
    >>> mech.noise
    Gaussian(stddev=0.42246...)
    >>> mech.release([1.0, 2.0], seed=1).releasable
    False
    """

    noise: Noise
    sensitivity: float
    budget: Budget
    calibration: NoiseCalibration
    certificate: EventCertificate
    gdp: float | None
    dim: int | None
    norm: float | None

    def _repr_html_(self) -> str:
        """Return the noise and its guarantee as a table, for notebooks."""
        rows = [
            ("noise", self.noise),
            ("sensitivity", f"{self.sensitivity:.6g}"),
            ("guarantee", self.certificate.statement),
            ("grid of answers", f"{self.step!r}"),
        ]
        return describe("AdditiveMechanism", rows)

    @property
    def is_pure(self) -> bool:
        """Whether the budget has delta = 0, so that no error probability is left."""
        return self.budget.is_pure

    @property
    def step(self) -> float:
        """Step of the public grid on which every answer lies, a power of two."""
        return self.noise._step(self.dim or 1)

    def release(
        self,
        value: ArrayLike,
        *,
        ledger: Ledger | LedgerFile | None = None,
        seed: int | None = None,
    ) -> NoisyAnswer:
        """Add one draw of the noise to the value of the query.

        The answer is a multiple of the certificate's ``grid``, at most 2^-10 of the
        scale. For Gaussian and Laplace noise it is the multiple next to the exact sum,
        and rounding is post-processing (`dpsample.noise.noise`). Discrete Laplace noise
        gives integers, the value rounded down to one plus the noise. Other noise is
        added in doubles first. Its certificate says "idealized numerics", and such
        answers are not releasable.

        Parameters
        ----------
        value : float or array_like, shape (d,)
            The query on the data. It is cut off at 2^51 steps, and NaN counts as 0.
        ledger : Ledger or LedgerFile, optional
            Where the certificate is entered before the noise is drawn. If it exceeds
            the ledger's budget, no noise is drawn.
        seed : int, optional
            Makes the noise repeatable, hence not private, so the answer is not
            releasable. Without a seed the operating system's entropy is used.

        Returns
        -------
        NoisyAnswer
            The noisy value, of the shape given, and its certificate.

        Raises
        ------
        ValueError
            If the value is not a vector of ``dim`` numbers, or the ledger has no room.

        Guarantee
        ---------
        If the query changes by at most ``sensitivity`` between neighbors, an answer
        that is ``releasable`` is (epsilon, delta)-DP under the budget's relation. Each
        answer spends the budget again. The query is the value that is passed, in
        doubles. Declare a sensitivity that includes its rounding errors, as 2 n u sum
        |v_i| more for a sum of n numbers (u = 2^-53). Clip numbers that may be infinite
        or NaN.
        """
        query = check.entries("value", value, finite=False, saturated=True)
        point = np.nan_to_num(np.atleast_1d(query), nan=0.0)
        # The shape is checked on zeros. An error about an entry of the value, which may
        # be infinite, would depend on the records.
        self._vector("value", np.zeros_like(point))
        # The prepared digest seals a certificate without a seed. An empty one is
        # replaced by the digest of the fields.
        certificate = dataclasses.replace(
            self.certificate, seeded=seed is not None, digest=""
        )
        # The ledger comes first. If the process ends after the draw, it is complete.
        spend(ledger, certificate)
        with release_streams(seed, 1) as (rng,):
            add = self.noise._noisy_purely if self.is_pure else self.noise._noisy
            noisy = add(rng, point)
        if isinstance(self.noise, DiscreteLaplace):
            noisy = noisy.astype(np.int64)
        answer = noisy[0].item() if query.ndim == 0 else noisy
        return NoisyAnswer(value=answer, certificate=certificate)

    def privacy_loss(
        self, outputs: ArrayLike, value: ArrayLike, neighbor: ArrayLike
    ) -> Values:
        """Return log p(. - value) - log p(. - neighbor) of each output.

        Parameters
        ----------
        outputs : array_like, shape (..., d)
            Possible answers along the last axis.
        value, neighbor : array_like, shape (d,)
            The query on two neighboring data sets.

        Returns
        -------
        float or ndarray, shape (...)
            The losses. They do not depend on the normalizing constant.

        Raises
        ------
        ValueError
            If a point is not finite or has another length.
        """
        # Log densities are minus norms (or halves of their squares) over the scale.
        first, second = self._pair(value, neighbor)
        points = check.vectors("outputs", outputs, dim=len(first))
        shape, rows = points.shape[:-1], points.reshape(-1, len(first))
        norm_fn, is_squared = norm_of(self.noise)
        to_value, to_neighbor = norm_fn(rows - first), norm_fn(rows - second)
        loss = to_neighbor - to_value
        if is_squared:  # (a^2 - b^2)/2 = (a - b)(a + b)/2, without overflow
            loss = 0.5 * loss * (to_neighbor + to_value)
        losses: Values = np.asarray(loss).reshape(shape)[()]
        return losses

    def change(self, value: ArrayLike, neighbor: ArrayLike) -> float:
        """Return the size of the change of a query, in the norm of ``sensitivity``.

        Parameters
        ----------
        value, neighbor : array_like, shape (d,)
            The query on two data sets.

        Returns
        -------
        float
            The norm of their difference.

        Raises
        ------
        ValueError
            If a point is not finite or has another length.

        Examples
        --------
        >>> from dpsample.noise import laplace_mechanism
        >>> mech = laplace_mechanism(Budget(epsilon=1.0, delta=1e-6), sensitivity=1.0)
        >>> mech.change([0.0, 0.0], [3.0, -4.0])
        7.0
        """
        first, second = self._pair(value, neighbor)
        gap = second - first
        if isinstance(self.noise, KNorm):
            gauge = self.noise.domain.gauge
            # Rounding may make the gauge of a polytope differ in opposite directions.
            return max(float(gauge(gap)), float(gauge(-gap)))
        if self.norm is None:
            check.fail("norm", "the exponent of the sensitivity's norm", "None")
        if isinstance(self.noise, SchattenGaussian):
            return float(schatten(gap, self.norm, self.noise.shape))
        return float(norm(gap, self.norm))

    def _pair(self, value: ArrayLike, neighbor: ArrayLike) -> tuple[Array, Array]:
        """Check and return two queries of the same length."""
        first, second = self._vector("value", value), self._vector("neighbor", neighbor)
        if len(second) != len(first):
            check.fail("neighbor", f"of shape ({len(first)},)", f"shape {second.shape}")
        return first, second

    def _vector(self, name: str, value: ArrayLike) -> Array:
        """Check and return a query."""
        vector = check.array(name, value, shape=(self.dim,))
        if len(vector) == 0:
            check.fail(name, "of shape (>= 1,)", "shape (0,)")
        return vector


def norm_of(noise: Noise) -> tuple[Callable[[Array], Values], bool]:
    """Return the norm of the noise over its scale, and whether the density squares it.

    Minus the log density is norm^2/2 or norm, up to a constant.
    """
    if isinstance(noise, Gaussian):
        return (lambda z: norm(z, 2.0) / noise.stddev), True
    if isinstance(noise, GeneralizedGaussian):
        return (lambda z: norm(z, noise.r) / noise.sigma), True
    if isinstance(noise, SchattenGaussian):
        return (lambda z: schatten(z, noise.r, noise.shape) / noise.sigma), True
    if isinstance(noise, Laplace | DiscreteLaplace):
        return (lambda z: norm(z, 1.0) / noise.scale), False
    if isinstance(noise, KNorm):
        return (lambda z: noise.domain.gauge(z) / noise.scale), False
    check.fail("noise", "one of dpsample.noise", noise)


def certify(
    noise: Noise,
    budget: Budget,
    *,
    inputs: dict[str, Any],
    event: GaussianEvent | PureEvent,
    norm: float | None,
    dim: int | None = None,
    calibration: NoiseCalibration = "exact",
) -> AdditiveMechanism:
    """Return the mechanism with the certificate of a release without a seed."""
    inputs = inputs | {"grid": noise._step(dim or 1)}
    # Only independent Gaussian or Laplace coordinates are rounded without an error in
    # the distribution. The certificate of other noise says that numerics are idealized.
    independent = noise._as_independent(dim or 1)
    suffix = "/idealized" if independent is None else ""
    if budget.is_pure and isinstance(independent, Laplace):
        suffix = "/pure"
    certificate = EventCertificate.of(
        kind=f"noise/{noise.name}{suffix}",
        mechanism=f"{noise.name.replace('_', ' ')} noise added to a query",
        budget=budget,
        event=event,
        inputs=inputs,
        calibration=calibration,
    )
    return AdditiveMechanism(
        noise=noise,
        sensitivity=float(inputs["sensitivity"]),
        budget=budget,
        calibration=calibration,
        certificate=certificate,
        gdp=event.gdp if isinstance(event, GaussianEvent) else None,
        dim=dim,
        norm=norm,
    )
