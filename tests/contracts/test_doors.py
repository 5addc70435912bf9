"""Every public door refuses every malformed argument in the one grammar.

The doors come from the public `__all__`s: a new public name fails here until it has an
example (`door_examples`, `door_methods`) and kinds (`door_parameters`).
"""

import zlib

import matplotlib.pyplot as plt
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dpsample.core.check import describe
from tests.contracts import door_objects as O
from tests.contracts.door_calls import OUTCOMES, REFUSING, attempt, valid
from tests.contracts.door_parameters import kind
from tests.contracts.door_values import RANDOM, VALUES
from tests.contracts.doors import DOORS, public_callables
from tests.support.tiers import one_in

PAIRS = [(door, name) for door in DOORS.values() for name in door.parameters]
# Their calls cost tenths of a second: by default only what must be refused is tried,
# at each parameter another ninth of the values; of the others' values it is a third.
COSTLY = (
    "Density",
    "audit",
    "diagnostics.",
    "domains.custom",
    "fit",
    "intervals",
    "losses.custom",
    "losses.record_gradient",
    "minimize",
    "noise.generalized_gaussian_mechanism",
    "optimizers.",
    "privacy.fixed_size_epsilon",
    "privacy.allocated_noise_multiplier",
    "privacy.poisson_noise_multiplier",
    "privacy.shuffle_",
    "release",
    "replicate",
    "sample",
    "diagnostics.couplings.",
    "tune",
)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A folder with the files that examples read; figures are closed at the end."""
    monkeypatch.chdir(tmp_path)
    O.write_files(tmp_path)
    yield
    plt.close("all")


def is_tried(door, name, value, *, costly):
    """Whether the value is refused, or accepted by a call that soon ends."""
    condition = kind(door, name)
    if condition.forbids(value):
        return True
    is_costly = door.name in REFUSING or (door.name.startswith(COSTLY) and not costly)
    return not (is_costly or condition.is_long(value))


def is_due(door, name, label, *, costly):
    """Whether the value's turn has come at this parameter."""
    turns = 9 if door.name.startswith(COSTLY) else 3
    return costly or zlib.crc32(f"{door.name}.{name}={label}".encode()) % turns == 0


def faults(door, *, costly):
    """Everything that comes out of a door against its documentation."""
    for name in door.parameters:
        for label, make in VALUES.items():
            if not is_due(door, name, label, costly=costly):
                continue
            value = make()
            if is_tried(door, name, value, costly=costly):
                words = attempt(door, name, value, kind(door, name))
                if words:
                    yield f"{door.name}({name}={label}): {words}"


def test_every_public_callable_is_behind_a_door_with_an_example_and_kinds():
    no_example = [door.name for door in DOORS.values() if valid(door) is None]
    assert not no_example, f"add to ARGUMENTS or METHODS: {no_example}"
    no_kind = [f"{d.name}.{p}" for d, p in PAIRS if kind(d, p) is None]
    assert not no_kind, f"add to BY_NAME or BY_DOOR: {no_kind}"
    assert len(public_callables()) >= 200 and len(PAIRS) >= 600


@one_in(12)
@pytest.mark.parametrize("name", DOORS)
def test_a_door_refuses_malformed_arguments_in_the_grammar(name):
    found = list(faults(DOORS[name], costly=False))
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_a_door_accepts_what_it_documents_or_says_why_not(name):
    found = list(faults(DOORS[name], costly=True))
    assert not found, "\n".join(found)


def random_faults(number, *, costly):
    """Faults among so many random pairs of a door's parameter and a value."""
    found = []

    @settings(max_examples=number, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(PAIRS), RANDOM)
    def run(pair, value):
        door, name = pair
        assume(is_tried(door, name, value, costly=costly))
        words = attempt(door, name, value, kind(door, name))
        if words:
            found.append(f"{door.name}({name}={describe(value)}): {words}")

    OUTCOMES.clear()
    run()
    return found


def test_random_values_are_refused_in_the_grammar_or_accepted(capsys):
    found = random_faults(40, costly=False)
    print_outcomes(capsys)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_many_random_values_are_refused_in_the_grammar_or_accepted(capsys):
    found = random_faults(5000, costly=True)
    print_outcomes(capsys)
    assert not found, "\n".join(found)


def print_outcomes(capsys):
    """One line of counts. Doors of this package raise ValueError only, as yet."""
    names = ("refused by ValueError", "refused by TypeError", "accepted as documented")
    with capsys.disabled():
        print("\nrandom cases:", ", ".join(f"{OUTCOMES[n]} {n}" for n in names))
    assert OUTCOMES["refused by ValueError"] > 0
    assert OUTCOMES["accepted as documented"] > 0
