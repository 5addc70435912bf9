"""Every public loss, domain, regularizer and noise keeps what it declares.

The lists come from the package. Copies with one false declaration each are caught.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dpsample import losses
from dpsample.domains import Domain
from dpsample.losses import Loss
from dpsample.noise import Noise
from dpsample.regularizers import Regularizer
from tests.contracts import (
    domain_promises,
    loss_promises,
    noise_promises,
    pieces,
    regularizer_promises,
)
from tests.support.additive_mechanisms import MECHANISMS, WHOLE
from tests.support.tiers import usual

NUM_EXAMPLES = 1  # with drawn parameters, of every class
NUM_MORE = 6  # in the slow tier, with other parameters
NUM_PLANTED = 5000
KINDS = {
    Loss: (loss_promises, pieces.LOSSES, lambda loss: [(loss,)]),
    Domain: (domain_promises, pieces.DOMAINS, domain_promises.cases),
    Regularizer: (
        regularizer_promises,
        pieces.REGULARIZERS,
        regularizer_promises.cases,
    ),
    Noise: (noise_promises, pieces.NOISES, noise_promises.cases),
}
# By default pieces that few problems have keep what a sensitivity rests on.
RARE = ("SchattenBall", "Ellipsoid", "Intersection", "SchattenSquared")
OF_SENSITIVITIES = ("support", "max_norm", "max_schatten", "diameter", "range_on")


def case_of(kind, cases, promise):
    """A promise of a piece, slow where it is rare and no sensitivity rests on it."""
    is_usual = kind.__name__ not in RARE or promise.__name__ in OF_SENSITIVITIES
    marks = () if is_usual else pytest.mark.slow
    name = f"{kind.__name__}-{promise.__name__}"
    return pytest.param(kind, cases, promise, id=name, marks=marks)


CASES = [
    case_of(kind, cases, promise)
    for promises, kinds, cases in KINDS.values()
    for kind in kinds
    for promise in dict.fromkeys(promises.PROMISES.values())
]
PIECES = [
    pytest.param(base, kind, id=kind.__name__)
    for base, (_, kinds, _) in KINDS.items()
    for kind in kinds
]


@pytest.mark.parametrize(("kind", "cases", "promise"), CASES)
def test_every_public_piece_keeps_what_it_declares(kind, cases, promise):
    made = [case for p in pieces.examples(kind, NUM_EXAMPLES) for case in cases(p)]
    assert made
    for case in made:
        promise(*case)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "cases", "promise"), CASES)
def test_pieces_with_other_parameters_keep_what_they_declare(kind, cases, promise):
    for piece in pieces.examples(kind, NUM_MORE, seed=2):
        for case in cases(piece):
            promise(*case)


@pytest.mark.parametrize("base", KINDS, ids=lambda base: base.__name__)
def test_every_public_name_of_a_protocol_has_a_promise(base):
    promises = KINDS[base][0]
    names = {n for n in dir(base) if not n.startswith("_")}
    names |= {n for n in inspect.get_annotations(base) if not n.startswith("_")}
    assert names <= set(promises.PROMISES) | promises.NO_PROMISES


def with_false(piece, name, value):
    """A copy of a piece of whose declarations one is false."""
    kind = type(piece)
    made = copy.copy(piece)
    vars(made).pop(name, None)  # computed before
    object.__setattr__(made, "__class__", type(kind.__name__, (kind,), {name: value}))
    return made


def is_caught(promises, case, name, value):
    """Whether a promise fails, first of all that of the name."""
    false = with_false(case[0], name, value)
    others = dict.fromkeys(promises.PROMISES.values())
    for promise in (promises.PROMISES[name], *others):
        try:
            promise(false, *case[1:])
        except (AssertionError, ValueError, pytest.fail.Exception):
            return True
    return False


def missed(base, piece, factor):
    """Declarations of a piece that are false unnoticed, and how many were planted."""
    promises, _, cases = KINDS[base]
    found, total = [], 0
    for case in cases(piece):
        for name, value in promises.planted(*case, factor):
            total += 1
            if not is_caught(promises, case, name, value):
                found.append(f"{name} of {piece!r} times {factor:g}")
    return found, total


@usual("Box", "Gaussian", "Hinge", "SquaredNorm")
@pytest.mark.parametrize(("base", "kind"), PIECES)
def test_a_copy_with_one_false_declaration_is_caught(base, kind):
    found, total = missed(base, pieces.examples(kind, 1)[-1], 0.5)
    assert total >= 4 and not found


def test_every_kind_of_noise_has_a_mechanism_that_is_tested():
    """`tests/noise` compares the losses of these with what they spend."""
    tested = {**MECHANISMS, **WHOLE}.values()
    assert {type(mech.noise) for mech, _ in tested} == set(pieces.NOISES)


def test_a_new_loss_is_found_and_its_false_slope_bound_is_caught(monkeypatch):
    """Nobody edits a table of tests: that the loss is public is enough."""

    @dataclass(frozen=True, kw_only=True)
    class Steep(losses.Loss):
        name: ClassVar[str] = "steep"
        largest_slope: ClassVar[float] = 0.1

        @staticmethod
        def _scalar(params, u, y):
            return 2.0 * abs(u - y), 2.0 * np.sign(u - y)

    monkeypatch.delitem(losses.loss.registry, "steep")
    monkeypatch.setattr(losses, "Steep", Steep, raising=False)
    monkeypatch.setattr(losses, "__all__", [*losses.__all__, "Steep"])
    found = pieces.public(Loss, losses, losses.BUILT_IN.values())
    assert set(found) - set(pieces.LOSSES) == {Steep}
    (loss,) = pieces.examples(Steep, 2)
    with pytest.raises(AssertionError):
        loss_promises.slope_bound(loss)
    Steep.largest_slope = 2.0
    loss_promises.slope_bound(loss)


# Factors of what is declared: bounds that are not attained stay true by larger ones.
SHARES = {
    Loss: (0.05, 0.9),
    Domain: (0.02, 0.3),
    Regularizer: (0.02, 0.3),
    Noise: (0.02, 0.7),
}


@pytest.mark.slow
@pytest.mark.parametrize("base", KINDS, ids=lambda base: base.__name__)
def test_false_declarations_of_any_piece_are_caught(base):
    """One declaration, piece and factor at random, thousands of times."""
    promises, kinds, cases = KINDS[base]
    rng, found = np.random.default_rng(1), []
    for seed in range(NUM_PLANTED // len(KINDS)):
        kind = kinds[rng.integers(len(kinds))]
        *_, case = (c for p in pieces.examples(kind, 1, seed) for c in cases(p))
        factor = float(rng.uniform(*SHARES[base]))
        plants = list(promises.planted(*case, factor))
        name, value = plants[rng.integers(len(plants))]
        if not is_caught(promises, case, name, value):
            found.append(f"{name} of {case[0]!r} times {factor:g}")
    assert not found, "\n".join(found)
