"""Monte Carlo studies: a frozen declaration, rows that survive a kill, a report.

docs/studies.md says how to write one.
"""

from dpsample._public import dir_of
from dpsample.studying.metrics import Inapplicable as Inapplicable
from dpsample.studying.metrics import Metric as Metric
from dpsample.studying.study import Study as Study
from dpsample.studying.views import Figure as Figure
from dpsample.studying.views import Slope as Slope

__all__ = ["Figure", "Inapplicable", "Metric", "Slope", "Study"]
__dir__ = dir_of(__all__)
