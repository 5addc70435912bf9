"""What the studies of query complexity count."""

import math

import numpy as np
import pytest

from dpsample.core.streams import streams
from dpsample.samplers import Proximal, RandomizedSeries
from dpsample.samplers.chain import COUNT
from dpsample.samplers.proximal.proximal import Pilot
from studies import _queries as queries
from studies.query_complexity import SERIES, proposition

SMALL = {"n": 200, "d": 3, "epsilon": 1.0, "p": 2.0}


def one_target(kind):
    """Target and total variation of a small instance."""
    rng = np.random.default_rng(1)
    density, mechanism = queries.target(SMALL | {"records": kind}, rng)
    return density, mechanism.gamma


@pytest.mark.parametrize("kind", [queries.SMOOTH, queries.KINKS])
def test_the_pilot_run_made_again_counts_what_prepare_evaluates(monkeypatch, kind):
    density, gamma = one_target(kind)
    total, trial = [], Pilot.trial

    def counted(self, *arguments):
        found = trial(self, *arguments)
        total.append(int(self.state.counts[COUNT.records]))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Pilot, "trial", counted)
        Proximal("tangent").prepare(density, streams(2, 1)[0], gamma=gamma)
    again = queries.pilot_evaluations(density, "tangent", streams(2, 1)[0], gamma)
    assert again == sum(total) > 0


@pytest.mark.parametrize("kind", [queries.SMOOTH, queries.KINKS, queries.WORST])
def test_public_facts_promise_no_fewer_steps_than_the_records(kind):
    density, gamma = one_target(kind)
    series = RandomizedSeries(error=gamma, max_steps=10**9)
    prepared = series.prepare(density, None)
    bound = proposition(SMALL | {"records": kind, "sampler": SERIES})
    assert 4.0 * math.e * prepared.settings["num_certified_steps"] < bound
