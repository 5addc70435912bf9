"""The verb `intervals`: sensitivity, composition, laws, coverage, certificates."""

import math
import warnings
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

import dpsample as dps
from dpsample.api import intervals as verb
from dpsample.core.streams import streams
from dpsample.inference import sandwich as module
from dpsample.inference.sandwich import Sandwich, Spread, plan_intervals, tail_spread
from dpsample.noise.elementary import denoise
from dpsample.privacy import EventCertificate, Ledger
from dpsample.problem.problem import with_columns
from dpsample.tables.encoding import positions_without_references
from studies.intervals_coverage import classical
from tests.support.statistics import assert_frequency, assert_mean, rejected
from tests.support.tiers import one_in

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
TRUTH = np.array([0.5, -2.0, 2.0])
LOGISTIC = {"base": "objective", "share": 0.3, "robust": False, "bandwidth": None}
# Losses, with a bandwidth where there is a kink.
LOSSES = {
    "logistic": (dps.losses.Logistic(), None),
    "capped": (dps.losses.CappedLogistic(0.6), None),
    "smoothed hinge": (dps.losses.SmoothedHinge(0.5), None),
    "huber": (dps.losses.Huber(1.0), None),
    "squared": (dps.losses.Squared(), None),
    "fourth power": (dps.losses.PowerFour(), None),
    "hinge": (dps.losses.Hinge(), 0.5),
    "absolute": (dps.losses.Absolute(), 0.5),
    "quantile": (dps.losses.Quantile(0.8), 0.5),
}


def problem(n=4000, seed=0, loss=None, *, domain=None, **options):
    """Labels of a logistic model, which serve every loss."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1.0, 1.0, (n, 3)) / math.sqrt(3.0)
    labels = np.where(rng.random(n) < expit(rows @ TRUTH), 1.0, -1.0)
    loss, domain = loss or dps.losses.Logistic(), domain or dps.domains.Ball(10.0)
    options = {"row_bound": 1.0, "response_bound": 1.0} | options
    return dps.Problem(rows, labels, loss=loss, domain=domain, **options)


def quietly(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dps.intervals(*args, **options)


def test_more_epsilon_is_never_less_precise():
    data, widths = problem(), []
    for epsilon in (20.0, 100.0, 590.0):
        budget = dps.Budget(epsilon=epsilon, delta=1e-6)
        widths.append(quietly(data, budget, seed=1).covariance.trace())
    assert widths[0] > widths[1] > 0.99 * widths[2]


def test_a_delta_that_is_enough_for_the_descent_is_spent_by_it():
    budget = dps.Budget(epsilon=0.01, delta=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = dps.intervals(problem(), budget, base="noisy_gd", share=0.9)
    assert dps.verify(made.certificate).checks
    assert 0.009 < made.certificate.epsilon_proved <= 0.01 + 1e-9


def test_epsilon_beyond_what_is_accounted_for_is_told():
    with pytest.raises(ValueError, match="must be <= 600, got .* Accounting ends"):
        dps.intervals(problem(), dps.Budget(epsilon=1e6, delta=1e-6))


def z_scores(budget=BUDGET, *, runs=150, seed=0, **options):
    """Standardized errors of fresh runs on fresh records, shape (runs, 3)."""
    scores = []
    for i in range(runs):
        bars = quietly(problem(seed=seed + i), budget, seed=seed + i, **options)
        scores.append((bars.theta - TRUTH) / bars.se)
    return np.array(scores)


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_a_record_moves_a_matrix_by_at_most_its_sensitivity(relation):
    facts = problem().facts
    claimed = module.sensitivity(facts, 0.25, relation) * facts.num_records
    rng, largest = np.random.default_rng(0), 0.0
    for i in range(2000):
        a, b = rng.standard_normal((2, 3))
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
        b -= (a @ b) * a if i % 2 else 0.0  # orthogonal pairs are the worst
        w = 0.25 * rng.integers(2, size=2) if i % 4 else np.full(2, 0.25)
        other = np.zeros((3, 3)) if relation == "zero_out" else w[1] * np.outer(b, b)
        b /= max(np.linalg.norm(b), 1e-9)
        largest = max(largest, np.linalg.norm(w[0] * np.outer(a, a) - other))
    assert largest <= claimed
    exact = 0.25 if relation == "zero_out" else 0.25 * math.sqrt(2.0)
    a, b = np.eye(3)[:2]
    worst = np.outer(a, a) - (relation == "replace_one") * np.outer(b, b)
    assert np.linalg.norm(0.25 * worst) == pytest.approx(exact)
    assert claimed == pytest.approx(exact, rel=1e-6)


def test_matrix_noise_is_spherical_and_half_of_it_would_be_refuted():
    data, rng = problem(n=50), np.random.default_rng(1)
    noise = module.MatrixNoise(0.25, 0.01)
    draws = np.array(
        [module.noisy_matrix(data, np.zeros(50), noise, rng) for _ in range(3000)]
    )
    assert (draws == np.swapaxes(draws, 1, 2)).all()
    grid = 2.0 ** math.floor(math.log2(0.01)) / 1024
    assert (draws[:, 0, 0] / grid == np.rint(draws[:, 0, 0] / grid)).all()
    for i, j, stddev in ((0, 0, 0.01), (0, 1, 0.01 / math.sqrt(2.0))):
        square = (draws[:, i, j] / stddev) ** 2
        assert_mean(square, 1.0, 2.0, detects=0.3)
        with rejected():
            assert_mean(0.25 * square, 1.0, 2.0, detects=0.3)


def noisy_pairs(spectrum, stddev, count):
    """Denoised eigenvalues, noisy ones, and A in the noisy eigenvectors."""
    rng, dim = np.random.default_rng(4), len(spectrum)
    rows = []
    for _ in range(count):
        noise = stddev * rng.standard_normal((dim, dim)) / math.sqrt(2.0)
        matrix = np.diag(spectrum) + (noise + noise.T) / math.sqrt(2.0)
        values, vectors = denoise(matrix, stddev)
        true = np.einsum("ji,j,ji->i", vectors, spectrum, vectors)
        rows.append((values, np.linalg.eigvalsh(matrix), true))
    return np.array(rows).swapaxes(0, 1)


def test_denoised_eigenvalues_have_no_bias_and_half_of_the_push_has():
    """Stein's identity; half is what moves the eigenvalues, not the vectors."""
    found, noisy, true = noisy_pairs([0.0, 4.0, 9.0], 1.0, 8000)
    for i in (0, 2):
        assert_mean((found - true)[:, i], 0.0, 1.2, detects=0.2)
        with rejected():
            half = 0.5 * (found + noisy) - true
            assert_mean(half[:, i], 0.0, 1.2, detects=0.2)


def test_denoised_inverses_of_equal_eigenvalues_are_not_too_large():
    """Noise of two thirds of the eigenvalues: inverses 16 % too large without."""
    found, noisy, _ = noisy_pairs(np.ones(20), 0.66 / math.sqrt(40.0), 100)
    semicircle = 2.0 * (1.0 - math.sqrt(1.0 - 0.66**2)) / 0.66**2
    assert (1.0 / noisy).mean() == pytest.approx(semicircle, rel=0.03)
    assert (1.0 / found).mean() == pytest.approx(1.0, abs=0.03)


@pytest.mark.slow
def test_an_audit_refutes_half_of_the_matrix_noise():
    """Two rows that are orthogonal, along the direction in which they differ."""
    n, zero = 20, np.zeros((20, 3))
    one, other = zero.copy(), zero.copy()
    one[0, 0] = other[0, 1] = 1.0
    sides = []
    for rows in (one, other):
        sides.append(
            dps.Problem(
                rows,
                np.ones(n),
                loss=dps.losses.Logistic(),
                domain=dps.domains.Ball(10.0),
                row_bound=1.0,
            )
        )
    gdp = 1.0
    stddev = module.sensitivity(sides[0].facts, 0.25, "replace_one") / gdp

    def refuted(size):
        rng, found = np.random.default_rng(3), []
        for side in sides:
            noise = module.MatrixNoise(0.25, size)
            draws = [
                module.noisy_matrix(side, np.full(n, 0.25), noise, rng)
                for _ in range(3000)
            ]
            found.append(np.array([m[0, 0] - m[1, 1] for m in draws]))
        cut = found[0].mean() / 2 + found[1].mean() / 2
        true, false = np.mean(found[0] > cut), np.mean(found[1] > cut)
        advantage = 2.0 * 0.69146 - 1.0  # 2 Phi(gdp/2) - 1
        return true - false - advantage > 8.0 * math.sqrt(0.5 / 3000)

    assert not refuted(stddev)
    assert refuted(0.5 * stddev)


@pytest.mark.parametrize("base", ["objective", "noisy_gd"])
def test_without_noise_it_is_the_classical_sandwich(base):
    data = problem(n=2000)
    theta = dps.minimize(
        data, dps.optimizers.ObjectivePerturbation(ridge=1e-7), None
    ).theta
    plan = plan_intervals(
        Sandwich(**LOGISTIC | {"base": base, "robust": True}),
        data.facts,
        BUDGET,
        clip_rows=False,
    )
    silent = replace(
        plan,
        curvature=plan.curvature._replace(stddev=1e-12),
        scores=plan.scores._replace(stddev=1e-12),
        spread=lambda values: Spread(np.ones_like(values), np.zeros_like(values)),
    )
    curvature, scores, _ = classical({"loss": "logistic"}, data, theta)
    found = module.estimate(silent, data.facts, theta, curvature, scores)
    inverse = np.linalg.inv(curvature)
    expected = inverse @ scores @ inverse / 2000
    assert np.allclose(found.covariance, expected, rtol=1e-10)
    assert np.allclose(found.theta, theta) and found.flags == ()


def test_the_law_of_the_tail_is_exact_on_quadratics():
    """A simulation of the recursion, with the start and the noise apart."""
    values = np.array([0.05, 0.4, 1.9])
    case = {"num_steps": 30, "averaged": 12, "size": 1.0}
    found = tail_spread(values, **case, stddev=0.3)
    rng = np.random.default_rng(2)
    w, tail = np.full((20000, 3), -1.0), 0.0  # w - theta* where c - theta* = -1
    for step in range(30):
        w = w - (values * w + 0.3 * rng.standard_normal(w.shape))
        tail = tail + (w if step >= 18 else 0.0)
    for j in range(3):
        mean, variance = found.covered[j] - 1.0, found.variance[j]
        sample = tail[:, j] / 12.0
        assert_mean(sample, mean, variance, detects=0.1)
        assert_mean((sample - mean) ** 2 / variance, 1.0, 2.0, detects=0.2)
        with rejected():  # noise of all T steps at the weight of the tail's
            wrong = (sample - mean) ** 2 / (0.8 * variance)
            assert_mean(wrong, 1.0, 2.0, detects=0.2)


def test_intervals_cover_and_do_not_without_the_noise_of_the_mechanism(monkeypatch):
    inside = int((np.abs(z_scores()) <= 1.96).sum())
    assert_frequency(inside, 450, 0.95)
    tilted = module._plan_objective

    def planted(*given):
        recipe, spread = tilted(*given)
        return recipe, lambda values: spread(values)._replace(variance=np.zeros(3))

    monkeypatch.setattr(module, "_plan_objective", planted)
    with rejected():
        inside = int((np.abs(z_scores(runs=100)) <= 1.96).sum())
        assert_frequency(inside, 300, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"robust": True}, {"base": "noisy_gd"}], ids=["robust", "descent"]
)
def test_other_intervals_cover_too(options):
    budget = dps.Budget(epsilon=3.0, delta=1e-6)
    inside = int((np.abs(z_scores(budget, **options)) <= 1.96).sum())
    assert_frequency(inside, 450, 0.95)


def line(n=4000, seed=0, *, error=0.2, truth=TRUTH, change=None, domain=None):
    """Linear regression whose responses are at most 4 in size."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1.0, 1.0, (n, 3)) / math.sqrt(3.0)
    response = np.clip(rows @ truth + error * rng.standard_normal(n), -4.0, 4.0)
    if change is not None:
        rows, response = change(rows, response)
    return dps.Problem(
        rows,
        response,
        loss=dps.losses.Squared(),
        domain=domain or dps.domains.WholeSpace(),
        row_bound=1.0,
        response_bound=4.0,
    )


@pytest.mark.slow
def test_noise_of_both_normal_equations_is_counted():
    """Without errors: theta is off by the mechanism's noise alone."""
    truth, budget = 1.5 * TRUTH, dps.Budget(epsilon=3.0, delta=1e-6)
    data = line(20_000, error=0.0, truth=truth)
    kind = Sandwich(
        base="normal_equations",
        share=verb.SQUARE_SHARE,
        robust=False,
        bandwidth=None,
    )
    plan = plan_intervals(kind, data.facts, budget, clip_rows=False)
    queries = []
    for rng in streams(0, 1500):
        matrix, vector = plan.normal.noisy(data, rng)
        theta = plan.normal.solve(data.facts, matrix, vector)
        square = module.noisy_square(data, plan.square_stddev, rng)
        queries.append((theta, matrix, None, module.Means(vector, square)))

    def squares(plan):
        found = [module.estimate(plan, data.facts, *query) for query in queries]
        return np.array([(b.theta - truth)[1] ** 2 / b.covariance[1, 1] for b in found])

    assert_mean(squares(plan), 1.0, 2.0, detects=0.35)
    deviation = dps.optimizers.AdaSSP().recipe(data.facts, budget).inputs
    size = deviation["matrix_stddev"] ** 2 * (truth @ truth) / 2.0
    assert size > 0.4 * deviation["vector_stddev"] ** 2  # worth a test
    query = replace(plan.recipe.phases[0], matrix_stddev=0.0)
    planted = replace(plan, recipe=replace(plan.recipe, phases=(query,)))
    with rejected():  # the matrix is taken for exact
        assert_mean(squares(planted), 1.0, 2.0, detects=0.35)


@pytest.mark.slow
def test_intervals_of_normal_equations_cover_and_do_not_without_the_errors(monkeypatch):
    budget = dps.Budget(epsilon=8.0, delta=1e-6)

    def num_inside(runs):
        found = [
            quietly(line(20_000, i, error=0.8), budget, seed=i) for i in range(runs)
        ]
        return sum(int(((b.lower <= TRUTH) & (b.upper >= TRUTH)).sum()) for b in found)

    assert_frequency(num_inside(200), 600, 0.95)
    square = module.noisy_square
    monkeypatch.setattr(verb, "noisy_square", lambda *given: 0.0 * square(*given))
    with rejected():
        assert_frequency(num_inside(60), 180, 0.95)


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("robust", [False, True])
def test_normal_equations_spend_the_budget_and_no_more(relation, robust):
    budget = dps.Budget(epsilon=1.0, delta=1e-6, relation=relation)
    data = line(domain=dps.domains.Ball(9.0))
    certificate = quietly(data, budget, robust=robust).certificate
    total = math.hypot(*(event.gdp for event in certificate.event.events))
    assert total == pytest.approx(module.gdp_from_budget(1.0, 1e-6), rel=1e-6)
    assert dps.verify(certificate).checks and certificate.releasable
    numbers = dict(certificate.inputs)
    if not robust:  # |y| may be 4 in one record and 0 in its neighbor
        moved = 16.0 / data.num_records
        assert numbers["square_stddev"] * numbers["matrix_gdp"] >= moved


@pytest.mark.parametrize(
    "change",
    [
        lambda rows, y: (np.tile(rows[0], (len(rows), 1)), y),
        lambda rows, y: (0.0 * rows, y),
        lambda rows, y: (rows, 0.0 * y),
    ],
    ids=["duplicates", "zero rows", "no response"],
)
def test_normal_equations_of_hostile_records_say_so(change):
    with pytest.warns(UserWarning, match="Use "):
        bars = dps.intervals(line(300, change=change), BUDGET)
    assert bars.diagnostics["flags"] and (bars.lower < bars.upper).all()


@one_in(3)
@pytest.mark.parametrize(("loss", "bandwidth"), LOSSES.values(), ids=LOSSES)
def test_every_loss_has_a_certificate_that_verifies(loss, bandwidth):
    bars = quietly(problem(loss=loss, n=500), BUDGET, bandwidth=bandwidth)
    c = bars.certificate
    assert c.releasable and 0.999 < c.epsilon_proved <= 1.0 + 1e-9
    assert dps.verify(c).checks
    assert EventCertificate.from_json(c.to_json()) == c
    assert c.statement.startswith("(1, 1e-06)-DP under replace_one")
    with pytest.raises(ValueError, match="unknown"):  # not accounted there: said so
        dps.verify(c, checker="ball")


@one_in(2)
@pytest.mark.parametrize(
    "options",
    [
        {"domain": dps.domains.WholeSpace()},
        {"domain": dps.domains.Box(-9.0, 9.0)},
        {"domain": dps.domains.Ball(9.0, p=1.0)},
        {"intercept": True},
        {"row_bound": 0.1, "clip_rows": True},
        {"row_norm": np.inf},
        {"offset": np.full(4000, 0.1), "offset_bound": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("base", ["objective", "noisy_gd"])
def test_domains_intercepts_clipped_rows_and_offsets(base, options):
    relation = dps.Budget(epsilon=2.0, delta=1e-6, relation="zero_out")
    bars = quietly(problem(**options), relation, base=base)
    assert np.isfinite(bars.theta).all() and dps.verify(bars.certificate).checks
    assert list(bars.to_frame().index) == list(bars.feature_names)


def test_sparse_records_give_the_same_intervals():
    dense = problem()
    thin = dps.Problem(
        sparse.csr_matrix(dense.data.dense),
        dense.data.response,
        loss=dense.loss,
        domain=dense.domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    first, second = (quietly(each, BUDGET, seed=1) for each in (dense, thin))
    assert np.allclose(first.theta, second.theta, atol=1e-3)
    assert np.allclose(first.se, second.se, rtol=1e-3)


@one_in(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda rows, y: (np.tile(rows[0], (len(rows), 1)), y),
        lambda rows, y: (0.0 * rows, y),
        lambda rows, y: (rows, np.ones_like(y)),
        lambda rows, y: (rows, np.sign(rows[:, 0] + 1e-9)),
    ],
    ids=["duplicates", "zero rows", "one label", "separable"],
)
@pytest.mark.parametrize("base", ["objective", "noisy_gd"])
def test_no_records_raise_and_doubtful_intervals_say_so(change, base):
    data = problem(n=300)
    rows, labels = change(data.data.dense, data.data.response)
    hostile = dps.Problem(
        rows, labels, loss=data.loss, domain=dps.domains.Ball(1.0), row_bound=1.0
    )
    ledger = Ledger()
    with pytest.warns(UserWarning, match="Use ") as told:
        bars = dps.intervals(hostile, BUDGET, base=base, ledger=ledger)
    # Once for each line of the caller's, of which there may be many.
    assert {each.filename for each in told} == {__file__}
    assert bars.diagnostics["flags"] and len(ledger.entries) == 1
    assert (bars.lower < bars.upper).all() and "NOTE" in repr(bars)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an error would lose the answer
        again = dps.intervals(hostile, BUDGET, base=base, ledger=ledger)
    assert again.diagnostics["flags"]


def test_what_an_eigenvalue_below_zero_gives_covers_everything():
    plan = plan_intervals(
        Sandwich(**LOGISTIC), problem().facts, BUDGET, clip_rows=False
    )
    theta, bad = np.zeros(3), np.diag([1.0, 1.0, -1.0])
    found = module.estimate(plan, problem().facts, theta, bad, None)
    assert np.isinf(found.covariance).all() and found.flags == ("curvature",)


def test_an_edited_certificate_does_not_verify():
    text = quietly(problem(), BUDGET, seed=1).certificate.to_json()
    for old, new in (
        ('"share": 0.3', '"share": 0.2'),
        ('"robust": false', '"robust": true'),
        ('"curvature_stddev",\n   0.00', '"curvature_stddev",\n   0.000'),
        ('"BITS",', ""),
        ("objective/", "objective"),
    ):
        assert old in text, old
        with pytest.raises(ValueError, match="must be"):
            dps.verify(EventCertificate.from_json(text.replace(old, new)))


def test_grids_are_powers_of_two_to_the_last_digit():
    made = plan_intervals(
        Sandwich(**LOGISTIC | {"robust": True}), problem().facts, BUDGET, clip_rows=True
    ).certificate
    for name in ("curvature_grid", "scores_grid"):
        inputs = dict(made.inputs)
        inputs[name] *= 1.0 - 1e-7
        with pytest.raises(ValueError, match=f"inputs.{name}"):
            dps.verify(replace(made, inputs=tuple(inputs.items()), digest=""))


@pytest.mark.parametrize(
    ("options", "edited"),
    [
        (LOGISTIC | {"robust": True}, "tilt_stddev"),
        (LOGISTIC | {"robust": True}, "output_stddev"),
        (LOGISTIC | {"robust": True}, "curvature_stddev"),
        (LOGISTIC | {"robust": True}, "scores_stddev"),
        (LOGISTIC | {"base": "noisy_gd"}, "noise_stddev"),
    ],
)
def test_less_noise_in_the_seventh_digit_does_not_verify(options, edited):
    asked = Sandwich(**options)
    made = plan_intervals(asked, problem().facts, BUDGET, clip_rows=True).certificate
    assert dps.verify(made).checks
    inputs = dict(made.inputs)
    inputs[edited] *= 1.0 - 5e-7
    with pytest.raises(ValueError, match=f"inputs.{edited}"):
        dps.verify(replace(made, inputs=tuple(inputs.items()), digest=""))


def test_a_seed_is_not_releasable_and_repeats():
    first, second = (quietly(problem(), BUDGET, seed=5) for _ in range(2))
    assert np.array_equal(first.theta, second.theta)
    assert np.array_equal(first.covariance, second.covariance)
    assert not first.certificate.releasable


def test_the_picture_says_what_is_not_private():
    bars = quietly(problem(), BUDGET, seed=1)
    ax = bars.plot(non_private=(TRUTH, np.full(3, 0.1)))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["(1, 1e-06)-DP", "NOT PRIVATE"]
    doubtful = replace(bars, diagnostics={"flags": ("variance",)})
    assert "NOTE: " in doubtful.plot().get_xlabel()
    plt.close("all")


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"loss": dps.losses.Linear()}, {}, "loss must be a built-in loss"),
        ({"loss": dps.losses.Hinge()}, {}, "bandwidth must be given"),
        (
            {"loss": dps.losses.Hinge()},
            {"base": "objective", "bandwidth": 1.0},
            "base must be 'noisy_gd'",
        ),
        ({"loss": dps.losses.Huber()}, {"robust": False}, "robust must be True"),
        ({"domain": dps.domains.Simplex()}, {}, "domain must be a Ball"),
        ({}, {"bandwidth": 0.5}, "bandwidth must be None"),
        ({}, {"level": 1.0}, "level must be"),
        ({}, {"share": 0.0}, "share must be"),
        ({}, {"base": "release"}, "base must be one of"),
        ({}, {"base": "normal_equations"}, "loss must be dps.losses.Squared"),
    ],
    ids=str,
)
def test_what_is_not_covered_is_refused_in_words(changes, options, message):
    with pytest.raises(ValueError, match=message):
        dps.intervals(problem(n=100, **changes), BUDGET, **options)


# Levels that cannot be told apart -------------------------------------------------


def table(n=3000, *, wards=("n", "s", "w")):
    """A number and two columns of levels, and labels that depend on them."""
    from pandas import DataFrame

    rng = np.random.default_rng(5)
    frame = DataFrame(
        {
            "age": rng.uniform(0, 100, n),
            "ward": rng.choice(list(wards), n),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    high = frame["age"] + 40.0 * (frame["ward"] == "s") + rng.normal(0, 30, n) > 60
    frame["ill"] = np.where(high, "yes", "no")
    return frame


BOUNDS = dps.tables.Schema(
    numeric={"age": (0, 100)},
    categorical={"ward": ("n", "s", "w"), "sex": ("f", "m"), "ill": ("no", "yes")},
    reference={"sex": "m"},
)


def of_table(frame, *, intercept=True, domain=None, sparse_rows=False):
    data = dps.tables.from_frame(frame, target="ill", bounds=BOUNDS, clip=True)
    if sparse_rows:
        data = replace(data, features=sparse.csr_array(data.features))
    domain = domain or dps.domains.Ball(30.0)
    loss = dps.losses.Logistic()
    return dps.Problem.from_table(data, loss=loss, domain=domain, intercept=intercept)


@one_in(4)
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_coefficients_of_levels_are_contrasts_to_a_reference(intercept, sparse_rows):
    """Q4: with all levels their sums are equal, and no interval would be finite."""
    made = of_table(table(), intercept=intercept, sparse_rows=sparse_rows)
    bars = quietly(made, dps.Budget(epsilon=30.0, delta=1e-6), seed=1)
    wards = ("ward=s vs n", "ward=w vs n")
    if not intercept:  # one column may keep all its levels
        wards = ("ward=n", "ward=s", "ward=w")
    rest = ("intercept",) if intercept else ()
    assert bars.feature_names == ("age", *wards, "sex=f vs m", *rest)
    assert np.isfinite(bars.se).all() and bars.se.max() < 1.0
    assert bars.theta.shape == (len(bars.feature_names),)
    assert dps.verify(replace(bars.certificate, seeded=False, digest="")).checks
    # A problem that has contrasts is taken as it is.
    columns = ("ward", "sex") if intercept else ("sex",)
    encoding = replace(made.encoding, contrasts=columns)
    positions = positions_without_references(made.encoding, columns)
    again = quietly(
        with_columns(made, positions, encoding),
        dps.Budget(epsilon=30.0, delta=1e-6),
        seed=1,
    )
    np.testing.assert_array_equal(bars.theta, again.theta)


def test_all_levels_would_have_no_finite_intervals():
    """The planted bug: rows without their encoding, so that nobody knows of levels."""
    made = of_table(table())
    blind = dps.Problem(
        made.data.dense[:, :-1],
        made.data.response,
        loss=made.loss,
        domain=made.domain,
        row_bound=1.0,
        intercept=True,
    )
    wide = [
        quietly(blind, dps.Budget(epsilon=3.0, delta=1e-6), seed=seed).se.max()
        for seed in range(8)
    ]
    assert np.isinf(wide).any() or max(wide) > 100.0


def test_what_cannot_be_finite_is_refused_before_anything_is_spent():
    ledger = Ledger()
    few = of_table(table(4))
    with pytest.raises(ValueError, match="num_records must be at least the number of"):
        dps.intervals(few, BUDGET, ledger=ledger)
    boxed = of_table(table(), domain=dps.domains.Box(-9.0, np.full(7, 9.0)))
    with pytest.raises(ValueError, match=r"domain must be of any dimen.*contrasts="):
        dps.intervals(boxed, BUDGET, ledger=ledger)
    assert not ledger.entries
