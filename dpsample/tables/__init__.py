"""Files to features and response, encoded by public facts only."""

from dpsample.core.public import dir_of
from dpsample.tables.dataset import Dataset
from dpsample.tables.read import read_table
from dpsample.tables.schema import Schema

__all__ = ["Dataset", "Schema", "read_table"]
__dir__ = dir_of(__all__)
