"""Private classification and regression on real records, at equal, true epsilon.

diffprivlib 0.6.6 is compared where it can be imported: it needs scikit-learn < 1.8.
"""

import math
import threading
from collections import Counter
from importlib import import_module
from importlib.util import find_spec

import numpy as np

import dpsample as dps
from dpsample.experiments import Figure, Inapplicable, Metric, Study

from . import _private_fits as fits
from ._real_records import LABELS, LOADERS, LOSSES, SHAPES, on_ball, problem

PLANS = {
    "release": fits.release,
    "objective perturbation": fits.objective,
    "DP-SGD": fits.descent,
}
ADVICE = {
    "dps.advise": "dps.advise",
    "tail of noisy GD": ("tail", "{loss}"),
    "tail, capped loss": ("tail", "capped_logistic"),
    "objective, capped loss": ("objective", "capped_logistic"),
}
LAST = "last iterate of noisy GD"
NOTHING, NO_PRIVACY = "theta = 0", "minimum, no privacy"
BEST_RIDGE, SHIPPED = "diffprivlib", "diffprivlib, C = 1"
UNBOUNDED = "diffprivlib, without the ball"
_lock, _chosen, _least = threading.Lock(), {}, {}


def works(name):
    """Whether a peer is there and can be imported."""
    try:
        return find_spec(name) is not None and bool(import_module(name))
    except ImportError:
        return False


IS_THERE = works("diffprivlib")


def place(params):
    """Find records, columns and epsilon."""
    return *SHAPES[params["records"]], float(params["epsilon"])


def risk(rows, y, theta, loss):
    """Mean loss."""
    return float(LOSSES[loss].value(rows @ theta, y).mean())


def least(params, rows, y):
    """Minimum of the training risk, with its gap."""
    key = params["records"], params["loss"]
    with _lock:
        if key not in _least:
            train = problem(rows, y, LOSSES[params["loss"]])
            _least[key] = dps.minimizer(train, progress=False)
        return _least[key]


def chosen(params, train):
    """Plan with the smallest training risk in pilot runs, whose privacy nobody pays."""
    key = (params["records"], params["epsilon"], params["method"])
    with _lock:
        if key not in _chosen:
            seeds = np.random.SeedSequence(0).spawn(2)  # pilot runs
            _chosen[key] = fits.best_plan(
                params["method"],
                *place(params),
                lambda plan: run(plan, train, seeds, evaluate=train).mean,
            )
        return _chosen[key]


def run(plan, train, seeds, **options):
    """Private fits of one plan."""
    return dps.replicate(
        plan.verb,
        train,
        *plan.arguments,
        **plan.options,
        num_replicates=len(seeds),
        seed=seeds,
        threads=1,
        **options,
    )


def plan_of(params):
    """Plan from public facts, and the loss that it fits."""
    method, loss = params["method"], params["loss"]
    budget = fits.budget_of(float(params["epsilon"]))
    if method == LAST:
        last = dps.optimizers.NoisyGD(output="last")
        return fits.Plan(dps.minimize, (last, budget), {}, math.inf), LOSSES[loss]
    if method in ADVICE:
        key = ADVICE[method]
        key = key if isinstance(key, str) else (key[0], key[1].format(loss=loss))
        row = fits.advice_by_method(*place(params), loss)[key]
        if row.choice == "release":
            return fits.release(*place(params), loss), row.loss
        return fits.Plan(dps.minimize, (row.choice, budget), {}, math.inf), row.loss
    options = {} if loss == "logistic" else {"loss": loss}
    return PLANS[method](*place(params), **options), LOSSES[loss]


def thetas(params, seeds, rows, y, found):
    """Coefficients of every replicate."""
    method, (_, d, epsilon) = params["method"], place(params)
    if method == NOTHING:
        return np.zeros((len(seeds), d))
    if method == NO_PRIVACY:
        best = least(params, rows, y)
        found["gap"] = np.full(len(seeds), best.gap)
        return [best.theta] * len(seeds)
    if method.startswith(BEST_RIDGE):
        ridge = 1.0 if method == SHIPPED else fits.best_ridge(d, epsilon)
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        every = [fits.diffprivlib(dense, y, epsilon, ridge, seed) for seed in seeds]
        return every if method == UNBOUNDED else [on_ball(theta) for theta in every]
    if method in fits.TUNED:
        train = problem(rows, y)
        plan, tries, is_inside = chosen(params, train)
        found["tries"] = np.full(len(seeds), float(tries))
        found["inside"] = np.full(len(seeds), float(is_inside))
    else:
        plan, loss = plan_of(params)
        train = problem(rows, y, loss)
    return run(plan, train, seeds).thetas


def batch(params, seeds, data):
    """Losses of private fits on the records that they saw, and on others."""
    records, loss, found = data[params["records"]], params["loss"], {}
    rows, y, test = records["rows"], records["y"], records["test"]
    every = thetas(params, seeds, rows, y, found)
    best = least(params, rows, y)
    zero = risk(*test, np.zeros(rows.shape[1]), loss)
    risks = np.array([risk(rows, y, on_ball(theta), loss) for theta in every])
    tested = np.array([risk(*test, theta, loss) for theta in every])
    # The minimum is below the best risk by the gap at most.
    excesses = np.array([best.excess(value) for value in risks]) + best.gap
    at_zero = best.excess(risk(rows, y, np.zeros(rows.shape[1]), loss)) + best.gap
    found["zero"] = np.full(len(seeds), at_zero)
    return found | {"excess": excesses, "share": tested / zero}


def bound(params):
    """Proved bound of the mean excess empirical risk."""
    if params["method"] not in PLANS:
        return math.inf
    return plan_of(params)[0].bound


EPSILONS = ("0.1", "0.3", "1", "3", "8")  # words: places on an axis of any scale
MOST = 12_000  # records with which such a release takes minutes, not an hour
FEW = 60  # columns up to which a release of a smooth loss takes less than seconds
ENDS = (NOTHING, NO_PRIVACY)
LOGISTIC = (*ADVICE, LAST, *PLANS, *[BEST_RIDGE, UNBOUNDED] * IS_THERE, *ENDS)
OTHERS = (*fits.TUNED, *[SHIPPED] * IS_THERE)
KINKED = ("dps.advise", *ENDS)


def cells(names, losses, methods, epsilons, **kind):
    """Every set, with its size."""
    return [
        {"records": name, "n": SHAPES[name][0], "loss": losses, "epsilon": epsilons}
        | {"method": methods}
        | kind
        for name in names
    ]


def grid(names, epsilons):
    """Return cells of these sets of labels, and of responses."""
    others = [name for name in LOADERS if name not in LABELS]
    kinds = [(names, "hinge"), (others, "quantile")]
    drawn = [([n for n in kind if SHAPES[n][0] <= MOST], loss) for kind, loss in kinds]
    cheap = epsilons[:3]  # of releases of losses with kinks
    return [
        *cells(names, "logistic", LOGISTIC, epsilons, knobs="public"),
        *(c for k in kinds for c in cells(*k, KINKED, epsilons, knobs="public")),
        *(c for k in drawn for c in cells(*k, "release", cheap, knobs="public")),
        *cells(names, "logistic", OTHERS, epsilons, knobs="other"),
    ]


def replicates(params):
    """Return two where nothing is random, and of releases of many columns."""
    if params["method"] in ENDS:
        return 2
    is_large = SHAPES[params["records"]][1] > FEW or params["loss"] != "logistic"
    return 2 if params["method"] == "release" and is_large else 8


AXES = {"x": "epsilon", "lines": "method"}
LABEL = "true epsilon, replace one record (delta = 1e-6)"
SOURCE = (
    "Records: a9a, w7a, Adult, magic04 (a gamma telescope) and k401ksubs (eligibility),"
    " assets of k401ksubs and wages of cps1988"
    if "a9a" in LABELS
    else "Records: SYNTHETIC stand-ins"
)
QUESTION = (
    "Which private method should fit a linear model, at equal and true (eps, 1e-6),"
    " when any one record may be replaced?"
    f" {SOURCE}; logistic and hinge losses of labels, and the quantile loss of level"
    " 0.75 of responses. Rows have norm at most 1, coefficients are in the ball of"
    " radius 10. Excess is over a certified lower end of the minimum on that ball; the"
    " minimum and its duality gap have a line. Share is the test loss over that of"
    " theta = 0. All knobs but those called tuned follow from public facts:"
    " 'dps.advise' is what it chooses, the others the method's bound of the excess"
    " empirical risk, or the rule of the advice. 'Capped' fits a logistic loss of half"
    " the slope and is judged by the logistic loss. 'Release' is a certified draw of"
    " the regularized exponential mechanism, localized where that is faster. With more"
    " than 60 columns or kinks"
    " there are 2 of them, elsewhere 8 replicates, and 2 where nothing is random; with"
    " kinks a release takes minutes for epsilon > 1, and hours on 20 000 wages, and is"
    " left out there. 'Tuned'"
    " takes the ridge, or steps and their size, with the smallest training loss in"
    " pilot runs, in grids of equal size (powers of 4, 9 tries or more) that are"
    " widened until the best is inside. That costs privacy which is not counted."
    " DP-Newton is not in the package, sufficient statistics are of squared losses."
)
PEER = (
    " 'diffprivlib' is its LogisticRegression without intercept, told the epsilon at"
    " which the proved one, of replacing a record, is eps (delta is 0); its C minimizes"
    " a bound, or is the default 1; its solver stops at 1e-9, which we take for exact."
    " It has no ball, so what it returns is projected on the ball, where all methods"
    " and the minimum are. 'Without the ball' is what it returns."
)
QUESTION += PEER if IS_THERE else " diffprivlib is not installed and left out."
QUESTION += " Opacus runs DP-SGD too and has no line of its own."
QUICK = "magic04" if "a9a" in LABELS else "halfspace"


def answer(mean):
    """Words about a full run."""

    def line(records):
        words = []
        for epsilon in EPSILONS:
            at = {"records": records, "loss": "logistic", "epsilon": epsilon}
            at |= {"metric": "share", "knobs": "public"}
            # Ends are not private, and without the ball the problem is another one.
            rivals = [n for n in LOGISTIC if n not in (*ENDS, UNBOUNDED)]
            shares = {n: mean(**at, method=n) for n in rivals}
            advice = shares.pop("dps.advise")
            name = min(shares, key=shares.get)
            winners.append("dps.advise" if advice <= shares[name] else name)
            ratios.append(advice / min(advice, shares[name]))
            words.append(f"{epsilon} {name} {shares[name]:.3f} ({advice:.3f})")
        return f"{records}: {', '.join(words)}"

    winners, ratios = [], []
    lines = [line(name) for name in LABELS]
    counts = ", ".join(f"{n} {name}" for name, n in Counter(winners).most_common())
    return (
        "Least share of the test loss of theta = 0 of a logistic loss among all methods"
        " of public knobs, by epsilon, and that of `dps.advise`."
        f" {'; '.join(lines)}. Least of all: {counts}. The advice is at most"
        f" {max(ratios) - 1.0:.1%} above the least. {_without_ball(mean)}For hinge and"
        " quantile losses the advice and release are compared in the next figures."
    )


def _without_ball(mean):
    """Words about the peer on another problem, or none without it."""
    if not IS_THERE:
        return ""
    places = []
    for records in LABELS:
        for epsilon in EPSILONS:
            at = {"records": records, "loss": "logistic", "epsilon": epsilon}
            at |= {"metric": "share", "knobs": "public"}
            share = mean(**at, method=UNBOUNDED)
            least_share = mean(**at, method=NO_PRIVACY)
            if share < least_share:
                places.append(
                    f"{records} at {epsilon}, {share:.3f} ({least_share:.3f})"
                )
    words = "; ".join(places) or "nowhere"
    return (
        "Without the ball, which is another problem, diffprivlib is below the minimum"
        f" of the ball (in brackets) here: {words}. "
    )


study = Study(
    name="head_to_head",
    title="Private linear models, head to head",
    question=QUESTION,
    answer=answer,
    grid=grid(tuple(LABELS), EPSILONS),
    quick=[
        *cells([QUICK], "logistic", LOGISTIC, EPSILONS[1::2], knobs="public"),
        *cells([QUICK], "hinge", KINKED, "3", knobs="public"),
        *cells([QUICK], "logistic", OTHERS[0], "3", knobs="other"),
    ],
    replicates=replicates,
    quick_replicates=lambda p: 2 if p["method"] in ENDS else 3,
    batch=batch,
    block=10,
    data=LOADERS,
    metrics=(
        Metric("share", label="test loss over that of theta = 0"),
        Metric("excess", label="excess empirical risk", bound=bound, baseline="zero"),
        Metric("zero", label="excess empirical risk of theta = 0", kind="exact"),
        Metric("gap", label="duality gap of the minimum", bound=0.005),
        Metric("tries", label="tries of tuning"),
        Metric("inside", label="best try inside its grid", kind="rate"),
    ),
    figures=(
        *(
            Figure(
                y="share",
                panels="records",
                where={"knobs": "public", "loss": loss},
                title=f"Which to choose, {loss} loss: loss on new records",
                log_log=False,
                x_label=LABEL,
                **AXES,
            )
            for loss in ("logistic", "hinge", "quantile")
        ),
        Figure(
            y="excess",
            panels="records",
            where={"knobs": "public", "loss": "logistic"},
            title="Logistic loss: excess training risk, and proved bounds",
            x_label=LABEL,
            **AXES,
        ),
        Figure(
            y="excess",
            panels="records",
            where={"knobs": "other"},
            title="Tuned on the records, or as shipped",
            x_label=LABEL,
            **AXES,
        ),
    ),
    inapplicable=(
        Inapplicable(
            when=lambda p: p["method"] not in PLANS,
            reason="no bound is proved: tuned on the records, projected, or no fit",
            metrics=("excess",),
        ),
    ),
    paired=("method", "knobs"),
)
