"""One peer on one target in a process of its own, with one thread.

    python peers.py PEER TARGET.npz OUT.npz --seconds SECONDS

Clocks count CPU seconds of this process. A peer gets what a careful user would give it:
compiled densities, its own adaptation, as many warm-up draws as the target asks for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import densities
import numpy as np
import nuts
import targets
import walks

PEERS: dict[str, Callable[[targets.Case, float], Any]] = {
    "blackjax": nuts.blackjax,
    "blackjax-dense": partial(nuts.blackjax, is_dense=True),
    "blackjax-mclmc": nuts.microcanonical,
    "numpyro": nuts.numpyro,
    "numpyro-dense": partial(nuts.numpyro, is_dense=True),
    "nutpie": nuts.nutpie,
    "nutpie-low-rank": partial(nuts.nutpie, is_low_rank=True),
    "emcee": walks.emcee,
    "hopsy": walks.hopsy,
    "hopsy-rounded": partial(walks.hopsy, is_rounded=True),
    "hopsy-truncated": partial(walks.hopsy, kind="truncated"),
    "hopsy-billiard": partial(walks.hopsy, kind="billiard"),
    "polytopewalk": walks.polytopewalk,
}
EMCEE = (targets.WHOLE, targets.BALL)
# Those that follow gradients, in coordinates of the whole space.
FREE = tuple(name for name in PEERS if name.startswith(("blackjax", "num", "nut")))


def fits(peer: str, case: targets.Case) -> bool:
    """Return whether the peer can sample the target without hundreds of walkers."""
    if case.is_entropic:
        return False
    if peer in FREE:
        return case.has_records and densities.has_coordinates(case)
    if peer == "emcee":
        return case.has_records and case.dim <= 50 and case.domain in EMCEE
    if case.domain != targets.POLYTOPE:
        return False
    if peer == "polytopewalk":
        return not case.has_records and case.mu == 0.0 and not case.rows.any()
    if peer == "hopsy-truncated":
        return not case.has_records and case.mu > 0.0
    return peer != "hopsy-billiard" or not case.has_records


def main() -> None:
    """Read the target, measure, write draws and facts; a missing peer is a fact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("target")
    parser.add_argument("output")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    case = targets.load(options.target)
    try:
        draws, facts = PEERS[options.peer](case, options.seconds)
    except ModuleNotFoundError as error:
        np.savez(options.output, facts=json.dumps({"missing": f"needs {error.name}"}))
        return
    facts = {name: float(value) for name, value in facts.items()}
    facts["version"] = version(options.peer.split("-")[0])
    np.savez(options.output, draws=draws, facts=json.dumps(facts))


if __name__ == "__main__":
    main()
