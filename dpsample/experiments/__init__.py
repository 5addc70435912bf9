"""Monte Carlo studies: a frozen declaration, rows that survive a kill, a report.

docs/studies.md says how to write one.
"""

from dpsample.core.public import dir_of
from dpsample.experiments.metrics import Figure as Figure
from dpsample.experiments.metrics import Inapplicable as Inapplicable
from dpsample.experiments.metrics import Metric as Metric
from dpsample.experiments.metrics import Slope as Slope
from dpsample.experiments.study import Study as Study

__all__ = ["Figure", "Inapplicable", "Metric", "Slope", "Study"]
__dir__ = dir_of(__all__)
