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
# # Choosing and diagnosing a sampler on a hard target
#
# *To run this notebook:* `pip install '.[plots]'`. The first run compiles for
# about a minute; later runs take seconds.
#
# `dps.release` makes one draw with a proved sampler and needs no diagnosis. But who studies
# a private mechanism (its spread, its risk) needs many draws from the density
# ∝ exp(−k (F + μ r)), and may use any of a dozen samplers for them. This notebook chooses
# one for a target on which most do badly, shows what the usual diagnostics say, and ends
# with a run that passes all of them and is wrong.
#
# Nothing below is a privacy claim. Diagnostics look at draws; a certificate never does.

# %%
import functools
import os
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dpsample as dps
from dpsample import diagnostics, samplers

# In a notebook or terminal, sampling shows one live line per chain; not on this page. And
# `dps.sample` warns by itself of chains that have not converged: here we look ourselves.
sample = functools.partial(dps.sample, progress=False, check=False)

# %% [markdown]
# ## The target
#
# Three things make it hard. The **hinge loss** has a kink for every record, so slopes jump.
# The **regularizer** r is the squared l_p norm with p = 1.2, whose curvature is infinite on
# the axes. And the best coefficients lie close to the **boundary** of the domain, an l_p
# ball, so that a good part of a Gaussian around them would be outside.
#
# Where the environment variable `DPSAMPLE_DATA` names a folder with the public data set
# a9a, its first 4000 records are used (123 indicators of people in a census). Otherwise the
# records are a synthetic stand-in: 2000 records of a logistic model with 10 coefficients.

# %%
is_real = bool(os.environ.get("DPSAMPLE_DATA"))
if is_real:
    data, num_records, num_draws = dps.datasets.load("a9a"), 4_000, 200
else:
    data, num_records, num_draws = (
        dps.datasets.logistic(2_000, 10, seed=1),
        2_000,
        1_000,
    )

problem = dps.Problem(
    data.features[:num_records],
    data.response[:num_records],
    loss=dps.losses.Hinge(),
    domain=dps.domains.Ball(radius=1.0, p=1.2),
    row_bound=1.0,
)
budget = dps.Budget(epsilon=1.0, delta=1e-6)
mechanism = dps.calibrate(problem, budget, p=1.2)
target = mechanism.target(problem)
print(problem)
print(f"k = {target.k:.0f}, mu = {target.mu:.3f}, r: half a squared l_1.2 norm, scaled")

# %% [markdown]
# ## Four samplers, the same number of draws
#
# * `Proximal` adds noise to θ and then draws θ given the noisy point, exactly. It is the
#   sampler of `release`.
# * `HitAndRun` draws exactly from the density on a random line.
# * `RandomWalk` is Metropolis with Gaussian steps, tuned in a pilot run.
# * `LaplaceIndependence` proposes from a fitted Gaussian, whatever the current point.
#
# All leave the target invariant. What differs is how fast they forget where they started.

# %%
CHOICES = {
    "Proximal": samplers.Proximal(),
    "HitAndRun": samplers.HitAndRun(),
    "RandomWalk": samplers.RandomWalk(),
    "LaplaceIndependence": samplers.LaplaceIndependence(),
}


def drawn(name, seed):
    """Draws of one sampler, and the processor seconds that they took."""
    sample(target, sampler=CHOICES[name], num_draws=2, seed=seed)  # compiles
    before = time.process_time()
    draws = sample(
        target, sampler=CHOICES[name], num_draws=num_draws, num_chains=4, seed=seed
    )
    return draws, time.process_time() - before


runs, rows = {}, {}
for name, sampler in CHOICES.items():
    is_supported, reason = sampler.supports(target)
    if not is_supported:
        print(f"{name}: {reason}")
        continue
    runs[name], seconds = drawn(name, seed=3)
    table = diagnostics.summary(runs[name])
    rows[name] = {
        "largest R-hat": table["r_hat"].max(),
        "smallest bulk ESS": table["ess_bulk"].min(),
        "smallest tail ESS": table["ess_tail"].min(),
        "records read per effective draw": table["records_per_ess"].max(),
        "ESS per second": table["ess_bulk"].min() / seconds,
    }
comparison = pd.DataFrame(rows).T
print(comparison.round({"largest R-hat": 3}).to_string(float_format="{:,.3g}".format))

# %% [markdown]
# *What to see.* Each sampler made the same number of draws in four chains. R-hat compares
# the chains with one another: values above 1.01 say that they do not agree yet. The
# **effective sample size** (ESS) says how many independent draws would estimate a mean as
# well; only for `Proximal` is it close to the number of draws. What counts in the end is
# ESS per second (or, on any machine, records read per effective draw): a sampler may be
# slow per step and still win. The seconds are those of this machine, and include tuning.
#
# `sampler="auto"` looks at the target, not at draws, and says why it chooses:

# %%
automatic = sample(target, num_draws=10, num_chains=2, seed=0)
print(automatic.attrs["sampler"], "-", automatic.attrs["sampler_reason"])

# %% [markdown]
# ## Traces and ranks
#
# Two pictures of the same coefficient, the one on which the random walk does worst.

# %%
worst = diagnostics.summary(runs["RandomWalk"])["ess_bulk"].idxmin()
fig, axes = plt.subplots(2, 2, figsize=(9.5, 5.0), layout="constrained", sharex="col")
column = list(target.feature_names).index(worst)
for row, name in zip(axes, ("RandomWalk", "Proximal"), strict=True):
    theta = runs[name].posterior["theta"].values[:, :, column]
    ranks = theta.ravel().argsort().argsort().reshape(theta.shape)
    for chain, chain_ranks in zip(theta, ranks, strict=True):
        row[0].plot(chain, lw=0.6)
        row[1].hist(chain_ranks, bins=20, range=(0, ranks.size), histtype="step")
    row[1].axhline(num_draws / 20, color="k", ls=":")
    row[0].set_ylabel(f"{name}\ncoefficient {worst}")
    row[1].set_ylabel("draws in the bin")
axes[1, 0].set_xlabel("draw; one line per chain")
_ = axes[1, 1].set_xlabel("rank among the draws of all chains")
# %% [markdown]
# *What to see.* Left, the traces: the chains of the random walk wander, each on its own,
# those of the proximal sampler all look like the same noise. Right, the same in numbers: if
# all chains had the same law, each chain's ranks would be uniform (dotted line).
# `diagnostics.plot_trace`, `plot_rank`, `plot_autocorrelation` and `plot_ess_evolution`
# draw this kind of picture for many coefficients at once, through ArviZ.

# %%
print(diagnostics.check(runs["RandomWalk"], target))

# %%
print(diagnostics.check(runs["Proximal"], target))

# %% [markdown]
# `check` looks for what can be seen to be wrong and says what to try. Its last lines are
# to be taken seriously: a run without findings is not a correct run.

# %% [markdown]
# ## How many steps does *one* draw need?
#
# R-hat and ESS are about averages over long chains. For a single draw after T steps the
# question is another one: how far is its law from the target? That distance, the total
# variation, bounds the error of the probability of *every* event.
#
# Coupled chains can bound it. Two chains of the same kernel, one T steps ahead, are moved
# with shared random numbers until they meet; if most pairs have met by step t, the law
# after t steps is close to the limit. The bound is statistical: it has a confidence limit
# and cannot see below 1/(number of pairs). For the proximal sampler there is also a
# **theorem**, the one that `release` uses.

# %%
tv_proximal = diagnostics.tv_bound(
    target, CHOICES["Proximal"], replicates=200, lag=5, steps=np.arange(13), seed=1
)
bounds = {"Proximal": tv_proximal}
if not is_real:  # with 123 coefficients a random walk takes minutes to meet
    bounds["RandomWalk"] = diagnostics.tv_bound(
        target, CHOICES["RandomWalk"], replicates=100, max_steps=20_000, seed=1
    )
print(tv_proximal)

# %%
fig, ax = plt.subplots(figsize=(7.0, 3.8), layout="constrained")
for name, bound in bounds.items():
    label = f"{name}: 95 % upper limit from couplings"
    ax.plot(bound.steps[1:], bound.upper[1:], "v-", ms=4, label=label)
steps = tv_proximal.steps[1:]
ax.plot(steps, tv_proximal.proved[1:], "k-", lw=1, label="Proximal: proved")
ax.set_xscale("log")
ax.set_yscale("log")
ax.set_ylim(1e-12, 2.0)
ax.set_xlabel("steps")
ax.set_ylabel("total variation to the target")
_ = ax.legend(frameon=False, fontsize="small", loc="lower right")
# %% [markdown]
# *What to see.* On the synthetic records the random walk needs hundreds of steps, the
# proximal sampler a few. The statistical curves end at a few percent, where so few pairs see nothing more. Only the proved
# curve (black) goes on; privacy with δ = 10⁻⁶ needs distances far below what any number of
# chains could show. It starts high because the proof uses little: how strongly convex the
# energy is, and how far the start can be from the mode.

# %% [markdown]
# ## A run that passes, and is wrong
#
# Now a smaller problem of the same kind, where the truth can be computed: two coefficients,
# hinge loss, a boundary that cuts the target. The sampler is `LaplaceIndependence`, which is
# cheap and whose proposals are accepted two times out of three. All settings are defaults:
# four chains of 1000 draws, after a pilot run and a warm-up of 100.

# %%
small = dps.datasets.logistic(2_000, 2, seed=1)
small_problem = dps.Problem(
    small.features,
    small.response,
    loss=dps.losses.Hinge(),
    domain=dps.domains.Ball(radius=1.55),
    row_bound=1.0,
)
small_target = dps.calibrate(small_problem, budget).target(small_problem)
independence = samplers.LaplaceIndependence()
suspect = sample(small_target, sampler=independence, seed=19)
columns = ["mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]
print(diagnostics.summary(suspect)[columns].round(4).to_string())
print(diagnostics.check(suspect))

# %% [markdown]
# R-hat is below 1.01, every ESS above 400, and `check`, which was not told the target, finds
# nothing. By the usual rules one would go on and use these draws. Here is the truth, from
# independent exact draws (`samplers.Exact`, for up to three coefficients).

# %%
exact = sample(small_target, sampler=samplers.Exact(), seed=1)
print(diagnostics.summary(exact)[columns].round(4).to_string())


# %%
def gap_of(draws):
    """Distance of each draw to the boundary."""
    theta = draws.posterior["theta"].values.reshape(-1, 2)
    return small_problem.domain.radius - np.linalg.norm(theta, axis=1)


missed = (gap_of(exact) > gap_of(suspect).max()).mean()
print(
    f"{100 * missed:.0f} % of the exact draws are farther from the boundary than any of"
)
print(f"the {gap_of(suspect).size} suspect draws.")

# %%
fig, axes = plt.subplots(1, 3, figsize=(11.0, 3.8), layout="constrained")
for ax, draws, name in (
    (axes[0], exact, "exact draws"),
    (axes[1], suspect, "suspect draws"),
):
    diagnostics.plot_draws(draws, small_target, ax=ax)
    ax.get_legend().remove()
    ax.set_aspect("auto")
    ax.set_xlim(1.45, 1.56)
    ax.set_ylim(-0.42, -0.05)
    ax.set_title(name)
    ax.set_xlabel("first coefficient")
    ax.set_ylabel("second coefficient")
bins = np.linspace(0.0, 0.06, 41)
for draws, name, color in ((exact, "exact", "C0"), (suspect, "suspect", "C3")):
    axes[2].hist(gap_of(draws), bins, histtype="step", color=color, label=name)
axes[2].set_xlabel("distance to the boundary")
axes[2].set_ylabel("draws")
_ = axes[2].legend(frameon=False)
# %% [markdown]
# *What to see.* The black arc is the boundary, markers tell the chains apart. The suspect draws hug it; a part of the
# target on the inner side was never visited, by none of the chains. So the chains agree,
# and R-hat, which compares them with one another, has nothing to object. The standard
# deviation of the first coefficient comes out too small by a third, and its mean is off by
# many times the error that `mcse_mean` states.
#
# The reason is in the proposals. The boundary cuts the target, and the pilot run fits a
# Gaussian that is too narrow on the inner side. Such proposals are accepted *more* often, as
# long as the chain stays where they land. Once it gets out it stays out for hundreds of
# steps, for hardly any proposal is as good. In theory the target is invariant; in practice
# the chains have not been there yet.

# %% [markdown]
# ## What shows it
#
# **Couplings.** They start hundreds of pairs, not four chains, and a pair counts until it
# has met, however long that takes.

# %%
grid = [0, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000]
options = {"lag": 200, "steps": grid, "replicates": 300, "max_steps": 20_000}
tv_suspect = diagnostics.tv_bound(small_target, independence, seed=19, **options)
tv_lucky = diagnostics.tv_bound(small_target, independence, seed=8, **options)
print(tv_suspect)

# %%
fig, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for bound, color, name in (
    (tv_suspect, "C3", "LaplaceIndependence, seed 19"),
    (tv_lucky, "C2", "LaplaceIndependence, seed 8"),
):
    is_seen = ~bound.curve.is_extrapolated
    ax.plot(bound.steps, bound.upper, "v-", color=color, ms=4, label=name)
    ax.plot(
        bound.steps[is_seen], np.minimum(1.0, bound.estimate[is_seen]), ":", color=color
    )
ax.axvline(100, color="0.6", lw=0.8)
ax.text(100, 1.2, " default warm-up", color="0.4", va="bottom", fontsize="small")
ax.set_xscale("symlog", linthresh=5)
ax.set_xlim(0.0, 2_200.0)
ax.set_xticks([0, 5, 20, 100, 500, 2_000], ["0", "5", "20", "100", "500", "2000"])
ax.set_yscale("log")
ax.set_ylim(3e-3, 2.0)
ax.set_xlabel("steps")
ax.set_ylabel(
    "total variation to the target:\nupper limit (triangles), estimate (dotted)"
)
_ = ax.legend(frameon=False, fontsize="small", loc="lower left")
# %% [markdown]
# *What to see.* After the default warm-up of 100 steps some pairs of the red chains have
# still not met, and a few take a thousand steps or more: the bound comes down slowly, and
# its upper limit stays large. With another seed (green) the pilot run makes better
# proposals, and 20 steps are enough. (Each call has a pilot run of its own. That the luck of
# the pilot decides is one more reason not to trust a single run.)
#
# **The target.** Draws of a density satisfy identities that involve its slope (Stein), and
# `check` tests some of them if it is given the target.

# %%
print(diagnostics.check(suspect, small_target))

# %% [markdown]
# **A reference.** In one or two dimensions `compare` computes the law by quadrature, and
# says how large an error it could have seen.

# %%
print(diagnostics.compare(suspect, small_target))

# %% [markdown]
# The remedy is a sampler that suits the target. `Proximal` meets no such difficulty: its
# exact inner draws feel the boundary.

# %%
good = sample(small_target, sampler=samplers.Proximal(), seed=19)
print(diagnostics.summary(good)[columns].round(4).to_string())
print(diagnostics.check(good, small_target))

# %% [markdown]
# ## Who sees what
#
# | tool | needs | sees | does not see |
# |---|---|---|---|
# | R-hat, ranks, traces | several chains | chains that disagree | what all chains have in common: a part that none has visited, the bias of a biased sampler |
# | ESS, MCSE | chains | how noisy averages are | whether they are averages of the right law |
# | couplings | a sampler with a coupling | slow chains, from many starts | a part that no pair reached; distances below 1/(number of pairs) |
# | Stein's identities, energies | the target's slope | a wrong shape, wherever draws are | wrong shares of separate modes |
# | a reference (`compare`) | two coefficients, a closed form, or certified draws | any difference, down to a stated size | smaller ones |
# | the theorem behind `release` | strong convexity, exact inner draws | it proves, it does not look | errors in the code, and what it assumes |
#
# None of the first five rows makes an answer private, however well it looks. That is why no
# diagnostic enters a certificate.
