"""Kinds of parameters whose name means something else at one door."""

import math
import os
import sys
from contextlib import suppress
from numbers import Rational

import numpy as np

import dpsample as dps
from dpsample import experiments, tables
from dpsample.privacy import Event
from tests.contracts.door_values import (
    BOUND,
    COUNT,
    DIM,
    EXACT,
    EXPONENT,
    FLAG,
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    TEXT,
    Kind,
    array,
    choice,
    count,
    either,
    floats,
    instance,
    number,
    optional,
    words,
)

PATH = instance(str, os.PathLike)
# What a user's function does is up to the user: no other function is called.
CALLABLE = Kind(lambda value: not callable(value), callable)
WAIT = optional(Kind(POSITIVE.forbids, lambda value: value is not None))  # seconds
DICT = instance(dict)
VECTOR = array(2)
RISK = choice("population", "empirical")
RELATION = choice("replace_one", "zero_out")
RECORDS = count(1, EXACT)
NAMES = Kind(lambda value: isinstance(value, str | bytes | int | float))
SHAPE = Kind(lambda v: not (isinstance(v, tuple | list) and len(v) == 2))
SIZE = Kind(lambda v: isinstance(v, str | bytes | float | bool | dict))
AXES = optional(Kind(lambda value: not hasattr(value, "plot")))
NUMBERS = array(...)
BATCHES = choice("disjoint", "poisson", "full", "fixed", "shuffled")

ANY_COUNT = Kind(lambda v: not callable(v) and COUNT.forbids(v), callable)
POINT = array(None)
REALS = Kind(lambda value: floats(value) is None)
BUDGET_OR_NONE = optional(instance(dps.Budget))
REFERENCE = optional(either(number(lambda x: x == x), TEXT, CALLABLE))
COLUMN = either(TEXT, instance(int, np.integer))
WORD_OR_WORDS = either(TEXT, words())
GRID = Kind(lambda v: not _are_grids(v))
COLUMN_NAMES = Kind(
    lambda v: (
        not isinstance(v, list | tuple | np.ndarray)
        or getattr(v, "ndim", 1) != 1
        or len(v) != 2
    )
)


COEFFICIENTS = Kind(lambda v: words("0", "1").forbids(v) or not v)
CHAINS = Kind(lambda v: not hasattr(v, "posterior"))
DRAWS = either(CHAINS, array(None, 2, holds=np.size), array(None, None, 2))


def _are_roots(value):
    try:
        return not any(map(NON_NEGATIVE.forbids, value))
    except TypeError:
        return False


def _are_groups(value):
    is_list = isinstance(value, tuple | list)
    return is_list and not any(count(0).forbids(each) for each in value)


def _are_losses(values):
    return values.size > 0 and (values >= 0.0).all() and (values <= 600.0).all()


LOSSES = either(array(holds=_are_losses), array(None, holds=_are_losses))
GROUPS = Kind(lambda v: not _are_groups(v))
ROOTS = Kind(lambda v: not _are_roots(v))  # any iterable of numbers


def _is_query(value):
    """Whether a mechanism takes it: no number is refused, however large."""
    if floats(value) is None and isinstance(value, Rational | list | np.ndarray):
        most = sys.float_info.max
        with suppress(TypeError, ValueError):
            value = np.clip(np.array(value, dtype=object), -most, most)
    entries = floats(value)
    return entries is not None and entries.ndim <= 1 and entries.size > 0


def _are_grids(value):
    if isinstance(value, dict):
        return True
    is_list = isinstance(value, list | tuple) and len(value) > 0
    return is_list and all(isinstance(v, dict) for v in value)


def _is_range(value):
    entries = floats(value)
    fits = entries is not None and entries.shape == (2,)
    return fits and np.isfinite(entries).all() and entries[0] < entries[1]


def _are_levels(value):
    return bool(value) and not words().forbids(value)


def _is_column(value):
    """Whether it has one axis; what is in it is checked elsewhere."""
    has_axis = getattr(value, "ndim", 1) == 1 and hasattr(value, "__len__")
    return has_axis and not isinstance(value, str | bytes | dict | set) and len(value)


A_COLUMN = Kind(lambda v: not _is_column(v))
SOME_LEVELS = Kind(lambda v: not (isinstance(v, list | tuple) and v))
PAIR = Kind(lambda v: not (isinstance(v, list | tuple) and _is_range(v)))
MASK = Kind(
    lambda v: not (_is_column(v) and all(isinstance(x, bool | np.bool_) for x in v))
)


RANGES = Kind(lambda v: not (isinstance(v, dict) and all(map(_is_range, v.values()))))
LEVELS = Kind(lambda v: not (isinstance(v, dict) and all(map(_are_levels, v.values()))))


def side(holds):
    """One side of a box in the plane, or both coordinates of it."""

    def forbids(value):
        entries = floats(value)
        fits = entries is not None and entries.shape in ((), (2,))
        return not (fits and np.isfinite(entries).all() and holds(entries).all())

    return Kind(forbids)


BY_DOOR = {
    # Small samples mean many steps: their accounting takes minutes.
    "optimizers.PrivateProximalSGD.batch_size": optional(
        Kind(COUNT.forbids, lambda v: v is not None and v < 16)
    ),
    **{
        f"optimizers.{name}.exponent": number(lambda x: 1.01 <= x < 1e3)
        for name in (
            "IteratedAcceleratedClippedSGD.risk_bound",
            "IteratedLocalizedClippedGD.risk_bound",
            "PrivateStochasticApproximation.printed_growth_bound",
        )
    },
    "optimizers.TruncatedMirrorDescent.p": optional(EXPONENT),
    "diagnostics.tv_bound.lag": optional(count()),
    "diagnostics.compare.draws": either(DRAWS, instance(dps.samplers.Sampler)),
    "diagnostics.compare.num_replicates": count(2),
    "diagnostics.gamma_check.draws": DRAWS,
    "diagnostics.stein_check.draws": DRAWS,
    "domains.Box.lower": side(lambda x: x < 1.0),
    "experiments.Figure.bound": FLAG,
    "experiments.Figure.y_limits": optional(Kind(lambda v: not _is_range(v))),
    "experiments.Slope.expected": either(number(math.isfinite), CALLABLE),
    "experiments.Study.answer": either(TEXT, CALLABLE),
    "experiments.Study.quick": optional(GRID),
    "experiments.Study.replicates_of.cell": instance(experiments.study.Cell),
    "experiments.Inapplicable.metrics": words(),
    "optimizers.ApproximateObjectivePerturbation.printed": choice("bassily", "su"),
    "losses.custom.value": CALLABLE,
    "regularizers.custom.value": CALLABLE,
    "regularizers.custom.gradient": CALLABLE,
    "regularizers.custom.norm": EXPONENT,
    "regularizers.custom.strong_convexity": NON_NEGATIVE,
    "losses.record_gradient.value": optional(CALLABLE),
    "noise.AdditiveMechanism.release.value": Kind(lambda v: not _is_query(v)),
    **{
        f"audits.neighbors.{name}.direction": choice("axis", "corner", "difference")
        for name in ("at_kink", "copies", "opposite", "zero_out")
    },
    **{
        f"papers.clipping_instance.{name}.neighbor": FLAG
        for name in ("clipped_descent", "clipped_mean_gradient", "printed_release")
    },
    "papers.clipping_instance.clipped_descent.step_size": number(
        lambda x: 0.01 <= x <= 1.0
    ),
    "papers.clipping_instance.clipped_mean_gradient.w": array(
        2, holds=lambda x: (abs(x) <= 1e60).all()
    ),
    "papers.clipping_instance.printed_release.size": count(),
    "papers.bound.paper": choice("bassily", "gopi", "su", "xie", "xu"),
    "papers.bound.item": choice(*(b.item for b in dps.papers.bounds("su"))),
    "papers.bound.part": choice(""),
    **{
        f"domains.{name}.{parameter}": POINT
        for name in ("Ball", "Polytope")
        for parameter in (
            "chord.theta",
            "chord.direction",
            "contains.theta",
            "project.theta",
        )
    },
    "domains.Ball.gauge.theta": array(..., None),
    "domains.Ellipsoid.precision": array(None, None),
    "domains.Intersection.interior_point": optional(VECTOR),
    "domains.custom.interior_point": VECTOR,
    # The functions of the examples take no data.
    "domains.custom.data": Kind(lambda value: value is not None),
    "Density.data": Kind(lambda value: value is not None),
    "domains.SchattenBall.max_schatten.shape": optional(SHAPE),
    "optimizers.HeavyTailedFrankWolfe.scale": optional(POSITIVE),
    "experiments.Slope.y": TEXT,
    "diagnostics.check.target": optional(instance(dps.Gibbs)),
    "diagnostics.plot_draws.target": optional(instance(dps.Gibbs, dps.domains.Domain)),
    "experiments.Study.batch": optional(CALLABLE),
    "experiments.Study.quick_replicates": optional(ANY_COUNT),
    "losses.Absolute.value.margins": REALS,
    "losses.Absolute.value.response": REALS,
    "losses.Absolute.slope.margins": REALS,
    "losses.Absolute.slope.response": REALS,
    "Problem.encoding": optional(instance(tables.Encoding)),
    "Problem.from_table.data": instance(tables.Dataset),
    "replicate.data": optional(CALLABLE),
    "tables.Schema.missing": DICT,
    "tables.Schema.reference": DICT,
    "tables.Encoding.contrasts": words("a column of levels"),
    "tables.Schema.file": instance(dict, tables.TextFormat),
    "tables.TextFormat.encoding": TEXT,
    "experiments.Study.replicates": ANY_COUNT,
    "sample.check": FLAG,
    "sample.target_ess": optional(
        Kind(POSITIVE.forbids, lambda v: v is not None and v > 5)
    ),
    "audit.gdp": optional(NON_NEGATIVE),
    "audit.event": optional(instance(Event)),
    "audit.problem": NUMBERS,
    "audit.neighbor": NUMBERS,
    "release.sampler": optional(instance(dps.samplers.Sampler, str)),
    "losses.custom.slope_bound": BOUND,
    "advise.problem": instance(dps.Problem, dps.PublicFacts),
    "minimizer.target_or_problem": instance(dps.Gibbs, dps.Density, dps.Problem),
    "Minimum.excess.value": number(lambda x: 1.0 <= x < np.inf),
    "minimize.budget": optional(instance(dps.Budget)),
    "Intervals.plot.non_private": optional(number(lambda x: False)),  # a pair
    "intervals.share": optional(number(lambda x: 0.01 <= x < 1.0)),
    "intervals.robust": optional(FLAG),
    "intervals.bandwidth": optional(number(lambda x: False)),  # the loss is smooth
    "privacy.TiltEvent.distance": NON_NEGATIVE,
    "tune.cap": POSITIVE,
    "optimizers.AdaSSP.ridge": NON_NEGATIVE,
    "tune.score": instance(dps.Problem),
    "datasets.growth_regression.exponent": POSITIVE,
    "datasets.regression.noise": NON_NEGATIVE,
    "noise.GeneralizedGaussian.coordinate_moment.order": number(lambda x: x > -1.0),
    "noise.GeneralizedGaussian.norm_moment.order": number(lambda x: x > -1.0),
    "noise.generalized_gaussian_mechanism.r": optional(EXPONENT),
    "privacy.ApproximateEvent.delta": number(lambda x: 0.0 <= x < 1.0),
    "privacy.AttackRisk.predictive_value.false_positive_rate": FRACTION,
    "privacy.Ledger.budget": optional(instance(dps.Budget)),
    "privacy.LedgerFile.budget": optional(instance(dps.Budget)),
    "privacy.Ledger.delta.epsilon": optional(NON_NEGATIVE),
    "privacy.epsilon_of.delta": number(lambda x: 0.0 <= x < 1.0),
    "privacy.Ledger.epsilon.delta": optional(number(lambda x: 0.0 <= x < 1.0)),
    "privacy.Ledger.remaining.budget": optional(instance(dps.Budget)),
    "privacy.PerturbedObjective.smoothness": NON_NEGATIVE,
    "privacy.PerturbedObjective.least_epsilon.t": NON_NEGATIVE,
    "privacy.shuffle_total_delta.delta": number(lambda x: 0.0 <= x <= 1.0),
    "losses.record_gradient.dim": optional(DIM),
    "regularizers.Entropy.gradient.theta": POINT,
    "regularizers.Entropy.value.theta": POINT,
    "regularizers.PowerNorm.weights": optional(
        array(None, holds=lambda entries: (entries >= 0.0).all())
    ),
    "regularizers.SquaredNorm.weights": optional(
        array(None, holds=lambda entries: (entries >= 1.0).all())
    ),
    "regularizers.PowerNorm.p": number(lambda x: 1.0 <= x < np.inf),
}
BY_DOOR |= {
    f"stats.{door}.{name}": kind
    for door in ("count", "histogram", "sum", "mean", "quantile", "group_means")
    for name, kind in {
        "mask": MASK,
        "values": A_COLUMN,
        "groups": A_COLUMN,
        "bounds": PAIR,
        "levels": SOME_LEVELS,
        "edges": Kind(lambda v: v is not None and not _is_column(v)),
    }.items()
}
BY_DOOR |= {
    f"tables.{door}.{name}": kind
    for door in ("read_table", "from_frame", "Encoding")
    for name, kind in {
        "columns": optional(words("x")) if door != "Encoding" else words("age"),
        "clip": FLAG,
        "row_bound": optional(POSITIVE),
        "target": optional(COLUMN if door == "Encoding" else TEXT),
        "positive_label": optional(TEXT),
        "format": optional(TEXT),
        "schema": optional(instance(tables.Schema)),
    }.items()
}
