"""Gaussian steps on randomly allocated records: each joins one step of every epoch.

In an epoch of t steps each record picks one of them, uniformly and independently of
the others; sums are divided by n/t, never by the size of a batch, and a step without
records gets noise, too. Batches are disjoint as those of a shuffle are, but their sizes
are random, and the accounting is nearly that of Poisson samples of rate 1/t, or better.
The pair is (1/t) sum_i N(e_i, z^2 I) against N(0, z^2 I), z the noise multiplier
(Feldman and Shenfeld, arXiv:2502.08202, 2602.17284); that it dominates adaptive steps
is their theorem, not proved again here.
"""

from dpsample.core import check
from dpsample.privacy.budget import Relation

# Width of a cell of the privacy loss, and what the tails may cost of delta.
CELL, TAIL = 0.02, 1e-3


@check.plain
def allocation_epsilon(
    *,
    delta: float,
    noise_multiplier: float,
    num_steps: int,
    num_epochs: int = 1,
    relation: Relation = "zero_out",
) -> float:
    """Epsilon of Gaussian steps on randomly allocated records, by PLD_accounting.

    It needs ``pip install 'dpsample[allocation]'`` and takes seconds for one epoch,
    minutes for ten of a hundred steps.

    Parameters
    ----------
    delta : float
        Probability, > 0 and < 1.
    noise_multiplier : float
        Standard deviation of the noise on a step's sum over the bound of one record's
        vector, > 0.
    num_steps, num_epochs : int
        Steps of an epoch and epochs, >= 1.
    relation : {"zero_out"}
        Under "replace_one" nothing is proved.

    Returns
    -------
    float
        An upper bound, accurate to a few per cent.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    ImportError
        If PLD_accounting is not installed.

    Guarantee
    ---------
    By the papers' theorem and the numerics of that package, the sums of all steps are
    (epsilon, delta)-DP under "zero_out".
    """
    check.open_interval(0.0, 1.0, delta=delta)
    check.positive(noise_multiplier=noise_multiplier)
    check.integer(1, num_steps=num_steps, num_epochs=num_epochs)
    if relation != "zero_out":
        remedy = "For a replaced record no dominating pair is proved."
        check.fail("relation", "'zero_out' for random allocation", relation, remedy)
    try:
        import PLD_accounting as allocation
    except ImportError as error:
        text = "Random allocation needs pip install 'dpsample[allocation]'."
        raise ImportError(text) from error
    losses = allocation.gaussian_allocation_pld(
        params=allocation.PrivacyParams(
            sigma=noise_multiplier, num_steps=num_steps, num_epochs=num_epochs
        ),
        config=allocation.AllocationSchemeConfig(
            loss_discretization=CELL, tail_truncation=TAIL * delta
        ),
        bound_type=allocation.BoundType.DOMINATES,
    )
    return float(losses.get_epsilon_for_delta(delta))
