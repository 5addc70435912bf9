"""Pairs of problems differ in one record, as their relation says, and are extreme."""

import numpy as np
import pytest

import dpsample as dps
from dpsample import domains, losses
from dpsample.audits import neighbors
from dpsample.audits.exponential import differing_records
from dpsample.numerics.norms import schatten

LOSSES = [losses.Linear(), losses.Logistic(), losses.Hinge(), losses.Absolute()]
REPLACED = [neighbors.opposite, neighbors.copies, neighbors.at_kink]


def facts_of(loss=losses.Linear(), **changes):  # noqa: B008 - frozen
    options = {
        "num_records": 7,
        "dim": 4,
        "loss": loss,
        "domain": domains.Ball(2.0),
        "row_bound": 0.5,
        "row_norm": 2.0,
        "response_bound": 3.0,
    }
    return dps.PublicFacts(**{**options, **changes})


def slopes_of(record, loss, points):
    """Gradients of one record's loss at rows of points, by its slope."""
    margins = points @ record.row + record.offset
    return loss.slope(margins, record.response)[:, None] * record.row


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("make", REPLACED)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: v.name)
def test_replaced_pairs_have_the_facts_and_differ_in_the_last_record(
    loss, make, intercept
):
    facts = facts_of(loss, intercept=intercept)
    pair = make(facts)
    assert [problem.facts for problem in pair] == [facts, facts]
    first, second = differing_records(*pair, "replace_one")
    assert first.response == -second.response != 0.0


@pytest.mark.parametrize("make", REPLACED)
@pytest.mark.parametrize("bound", [0.25, 3.0])
def test_responses_keep_a_declared_bound(make, bound):
    for problem in make(facts_of(response_bound=bound)):
        assert np.abs(problem.data.response).max() == bound


@pytest.mark.parametrize("loss", LOSSES, ids=lambda v: v.name)
def test_a_zeroed_record_has_a_constant_loss(loss):
    first, second = differing_records(*neighbors.zero_out(facts_of(loss)), "zero_out")
    points = np.random.default_rng(1).standard_normal((5, 4))
    assert not first.is_constant(loss) and second.is_constant(loss)
    assert np.ptp(second.loss(loss, points)) == 0.0 < np.ptp(first.loss(loss, points))


@pytest.mark.parametrize(("p", "row_norm"), [(2.0, 2.0), (1.0, 2.0), (1.0, np.inf)])
@pytest.mark.parametrize(
    "loss", [losses.Linear(), losses.Hinge(), losses.Absolute()], ids=lambda v: v.name
)
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_worst_cases_attain_the_declared_sensitivity(loss, relation, p, row_norm):
    facts = facts_of(loss, row_norm=row_norm)
    first, second = differing_records(
        *neighbors.worst_case(facts, relation, p=p), relation
    )
    near_zero = np.full((1, 4), 1e-3)
    gap = slopes_of(first, loss, near_zero) - slopes_of(second, loss, near_zero)
    dual = np.inf if p == 1.0 else p / (p - 1.0)
    attained = np.linalg.norm(gap[0], dual)
    assert attained == pytest.approx(facts.diff_lipschitz(p, relation), rel=1e-12)


def test_rows_on_a_simplex_have_both_signs():
    facts = facts_of(domain=domains.Simplex(), row_norm=np.inf)
    first, second = differing_records(
        *neighbors.worst_case(facts, p=1.0), "replace_one"
    )
    gap = slopes_of(first, facts.loss, np.full((1, 4), 0.25))
    gap = (gap - slopes_of(second, facts.loss, np.full((1, 4), 0.25)))[0]
    # On the simplex <g, v> is at most (max g - min g)/2 times |v|_1.
    attained = 0.5 * np.ptp(gap)
    assert attained == pytest.approx(facts.diff_lipschitz(1.0, "replace_one"))
    with pytest.raises(ValueError, match="direction must be of a row with two entries"):
        neighbors.opposite(facts_of(dim=1), direction="difference")


def test_corners_are_worst_where_rows_are_bounded_entry_by_entry():
    facts = facts_of(row_norm=np.inf)
    first, _ = differing_records(*neighbors.worst_case(facts, p=2.0), "replace_one")
    assert first.row.tolist() == [0.5] * 4
    matrix = facts_of(
        domain=domains.SchattenBall(1.0, p=1.0, shape=(2, 2)), row_norm=np.inf
    )
    first, _ = differing_records(*neighbors.worst_case(matrix, p=2.0), "replace_one")
    assert first.row.tolist() == [0.5, 0.0, 0.0, 0.5]


def test_large_problems_of_empty_rows_are_sparse():
    facts = facts_of(num_records=20_000, dim=100)
    pair = neighbors.worst_case(facts)
    assert pair[0].data.dense.size == 0
    first, second = differing_records(*pair, "replace_one")
    assert first.row.tolist() == second.row.tolist() == [0.5] + [0.0] * 99


def test_shifts_have_the_given_length_in_their_norm():
    for p in (1.0, 2.0, np.inf):
        for zero, shift in neighbors.shifts(5, sensitivity=0.3, p=p):
            assert not zero.any()
            assert np.linalg.norm(shift, p) == pytest.approx(0.3)


def problem_of(rows, responses, **options):
    return dps.Problem(
        rows,
        responses,
        loss=losses.Linear(),
        domain=domains.Ball(1.0),
        row_bound=2.0,
        **options,
    )


@pytest.mark.parametrize(
    ("rows", "responses"),
    [
        ([[1.0], [0.5]], [1.0, 1.0]),
        ([[0.0], [0.0]], [1.0, 1.0]),
        ([[0.5], [0.5]], [-1.0, -1.0]),
    ],
)
def test_problems_that_differ_in_no_record_or_several_are_refused(rows, responses):
    base = problem_of([[1.0], [0.5]], [1.0, 1.0])
    with pytest.raises(ValueError, match="different from problem in exactly one"):
        differing_records(base, problem_of(rows, responses), "replace_one")


def test_a_replaced_record_is_no_zeroed_one():
    base = problem_of([[1.0], [0.5]], [1.0, 1.0])
    other = problem_of([[1.0], [0.4]], [1.0, 1.0])
    with pytest.raises(ValueError, match="one record's loss set to zero"):
        differing_records(base, other, "zero_out")
    assert differing_records(base, other, "replace_one")[1].row.tolist() == [0.4]


def test_an_intercept_keeps_a_row_of_zeros_from_being_neutral():
    facts = facts_of(losses.Hinge(), intercept=True)
    with pytest.raises(ValueError, match="facts must be without an intercept"):
        neighbors.zero_out(facts)
    pair = neighbors.zero_out(facts_of(intercept=True))
    assert differing_records(*pair, "zero_out")[1].is_constant(losses.Linear())


def test_offsets_are_compared_too():
    base = problem_of([[1.0]], [1.0], offset=[0.5], offset_bound=1.0)
    other = problem_of([[1.0]], [1.0], offset=[0.7], offset_bound=1.0)
    first, second = differing_records(base, other, "replace_one")
    assert (first.offset, second.offset) == (0.5, 0.7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: neighbors.worst_case(facts_of(), "add"), "relation must be one of"),
        (lambda: neighbors.worst_case(facts_of(), p=0.5), "p must be >= 1, got 0.5"),
        (lambda: neighbors.worst_case(facts_of(), p=np.nan), "p must be >= 1, got nan"),
        (
            lambda: neighbors.opposite(facts_of(), direction="up"),
            "direction must be one of",
        ),
        (lambda: neighbors.shifts(0, sensitivity=1.0), "dim must be an integer >= 1"),
        (
            lambda: neighbors.shifts(1, sensitivity=np.inf),
            "sensitivity must be a finite number > 0",
        ),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("row_norm", [1.0, np.inf])
@pytest.mark.parametrize("direction", ["axis", "corner", "difference"])
def test_rows_of_matrices_have_their_schatten_norm(row_norm, direction):
    domain = domains.SchattenBall(1.0, shape=(2, 2), p=1.5)
    facts = facts_of(domain=domain, row_norm=row_norm)
    for problem in neighbors.opposite(facts, direction=direction):
        row = problem.data.dense[-1]
        assert schatten(row, row_norm, (2, 2)) == pytest.approx(facts.row_bound)
