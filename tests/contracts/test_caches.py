"""What is computed once: it is what an empty cache gives, and there is an end to it."""

import functools
import gc
import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsample as dps
from dpsample.api.release_plan import plan_release
from dpsample.optimizers.loop import perturbations
from dpsample.privacy.accounting.events import (
    ApproximateEvent,
    ComposedEvent,
    GaussianEvent,
    PoissonGaussianEvent,
)
from dpsample.problem.facts import PublicFacts, smoothness

# Their arguments take a few values only: a bool, the process above a worker, and the
# signatures of pieces.
SHORT = {"_records", "_leave_with", "PieceType"}


@functools.cache
def caches():
    """All memoized functions of the package."""
    gc.unfreeze()  # what `tests/conftest.py` has set aside is looked at, too
    kind = type(functools.lru_cache(len))
    found = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    return [each for each in found if each.__module__.startswith("dpsample.")]


@pytest.mark.slow
def test_no_cache_grows_without_end():
    """A study makes problems by the million, each with numbers of its own."""
    assert len(caches()) >= 15
    for cache in caches():
        has_end = cache.cache_parameters()["maxsize"] is not None
        takes_none = not inspect.signature(cache).parameters
        assert has_end or takes_none or cache.__name__ in SHORT, cache


SAME = (int, float, np.float16, np.float32, np.float64, np.int32, np.longdouble)
SHARP = dps.domains.Ball(1.0, p=1.0)


def facts(domain=SHARP):
    """Facts of a problem in many dimensions, where rounded exponents matter."""
    return PublicFacts(
        num_records=50,
        dim=1000,
        loss=dps.losses.Huber(0.5),
        domain=domain,
        row_bound=1.0,
        row_norm=2.0,
        response_bound=1.0,
    )


def budget(epsilon):
    return dps.Budget(epsilon=epsilon, delta=1e-3)


def certificate(event):
    made = dps.privacy.EventCertificate.of(
        mechanism="any", budget=budget(1.0), event=event, calibration="paper"
    )
    return made.to_json()


def release_certificate(problem, number, changes):
    options = {
        "p": number,
        "risk": "population",
        "calibration": "exact",
        "sampler_share": 0.1,
        "strong_convexity": 0.0,
        "confidence": None,
    }
    given = {"sampler": dps.Proximal(), "max_work": None, "seeded": False}
    plan = plan_release(problem, budget(number), **(options | changes | given))
    return plan.certificate.to_json()


CALLS = {
    "lipschitz": lambda known, x: known["facts"].lipschitz(x),
    "smoothness": lambda known, x: smoothness(known["facts"], x),
    "gdp": lambda known, x: perturbations.gdp_of(budget(x)),
    "full batch": lambda known, x: perturbations.full_batch(
        budget(1.0), record_bound=x / 7, num_records=x * 10
    ),
    "Poisson": lambda known, x: perturbations.poisson(
        budget(1.0), record_bound=x, num_records=10, sampling_rate=x / x, num_steps=2
    ),
    "Gaussian": lambda known, x: certificate(GaussianEvent(x)),
    "sampled": lambda known, x: certificate(
        PoissonGaussianEvent(sampling_rate=x / x, noise_multiplier=x, num_steps=1)
    ),
    "composed": lambda known, x: certificate(
        ComposedEvent((GaussianEvent(x), ApproximateEvent(epsilon=x, delta=1e-4)))
    ),
    "release": lambda known, x: release_certificate(known["problem"], x, {}),
    "share": lambda known, x: release_certificate(
        known["problem"], x, {"sampler_share": 0.25}
    ),
    "refused": lambda known, x: release_certificate(known["problem"], x, {"p": True}),
}


def fresh():
    """A problem and facts that nobody has asked for anything."""
    problem = dps.Problem(
        [[0.1, 0.2], [0.3, 0.1]],
        [1.0, -1.0],
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )
    return {"facts": facts(), "problem": problem}


def answer(known, call):
    name, kind, number = call
    with np.errstate(all="ignore"):
        try:
            return repr(CALLS[name](known, kind(number)))
        except ValueError as error:
            return str(error)


@functools.lru_cache(maxsize=1000)
def uncached(call):
    """Return what a new process would."""
    for cache in caches():
        cache.cache_clear()
    return answer(fresh(), call)


def calls_of(names):
    number = st.sampled_from([1, 3, 2.5, 10, -1])
    call = st.tuples(st.sampled_from(names), st.sampled_from(SAME), number)
    return st.lists(call, max_size=12)


FEW_NAMES = st.lists(st.sampled_from(list(CALLS)), min_size=1, max_size=2)


@settings(max_examples=8)
@given(FEW_NAMES.flatmap(calls_of))
def test_no_answer_depends_on_what_was_asked_before(calls):
    """One number has many types; arithmetic rounds in some, and 1 equals True."""
    expected = [uncached(call) for call in calls]
    known = fresh()
    assert [answer(known, call) for call in calls] == expected


def test_noise_for_rounded_numbers_is_not_given_to_exact_ones():
    """7 at half precision over 10 is too small by 2e-4, and equal to 7 as a key."""
    expected = 2.0 * 7.0 / 10.0 / perturbations.gdp_of(budget(1.0))
    for kind in (np.float16, float):
        noise = perturbations.full_batch(
            budget(1.0), record_bound=kind(7.0), num_records=10
        )
        assert noise.stddev == pytest.approx(expected, rel=1e-14)


def test_weights_that_all_recipes_share_cannot_be_written():
    """A zero there would divide the average of every later run by 0."""
    for problem_budget in (None, budget(1.0)):
        recipe = dps.optimizers.NoisyGD(num_steps=2).recipe(facts(), problem_budget)
        with pytest.raises(ValueError, match="read-only"):
            recipe.phases[0].weights[:] = 0.0
