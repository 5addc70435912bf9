"""Make the figures of the documentation: ``python notebooks/figures.py``.

Every number follows from a seed, so the files change only if the package does.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import dpsample as dps

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
SIZE = (6.4, 3.4)


def save(figure, name):
    """Write one small file."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.png"
    # Without a version of matplotlib in the file, it is the same on every machine.
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def localization():
    """Parabolas below one record's loss, valid globally and where the mass is."""
    loss, label = dps.losses.Logistic(), np.ones(1)
    margin, t = np.array([1.0]), np.linspace(-7.0, 7.0, 400)
    excess = loss.value(margin + t, label) - loss.value(margin, label)
    excess -= loss.slope(margin, label) * t
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    ax.plot(t, excess, label="loss of a record above its tangent")
    for half, style, name in ((7.0, ":", "domain"), (2.5, "--", "localized region")):
        bound = loss.bregman_curvature(margin, margin - half, margin + half, label)
        is_near = np.abs(t) <= half
        ax.plot(
            t[is_near],
            0.5 * bound * t[is_near] ** 2,
            style,
            label=f"below, on the {name}",
        )
    ax.axvspan(-2.5, 2.5, color="0.93", zorder=0)
    ax.set_xlabel("move of the record's margin")
    ax.set_ylim(0.0, 2.5)
    ax.legend(frameon=False, fontsize="small", loc="upper center")
    save(figure, "localization")


def release():
    """One private draw, the distribution that it comes from, and what it replaces."""
    data = dps.datasets.logistic(2_000, 5, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(2.0),
        row_bound=1.0,
    )
    answer = dps.release(problem, BUDGET, seed=2)
    target = answer.mechanism.target(problem)
    draws = dps.sample(target, seed=1, progress=False)
    theta = draws.posterior["theta"].values.reshape(-1, problem.dim)
    best = answer.nonprivate_diagnostics["non_private_theta"]
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    positions = np.arange(problem.dim)
    shapes = ax.violinplot(theta, positions, widths=0.8, showextrema=False)
    shapes["bodies"][0].set_label("distribution of draws (NOT PRIVATE)")
    ax.plot(positions, answer.theta, "o", ms=5, label="released")
    ax.plot(positions, best, "x", label="best in the ball (NOT PRIVATE)")
    ax.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    ax.set_xticks(positions)
    ax.set_xlabel("coefficient")
    ax.set_ylabel("value")
    ax.set_title("One draw at epsilon 1 and delta 1e-6", fontsize="medium")
    figure.legend(ncols=3, loc="outside lower center", fontsize="small")
    save(figure, "release")


def total_variation():
    """Couplings see a few percent, the theorem goes on."""
    data = dps.datasets.logistic(2_000, 10, seed=1)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Hinge(),
        domain=dps.domains.Ball(1.0, p=1.2),
        row_bound=1.0,
    )
    target = dps.calibrate(problem, BUDGET, p=1.2).target(problem)
    proximal = dps.diagnostics.tv_bound(
        target,
        dps.samplers.Proximal(),
        replicates=1_000,
        lag=5,
        steps=np.arange(1, 13),
        seed=1,
    )
    walk = dps.diagnostics.tv_bound(
        target,
        dps.samplers.RandomWalk(),
        replicates=200,
        steps=[20, 50, 100, 200, 300, 400, 600],
        max_steps=20_000,
        seed=1,
    )
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    for bound, marker, name in ((walk, "s", "RandomWalk"), (proximal, "v", "Proximal")):
        label = f"{name}: 95% limit from couplings"
        ax.plot(bound.steps, bound.upper, f"{marker}-", ms=4, lw=1, label=label)
    ax.plot(proximal.steps, proximal.proved, "k--", label="Proximal: proved")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(1e-12, 3.0)
    ax.set_xlabel("steps")
    ax.set_ylabel("total variation to the target")
    ax.set_title("Hinge loss, l_1.2 regularizer, 10 coefficients", fontsize="medium")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    save(figure, "total-variation")


def factor_two():
    """What the printed constants of the exponential mechanism really spend."""
    facts = dps.PublicFacts(
        num_records=10_000,
        dim=50,
        row_bound=1.0,
        row_norm=2.0,
        loss=dps.losses.Linear(),
        domain=dps.domains.Ball(1.0),
    )
    claims = np.geomspace(0.1, 8.0, 60)
    figure, ax = plt.subplots(figsize=SIZE, layout="constrained")
    for delta, style in ((1e-3, "-"), (1e-6, "--"), (1e-9, ":")):
        ratios = []
        for epsilon in claims:
            claim = dps.Budget(epsilon=float(epsilon), delta=delta)
            printed = dps.calibrate(facts, claim, calibration="paper")
            true = dps.privacy.gaussian_epsilon(delta, printed.gdp)
            ratios.append(true / epsilon)
        ax.plot(claims, ratios, style, color="C3", label=f"delta = {delta:g}")
    ax.axhline(1.0, color="0.6", lw=0.8)
    ax.set_xscale("log")
    ax.set_xlabel("claimed epsilon")
    ax.set_ylabel("true / claimed epsilon")
    ax.set_title("Printed constants, without the factor 2", fontsize="medium")
    ax.legend(frameon=False)
    save(figure, "factor-two")


def intervals():
    """Private intervals beside classical ones."""
    rng = np.random.default_rng(3)
    names = ["age", "income", "visits", "distance", "member"]
    truth = np.array([1.5, -1.0, 0.0, -2.0, 2.0])
    rows = rng.uniform(-1.0, 1.0, (20_000, 5)) / np.sqrt(5.0)
    chance = 1.0 / (1.0 + np.exp(-rows @ truth))
    problem = dps.Problem(
        rows,
        np.where(rng.random(len(rows)) < chance, 1.0, -1.0),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(20.0),
        row_bound=1.0,
        feature_names=names,
    )
    plain = dps.minimize(
        problem, dps.optimizers.ObjectivePerturbation(ridge=1e-7), None
    ).theta
    margins = problem.margins(plain)
    curved = problem.loss.curvature(margins, margins, problem.data.response)[1]
    error = np.sqrt(np.diag(np.linalg.inv((rows.T * curved) @ rows)))
    bars = dps.intervals(problem, BUDGET, seed=1)
    figure, ax = plt.subplots(figsize=(6.4, 2.8), layout="constrained")
    bars.plot(ax, non_private=(plain, error))
    save(figure, "intervals")


if __name__ == "__main__":
    intervals()
    localization()
    release()
    total_variation()
    factor_two()
