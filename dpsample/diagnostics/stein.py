"""Stein's identities of a target, tested on means of batches.

They see a law that is wrong inside the domain or at its boundary, even if all chains
agree on it: a walk that does not count refused proposals, a missing acceptance step.
"""

from __future__ import annotations

import numpy as np

from dpsample.diagnostics.batches import correlation_times, off_zero
from dpsample.diagnostics.check_report import Finding
from dpsample.diagnostics.fields import stein_values
from dpsample.diagnostics.reading import Chains
from dpsample.targets import Gibbs

# Slopes are evaluated at most at so many draws, equally spaced: each costs a pass over
# the records, and neighbors in a chain tell much the same.
MAX_POINTS = 10_000


def look(target: Gibbs, chains: Chains, alpha: float) -> tuple[list[Finding], str]:
    """Test all identities at a level together; also say if that was not possible."""
    num_chains, num_draws, dim = chains.theta.shape
    stride = -(-num_chains * num_draws // MAX_POINTS)
    theta = chains.theta[:, ::stride]
    found = list(stein_values(target, theta.reshape(-1, dim)))
    values = np.stack([column for _, column in found], axis=1)
    values = values.reshape(*theta.shape[:2], len(found))
    times = correlation_times(values)
    tests = [off_zero(values[:, :, i], time) for i, time in enumerate(times)]
    if all(test is None for test in tests):
        return [], "Stein's identities (no batches of independent draws)"
    levels = [1.0 if test is None else 2.0 * min(test[1:]) for test in tests]
    worst = int(np.argmin(levels))
    test = tests[worst]
    if test is None or levels[worst] * len(found) >= alpha:
        return [], ""
    return [
        Finding(
            name="a law that is not the target's",
            evidence="Under the target, the mean of Stein's function "
            f'"{found[worst][0]}" is 0; the draws have {abs(test[0]):.3g} standard '
            "errors.",
            remedy="Check that target is the one that was sampled. If it is: a longer "
            "warm-up, a start nearer to the mode, or a sampler whose exactness is "
            'not "biased". compare and stein_check say more.',
            is_problem=True,
        )
    ], ""
