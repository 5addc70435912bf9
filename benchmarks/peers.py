"""One peer on one target in a process of its own, with one thread.

    python peers.py PEER TARGET.npz OUT.npz --seconds SECONDS

Clocks count CPU seconds of this process. A peer gets what a careful user would give it:
compiled densities, its own adaptation, as many warm-up draws as the target asks for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import nuts
import targets
import walks

PEERS: dict[str, Callable[[targets.Case, float], Any]] = {
    "blackjax": nuts.blackjax,
    "numpyro": nuts.numpyro,
    "nutpie": nuts.nutpie,
    "emcee": walks.emcee,
    "hopsy": walks.hopsy,
    "hopsy-truncated": lambda case, seconds: walks.hopsy(case, seconds, "truncated"),
    "hopsy-billiard": lambda case, seconds: walks.hopsy(case, seconds, "billiard"),
    "polytopewalk": walks.polytopewalk,
}
NUTS = ("blackjax", "numpyro", "nutpie")


def fits(peer: str, case: targets.Case) -> bool:
    """Whether the peer can sample the target with less than hundreds of walkers."""
    if peer in NUTS:
        return case.has_records
    if peer == "emcee":
        return case.has_records and case.dim <= 50
    if case.domain != targets.POLYTOPE:
        return False
    laws = {"polytopewalk": (False,), "hopsy-truncated": (True,)}
    return (case.mu > 0.0) in laws.get(peer, (False, True))


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
