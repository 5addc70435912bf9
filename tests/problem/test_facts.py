"""Public facts: Lipschitz constants against brute force and between neighbors."""

import copy
import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsample as dps
from dpsample.numerics.norms import dual, norm, schatten
from dpsample.problem.facts import PublicFacts, smoothness

EXPONENTS = (1.0, 1.5, 2.0, 3.0, np.inf)
DIM = 3
SHAPE = (2, 3)


def facts(**changes):
    defaults = {
        "num_records": 10,
        "dim": DIM,
        "loss": dps.losses.Logistic(),
        "domain": dps.domains.Ball(1.5),
        "row_bound": 2.0,
        "row_norm": 2.0,
    }
    return PublicFacts(**(defaults | changes))


def extreme_rows(dim, rng):
    """Random rows, corners and axes: some attain every ratio of two norms."""
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=dim)))
    return np.vstack([rng.normal(size=(500, dim)), corners, np.eye(dim)])


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("row_norm", EXPONENTS)
def test_lipschitz_constant_is_the_largest_gradient_norm(row_norm, p):
    """The gradient of one record's loss is slope * a: brute force over rows a."""
    rows = extreme_rows(DIM, np.random.default_rng(1))
    rows *= 2.0 / norm(rows, row_norm)[:, None]
    largest = norm(rows, dual(p)).max()  # the logistic slope comes close to 1
    constant = facts(row_norm=row_norm).lipschitz(p)
    assert largest <= constant * (1.0 + 1e-14)
    assert largest == pytest.approx(constant, rel=1e-14)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("row_norm", EXPONENTS)
def test_matrix_problems_use_schatten_norms(row_norm, p):
    rng = np.random.default_rng(2)
    rows = [*rng.normal(size=(300, 6)), np.eye(*SHAPE).ravel(), np.eye(6)[0]]
    rows = np.array(rows) / schatten(np.array(rows), row_norm, SHAPE)[:, None]
    domain = dps.domains.SchattenBall(1.0, p=1.0, shape=SHAPE)
    made = facts(dim=6, domain=domain, row_bound=1.0, row_norm=row_norm)
    largest = schatten(rows, dual(p), SHAPE).max()
    assert made.is_matrix
    assert largest == pytest.approx(made.lipschitz(p), rel=1e-13)


DOMAINS = {
    "ball": dps.domains.Ball(1.5),
    "ball elsewhere": dps.domains.Ball(0.5, center=[1.0, -2.0, 0.0]),
    "l1 ball": dps.domains.Ball(1.0, p=1.0, center=[0.0, 1.0, 0.0]),
    "box": dps.domains.Box([-1.0, 0.0, 2.0], [0.0, 3.0, 2.5]),
    "simplex": dps.domains.Simplex(),
}


@pytest.mark.parametrize("row_norm", EXPONENTS)
@pytest.mark.parametrize("place", DOMAINS)
def test_no_record_has_a_larger_margin_or_slope(place, row_norm):
    domain, rng = DOMAINS[place], np.random.default_rng(3)
    made = facts(
        domain=domain,
        row_norm=row_norm,
        loss=dps.losses.Squared(),
        response_bound=0.7,
        offset_bound=0.3,
    )
    rows = extreme_rows(DIM, rng)
    rows *= 2.0 / norm(rows, row_norm)[:, None]
    margins = np.maximum(domain.support(rows), domain.support(-rows)) + 0.3
    assert margins.max() <= made.margin_bound * (1.0 + 1e-14)
    slope = made.loss.slope_bound(made.margin_bound, 0.7)
    assert slope == pytest.approx(made.margin_bound + 0.7, rel=1e-15)
    assert made.lipschitz(2.0) >= (margins.max() + 0.7) * norm(rows, 2.0).max() * 0.999
    if place == "ball":
        assert margins.max() == pytest.approx(made.margin_bound, rel=1e-14)


def test_replacing_a_record_counts_twice_and_zeroing_it_once():
    made = facts()
    assert made.diff_lipschitz(2.0, "replace_one") == 2.0 * made.lipschitz(2.0)
    assert made.diff_lipschitz(2.0, "zero_out") == made.lipschitz(2.0)
    assert made.diff_lipschitz(2.0) == made.diff_lipschitz(2.0, "replace_one")
    with pytest.raises(ValueError, match="relation must be one of 'replace_one', "):
        made.diff_lipschitz(2.0, "add_remove")


@pytest.mark.parametrize("bound", [1e-3, 0.4, 1.0, 2.0, np.inf])
def test_labels_have_their_curvature_below_any_declared_bound(bound):
    # `Problem` accepts labels -1 and 1 whatever the declared bound of responses.
    for loss in (
        dps.losses.SmoothedHinge(0.5),
        dps.losses.CappedLogistic(0.3),
        dps.losses.CalibratedLogistic(),
        dps.losses.Logistic(),
    ):
        plain = {"loss": loss, "domain": dps.domains.Ball(1.0), "row_bound": 1.0}
        declared = facts(**plain, response_bound=bound)
        assert smoothness(declared) >= smoothness(facts(**plain))
        assert declared.lipschitz(2.0) == facts(**plain).lipschitz(2.0)


@pytest.mark.parametrize("bad", [0.5, np.nan, None, "2"])
def test_bad_exponents_are_refused(bad):
    for call in (facts().lipschitz, facts().diff_lipschitz):
        with pytest.raises(ValueError, match="^p must be >= 1, got "):
            call(bad)


@pytest.mark.parametrize("loss", [dps.losses.Squared(), dps.losses.PowerFour()])
def test_a_slope_without_end_needs_a_bounded_domain(loss):
    made = facts(loss=loss, response_bound=1.0, domain=dps.domains.WholeSpace())
    with pytest.raises(ValueError, match="domain must be bounded for .* Use a Ball"):
        made.lipschitz(2.0)


def test_dictionary_round_trip():
    for row_norm, place in itertools.product((1.0, 2.0), DOMAINS):
        made = facts(
            domain=DOMAINS[place],
            row_norm=row_norm,
            loss=dps.losses.Huber(0.3),
            response_bound=0.7,
            offset_bound=0.1,
            intercept=place == "box",
        )
        assert PublicFacts.from_dict(json.loads(json.dumps(made.to_dict()))) == made


LOSSES = (
    dps.losses.Linear(),
    dps.losses.Logistic(),
    dps.losses.Hinge(),
    dps.losses.Quantile(0.8),
    dps.losses.Squared(),
    dps.losses.PowerFour(),
)


def neighbors(seed, loss, row_norm, relation):
    """Two problems that differ in record 0; `zero_out` makes its loss constant."""
    rng = np.random.default_rng(seed)
    rows = extreme_rows(DIM, rng)[rng.integers(0, 511, 4)]
    rows *= 1.5 / norm(rows, row_norm)[:, None]
    response = rng.choice([-1.0, 1.0], 4)
    other, labels = rows.copy(), response.copy()
    if relation == "zero_out":
        other[0] = 0.0
    else:
        other[0] = rng.choice([-1.0, 1.0]) * rows[rng.integers(0, 4)]
        labels[0] = rng.choice([-1.0, 1.0])
    domain = dps.domains.Ball(1.0, center=[0.3, 0.0, -0.2])
    shared = {"loss": loss, "domain": domain, "row_bound": 1.5, "row_norm": row_norm}
    shared["response_bound"] = 1.0
    return dps.Problem(rows, response, **shared), dps.Problem(other, labels, **shared)


def largest_ratio(pair, p, rng):
    """Largest slope of F_D - F_D' between random points, close and far, in l_p."""
    domain = pair[0].domain
    points = [domain.project(v) for v in rng.normal(size=(12, DIM))]
    points += [domain.project(v + 1e-3 * rng.normal(size=DIM)) for v in points]
    change = np.array([pair[0].risk(v) - pair[1].risk(v) for v in points])
    gaps = norm(np.array(points)[:, None] - np.array(points), p)
    with np.errstate(invalid="ignore"):
        return np.nanmax(np.abs(change[:, None] - change) / gaps)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from(LOSSES),
    row_norm=st.sampled_from(EXPONENTS),
    p=st.sampled_from(EXPONENTS),
    relation=st.sampled_from(["replace_one", "zero_out"]),
)
def test_neighbors_differ_by_a_lipschitz_function(seed, loss, row_norm, p, relation):
    pair = neighbors(seed, loss, row_norm, relation)
    bound = pair[0].diff_lipschitz(p, relation) / pair[0].num_records
    assert largest_ratio(pair, p, np.random.default_rng(seed)) <= bound * (1.0 + 1e-9)


def test_the_papers_constant_is_too_small_for_opposite_records():
    """GLLST-E1: with G instead of 2 G the property above is false."""
    row = np.array([[0.6, 0.8, 0.0]])
    shared = {"loss": dps.losses.Linear(), "domain": dps.domains.Ball(1.0)}
    pair = [dps.Problem(row, [y], row_bound=1.0, **shared) for y in (1.0, -1.0)]
    ratio = largest_ratio(pair, 2.0, np.random.default_rng(4))
    assert (
        1.2 * pair[0].lipschitz(2.0)
        < ratio
        <= pair[0].diff_lipschitz(2.0) * (1.0 + 1e-9)
    )
    change = [pair[0].risk(v) - pair[1].risk(v) for v in (row[0], -row[0])]
    assert abs(change[0] - change[1]) == pytest.approx(
        2.0 * pair[0].diff_lipschitz(2.0), rel=1e-14
    )


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_no_exponent_of_numpy_leaves_a_rounded_constant_behind(kind):
    """2.5 is the same number in all types: what one computes serves the others."""
    used, fresh = facts(dim=1000), facts(dim=1000)
    for constant in (PublicFacts.lipschitz, PublicFacts.dual_ratio, smoothness):
        assert constant(used, kind(2.5)) == constant(fresh, 2.5)
        assert constant(used, 2.5) == constant(fresh, 2.5)


def test_a_copy_of_facts_derives_its_own_constants():
    """Else a row bound that is changed in a copy would keep the old noise."""
    made = facts()
    expected = made.lipschitz(3.0), made.radius, smoothness(made)
    assert not made.center.any()
    ways = (copy.copy, copy.deepcopy, lambda facts: pickle.loads(pickle.dumps(facts)))
    for way in ways:
        again = way(made)
        with pytest.raises(ValueError, match="read-only"):
            again.center[0] = 1.0
        object.__setattr__(again, "row_bound", 2.0 * made.row_bound)
        assert again.lipschitz(3.0) == 2.0 * expected[0]
        assert expected == (made.lipschitz(3.0), made.radius, smoothness(made))
