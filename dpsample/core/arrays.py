"""Array types that signatures name."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Values = np.float64 | Array  # one number for one vector, an array for several
