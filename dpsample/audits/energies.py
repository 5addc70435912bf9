"""Energies of a target at many points, in one compiled call."""

import numpy as np

from dpsample import targets
from dpsample._jit import kernel


@kernel
def fill_energies(target, pieces, points, work, out):
    """Fill out with V at each row of points, infinity outside the domain."""
    for i in range(points.shape[0]):
        status = targets.inside(target, pieces, points[i], work)
        out[i] = np.inf
        if status == 1.0:
            out[i] = targets.energy(target, pieces, points[i], work)
        elif np.isnan(status):
            out[i] = np.nan
