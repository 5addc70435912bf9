"""A box written as a polytope is drawn from as the box is."""

import numpy as np
import pytest

import dpsample as dps
from dpsample.domains import Box, Polytope
from dpsample.samplers.chain import NUM_STATS

LOWER, UPPER = np.array([-1.0, -0.5, -2.0]), np.array([1.0, 0.5, 2.0])
SCALES = np.array([1.0, 2.0, 0.25, 3.0, 0.5, 8.0])


def written(lower, upper, extra=((), ())):
    """Scaled and shuffled rows, with more that are idle."""
    eye = np.eye(len(lower))
    rows = np.vstack([eye, -eye]) * SCALES[:, None]
    bounds = np.concatenate([upper, -lower]) * SCALES
    order = np.random.default_rng(0).permutation(len(rows))
    more, limits = extra
    rows = np.vstack([rows[order], np.reshape(more, (-1, len(lower)))])
    return Polytope(rows, np.concatenate([bounds[order], limits]))


def target(domain, loss, p=2.0):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((60, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(rows[:, 0] + 0.3 * rng.standard_normal(60) > 0.0, 1.0, -1.0)
    problem = dps.Problem(rows, labels, loss=loss, domain=domain, row_bound=1.0)
    regularizer = dps.regularizers.SquaredNorm(p, center=np.zeros(3))
    return dps.Gibbs(problem, k=3.0, mu=0.1, regularizer=regularizer)


def test_sides_are_found():
    lower, upper = written(LOWER, UPPER).box
    np.testing.assert_array_equal((lower, upper), (LOWER, UPPER))
    idle = ([[0.0, 2.0, 0.0]], [9.0])
    np.testing.assert_array_equal(written(LOWER, UPPER, idle).box, (LOWER, UPPER))
    assert written(LOWER, UPPER, ([[1.0, 1.0, 0.0]], [1.0])).box is None
    half = Polytope(np.vstack([np.eye(2), [[-1.0, 0.0]]]), np.ones(3))
    assert half.box is None and not half.is_bounded


def test_bounds_are_those_of_the_box():
    rng, box, same = np.random.default_rng(2), Box(LOWER, UPPER), written(LOWER, UPPER)
    many = rng.standard_normal((300, 3))
    np.testing.assert_allclose(same.support(many), box.support(many))
    for p in (1.0, 2.0, np.inf):
        center = np.array([0.3, 0.0, -1.0])
        assert same.max_norm(p, center, 3) == pytest.approx(box.max_norm(p, center, 3))


@pytest.mark.parametrize("p", [2.0, 1.5])
@pytest.mark.parametrize("loss", [dps.losses.Hinge(), dps.losses.Logistic()])
def test_draws_are_those_of_the_box(loss, p, monkeypatch):
    def draws(domain):
        given = target(domain, loss, p)
        prepared = dps.Proximal(step_size=500.0).prepare(
            given, np.random.default_rng(3)
        )
        state, points = prepared.init(np.zeros(3)), np.empty((200, 3))
        stats = np.empty((200, NUM_STATS))
        prepared.runner()(state, np.random.default_rng(4), points, stats)
        return prepared.metric.name, points

    name, points = draws(Box(LOWER, UPPER))
    same_name, same = draws(written(LOWER, UPPER))
    assert name == same_name
    np.testing.assert_allclose(same, points, rtol=1e-7, atol=1e-9)
    # Sides that are not those of the polytope are seen.
    wrong = (LOWER, 0.9 * UPPER)
    monkeypatch.setattr(Polytope, "box", property(lambda _: wrong))
    assert np.abs(draws(written(LOWER, UPPER))[1] - points).max() > 1e-3


def test_kinked_losses_take_as_many_certified_steps():
    # A cube, for the regularizer's center is that of a largest ball inside.
    half, found, rng = np.full(20, 0.3), [], np.random.default_rng(5)
    rows = rng.standard_normal((500, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = np.where(rows @ np.linspace(-1.0, 1.0, 20) > 0.0, 1.0, -1.0)
    loss, eye = dps.losses.Hinge(), np.eye(20)
    same = Polytope(np.vstack([eye, -eye]), np.concatenate([half, half]))
    for domain in (Box(-half, half), same):
        problem = dps.Problem(rows, labels, loss=loss, domain=domain, row_bound=1.0)
        answer = dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6), seed=1)
        dps.verify(answer.certificate)
        assert domain.contains(answer.theta)
        notes = answer.nonprivate_diagnostics
        found.append((notes["metric"], notes["num_steps"]))
    assert found[0] == found[1] and found[0][0] == "diagonal"
