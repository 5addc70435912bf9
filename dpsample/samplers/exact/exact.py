r"""Independent exact draws: quadratic energies, and bodies of dimension up to 3.

Where V is quadratic the target is a Gaussian restricted to the domain, drawn as such
(`exact.gaussian`). In dimension up to 3 draws are rejected from a piecewise tangent
envelope of e^{-V} (`exact.grid`), for every convex loss and domain.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpsample.samplers.chain import PreparedChain, init
from dpsample.samplers.exact import gaussian, grid_cells
from dpsample.samplers.gaussian_fit import fit
from dpsample.samplers.sampler import Exactness, Sampler
from dpsample.targets.gibbs import Gibbs

MAX_DIM = 3


@dataclass(frozen=True, kw_only=True)
class Exact(Sampler):
    r"""Independent exact draws, where they can be had.

    Supported are all targets on a domain whose affine hull has dimension 1, 2 or 3; in
    any dimension linear losses with a regularizer
    :math:`\frac{c}{2} \lVert x - x_0 \rVert_2^2` on the whole space, a box or a
    Euclidean ball; and the squared loss with such a regularizer on the whole space.

    Notes
    -----
    **Guarantee.** Draws are independent and follow the target exactly, up to rounding
    errors, if the energy is convex: a tangent above the energy is an error, not a bias.

    Examples
    --------
    >>> from dpsample.samplers import Exact
    >>> Exact().exactness
    'iid'
    """

    exactness: ClassVar[Exactness] = "iid"

    def _supports(self, target: Gibbs) -> tuple[bool, str]:
        """Whether the target is of one of the kinds above."""
        rank = target.problem.domain.affine_dim(target.dim)
        if 1 <= rank <= MAX_DIM or gaussian.quadratic(target) is not None:
            return True, ""
        if rank == 0:
            return False, "The domain is a single point: there is nothing to draw."
        return False, (
            f"Exact draws need dimension <= {MAX_DIM}, or a quadratic energy on the "
            "whole space, a box or a Euclidean ball: use dps.samplers.Proximal."
        )

    def prepare(self, target: Gibbs, rng: np.random.Generator) -> PreparedChain:
        """Build the envelope."""
        del rng  # nothing is tuned by chance
        self.require(target)
        chain = partial(PreparedChain, target=target, init_fn=init, num_warmup=0)
        plan = gaussian.quadratic(target)
        if plan is not None:
            start = target.problem.domain.interior_point(target.dim)
            return chain(plan=plan, run=gaussian.run, start=start)
        shape = fit(target)
        cells = grid_cells.build(target, shape)
        return chain(
            plan=cells,
            run=grid_cells.run,
            start=shape.center,
            settings={"num_cells": len(cells.base)},
            scatter=shape.factor,
        )
