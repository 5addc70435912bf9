r"""Noisy stochastic gradient descent: the steps of `noisy_gd` on random batches.

Bassily, Feldman, Talwar and Thakurta (2019), Algorithm 1, whose batches are drawn with
replacement; what is proved here is about Poisson samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsample.optimizers.descent_plan import Scheme
from dpsample.optimizers.descent_scales import Scales
from dpsample.optimizers.noisy_descent import BatchedDescent
from dpsample.optimizers.noisy_gd import ProjectedDescent
from dpsample.privacy.budget import Budget


@dataclass(frozen=True, kw_only=True)
class NoisySGD(BatchedDescent, ProjectedDescent):
    r"""Noisy projected gradient descent on random batches, the average of its iterates.

    `NoisyGD`, each step of which reads a Poisson sample of the records: m of them in
    the mean, and m is always what sums are divided by. T steps read m T records instead
    of n T; the noise, from privacy loss distributions, is larger. For the bound of the
    empirical risk the variance of a batch mean, at most :math:`L^2 (1 - m/n)/m`, joins
    that of the noise; for the population risk no bound is proved.

    Parameters
    ----------
    num_steps : int, optional
        T; None: min(n/2, n^2 t^2/(4 d)) rounded up, at least 10, t the budget's gdp.
    step_size : float, optional
        eta; None: that of the smaller bound.
    batches : {"poisson", "with_replacement"}, optional
        None: "poisson", or "with_replacement" as printed, for which nothing is proved.
    batch_size : int, optional
        m; None: the printed :math:`n \sqrt{\epsilon / 4T}`, at most half of the
        records. It has to be given without a budget.
    risk : {"population", "empirical"}
        Which bound the step minimizes.
    clip : float, optional
        As for `NoisyGD`.

    Raises
    ------
    ValueError
        If a number is out of its range; in `recipe`, as for `NoisyGD`, or if batches
        with replacement are asked for with a proof.

    Guarantee
    ---------
    As for `NoisyGD`; for batches drawn with replacement nothing is proved (the printed
    claim fails for few steps: BFTT-4).

    Examples
    --------
    >>> import dpsample as dps
    >>> data = dps.datasets.logistic(2000, 3, seed=1)
    >>> problem = dps.Problem(data.features, data.response, loss=dps.losses.Logistic(),
    ...                       domain=dps.domains.Ball(1.0), row_bound=1.0)
    >>> budget = dps.Budget(epsilon=1.0, delta=1e-6)
    >>> recipe = NoisySGD(num_steps=100).recipe(problem.facts, budget)
    >>> recipe.inputs["batches"], recipe.inputs["batch_size"]
    ('poisson', 100)
    """

    name: ClassVar[str] = "noisy_sgd"
    schemes: ClassVar[tuple[Scheme, ...]] = ("poisson", "with_replacement")

    def size_of_batch(
        self, scales: Scales, budget: Budget | None, scheme: Scheme, num_steps: int
    ) -> int:
        """Return the size that was asked for, or the printed one up to n/2."""
        size = super().size_of_batch(scales, budget, scheme, num_steps)
        half = max(1, scales.num_records // 2)
        return size if self.batch_size is not None else min(size, half)
