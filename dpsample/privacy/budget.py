"""A privacy budget: what an analyst promises before the data are touched."""

from dataclasses import dataclass
from typing import Literal

from dpsample.core import check
from dpsample.problem.facts import RELATIONS

Relation = Literal["replace_one", "zero_out"]
RELATION_WORDS = {
    "replace_one": "one record is replaced by any other",
    "zero_out": "one record's loss is set to zero, the number of records fixed",
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """(epsilon, delta) under a named relation between neighboring data sets.

    Parameters
    ----------
    epsilon : float
        Privacy loss, finite and > 0.
    delta : float
        Probability, > 0 and < 1: a Gaussian curve never reaches delta = 0. Neither
        number may be subnormal (below 2.2e-308).
    relation : {"replace_one", "zero_out"}
        Which data sets are neighbors: one record replaced by any other, or one
        record's loss set to zero. The number of records is public in both.

    Raises
    ------
    ValueError
        If a number is out of its range or the relation is unknown.

    Examples
    --------
    >>> Budget(epsilon=1.0, delta=1e-6)
    Budget(epsilon=1.0, delta=1e-06, relation='replace_one')
    """

    epsilon: float
    delta: float
    relation: Relation = "replace_one"

    def __post_init__(self) -> None:
        """Check the numbers once."""
        check.positive(epsilon=self.epsilon)
        remedy = "A common choice is far below 1 / (number of records)."
        check.open_interval(0.0, 1.0, delta=self.delta, remedy=remedy)
        check.normal(epsilon=self.epsilon, delta=self.delta)
        check.one_of(RELATIONS, relation=self.relation)
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
