"""Risks of known growth: the methods that adapt to it against those that do not.

The loss of a record (row e_J, J uniform, fair sign y) is |<row, w - w*>|^theta/theta
- y <row, w>, a function of the margin: F(w) = sum_j |w_j - w*_j|^theta/(theta d),
exactly, whose growth |w - w*|^theta d^(-theta/2)/theta is attained; gradients scatter
at the minimizer too. With k moments |y| is a Pareto variable of tail index 1.1 k and
E |y|^k = 1, clipped at 1000: sign and size are independent, so F is the same.
"""

import math
from functools import cache, partial

import numpy as np

import dpsample as dps
from dpsample import optimizers
from dpsample.experiments import Figure, Metric, Slope, Study

DISTANCE, DELTA = 0.9, 1e-6
TAIL, LARGEST = 1.1, 1000.0  # tail index over k, and the public bound of |y|
METHODS = {
    "LNC-GM": optimizers.LocalizedClippedGD,
    "PSA": optimizers.PrivateStochasticApproximation,
    "iterated LNC-GM": optimizers.IteratedLocalizedClippedGD,
    "PNCA-SGD": partial(optimizers.AcceleratedClippedSGD, scheme="disjoint"),
    "iterated PNCA-SGD": partial(
        optimizers.IteratedAcceleratedClippedSGD, scheme="disjoint"
    ),
}
THEOREMS = {
    "LNC-GM": "Theorem 1",
    "PSA": "Theorem 2",
    "iterated LNC-GM": "Theorem 3",
    "PNCA-SGD": "Theorem 6",
    "iterated PNCA-SGD": "Theorem 7",
}
EXPONENTS = (2.0, 3.0, 4.0)
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
# By the other sweeps; k = infinity: |y| = 1.
KEPT = {"n": 262_144, "epsilon": 1.0, "d": 2, "k": math.inf}


def shift(params):
    """Every entry of w*."""
    return DISTANCE / math.sqrt(params["d"])


def far(params):
    """Distance of a margin from its minimizer, on the unit ball."""
    return 1.0 + shift(params)


def response_bound(params):
    """Bound of |y|."""
    return LARGEST if math.isfinite(params["k"]) else 1.0


def steepest(params):
    """Slope of the growing part at most."""
    return far(params) ** (params["theta"] - 1.0)


@cache
def loss(theta, far, bound):
    """Loss of the margin u - <row, w*>; straight where no margin of the ball comes."""

    def value(u, y):
        size = min(abs(u), far)
        return size**theta / theta + far ** (theta - 1.0) * (abs(u) - size) - y * u

    def slope(u, y):
        return math.copysign(min(abs(u), far) ** (theta - 1.0), u) - y

    return dps.losses.custom(
        value,
        slope,
        slope_bound=far ** (theta - 1.0) + bound,
        upper_curvature=(theta - 1.0) * far ** (theta - 2.0),
        name=f"growth {theta:g}",
    )


def shared_facts(params):
    """Return what records and public facts have in common."""
    bound = response_bound(params)
    return {
        "loss": loss(params["theta"], far(params), bound),
        "domain": dps.domains.Ball(1.0),
        "row_bound": 1.0,
        "response_bound": bound,
        "offset_bound": shift(params),
    }


def instance(params, rng):
    """Fresh records."""
    number, dim, k = params["n"], params["d"], params["k"]
    rows = np.eye(dim)[rng.integers(dim, size=number)]
    y = rng.choice([-1.0, 1.0], size=number)
    if math.isfinite(k):
        scale = (1.0 - 1.0 / TAIL) ** (1.0 / k)
        y *= np.minimum(scale * rng.random(number) ** (-1.0 / (TAIL * k)), LARGEST)
    offset = np.full(number, -shift(params))
    return dps.Problem(rows, y, offset=offset, **shared_facts(params))


def facts(params):
    """Public facts of the instance."""
    return dps.PublicFacts(
        num_records=params["n"], dim=params["d"], row_norm=2.0, **shared_facts(params)
    )


def method_of(params, name=None):
    """Return the method that knows the distance, and the gradients' moment."""
    heavy, k = {}, params["k"]
    if math.isfinite(k):  # Minkowski's inequality
        heavy = {"moment": steepest(params) + 1.0, "order": k}
    return METHODS[name or params["method"]](distance=DISTANCE, **heavy)


def cell(params, seed):
    """Excess risk, in closed form, of one fit to fresh records; and its base's."""
    records, noise = seed.spawn(2)
    problem = instance(params, np.random.default_rng(records))
    theta, budget = params["theta"], budget_of(params)

    def excess(name):
        fit = dps.minimize(problem, method_of(params, name), budget, seed=noise)
        return np.mean(np.abs(fit.theta - shift(params)) ** theta) / theta

    results = {"excess": excess(params["method"])}
    if params["method"] in BASES:
        results["saved"] = excess(BASES[params["method"]]) - results["excess"]
    return results


def budget_of(params):
    """Epsilon, and delta = 1e-6."""
    return dps.Budget(epsilon=params["epsilon"], delta=DELTA)


def growth_of(params):
    """Exponent and constant of the growth."""
    theta = params["theta"]
    return {"exponent": theta, "constant": params["d"] ** (-theta / 2.0) / theta}


def bound(params):
    """Proved bound; that of the iterated methods uses the growth."""
    growth = growth_of(params) if params["method"].startswith("iterated") else {}
    return method_of(params).risk_bound(facts(params), budget_of(params), **growth)


def printed_bound(params):
    """Theorem 2's bound under growth, at the rate of our inner runs."""
    if params["method"] != "PSA":
        return math.inf
    given = facts(params), budget_of(params)
    return method_of(params).printed_growth_bound(*given, **growth_of(params))


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
    """Cells of some sweeps."""
    return tuple(
        {"theta": exponents, "method": tuple(METHODS), "sweep": sweep}
        | kept
        | {sweep: values}
        for sweep, values in sweeps.items()
    )


def answer(mean):
    """Words about a full run."""

    def pair(theta, method):
        at = KEPT | {"metric": "excess", "sweep": "n", "theta": theta}
        both = (mean(**at, method=name) for name in (BASES[method], method))
        return "{:.2g} against {:.2g}".format(*both)

    methods = ("iterated LNC-GM", "iterated PNCA-SGD")
    pairs = "; ".join(
        f"{method} {', '.join(pair(theta, method) for theta in EXPONENTS)}"
        for method in methods
    )
    return (
        "No bound is contradicted, and errors fall as fast as Theorems 2, 3 and 7 say,"
        " or faster. A restart is compared with what it iterates: 'saved' is the excess"
        " of LNC-GM (for PSA and iterated LNC-GM) or PNCA-SGD, less its own, on the"
        f" same records. Base against restart at n = 262 144, theta = 2, 3, 4: {pairs}."
    )


study = Study(
    name="tnc",
    title="Growth of the risk",
    question=(
        "The risk grows like |w - w*|^theta from a minimizer where gradients still"
        " scatter: theta = 2, 3, 4, two coefficients, replace-one neighbors, delta ="
        " 1e-6; then 8 and 32 coefficients, and gradients that have hardly more than k"
        " = 2, 4, 8 moments. Growth should speed up the methods that adapt to it. Do"
        " their errors have the exponents of Theorems 2, 3 and 7, and are they smaller"
        " than those of what they iterate?"
    ),
    answer=answer,
    grid=(
        *grid(EXPONENTS, KEPT, SWEEPS),
        *grid(EXPONENTS[:2], KEPT | {"n": 65_536}, {"d": (2, 8, 32), "k": (2, 4, 8)}),
    ),
    quick=(
        *grid((2.0, 4.0), KEPT | {"n": 16_384}, {"n": (4096, 16_384)}),
        *grid(2.0, KEPT | {"n": 4096}, {"d": (2, 8), "k": (2, 8)}),
    ),
    replicates=16,
    quick_replicates=3,
    cell=cell,
    metrics=(
        Metric(
            "excess",
            label="excess population risk",
            bound=bound,
            printed=printed_bound,
            baseline=lambda p: shift(p) ** p["theta"] / p["theta"],  # of the center 0
        ),
        Metric("saved", label="excess saved by the restart"),
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
        Figure(
            x="d",
            y="excess",
            lines="method",
            panels="theta",
            where={"sweep": "d"},
            x_label="coefficients d, n = 65 536, epsilon = 1",
        ),
        Figure(
            x="k",
            y="excess",
            lines="method",
            panels="theta",
            where={"sweep": "k"},
            x_label="moments k of the gradients, n = 65 536, epsilon = 1",
        ),
    ),
    slopes=tuple(slopes()),
    paired=("method",),
    seed=7,
)
