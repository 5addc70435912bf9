"""Theorem 2 of arXiv:2207.08347 against exact privacy curves.

Draws from exp(-k (F + mu r)) on neighboring records are no easier to tell apart than
two unit Gaussians at distance gdp = (G_Delta / n) sqrt(k / mu). Privacy fixes k/mu; the
product decides how much of the density the boundary cuts off. "Room" is the square root
of 2 k mu Theta, Theta the range of r: on a Euclidean ball, radius over standard
deviation. Theorem 3 (empirical risk) chooses sqrt(2 d), Theorem 4 (population risk)
more.
"""

import functools

import numpy as np
from scipy.special import gammainc, gammaln, hyp1f1

import dpsample as dps
from dpsample import domains, losses
from dpsample.experiments import Figure, Metric, Study
from dpsample.privacy import gaussian_delta, gaussian_epsilon

from ._curves import (
    DELTA,
    EPSILON,
    GDP,
    LARGE_DELTA,
    LOSSES,
    PAIRS,
    PANELS,
    curve_of,
    curves,
    epsilon_at,
    public_facts,
    random_pair,
    targets,
)

# Of epsilon by quadrature; the metric "error" measures it.
ACCURACY = 3e-3
NUM_RANDOM = 16
# Centers of the Gaussian, in radii of the ball.
PUSHES = np.linspace(0.0, 3.0, 31)
# Below, a divergence is that of rounding errors.
SMALLEST = 1e-12


def quadrature(params, seed):
    """Exact over proved epsilon of a pair, or of the worst of some random pairs."""
    facts = public_facts(params["domain"], params["loss"])
    relation = "zero_out" if params["pair"] == "one and none" else "replace_one"
    make = functools.partial(targets, room=params["room"], relation=relation)
    if params["pair"] == "worst of random":
        rng = np.random.default_rng(seed)
        tries = [make(facts, random_pair(facts, rng)) for _ in range(NUM_RANDOM)]
        coarse = [curves(pair, (PANELS // 4,))[0] for pair in tries]
        worst = int(np.argmax([epsilon_at(DELTA, curve) for curve in coarse]))
        pair = tries[worst]
    else:
        pair = make(facts, PAIRS[params["pair"]](facts))
    coarse, fine = curves(pair)
    if "epsilon" in params:
        delta = fine(params["epsilon"])
        found = {"largest": epsilon_at(SMALLEST, fine)}
        return found | ({"delta": delta} if delta > SMALLEST else {})
    found = epsilon_at(DELTA, fine)
    return {
        "ratio": found / EPSILON,
        "ratio_large": epsilon_at(LARGE_DELTA, fine)
        / gaussian_epsilon(LARGE_DELTA, GDP),
        "distance": fine(0.0) / gaussian_delta(0.0, GDP),
        "error": abs(found - epsilon_at(DELTA, coarse)) / EPSILON,
    }


def log_gammainc(shape, x):
    """Logarithm of the regularized gamma function, where it underflows too."""
    small = np.minimum(x, shape)
    near_zero = shape * np.log(small) - small - gammaln(shape + 1.0)
    near_zero += np.log(hyp1f1(1.0, shape + 1.0, small))
    return np.where(x < shape, near_zero, np.log(gammainc(shape, np.maximum(x, shape))))


def in_the_ball(params):
    """Exact epsilon of opposite linear losses in the unit ball, in any dimension.

    Only the first coordinate matters. Its density is that of a Gaussian, times the
    probability that the other coordinates are within the ball. "pushed": the other
    records have linear losses of the worst mean slope too. "pure": log ratios of
    densities are at most k (G_Delta / n) times the diameter, so that this epsilon holds
    with delta = 0 (McSherry and Talwar 2007).
    """
    dim, delta, records = params["d"], params["delta"], 10_000
    facts = dps.PublicFacts(
        num_records=records,
        dim=dim,
        row_bound=1.0,
        row_norm=2.0,
        loss=losses.Linear(),
        domain=domains.Ball(1.0),
    )
    budget = dps.Budget(epsilon=EPSILON, delta=delta)
    how = "paper" if params["calibration"] == "printed" else "exact"
    options = {"risk": "empirical", "sampler_share": 0.0}
    mech = dps.calibrate(facts, budget, calibration=how, **options)
    strength, shift = mech.k * mech.mu, 1.0 / (records * mech.mu)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(-1.0, 1.0, 2001)
    width = np.diff(edges)[:, None] / 2.0
    x = (edges[:-1, None] + width * (nodes + 1.0)).ravel()
    logs = np.log((width * weights).ravel())
    if dim > 1:
        logs += log_gammainc(0.5 * (dim - 1), 0.5 * strength * (1.0 - x**2))

    def epsilon(center):
        centers = (center - shift, center + shift)
        powers = [logs - 0.5 * strength * (x - c) ** 2 for c in centers]
        masses = [np.exp(power - power.max()) for power in powers]
        return epsilon_at(delta, curve_of(*(mass / mass.sum() for mass in masses)))

    return {
        "true": epsilon(0.0),
        "pushed": max(epsilon(center) for center in PUSHES),
        "proved": gaussian_epsilon(delta, mech.gdp),
        "pure": 2.0 * mech.k * mech.diff_lipschitz / records,
    }


def cell(params, seed):
    """One pair of data sets."""
    return in_the_ball(params) if "d" in params else quadrature(params, seed)


def printed_claim(params):
    """Epsilon that the printed k and mu claim; the proved ones claim what is proved."""
    return EPSILON if params.get("calibration") == "printed" else float("inf")


ROOMS = (0.5, 1.0, 1.414, 2.0, 4.0, 8.0, 16.0)
PLANE = ("disk", "square", "triangle", "l1.5 ball", "l1 ball", "simplex, entropy")
ROOM = "room: radius / standard deviation"
DIRECTIONS = ("opposite", "opposite, (1, -1, ...)")
LINE_PAIRS = ("opposite", "duplicated", "at a kink", "one and none", "worst of random")


def grid(*, rooms, loss_names, pairs, bodies, curve_rooms, epsilons, dims):
    """Cells of the figures, in their order."""
    line = {"domain": "interval", "dim": 1}
    linear = line | {"loss": "linear", "pair": "opposite"}
    ball = {"domain": "ball", "calibration": ("proved", "printed")}
    return (
        line | {"loss": loss_names, "pair": pairs, "room": rooms},
        {"domain": bodies, "dim": 2, "loss": "linear", "pair": DIRECTIONS}
        | {"room": rooms},
        linear | {"room": curve_rooms, "epsilon": epsilons},
        {"d": dims, "delta": (LARGE_DELTA, DELTA)} | ball,
    )


study = Study(
    name="privacy_curve",
    title="Theorem 2 against exact privacy curves",
    question=(
        "One draw from exp(-k (F + mu r)) is gdp-GDP, gdp = (G_Delta/n) sqrt(k/mu):"
        " arXiv:2207.08347, Theorem 2. Here k/mu proves (1, 1e-6) and the exact epsilon"
        " is computed by quadrature. Is it never above the proved one, and where is the"
        " proof tight?"
    ),
    answer=(
        "The proved epsilon is never exceeded. How tight it is depends on the room of"
        " the draws, the body's radius over their standard deviation: for linear"
        " losses in d = 1 the exact share is 0.24, 0.47, 0.90 and 1.00 at room 1, 2, 4,"
        " 8. A replaced label of a logistic loss moves gradients by half of what the"
        " proof allows, so its share stays below 0.5. For linear losses copies of one"
        " extreme record are the worst data, for absolute ones none at all. Theorem"
        " 3's choice on the unit ball is really 0.54, 0.69, 0.96 at d = 1, 2, 10 where"
        " (1, 1e-6) is proved; at d <= 2 the pure bound is the better one. Printed as"
        " (1, 1e-6) it is 0.91 at d = 1, 1.17 at d = 2 and 1.72 from d = 50 on."
    ),
    grid=grid(
        rooms=ROOMS,
        loss_names=tuple(LOSSES),
        pairs=LINE_PAIRS,
        bodies=PLANE,
        curve_rooms=(1.0, 2.0, 4.0, 8.0),
        epsilons=(0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1),
        dims=(1, 2, 3, 5, 10, 20, 50, 100, 1000),
    ),
    quick=grid(
        rooms=(1.0, 4.0),
        loss_names="linear",
        pairs=("opposite", "worst of random"),
        bodies="disk",
        curve_rooms=(1.0, 4.0),
        epsilons=(0.2, 1.0),
        dims=(1, 10, 1000),
    ),
    replicates=1,
    cell=cell,
    metrics=(
        Metric(
            "ratio",
            label="exact / proved epsilon at delta = 1e-6",
            kind="exact",
            bound=1.0,
            tolerance=ACCURACY,
        ),
        Metric(
            "ratio_large",
            label="the same at delta = 1e-3",
            kind="exact",
            bound=1.0,
            tolerance=ACCURACY,
        ),
        Metric(
            "distance",
            label="exact / proved total variation (epsilon = 0)",
            kind="exact",
            bound=1.0,
            tolerance=ACCURACY,
        ),
        Metric(
            "error",
            label="change of the ratio when all steps are halved",
            kind="exact",
            bound=ACCURACY,
        ),
        Metric(
            "delta",
            label="exact delta",
            kind="exact",
            bound=lambda p: gaussian_delta(p.get("epsilon", EPSILON), GDP),
            tolerance=ACCURACY,
        ),
        Metric(
            "true",
            label="exact epsilon, other losses 0",
            kind="exact",
            bound="proved",
            printed=printed_claim,
            tolerance=ACCURACY,
        ),
        Metric(
            "pushed",
            label="exact epsilon",
            kind="exact",
            bound="proved",
            printed=printed_claim,
            tolerance=ACCURACY,
        ),
        Metric("proved", label="epsilon by Theorem 2", kind="exact"),
        Metric("pure", label="epsilon for delta = 0", kind="exact"),
        Metric("largest", label="exact epsilon at delta = 1e-12", kind="exact"),
    ),
    figures=(
        Figure(
            x="room",
            y="ratio",
            lines="pair",
            panels="loss",
            where={"domain": "interval"},
            title="On a line: which neighbors come close to Theorem 2",
            x_label=ROOM,
        ),
        Figure(
            x="room",
            y="ratio",
            lines="domain",
            panels="pair",
            where={"dim": 2},
            title="In the plane, linear losses",
            x_label=ROOM,
        ),
        Figure(
            x="epsilon",
            y="delta",
            lines="room",
            where={"loss": "linear", "pair": "opposite", "dim": 1},
            title="Exact curves and Theorem 2, linear losses, d = 1",
            x_label="epsilon",
        ),
        Figure(
            x="d",
            y=("pushed", "pure"),
            lines="calibration",
            panels="delta",
            where={"domain": "ball"},
            title="Linear losses in the unit ball, claimed epsilon 1",
            x_label="dimension d",
            y_label="epsilon",
        ),
    ),
)
