"""First calls compile few functions, which are counted because clocks are noisy."""

from collections import Counter

import numba
import pytest

from benchmarks.start import CALLS, first_call

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

# Maximum number of functions that Numba compiles in a first call. A new user waits for
# a twentieth of a second for each.
CAPS = {
    "release": 100,
    "release hinge": 140,
    "minimize NoisyGD": 75,
    "minimize DPSGD": 85,
    "minimize ObjectivePerturbation": 90,
    "sample auto": 135,
    "sample BilliardHMC": 135,
    "sample Proximal": 140,
    "noise": 30,
}
USUAL = ("minimize NoisyGD",)
# Error messages with strings took two seconds of each first call.
NEVER = "numba.cpython.unicode"
# The domain of all calls is a ball.
NOT_OF_BALLS = ("dpsample.domains.box", "dpsample.domains.polytope")


def assert_first_call(name, cache):
    functions = [function for function, _ in first_call(name, cache)["functions"]]
    assert functions, "nothing was compiled: the cache was not empty"
    unwanted = (NEVER, *NOT_OF_BALLS)
    assert [f for f in functions if f.startswith(unwanted)] == []
    most = Counter(functions).most_common(10)
    assert len(functions) <= CAPS[name], (len(functions), most)


@pytest.mark.parametrize("name", USUAL)
def test_a_usual_first_call_compiles_few_functions(name, tmp_path):
    assert_first_call(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_first_call_compiles_few_functions_and_the_next_none(name, tmp_path):
    assert_first_call(name, tmp_path)
    assert first_call(name, tmp_path)["functions"] == []
