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
# # A first private release
#
# *To run this notebook:* `pip install '.[plots]'`. The first run compiles for about
# half a minute; later runs take seconds.
#
# You have records about people and want to publish regression coefficients. Published as
# they are, coefficients can give away whether a certain person was among the records.
# Here we publish **one random draw** of the coefficients instead, from a law that hardly
# changes when one record is replaced. With it comes a **certificate**: the public numbers
# and theorems from which anybody can check the claim of privacy.

# %%
import dataclasses

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import dpsample as dps

# %% [markdown]
# ## The records
#
# They are made up: 40 000 hospital stays, and whether the patient came back within a month.
# Each covariate is first scaled to [0, 1] from its *public* range (ages run from 0 to 110,
# whoever the patients are), then centered at the middle of that range. Because the data are
# synthetic we know the coefficients behind them, and can look at things that one must not
# look at with real records.

# %%
RANGES = {
    "age": (0.0, 110.0),
    "days in hospital": (0.0, 30.0),
    "earlier stays": (0.0, 10.0),
    "medicines": (0.0, 20.0),
    "lives alone": (0.0, 1.0),
}
NUM_RECORDS = 40_000

rng = np.random.default_rng(2026)
columns = np.column_stack(
    [
        rng.normal(58.0, 20.0, NUM_RECORDS),
        rng.gamma(2.0, 4.0, NUM_RECORDS),
        rng.poisson(2.5, NUM_RECORDS),
        rng.poisson(8.0, NUM_RECORDS),
        rng.integers(0, 2, NUM_RECORDS),
    ]
)
lowest, highest = np.transpose(list(RANGES.values()))
centered = 2.0 * (np.clip(columns, lowest, highest) - lowest) / (highest - lowest) - 1.0
# Every entry is now in [-1, 1]. Divided by the square root of their number, the entries
# of a row form a vector of length at most 1, for any patient who can exist.
features = centered / np.sqrt(len(RANGES))

truth = np.array([1.5, 1.0, 2.5, -0.5, 0.8])
chance = 1.0 / (1.0 + np.exp(-features @ truth))
came_back = np.where(rng.random(NUM_RECORDS) < chance, 1.0, -1.0)

# %% [markdown]
# ## The problem: data, loss, domain, and a declared bound
#
# `row_bound=1.0` is a public fact that *you* declare: no possible record is longer. It is
# never computed from the records, for a maximum over records gives a record away. `Problem`
# refuses a record above the bound, or shortens it with `clip_rows=True`.
#
# The domain says where coefficients are searched: here, in the ball of radius 5.

# %%
problem = dps.Problem(
    features,
    came_back,
    loss=dps.losses.Logistic(),
    domain=dps.domains.Ball(radius=5.0),
    row_bound=1.0,
    feature_names=list(RANGES),
)
problem

# %% [markdown]
# ## The budget
#
# (ε, δ) is a promise about *every* event S and every two data sets that differ in one
# record:
#
# $$\Pr(\text{answer} \in S \text{ on one}) \le e^\varepsilon
#   \Pr(\text{answer} \in S \text{ on the other}) + \delta .$$
#
# Here ε = 1, and δ is one in a million. `relation="replace_one"`, the default, says what
# differing in one record means: one record replaced by any other, their number n unchanged.

# %%
budget = dps.Budget(epsilon=1.0, delta=1e-6, relation="replace_one")

# %% [markdown]
# ## The release
#
# One line. It calibrates the law to the budget, draws from it once with random bits of the
# operating system (there is no seed: your numbers will differ from those of the next
# person) and proves how far the law of the draw can be from the ideal law.

# %%
answer = dps.release(problem, budget)
for name, value in zip(answer.feature_names, answer.theta, strict=True):
    print(f"{name:>17} {value:6.2f}")

# %%
ax = answer.plot()
ax.margins(y=0.15)
ax.figure.tight_layout()

# %% [markdown]
# *What to see.* A point is a released coefficient. Its bar is not a confidence interval
# for the truth: it is the largest standard deviation that the mechanism's own randomness
# can have, a public number. The sampling error of the records comes on top of it, as in any
# regression.

# %% [markdown]
# ## The certificate, line by line

# %%
print(answer.certificate.details())

# %% [markdown]
# | line | what it says |
# |---|---|
# | guarantee | The promise, with its relation. It is about *this one draw*. |
# | releasable | Yes: no seed was used, and every step from the inputs to the promise is a theorem. |
# | density | The draw comes from the density ∝ exp(−k (F + μ r)) on the domain. F is the mean loss of the records, r a regularizer (half the squared length, up to a public constant). Large k: close to the best coefficients. Large kμ: close to the center, whatever the records. |
# | privacy | Two exact draws, on neighboring data sets, are no easier to tell apart than N(0, 1) and N(gdp, 1). That costs δ₀ at ε = 1. |
# | sampler | Exact draws are not possible in general. The sampler's error, the total-variation distance γ between the law of the draw and the ideal law, is proved to be below the number shown, and paid for: δ₀ + (1 + e^ε) γ ≤ δ. |
# | risk bound | A worst-case bound of the expected loss above the smallest possible one. What happens is usually several times better. |
# | loss, domain, regularizer, records | All public inputs. The records enter through n only. |
# | sensitivity | One record's loss has slope at most G. Replacing a record changes the slope of n F by at most 2 G, which is called G_Δ. |
# | theorems | Every result that the promise rests on, with its source. |
# | spending, settings | What δ is spent on, and the options of the calibration. |
# | fallback | What only another way to draw rests on. |
# | assumptions | What no theorem can give: that the declared bounds hold, that random bits are random. |
#
# Nothing in the certificate depends on the records: publish it with the coefficients.

# %% [markdown]
# ## What the promise means for a test
#
# Somebody knows all records but one, sees the coefficients, and tests whether the last
# record is Ms. Miller's or Mr. Smith's. If the level of that test is α, what power can it
# have? Two bounds hold together: the one by gdp (the power at level α of the best test
# between N(0, 1) and N(gdp, 1)), up to the sampler's error, and the one by (ε, δ).

# %%
certificate = answer.certificate
level = np.linspace(0.0, 1.0, 401)
gaussian = norm.cdf(norm.ppf(level) + certificate.gdp)
by_epsilon = np.minimum.reduce(
    [
        np.exp(budget.epsilon) * level + budget.delta,
        1.0 - np.exp(-budget.epsilon) * (1.0 - level - budget.delta),
        np.ones_like(level),
    ]
)

fig, ax = plt.subplots(figsize=(4.5, 4.5))
ax.plot(level, by_epsilon, color="0.6", label="any mechanism with this (ε, δ)")
ax.plot(level, gaussian, color="C0", label="this mechanism")
ax.plot(level, level, "--", color="0.6", label="tossing a coin")
ax.set_xlabel("level of the test")
ax.set_ylabel("largest power")
ax.set_aspect("equal")
ax.legend(frameon=False, loc="lower right")
fig.tight_layout()
power = norm.cdf(norm.ppf(0.05) + certificate.gdp)
print(f"At level 5 %, the power is at most {100 * power:.1f} %.")

# %% [markdown]
# *What to see.* The best test about one record is barely better than a coin with the same
# level. The blue curve is what the certificate proves (a change of both axes by γ, below
# 10⁻⁷, is not visible).

# %% [markdown]
# ## Checking it
#
# `verify` recomputes every number of the certificate from its public inputs. It needs no
# records, and fails loudly if a number was changed.

# %%
print(dps.verify(certificate))

# %%
# A nicer number than the proved one, with a new seal, as if it had been written so.
nicer = dataclasses.replace(certificate, gdp=0.5 * certificate.gdp, digest="")
try:
    dps.verify(dps.Certificate.from_json(nicer.to_json()))
except ValueError as error:
    print(error)

# %% [markdown]
# The answer and its certificate travel in one JSON file: `answer.save("answer.json")` and
# `dps.Release.load("answer.json")`. Whatever is computed from the coefficients alone, such
# as `answer.predict(new_patients)`, is as private as they are.

# %% [markdown]
# ## What privacy cost
#
# With synthetic records we may look behind the curtain. We draw the whole law, many times,
# with `dps.sample`; the draws say about themselves that they are *not releasable*. The best
# coefficients in the ball, which nobody could publish, are for comparison.

# %%
target = answer.mechanism.target(problem)
draws = dps.sample(target, num_draws=1_000, num_chains=4, seed=1, progress=False)
theta = draws.posterior["theta"].values.reshape(-1, problem.dim)
best = answer.nonprivate_diagnostics["non_private_theta"]
print("releasable:", bool(draws.attrs["releasable"]))

fig, ax = plt.subplots(figsize=(7.0, 3.2))
place = np.arange(problem.dim)
ax.violinplot(theta, place, orientation="horizontal", widths=0.8, showextrema=False)
ax.plot(best, place, "x", color="C1", label="best in the ball, not private")
ax.plot(truth, place, "|", color="k", ms=14, label="coefficients behind the data")
ax.plot(answer.theta, place, "o", color="C0", ms=5, label="released")
ax.set_yticks(place, list(RANGES))
ax.invert_yaxis()
ax.set_xlabel("coefficient")
ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1.0))
fig.tight_layout()

# %% [markdown]
# *What to see.* Each shape is the law of one coefficient; the release is one point of it.
# The shapes lie between the best coefficients and zero, because the regularizer pulls. The
# black marks differ from the crosses by the sampling error of the records, which privacy
# has nothing to do with.

# %%
pull = theta.mean(axis=0) - best
mechanism_sd = theta.std(axis=0)
weights = chance * (1.0 - chance)
sampling_sd = np.sqrt(np.diag(np.linalg.inv((features.T * weights) @ features)))
print(f"{'coefficient':>17} {'pull':>8} {'sd of the draw':>16} {'standard error':>16}")
for name, *numbers in zip(RANGES, pull, mechanism_sd, sampling_sd, strict=True):
    print(f"{name:>17} {numbers[0]:8.3f} {numbers[1]:16.3f} {numbers[2]:16.3f}")

# %% [markdown]
# The standard deviation of the draw is the price of privacy. It falls with the number of
# records and with a larger ε, and its square adds to that of the last column, the usual
# standard error of logistic regression with these records. The pull is mostly not about
# privacy: with this many records its μ is the one that keeps the proved bound of the loss
# on *new* records small, whatever ε. `risk="empirical"` chooses less pull and more spread.

# %% [markdown]
# ## Two releases cost more than one
#
# The certificate is about one draw. A second draw from the same records reveals more, and
# drawing until the result is pleasing breaks the promise. A ledger adds up what was spent.

# %%
ledger = dps.privacy.Ledger()
ledger.add(certificate, label="coefficients")
ledger.add(certificate, label="coefficients, drawn again")
print(f"epsilon of both together at delta = 2e-6: {ledger.epsilon(delta=2e-6):.2f}")

# %% [markdown]
# Two Gaussian distances add up like the sides of a right triangle, so two releases cost
# less than twice ε.
#
# **Next:** [choosing and diagnosing a sampler](02_diagnosing_a_sampler.py) shows how the
# many draws above are made and checked; [auditing](05_auditing.py), how to test a claim of
# privacy from outside.
