"""What every law of additive noise offers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsample._spec import Spec
from dpsample.noise.sizes import Vector


class Noise(Spec):
    """Law of additive noise with a density; frozen, compared by content.

    Examples
    --------
    >>> from dpsample.noise import Laplace
    >>> Laplace(2.0) == Laplace(2.0), Laplace(2.0).to_dict()
    (True, {'name': 'laplace', 'scale': 2.0})
    """

    def draw(self, rng: np.random.Generator, size: Any) -> Vector:
        """Draw an array of shape ``size``, one vector on the last axis."""
        raise NotImplementedError

    @np.errstate(over="ignore")  # minus infinity
    def log_density(self, z: Any) -> Any:
        """Return the normalized log density of the vectors on the last axis."""
        raise NotImplementedError
