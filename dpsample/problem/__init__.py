"""Problems: records, loss, domain and declared bounds."""

from dpsample.core.public import dir_of
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem

__all__ = ["Problem", "PublicFacts"]

__dir__ = dir_of(__all__)
