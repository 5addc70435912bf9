"""Monte Carlo studies: a frozen declaration, rows that survive a kill, a report.

docs/studies.md says how to write one.
"""

from dpsample.core.public import dir_of
from dpsample.experiments.study import Figure, Inapplicable, Metric, Slope, Study

__all__ = ["Figure", "Inapplicable", "Metric", "Slope", "Study"]
__dir__ = dir_of(__all__)
