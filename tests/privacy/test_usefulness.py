"""What public facts show to be useless is said before anything is spent, or drawn."""

import math
import warnings

import numpy as np
import pytest

import dpsample as dps
from dpsample import cli, losses
from dpsample.estimators import PrivateLogisticRegression
from dpsample.privacy import usefulness
from tests.contracts import pieces
from tests.contracts.public_objects import linear_gradient
from tests.support.public_facts import BUDGET, logistic_facts

pytestmark = pytest.mark.filterwarnings("error:Public facts show")
MANY = 121  # coefficients of 120 indicators and an intercept


def problem(n=3000, dim=3, *, radius=2.0, loss=None):
    data = dps.datasets.logistic(n, dim, seed=1)
    return dps.Problem(
        data.features,
        data.response,
        loss=loss or losses.Logistic(),
        domain=dps.domains.Ball(radius),
        row_bound=1.0,
    )


VERBS = {
    "release": lambda p, **options: dps.release(p, BUDGET, **options),
    "minimize": lambda p, **options: dps.minimize(
        p, dps.optimizers.NoisyGD(num_steps=5), BUDGET, **options
    ),
    "clipped": lambda p, **options: dps.minimize(
        p,
        dps.optimizers.DPSGD(sampling_rate=0.1, num_steps=9, clip=1.0),
        BUDGET,
        **options,
    ),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_radius_out_of_proportion_is_told_before_the_ledger_is_charged(name):
    """Q5: the answer had a loss of 9.8, where the point 0 has 0.693."""
    ledger = dps.privacy.Ledger()
    words = r"^Public facts show that noise may cost .* 0\.693.* Use a radius below"
    with pytest.raises(UserWarning, match=words):  # here warnings are errors
        VERBS[name](problem(radius=1e4), ledger=ledger)
    assert ledger.entries == ()
    VERBS[name](problem(), ledger=ledger, seed=1)
    assert len(ledger.entries) == 1


@pytest.mark.parametrize("name", VERBS)
def test_more_columns_than_the_records_can_tell_are_counted(name):
    words = r"3000 records support about 104 coeff.* there are 121.*drop columns"
    with pytest.raises(UserWarning, match=words):
        VERBS[name](problem(dim=MANY))


def test_advice_and_estimators_say_it_too():
    given = problem(dim=MANY)
    with pytest.raises(UserWarning, match="support about 104 coefficients"):
        dps.advise(given, BUDGET)
    with pytest.raises(UserWarning, match="show that noise may cost"):
        dps.advise(problem(radius=1e4).facts, BUDGET)
    rng = np.random.default_rng(1)
    levels = [f"level {j}" for j in range(MANY - 1)]
    import pandas as pd

    rows = pd.DataFrame({"c": rng.choice(levels, 3000)})
    model = PrivateLogisticRegression(
        bounds={"categorical": {"c": levels}}, classes=(0, 1), random_state=1
    )
    with pytest.raises(UserWarning, match="Merge rare levels"):
        model.fit(rows, rng.integers(2, size=3000))


def test_the_command_line_says_it_on_stderr(tmp_path, capsys):
    rng, path = np.random.default_rng(1), tmp_path / "r.csv"
    lines = [f"{x:.3f},{'yes' if x > 0.5 else 'no'}" for x in rng.random(200)]
    path.write_text("\n".join(["x,ill", *lines]))
    (tmp_path / "b.toml").write_text(
        '[numeric]\nx = [0, 1]\n[categorical]\nill = ["no", "yes"]\n'
    )
    command = ["release", str(path), "--target", "ill", "--loss", "logistic"]
    command += ["--epsilon", "1", "--delta", "1e-6", "--positive-label", "yes"]
    command += ["--bounds", str(tmp_path / "b.toml"), "--radius"]
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        assert cli.main([*command, "1e4"]) == 0
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "dpsample: Public facts show" in told
        assert cli.main([*command, "1"]) == 0
        assert capsys.readouterr().err == ""


def test_the_same_is_said_of_all_records():
    said = []
    for labels in (np.ones(400), np.resize([1.0, -1.0], 400)):
        rows = np.eye(400, 40) * (labels.min() < 0.0)
        known = problem(400, 40).with_records(rows, labels)
        with pytest.raises(UserWarning) as told:
            dps.release(known, BUDGET)
        said.append(str(told.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", pieces.LOSSES)
def test_the_answer_0_loses_no_more_than_is_said(kind):
    """By all responses, against the least loss on the margins of the domain."""
    for loss in pieces.examples(kind, 2):
        facts = logistic_facts(loss=loss, response_bound=1.3)
        u = np.linspace(-facts.margin_bound, facts.margin_bound, 201)
        ys = (-1.0, 1.0) if loss.is_classification else np.linspace(-1.3, 1.3, 27)
        excess = max(float(loss.value(0.0, y) - loss.value(u, y).min()) for y in ys)
        assert excess <= usefulness.loss_of_zero(facts) * (1.0 + 1e-12)


@pytest.mark.parametrize("kind", pieces.LOSSES)
def test_the_formula_of_the_noise_is_a_lower_bound(kind):
    """Of the noise's cost, for random Hessians of records within their bounds."""
    rng, dim, n = np.random.default_rng(2), 6, 500
    for loss in pieces.examples(kind, 1):
        facts = logistic_facts(loss=loss, response_bound=1.0, dim=dim, num_records=n)
        most = usefulness.max_coefficients(facts, BUDGET)
        beta = dps.problem.facts.smoothness_or_inf(facts)
        if isinstance(loss, losses.CalibratedLogistic | losses.CappedLogistic):
            continue  # counted as the logistic loss
        if not (math.isfinite(most) and math.isfinite(beta)):
            continue
        gdp = dps.privacy.gdp_from_budget(BUDGET.epsilon, BUDGET.delta)
        stddev = 2.0 * facts.lipschitz(2.0) / (n * gdp)
        share = usefulness.NOISE_SHARE * (dim / most) ** 2
        for _ in range(20):
            rows = rng.normal(size=(n, dim)) * rng.exponential(size=dim)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            hessian = beta * rows.T @ rows / n
            cost = 0.5 * stddev**2 * np.trace(np.linalg.inv(hessian))
            assert cost >= share * usefulness.loss_of_zero(facts) * (1.0 - 1e-9)


def test_few_records_unbounded_domains_and_huge_sets_are_no_alarms():
    own = losses.Custom(label="own", declared_slope=2.0)
    for facts in (
        logistic_facts(num_records=usefulness.MIN_RECORDS - 1),
        logistic_facts(domain=dps.domains.WholeSpace()),
        logistic_facts(num_records=10**9, dim=1000),
        logistic_facts(loss=losses.Squared(), response_bound=math.inf),
        logistic_facts(loss=own, response_bound=1.0),
        logistic_facts(loss=losses.record_gradient(linear_gradient)),
    ):
        for bound in (0.1, math.nan, math.inf):
            assert usefulness.reservations(facts, BUDGET, bound) == ()
