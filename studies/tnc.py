"""Risks of known growth: the methods that adapt to it against those that do not.

The loss of a record (row e_J, J uniform, fair sign y) is |<row, w - w*>|^theta/theta
- y <row, w>, a function of the margin: F(w) = sum_j |w_j - w*_j|^theta/(theta d),
exactly, whose growth |w - w*|^theta d^(-theta/2)/theta is attained; gradients scatter
at the minimizer too.
"""

import math
from functools import cache

import numpy as np

import dpsample as dps
from dpsample import optimizers
from dpsample.experiments import Figure, Metric, Slope, Study

DIM, DISTANCE, DELTA = 2, 0.9, 1e-6
SHIFT = DISTANCE / math.sqrt(DIM)  # every entry of w*
FAR = 1.0 + SHIFT  # of a margin from its minimizer, on the unit ball
METHODS = {
    "LNC-GM": optimizers.LocalizedClippedGD(distance=DISTANCE),
    "PSA": optimizers.PrivateStochasticApproximation(distance=DISTANCE),
    "iterated LNC-GM": optimizers.IteratedLocalizedClippedGD(distance=DISTANCE),
    "PNCA-SGD": optimizers.AcceleratedClippedSGD(scheme="disjoint", distance=DISTANCE),
    "iterated PNCA-SGD": optimizers.IteratedAcceleratedClippedSGD(
        scheme="disjoint", distance=DISTANCE
    ),
}
THEOREMS = {
    "LNC-GM": "Theorem 1",
    "PSA": "Theorem 2",
    "iterated LNC-GM": "Theorem 3",
    "PNCA-SGD": "Theorem 6",
    "iterated PNCA-SGD": "Theorem 7",
}
# What the methods that adapt to growth iterate.
BASES = {
    "PSA": "LNC-GM",
    "iterated LNC-GM": "LNC-GM",
    "iterated PNCA-SGD": "PNCA-SGD",
}
SWEEPS = {
    "n": (4096, 16_384, 65_536, 262_144),
    "epsilon": (0.01, 0.02, 0.04, 0.08),
}
KEPT = {"n": 262_144, "epsilon": 1.0}  # by the other sweep


@cache
def loss(theta):
    """Loss of the margin u - <row, w*>; straight where no margin of the ball comes."""

    def value(u, y):
        size = min(abs(u), FAR)
        return size**theta / theta + FAR ** (theta - 1.0) * (abs(u) - size) - y * u

    def slope(u, y):
        return math.copysign(min(abs(u), FAR) ** (theta - 1.0), u) - y

    return dps.losses.custom(
        value,
        slope,
        slope_bound=FAR ** (theta - 1.0) + 1.0,
        upper_curvature=(theta - 1.0) * FAR ** (theta - 2.0),
        name=f"growth {theta:g}",
    )


def instance(params, rng):
    """Fresh records."""
    number = params["n"]
    return dps.Problem(
        np.eye(DIM)[rng.integers(DIM, size=number)],
        rng.choice([-1.0, 1.0], size=number),
        loss=loss(params["theta"]),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        response_bound=1.0,
        offset=np.full(number, -SHIFT),
        offset_bound=SHIFT,
    )


def facts(params):
    """Public facts of the instance."""
    return dps.PublicFacts(
        num_records=params["n"],
        dim=DIM,
        loss=loss(params["theta"]),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
        row_norm=2.0,
        response_bound=1.0,
        offset_bound=SHIFT,
    )


def cell(params, seed):
    """Excess risk, in closed form, of one fit to fresh records."""
    records, noise = seed.spawn(2)
    problem = instance(params, np.random.default_rng(records))
    method, budget = METHODS[params["method"]], budget_of(params)
    fit = dps.minimize(problem, method, budget, seed=noise)
    theta = params["theta"]
    return {"excess": np.mean(np.abs(fit.theta - SHIFT) ** theta) / theta}


def budget_of(params):
    """Epsilon, and delta = 1e-6."""
    return dps.Budget(epsilon=params["epsilon"], delta=DELTA)


def bound(params):
    """Proved bound; that of the iterated methods uses the growth."""
    method, theta = METHODS[params["method"]], params["theta"]
    growth = {}
    if params["method"].startswith("iterated"):
        growth = {"exponent": theta, "constant": DIM ** (-theta / 2.0) / theta}
    return method.risk_bound(facts(params), budget_of(params), **growth)


def exponent(method, sweep, values):
    """Power that the theorem's rate has between these values.

    The rate is the plain method's bound, to the power theta/(theta - 1) with growth; at
    no size is it one term alone.
    """
    plain = {"sweep": sweep, **KEPT, "method": BASES.get(method, method)}

    def value(params):
        own = plain | {"theta": params["theta"]}
        bounds = [bound(own | {sweep: v}) for v in values]
        power = np.polyfit(np.log(values), np.log(bounds), 1)[0]
        is_plain = method not in BASES
        return power * (1.0 if is_plain else params["theta"] / (params["theta"] - 1.0))

    return value


def slopes():
    """Every method's exponents, in n and in epsilon."""
    for method, theorem in THEOREMS.items():
        for sweep, values in SWEEPS.items():
            yield Slope(
                x=sweep,
                y="excess",
                where={"method": method, "sweep": sweep},
                expected=exponent(method, sweep, values),
                theorem=theorem,
                tolerance=0.05,
                note="expected: of the rate between the ends of the grid",
            )


def grid(exponents, kept, sweeps):
    """Cells of the two sweeps."""
    return tuple(
        {"theta": exponents, "method": tuple(METHODS), "sweep": sweep}
        | kept
        | {sweep: values}
        for sweep, values in sweeps.items()
    )


study = Study(
    name="tnc",
    title="Growth of the risk",
    question=(
        "The risk grows like |w - w*|^theta from a minimizer where gradients still"
        " scatter: theta = 2, 3, 4, two coefficients, replace-one neighbors, delta ="
        " 1e-6. Growth should speed up the methods that adapt to it. Do their errors"
        " have the exponents of Theorems 2, 3 and 7, and are they smaller than those"
        " of the plain methods?"
    ),
    answer=(
        "All errors are below their bounds and fall as fast as Theorems 2, 3 and 7"
        " say, or faster. To restart for growth pays late: at theta = 2 and n = 262"
        " 144 (1e-5 against 7e-5 for plain PNCA-SGD); at theta = 3 and 4 plain PNCA-"
        " SGD is best at every size tried."
    ),
    grid=grid((2.0, 3.0, 4.0), KEPT, SWEEPS),
    quick=grid((2.0, 4.0), KEPT | {"n": 16_384}, {"n": (4096, 16_384)}),
    replicates=16,
    quick_replicates=3,
    cell=cell,
    metrics=(
        Metric(
            "excess",
            label="excess population risk",
            bound=bound,
            baseline=lambda p: SHIFT ** p["theta"] / p["theta"],  # of the center 0
        ),
    ),
    figures=(
        Figure(
            x="n",
            y="excess",
            lines="method",
            panels="theta",
            where={"sweep": "n"},
            x_label="records n, epsilon = 1",
        ),
        Figure(
            x="epsilon",
            y="excess",
            lines="method",
            panels="theta",
            where={"sweep": "epsilon"},
            x_label="epsilon, n = 262 144",
        ),
    ),
    slopes=tuple(slopes()),
    paired=("method",),
    seed=7,
)
