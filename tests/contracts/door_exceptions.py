"""Kinds of parameters whose name means something else at one door."""

import os

import dpsample as dps
from dpsample.audits import AuditReport  # noqa: F401
from dpsample.privacy import Event
from tests.contracts.door_values import (
    ANYTHING,
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
    floats,
    instance,
    number,
    optional,
)

PATH = instance(str, os.PathLike)
# What a user's function does is up to the user: no other function is called.
CALLABLE = Kind(lambda value: not callable(value), callable)
DICT = instance(dict)
VECTOR = array(2)
RISK = choice("population", "empirical")
CALIBRATION = choice("exact", "closed_form", "paper")
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
BY_DOOR = {
    "domains.Ball.chord.theta": POINT,
    "domains.Ball.chord.direction": POINT,
    "domains.Ball.contains.theta": POINT,
    "domains.Ball.gauge.theta": array(..., None),
    "domains.Ball.project.theta": POINT,
    "domains.SchattenBall.max_schatten.shape": optional(SHAPE),
    "optimizers.HeavyTailedFrankWolfe.scale": optional(POSITIVE),
    "studying.Slope.y": TEXT,
    "diagnostics.check.target": optional(instance(dps.Gibbs)),
    "diagnostics.plot_draws.target": optional(instance(dps.Gibbs, dps.domains.Domain)),
    "studying.Study.batch": ANYTHING,
    "studying.Study.quick_replicates": optional(ANY_COUNT),
    "losses.Absolute.value.margins": REALS,
    "losses.Absolute.value.response": REALS,
    "losses.Absolute.slope.margins": REALS,
    "losses.Absolute.slope.response": REALS,
    "tables.read_table.clip": FLAG,
    "tables.read_table.row_bound": optional(POSITIVE),
    "tables.read_table.target": optional(TEXT),
    "tables.read_table.positive_label": optional(TEXT),
    "tables.read_table.format": optional(TEXT),
    "studying.Study.replicates": ANY_COUNT,
    "sample.target_ess": optional(
        Kind(POSITIVE.forbids, lambda v: v is not None and v > 5)
    ),
    "audit.gdp": optional(NON_NEGATIVE),
    "audit.event": optional(instance(Event)),
    "audit.problem": NUMBERS,
    "audit.neighbor": NUMBERS,
    "release.sampler": optional(instance(dps.samplers.Sampler, str)),
    "minimize.budget": optional(instance(dps.Budget)),
    "datasets.growth_regression.exponent": POSITIVE,
    "datasets.regression.noise": NON_NEGATIVE,
    "noise.GeneralizedGaussian.coordinate_moment.order": number(lambda x: x > -1.0),
    "noise.GeneralizedGaussian.norm_moment.order": number(lambda x: x > -1.0),
    "noise.generalized_gaussian_mechanism.r": optional(EXPONENT),
    "privacy.ApproximateEvent.delta": number(lambda x: 0.0 <= x < 1.0),
    "privacy.Ledger.budget": optional(instance(dps.Budget)),
    "privacy.Ledger.delta.epsilon": optional(NON_NEGATIVE),
    "privacy.Ledger.epsilon.delta": optional(FRACTION),
    "privacy.Ledger.remaining.budget": optional(instance(dps.Budget)),
    "privacy.PerturbedObjective.smoothness": NON_NEGATIVE,
    "privacy.PerturbedObjective.least_epsilon.t": NON_NEGATIVE,
    "privacy.shuffle_total_delta.delta": number(lambda x: 0.0 <= x <= 1.0),
    "losses.record_gradient.dim": optional(DIM),
    "regularizers.Entropy.gradient.theta": POINT,
    "regularizers.Entropy.value.theta": POINT,
}
