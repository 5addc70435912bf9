"""Array types that signatures name, their rounding unit, and arrays of records."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Values = np.float64 | Array  # one number for one vector, an array for several
RecordArray = NDArray[np.void]  # its dtype is made by `record_dtype`

# Maximum relative rounding error u of one operation, and the spacing of doubles at 1.
UNIT_ROUNDOFF = 2.0**-53
SPACING = 2.0**-52


def record_dtype(**fields: type | tuple[type, int]) -> np.dtype[np.void]:
    """Return the dtype of an array of records with named fields of simple types.

    A field ``name=(float, 3)`` is an array of three floats.

    A chain's numbers that kernels change are an array of one record. In kernels and in
    Python ``array[0].field`` reads and sets a field. Numba compiles it to one memory
    access. In Python ``array["field"]`` is faster. A name that NumPy gives to another
    attribute, such as ``base``, would be this one in interpreted kernels, and is an
    error.
    """
    reserved = [name for name in fields if hasattr(np.record, name)]
    if reserved:
        raise ValueError(f"fields must have names of their own, got {reserved}.")
    layout = np.dtype([*fields.items()], align=True)
    return np.dtype((np.record, layout))
