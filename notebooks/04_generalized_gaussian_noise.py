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
# # Noise in other norms
#
# *To run this notebook:* `pip install '.[plots]'`. The first run compiles for about
# half a minute; later runs take seconds.
#
# To release the answer of a query privately one adds noise, and the noise has to cover
# what one record can change. How large that change is depends on the norm in which it is
# measured. If every coordinate of an answer with d coordinates can move by 1, the change
# has maximum norm 1 but Euclidean length √d. Gaussian noise is made for Euclidean length.
# Is there noise made for other norms, and is it any better?
#
# This notebook shows the candidate, generalized Gaussian noise, in pictures: what it looks
# like, why it is private, where it beats plain Gaussian noise (rarely), what it looks like
# for matrices, and how the same norms shape the exponential mechanism.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import dpsample as dps
from dpsample.numerics.norms import regularity
from dpsample.privacy import best_exponent, gaussian_delta, noise_cost

LINES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3))]
GRAYS = ["black", "0.25", "tab:blue", "tab:orange", "0.5", "0.6"]


def style(i):
    """Line style and color that differ in print, too."""
    return {"linestyle": LINES[i], "color": GRAYS[i]}


# %% [markdown]
# ## Unit balls, and which norm measures what
#
# The l_p norm is ‖x‖_p = (Σ|x_j|^p)^(1/p). Two norms belong together: if coefficients are
# measured in l_p, then rows, gradients and the change of an answer are measured in the
# dual norm l_q with 1/p + 1/q = 1, because |⟨a, θ⟩| ≤ ‖a‖_q ‖θ‖_p. Sparse coefficients
# go with p near 1; then changes are measured coordinate by coordinate, q near ∞.

# %%
angle = np.linspace(0.0, 2.0 * math.pi, 801)
circle = np.stack([np.cos(angle), np.sin(angle)])
fig, panels = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for i, p in enumerate((1.0, 1.2, 1.5, 2.0)):
    q = math.inf if p == 1.0 else p / (p - 1.0)
    for ax, exponent in zip(panels, (p, q), strict=True):
        ball = circle / np.linalg.norm(circle, ord=exponent, axis=0)
        ax.plot(*ball, label=f"{exponent:g}", **style(i))
panels[0].set_title("coefficients: balls of $l_p$")
panels[1].set_title("changes of one record: balls of the dual $l_q$")
for ax, name in zip(panels, "pq", strict=True):
    ax.set(aspect="equal", xlabel="first coordinate")
    ax.legend(title=name, loc="center")
_ = panels[0].set_ylabel("second coordinate")
# %% [markdown]
# *What to see.* The thinner the ball on the left, the fatter its partner on the right, in
# the same line style. The corners of the l_1 ball are why it favors zeros.

# %% [markdown]
# ## The noise
#
# Generalized Gaussian noise Z has density proportional to exp(-‖z‖_r²/(2σ²)). For r = 2 it
# is the plain Gaussian with independent coordinates; for other r the coordinates depend on
# one another, and the density is constant on spheres of the l_r norm.

# %%
rng = np.random.default_rng(4)
EXPONENTS = (2.0, 4.0, 32.0)
axis = np.linspace(-3.5, 3.5, 141)
grid = np.stack(np.meshgrid(axis, axis), axis=-1)
fig, panels = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
for i, r in enumerate(EXPONENTS):
    noise = dps.noise.GeneralizedGaussian(r, sigma=1.0)
    z = noise.draw(rng, (400, 2))
    panels[i].plot(*z.T, ".", color="0.65", markersize=3)
    levels = noise.log_density([0.0, 0.0]) - 0.5 * np.array([3.0, 2.0, 1.0]) ** 2
    panels[i].contour(
        axis,
        axis,
        noise.log_density(grid),
        levels=levels,
        colors="black",
        linestyles="solid",
    )
    panels[i].set(xlim=(-3.6, 3.6), ylim=(-3.6, 3.6), aspect="equal")
    panels[i].set(title=f"r = {r:g}", xlabel="$z_1$", ylabel="$z_2$")
    sizes = np.linalg.norm(noise.draw(rng, (20_000, 2)), ord=r, axis=1)
    panels[3].hist(
        sizes,
        bins=60,
        range=(0.0, 4.5),
        density=True,
        histtype="step",
        label=f"r = {r:g}",
        **style(i),
    )
t = np.linspace(0.0, 4.5, 200)
panels[3].plot(t, stats.chi.pdf(t, df=2), color="0.6", linewidth=4, alpha=0.5)
panels[3].set(xlabel="norm $\\|z\\|_r$", ylabel="density", title="norms of draws")
_ = panels[3].legend()
# %% [markdown]
# *What to see.* Dots are draws, lines are where the l_r norm is 1, 2 and 3. On the right,
# histograms of the norm for the three r agree with the thick gray curve: the norm of Z is
# σ times a chi variable with d degrees of freedom whatever r is. Only the shape differs.

# %% [markdown]
# ## Why it is private: smooth squared norms
#
# Releasing q(D) + Z is private if densities change little when z moves by v, that is, if
# the potential V = ‖z‖_r²/(2σ²) bends little along v. It is enough that the
# second derivative along v is at most t². Then telling two neighboring data sets apart is
# at least as hard as telling N(0, 1) from N(t, 1) (`docs/generalized-gaussian.md` has the
# proof), from which (ε, δ) follow. For 2 ≤ r < ∞ squares of l_r norms satisfy it with the constant κ₊ = r - 1:
#
# ‖x + v‖² ≤ ‖x‖² + ⟨∇‖x‖², v⟩ + κ₊‖v‖².
#
# For r = ∞, the norm that fits a change of the maximum norm, it fails: the square has a
# kink, where densities change too fast.

# %%
x, v = np.array([1.0, 1.0]), np.array([1.0, -1.0])
step = np.linspace(-1.0, 1.0, 201)
line = x + step[:, None] * v
fig, panels = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained", sharey=True)
for ax, r in zip(panels, (2.0, 4.0, math.inf), strict=True):
    square = np.linalg.norm(line, ord=r, axis=1) ** 2
    unit = np.linalg.norm(v, ord=r) ** 2  # rises are in units of the squared shift
    rise = (square - np.linalg.norm(x, ord=r) ** 2) / unit
    ax.plot(step, rise, color="black", label="squared norm")
    if math.isfinite(r):
        ax.plot(step, (r - 1.0) * step**2, "--", color="tab:blue", label="(r - 1) s²")
    name = "∞" if math.isinf(r) else f"{r:g}"
    ax.set(
        title=f"r = {name}", xlabel="s, position on the line x + s v", ylim=(-0.2, 3.2)
    )
    ax.legend(loc="upper center")
_ = panels[0].set_ylabel("rise of the squared norm\nin units of $\\|v\\|_r^2$")
# %% [markdown]
# *What to see.* For r = 2 the parabola is the squared norm itself. For r = 4 a parabola
# three times as steep lies above it and touches: no smaller constant will do. For r = ∞ a
# corner at 0 leaves no room for any parabola.
#
# A norm that is not smooth may still be *close* to one that is. It is called **κ-regular**
# if some norm with constant κ₊ is within a factor of it, κ being κ₊ times the square of
# that factor. The maximum norm in d coordinates satisfies ‖v‖_∞ ≤ ‖v‖_r ≤ d^(1/r)‖v‖_∞,
# so κ = (r - 1) d^(2/r). Small r pays through the factor, large r through r - 1.

# %%
fig, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
exponents = np.geomspace(2.0, 60.0, 200)
for i, dim in enumerate((10, 1_000, 100_000)):
    kappa = [regularity(1.0, dim=dim, r=float(r)).kappa for r in exponents]
    best = regularity(1.0, dim=dim)
    panels[0].plot(exponents, kappa, label=f"d = {dim:,}", **style(i))
    panels[0].plot(best.r, best.kappa, "o", color=style(i)["color"])
panels[0].set(xscale="log", yscale="log", xlabel="exponent r of the smooth norm")
panels[0].set(ylabel="κ", title="κ of the maximum norm through $l_r$")
panels[0].set_xticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
panels[0].legend()
dims = np.unique(np.geomspace(2, 1e6, 40).astype(int))
panels[1].plot(dims, dims, label="r = 2: κ = d", **style(0))
for i, p in enumerate((1.0, 1.2, 1.5)):
    kappa = [regularity(p, dim=int(d)).kappa for d in dims]
    panels[1].plot(dims, kappa, label=f"best r, p = {p:g}", **style(i + 1))
panels[1].set(xscale="log", yscale="log", ylim=(0.8, 1e3), xlabel="d", ylabel="κ")
panels[1].set_title("smallest κ of the dual norm of $l_p$")
_ = panels[1].legend()

# %% [markdown]
# *What to see.* On the left each curve has its minimum, the dot, below r = 2 log d. On the
# right κ of the best r grows like log d for p = 1, and not at all beyond 1/(p - 1) for
# p > 1, whereas through the Euclidean norm the maximum norm costs κ = d (r = 2). This is
# the attraction of generalized Gaussian noise: the noise that privacy asks for satisfies
# E‖Z‖_q² ≤ d σ², σ² proportional to κ.

# %% [markdown]
# ## How private it really is
#
# In two dimensions the smallest δ for every ε is an integral over a grid. For the shift
# along the diagonal, σ = 1 and √(r - 1)‖v‖_r = 1, all noises have the same promise.


# %%
def exact_delta(r, epsilon, cell=0.03, reach=7.0):
    """Smallest delta for a shift along the diagonal, by a sum over cells."""
    axis = np.arange(-reach, reach, cell) + 0.5 * cell
    points = np.stack(np.meshgrid(axis, axis), axis=-1)
    noise = dps.noise.GeneralizedGaussian(r, sigma=1.0)
    shift = np.full(2, 2.0 ** (-1.0 / r) / math.sqrt(r - 1.0))
    here = np.exp(noise.log_density(points))
    there = np.exp(noise.log_density(points - shift))
    return [
        cell**2 * np.maximum(there - math.exp(e) * here, 0.0).sum() for e in epsilon
    ]


epsilon = np.linspace(0.0, 2.0, 11)
fig, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
promise = [gaussian_delta(float(e), 1.0) for e in epsilon]
ax.plot(epsilon, promise, color="0.6", linewidth=6, alpha=0.5, label="promise")
for i, r in enumerate((2.0, 3.0, 6.0)):
    ax.plot(epsilon, exact_delta(r, epsilon), label=f"r = {r:g}", **style(i))
ax.set(yscale="log", xlabel="ε", ylabel="smallest δ", title="same promise, d = 2")
_ = ax.legend()
# %% [markdown]
# *What to see.* For r = 2 the promise is exact. For larger r this shift is better hidden
# than the theorem says: some noise is wasted in low dimension.

# %% [markdown]
# ## Where it wins
#
# So much for κ, which belongs to a *bound* of the noise. What counts is the noise. At the
# same promise and the same sensitivity in the norm l_q, compare E‖Z‖_q² with that of plain
# Gaussian noise; `dps.privacy.noise_cost` computes it exactly, `best_exponent` finds the
# best r. p = 1 is the case that favors the generalized Gaussian most.

# %%
NORMS = (1.0, 1.02, 1.05, 1.1)
dims = np.unique(np.geomspace(2, 1e7, 29).astype(int))
fig, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for i, p in enumerate(NORMS):
    for ax, criterion in zip(panels, ("dual_bound", "dual"), strict=True):
        found = [best_exponent(int(d), p, criterion=criterion) for d in dims]
        ratio = [choice.cost / choice.gaussian_cost for choice in found]
        ax.plot(dims, ratio, label=f"best r, p = {p:g}", **style(i))


def relative_noise(dim, rng=None, num_draws=400):
    """Noise at the exponent of the bound, p = 1; simulated if there is an rng."""
    r = best_exponent(dim, 1.0, criterion="dual_bound").r
    if rng is None:
        return noise_cost(dim, 1.0, r) / noise_cost(dim, 1.0, 2.0)
    sizes = []
    for exponent in (r, 2.0):
        sigma = math.sqrt(exponent - 1.0) * dim ** (1.0 / exponent)
        noise = dps.noise.GeneralizedGaussian(exponent, sigma)
        largest = np.abs(noise.draw(rng, (num_draws, dim))).max(axis=1)
        sizes.append((largest**2).mean())
    return sizes[0] / sizes[1]


bounded = [relative_noise(int(d)) for d in dims]
panels[1].plot(
    dims, bounded, "s-", color="0.5", markersize=3, label="r of the left, p = 1"
)
checked = (10, 100, 1_000, 10_000)
rng = np.random.default_rng(5)
simulated = [relative_noise(d, rng) for d in checked]
panels[1].plot(checked, simulated, "k+", markersize=11, label="the same, simulated")
for ax in panels:
    ax.axhline(1.0, color="0.7", linewidth=0.8, zorder=0)
    ax.set(xscale="log", xlabel="number of coordinates d")
panels[0].set(yscale="log", title="the bound d σ²", ylabel="relative to Gaussian noise")
panels[1].set(title="the noise itself, E‖Z‖²", ylabel="relative to Gaussian noise")
panels[1].set_ylim(0.6, 2.4)
for ax in panels:
    ax.legend(fontsize="small")


def crossover(p, largest=10**7):
    """Return the first dimension in which Gaussian noise is beaten, by bisection."""
    low, high = 1, largest
    if best_exponent(high, p).gaussian_is_best:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if best_exponent(middle, p).gaussian_is_best:
            low = middle
        else:
            high = middle
    return high


for p in NORMS:
    first = crossover(p)
    print(f"p = {p:<5g}", f"from d = {first:,} on" if first else "never up to d = 10^7")

# %% [markdown]
# *What to see.* Judged by the bound (left), generalized Gaussian noise wins from eight
# coordinates on, and soon by orders of magnitude. Judged by the noise (right), plain
# Gaussian noise is the best choice up to some 4000 coordinates even at p = 1; beyond, the
# gain is a tenth at 10⁵ coordinates and a little more than a quarter at 10⁷, and at p = 1.1
# there is none. Choosing r by the bound (gray squares; crosses are simulations) nearly
# *doubles* the mean square of the noise at 100 coordinates. The bound is loose for r = 2:
# the maximum of d independent Gaussians is near √(2 log d), their length near √d.
#
# The same comparison along r, at three dimensions:

# %%
exponents = np.linspace(2.0, 12.0, 41)
fig, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
for i, dim in enumerate((100, 4_000, 1_000_000)):
    cost = np.array([noise_cost(dim, 1.0, float(r)) for r in exponents])
    ax.plot(exponents, cost / cost[0], label=f"d = {dim:,}", **style(i))
ax.axhline(1.0, color="0.7", linewidth=0.8, zorder=0)
ax.set(
    xlabel="exponent r of the noise", ylabel="E‖Z‖² relative to r = 2", ylim=(0.7, 1.8)
)
ax.set_title("p = 1, changes in the maximum norm")
_ = ax.legend()
# %% [markdown]
# *What to see.* At 100 coordinates every r > 2 is worse. At 4000 it makes no difference
# whether r is 2 or 3. At a million r = 5 has a fifth less noise.
#
# The package therefore takes r = 2 unless another exponent has less noise, and says so.

# %%
mechanism = dps.noise.generalized_gaussian_mechanism(
    dps.Budget(epsilon=1.0, delta=1e-6), dim=100, sensitivity=0.01, p=1.0
)
print(mechanism.noise)

# %% [markdown]
# ## Matrices
#
# For matrices the norm of the singular values takes the place of that of the coordinates:
# Schatten norms. Noise has density proportional to exp(-‖Z‖²/(2σ²)), the norm being the
# l_r norm of the singular values; r = 2 is the Frobenius norm and again plain Gaussian
# noise, r = ∞ the largest singular value, r = 1 the sum of them (nuclear norm).

# %%
fig, panels = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
rng = np.random.default_rng(6)
SIDE = 6
for i, r in enumerate((1.0, 2.0, 16.0)):
    small = dps.noise.SchattenGaussian(r, sigma=1.0, shape=(2, 2))
    matrices = small.draw(rng, (1_000, 4)).reshape(-1, 2, 2)
    values = np.linalg.svd(matrices, compute_uv=False)
    panels[i].plot(*values.T, ".", color="0.4", markersize=3)
    panels[i].plot([0.0, 5.0], [0.0, 5.0], color="0.7", linewidth=0.8)
    panels[i].set(
        xlim=(0, 4.5), ylim=(0, 4.5), aspect="equal", title=f"2 × 2, r = {r:g}"
    )
    panels[i].set(xlabel="larger singular value", ylabel="smaller singular value")
    large = dps.noise.SchattenGaussian(r, sigma=1.0, shape=(SIDE, SIDE))
    matrices = large.draw(rng, (50, SIDE**2)).reshape(-1, SIDE, SIDE)
    spectrum = np.linalg.svd(matrices, compute_uv=False).mean(axis=0)
    size = math.sqrt((spectrum**2).mean())
    panels[3].plot(
        np.arange(1, SIDE + 1), spectrum / size, label=f"r = {r:g}", **style(i)
    )
panels[3].set(xlabel="number of the singular value", ylabel="mean / root mean square")
panels[3].set(title=f"{SIDE} × {SIDE}", ylim=(0, None))
_ = panels[3].legend()

# %% [markdown]
# *What to see.* Each dot is the pair of singular values of a random 2 × 2 matrix; the
# diagonal is where they are equal. With r = 1 the smaller value is often near 0, so that
# the matrix is nearly of rank one; with r = 16 it is more often large. On the right the
# spectrum of 6 × 6 matrices gets flatter as r grows. Dots avoid the diagonal for every r:
# singular values repel each other.

# %% [markdown]
# ## The same norms in the exponential mechanism
#
# `dps.release(problem, budget, p=...)` draws θ from the density proportional to
# exp(-k (F(θ) + μ r(θ))), F the mean loss, and measures the change of F by one record in
# the norm dual to l_p. It then has to regularize with a function r that is strongly convex
# in l_p: r(θ) = ‖θ‖_p²/(2(p - 1)). Two coefficients suffice to see its shape, and records
# are few on purpose: many records decide alone.


# %%
def logistic_problem(p, num_records=100, signal=(2.0, 0.3)):
    """Records with rows of norm 1 in the dual of l_p, on the unit l_p ball."""
    rng = np.random.default_rng(7)
    q = p / (p - 1.0)
    rows = rng.choice([-1.0, 1.0], (num_records, 2))
    rows *= (1.0 - 1e-14) / np.linalg.norm(rows, ord=q, axis=1, keepdims=True)
    chance = 1.0 / (1.0 + np.exp(-rows @ np.array(signal)))
    return dps.Problem(
        rows,
        np.where(rng.random(num_records) < chance, 1.0, -1.0),
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0, p=p),
        row_bound=1.0,
        row_norm=q,
    )


def plot_law(ax, target, p):
    """Draws, lines of equal density, and the border of the domain."""
    draws = dps.sample(target, num_draws=250, num_chains=2, seed=8, progress=False)
    ax.plot(*draws.posterior["theta"].to_numpy().reshape(-1, 2).T, ".", **DOTS)
    height = np.array([[target.log_density([x, y]) for x in axis] for y in axis])
    levels = height.max() - 0.5 * np.array([3.0, 2.0, 1.0]) ** 2
    height = np.maximum(height, levels[0] - 10.0)  # finite outside the domain
    ax.contour(axis, axis, height, levels=levels, colors="black", linestyles="solid")
    border = circle / np.linalg.norm(circle, ord=p, axis=0)
    ax.plot(*border, color="tab:blue", linewidth=2)
    ax.set(aspect="equal")


DOTS = {"color": "0.6", "markersize": 3}
axis = np.linspace(-1.05, 1.05, 71)
fig, panels = plt.subplots(
    2, 3, figsize=(10, 6.6), layout="constrained", sharex=True, sharey=True
)
for column, p in zip(panels.T, (1.2, 1.5, 2.0), strict=True):
    problem = logistic_problem(p)
    mechanism = dps.calibrate(problem, dps.Budget(epsilon=2.0, delta=1e-4), p=p)
    plot_law(column[0], mechanism.target(problem), p)
    silent = dps.Problem(
        np.zeros((1, 2)),
        [1.0],
        loss=dps.losses.Logistic(),
        domain=problem.domain,
        row_bound=1.0,
    )
    alone = dps.Gibbs(silent, k=10.0, mu=1.0, regularizer=mechanism.regularizer)
    plot_law(column[1], alone, p)
    column[0].set_title(f"p = {p:g}:  k = {mechanism.k:.0f}, μ = {mechanism.mu:.2f}")
    column[1].set_xlabel("first coefficient")
panels[0, 0].set_ylabel("calibrated to (2, 10⁻⁴)\nsecond coefficient")
_ = panels[1, 0].set_ylabel("regularizer alone, kμ = 10\nsecond coefficient")

# %% [markdown]
# *What to see.* Dots are draws, black lines are where the density has fallen as at 1, 2 and
# 3 standard deviations of a Gaussian, the blue line is the border of the domain. Alone
# (lower row) the regularizer makes the law a generalized Gaussian with exponent p, whose
# lines have the shape of the domain. At the same kμ, which is what privacy asks for, it is
# narrower for p near 1: the factor 1/(p - 1) is the price of that geometry. With data
# (upper row) the same shape pulls draws towards the axes and towards 0, so for p = 1.2 the
# law is drawn out along the first axis. In two dimensions nothing is gained by it. What
# large dimensions gain is in notebook 03.
