"""Files and data frames to features and response, encoded by public facts only."""

from dpsample.core.public import dir_of
from dpsample.tables.encoding import Encoding
from dpsample.tables.read import Dataset, from_frame, read_table
from dpsample.tables.schema import Schema, TextFormat

__all__ = ["Dataset", "Encoding", "Schema", "TextFormat", "from_frame", "read_table"]
__dir__ = dir_of(__all__)
