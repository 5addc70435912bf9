# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The price of privacy
#
# A private estimate is a random one: noise is what hides a single record. This notebook
# measures what the noise costs. It compares three mechanisms at exactly the same promise,
# (ε, δ)-differential privacy, and asks how far their fitted coefficients are from the best
# ones as ε, the number of records n, the number of coefficients d and the geometry of the
# problem change.
#
# (ε, δ) says: for any two data sets that differ in one record, any event has a probability
# of at most e^ε times that under the other data set, plus δ. Nobody who sees the result can
# be much surer than before that a given record was used. ε = 0.1 is strong protection,
# ε = 10 is weak; δ is the probability of bad luck and is kept tiny.

# %%
import functools
import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import dpsample as dps

DELTA = 1e-6
RADIUS = 5.0  # coefficients are searched in the ball |theta| <= 5
SIGNAL = 4.0  # length of the true coefficients
NUM_DATA, NUM_RUNS = 3, 4  # data sets, and private runs on each of them


def budget_of(epsilon):
    """Budget of every mechanism: neighbors differ in one replaced record."""
    return dps.Budget(epsilon=epsilon, delta=DELTA)


# %% [markdown]
# ## A model whose risk is known
#
# Records come from a logistic model: a row a is a uniform direction of length 1, and the
# label is 1 with probability 1/(1 + exp(-⟨a, θ*⟩)), else -1. The loss is the log-loss.
#
# * The **empirical** excess risk of θ is its mean loss on the data, minus the smallest mean
#   loss on the data in the ball.
# * The **population** excess risk is its expected loss on a new record, minus that of θ*.
#   Labels are integrated out, so it is the mean Kullback–Leibler divergence between the
#   true and the fitted probability of a label; 20 000 fresh rows stand for all rows.
#
# The first says how well a mechanism optimizes, the second how well it predicts.


# %%
def truth_of(dim):
    """True coefficients; the model does not care for their direction."""
    return np.full(dim, SIGNAL / math.sqrt(dim))


def rows_of(rng, num_records, dim):
    """Directions, shortened by less than rounding, so that the bound 1 holds."""
    rows = rng.standard_normal((num_records, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * (1.0 - 1e-14)


@functools.cache
def problem_of(num_records, dim, index=0, loss=None):
    """Synthetic data set number ``index``, with its public bounds."""
    rng = np.random.default_rng((index, num_records, dim))
    rows = rows_of(rng, num_records, dim)
    probability = expit(rows @ truth_of(dim))
    labels = np.where(rng.random(num_records) < probability, 1.0, -1.0)
    return dps.Problem(
        rows,
        labels,
        loss=loss or dps.losses.Logistic(),
        domain=dps.domains.Ball(RADIUS),
        row_bound=1.0,
    )


@functools.cache
def fresh_rows(dim):
    """Rows for population risks, and the true margins."""
    rows = rows_of(np.random.default_rng(2026), 20_000, dim)
    return rows, rows @ truth_of(dim)


def population_excess(theta):
    """Kullback-Leibler divergence from the truth, in nats per record."""
    rows, margins = fresh_rows(len(theta))
    fitted, share = rows @ theta, expit(margins)
    heads = np.logaddexp(0.0, -fitted) - np.logaddexp(0.0, -margins)
    tails = np.logaddexp(0.0, fitted) - np.logaddexp(0.0, margins)
    return float((share * heads + (1.0 - share) * tails).mean())


@functools.cache
def without_privacy(problem):
    """Best coefficients in the ball: gradient descent until nothing moves."""
    descent = dps.optimizers.ClippedGD(num_steps=3000, clip=1.0)
    return dps.minimize(problem, descent).theta


# %% [markdown]
# ## Three mechanisms, one promise
#
# * The **exponential mechanism** (`dps.release`) draws θ from the density proportional to
#   exp(-k (F(θ) + μ|θ|²/2)) on the ball, F being the empirical risk. It looks like a
#   tempered posterior, and one draw from it is private.
# * **Objective perturbation** adds a random linear term and a ridge to F and minimizes.
# * **DP-SGD** is gradient descent on random subsamples with Gaussian noise in every step.
#
# All numbers (k, μ, noise, ridge, step sizes) come from public facts: n, d, the ball, the
# bound of the rows and the budget. Nothing is tuned on the data. DP-SGD needs to be told a
# sampling rate and a number of steps; it gets one choice for all that follows.

# %%
DP_SGD = dps.optimizers.DPSGD(sampling_rate=0.1, num_steps=500)


def exponential(problem, budget, risk, **study):
    """Runs of the exponential mechanism, and the proved bound of its mean risk."""
    runs = dps.replicate(dps.release, problem, budget, risk=risk, **study)
    return runs, runs.certificate.risk_bound


def objective(problem, budget, risk, **study):
    """Runs of objective perturbation, and its bound."""
    method = dps.optimizers.ObjectivePerturbation(risk=risk)
    runs = dps.replicate(dps.minimize, problem, method, budget, **study)
    return runs, dict(runs.certificate.inputs)["risk_bound"]


def descent(problem, budget, risk, method=DP_SGD, **study):
    """Runs of DP-SGD; its bound is one of the empirical risk only."""
    runs = dps.replicate(dps.minimize, problem, method, budget, **study)
    is_bounded = risk == "empirical"
    return runs, method.risk_bound(problem.facts, budget) if is_bounded else math.nan


METHODS = {
    "exponential mechanism": exponential,
    "objective perturbation": objective,
    "DP-SGD": descent,
}
STYLES = {
    "exponential mechanism": {"color": "black", "marker": "o", "linestyle": "-"},
    "objective perturbation": {"color": "tab:blue", "marker": "s", "linestyle": "--"},
    "DP-SGD": {"color": "tab:orange", "marker": "^", "linestyle": "-."},
}

example, budget = problem_of(2_000, 10), budget_of(1.0)
for name, run in METHODS.items():
    runs, _ = run(example, budget, "population", num_replicates=1, seed=0)
    dps.verify(runs.certificate)  # recomputes its numbers, and fails if they disagree
    print(f"{name:23}", runs.certificate.statement.split(":")[0])


# %% [markdown]
# ## Risk against ε
#
# For every ε, each mechanism runs a few times on each of a few data sets. Lines are means,
# bands reach from the 10 % to the 90 % quantile of the runs. The thin dotted lines, with the
# same markers, are the proved bounds of the mean, which hold for every data set and model.


# %%
def excesses(name, risk, num_records, dim, epsilon, loss=None):
    """Excess risks of all runs, and the bound of their mean."""
    values = []
    for index in range(NUM_DATA):
        problem = problem_of(num_records, dim, index, loss)
        runs, bound = METHODS[name](
            problem,
            budget_of(epsilon),
            risk,
            num_replicates=NUM_RUNS,
            seed=index,
            evaluate=problem,
        )
        if risk == "empirical":
            values += list(runs.values - problem.risk(without_privacy(problem)))
        else:
            values += [population_excess(theta) for theta in runs.thetas]
    return np.array(values), bound


def plot_runs(ax, x, values, bounds, name):
    """Mean, band and bound of one mechanism; one row of values for each x."""
    style = STYLES[name]
    ax.plot(x, values.mean(axis=1), label=name, markersize=5, **style)
    band = np.quantile(values, (0.1, 0.9), axis=1)
    ax.fill_between(x, *band, color=style["color"], alpha=0.15, linewidth=0)
    thin = style | {"linestyle": ":", "linewidth": 1, "markersize": 3}
    ax.plot(x, bounds, markerfacecolor="white", **thin)


def figure(cases, x, label):
    """Empirical and population risks of all methods over the cases."""
    fig, panels = plt.subplots(
        1, 2, figsize=(9.5, 4), layout="constrained", sharey=True
    )
    for ax, risk in zip(panels, ("empirical", "population"), strict=True):
        for name in METHODS:
            found = [excesses(name, risk, **case) for case in cases]
            values = np.array([runs for runs, _ in found])
            plot_runs(ax, x, values, [bound for _, bound in found], name)
        problems = [
            [problem_of(c["num_records"], c["dim"], i) for i in range(NUM_DATA)]
            for c in cases
        ]
        if risk == "empirical":
            nothing = [
                np.mean(
                    [p.risk(np.zeros(p.dim)) - p.risk(without_privacy(p)) for p in row]
                )
                for row in problems
            ]
        else:
            nothing = [population_excess(np.zeros(row[0].dim)) for row in problems]
            least = [
                np.mean([population_excess(without_privacy(p)) for p in row])
                for row in problems
            ]
            ax.plot(x, least, color="0.5", linewidth=3, label="no privacy")
        ax.plot(x, nothing, color="0.5", linestyle=(0, (1, 3)), label="θ = 0: no data")
        ax.set(xscale="log", yscale="log", xlabel=label, title=f"{risk} risk")
    panels[0].set_ylabel("excess risk (nats per record)")
    panels[1].legend(fontsize="small")
    return panels


epsilons = np.array([0.1, 0.3, 1.0, 3.0, 10.0])
cases = [{"num_records": 2_000, "dim": 10, "epsilon": float(e)} for e in epsilons]
figure(cases, epsilons, "ε  (n = 2000, d = 10)")
# %%
sizes = np.array([500, 1_000, 2_000, 4_000, 8_000])
cases = [{"num_records": int(n), "dim": 10, "epsilon": 1.0} for n in sizes]
figure(cases, sizes, "number of records n  (ε = 1, d = 10)")
# %%
dims = np.array([2, 5, 10, 20, 50])
cases = [{"num_records": 2_000, "dim": int(d), "epsilon": 1.0} for d in dims]
figure(cases, dims, "number of coefficients d  (ε = 1, n = 2000)")
