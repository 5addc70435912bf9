"""Which coupled kernel belongs to which prepared chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpsample import _check as check
from dpsample.samplers import (
    laplace_independence,
    preconditioned_crank_nicolson,
    proximal,
    proximal_kernel,
)
from dpsample.samplers import mala as mala_alone
from dpsample.samplers import random_walk as random_walk_alone
from dpsample.samplers import tilted_gibbs as tilted_gibbs_alone
from dpsample.samplers.chain import Prepared
from dpsample.samplers.couplings import (
    crank_nicolson,
    independence,
    mala,
    random_walk,
    tilted_gibbs,
)
from dpsample.samplers.couplings import proximal as proximal_pairs
from dpsample.samplers.sampler import Sampler

# Kernel of the single chain: name of the sampler, coupled kernel of a prepared chain.
_COUPLINGS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    proximal_kernel.run: ("Proximal", proximal_pairs.pair),
    random_walk_alone.run: ("RandomWalk", random_walk.pair),
    mala_alone.run: ("MALA", mala.pair),
    preconditioned_crank_nicolson.run: (
        "PreconditionedCrankNicolson",
        crank_nicolson.pair,
    ),
    laplace_independence.run: ("LaplaceIndependence", independence.pair),
    tilted_gibbs_alone.run: ("TiltedGibbs", tilted_gibbs.pair),
}
_REMEDY = (
    "Use RandomWalk(p=2), MALA, PreconditionedCrankNicolson, LaplaceIndependence, "
    "TiltedGibbs or Proximal."
)


def find(sampler: Any, target: Any, rng: np.random.Generator) -> tuple[Any, Any, str]:
    """Return prepared chain, its coupled kernel, and words for the sampler."""
    prepared = sampler
    if isinstance(sampler, Sampler):
        prepared = sampler.prepare(target, rng)
    key: Any
    if isinstance(prepared, proximal.Prepared):
        key = proximal_kernel.run
    elif isinstance(prepared, Prepared):
        key = prepared.run
    else:
        wanted = "a sampler or what its prepare returned"
        check.fail("sampler", wanted, check.shown(sampler), _REMEDY)
    if prepared.target is not target:
        check.fail("sampler", "prepared for the target", "another target")
    if key not in _COUPLINGS:
        check.fail("sampler", "one that has a coupling", repr(sampler), _REMEDY)
    name, pair_fn = _COUPLINGS[key]
    words = repr(sampler) if prepared is not sampler else name
    return prepared, pair_fn(prepared), words
