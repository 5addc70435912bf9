"""Objects whose methods are doors, and one valid call of every method."""

import dpsample as dps
from dpsample import experiments, tables
from tests.contracts import door_objects as O
from tests.contracts import public_objects
from tests.contracts.door_examples import ARGUMENTS

# Objects that no constructor with examples makes.
INSTANCES = {
    "Certificate": lambda: O.answer().certificate,
    "Fit": O.fit,
    "Intervals": public_objects.bars,
    "Minimum": public_objects.minimum,
    "Problem": O.the_problem,
    "PublicFacts": O.facts,
    "Release": O.answer,
    "Statistic": public_objects.statistic,
    "audits.AuditReport": O.report,
    "datasets.GrowthRegression": O.growth,
    "datasets.HardInstance": O.hard,
    "diagnostics.Calibration": O.ranks,
    "diagnostics.MixingBound": O.mixing,
    "domains.Intersection": lambda: dps.domains.Intersection(
        dps.domains.Ball(1.0), dps.domains.Box(0.0, 2.0)
    ),
    "domains.Simplex": dps.domains.Simplex,
    "domains.WholeSpace": dps.domains.WholeSpace,
    "losses.Absolute": dps.losses.Absolute,
    "losses.Custom": O.custom_loss,
    "losses.Hinge": dps.losses.Hinge,
    "losses.Linear": dps.losses.Linear,
    "losses.Squared": dps.losses.Squared,
    "noise.AdditiveMechanism": O.additive,
    "noise.NoisyAnswer": lambda: O.additive().release(1.0, seed=1),
    "privacy.EventCertificate": lambda: O.fit().certificate,
    "privacy.ExponentialMechanism": O.mechanism,
    "optimizers.IteratedAcceleratedClippedSGD": lambda: (
        dps.optimizers.IteratedAcceleratedClippedSGD(scheme="disjoint")
    ),
    "privacy.Ledger": O.ledger,
    "privacy.LedgerFile": O.ledger_file,
    "regularizers.Entropy": dps.regularizers.Entropy,
    "diagnostics.couplings.MeetingTimes": O.meetings,
    "experiments.Inapplicable": lambda: experiments.Inapplicable(
        when=lambda params: True, reason="None", metrics=("square",)
    ),
    "experiments.Study": O.study,
    "tables.Encoding": O.encoding,
    "tables.Schema": O.schema,
}


THETA = {"theta": [0.1, 0.2]}
DIM = {"dim": 2}
RECIPE = {"facts": O.facts, "budget": O.BUDGET}
RECORD = {"margins": [0.5], "response": [1.0]}

# By the name of the method, or by the whole name of the door where that differs.
METHODS = {
    "bayes_risk": {},
    "excess": {"value": 2.0},
    "predictive_value": {"false_positive_rate": 0.1, "prior": 0.5},
    "reconstruction": {"blind": 0.1},
    "true_positive_rate": {"false_positive_rate": [0.1]},
    "affine_dim": DIM,
    "hull": DIM,
    "add": {"item": O.EVENT},
    "spend": {"item": dps.privacy.GaussianEvent(0.1)},
    "sign": {"private_key": bytes(32)},
    "body": DIM,
    "cells": {},
    "check": DIM,
    "change": {"value": [0.0], "neighbor": [1.0]},
    "chord": {**THETA, "direction": [1.0, 0.0]},
    "concerns": {"metric": "square", "params": {"n": 1}},
    "contains": THETA,
    "coordinates": DIM,
    "coordinate_moment": {"order": 2.0, "dim": 2},
    "curvature_l2": DIM,
    "default_center": DIM,
    "delta": {"epsilon": 1.0},
    "diameter": {"p": 2.0, "dim": 2},
    "diff_lipschitz": {"p": 2.0},
    "dual_ratio": {"p": 2.0},
    "distance": {"stddev": 0.1},
    "draw": {"rng": lambda: O.rng(), "size": (2, 2)},
    "energy": THETA,
    "epsilon": {"delta": 1e-6},
    "excess_risk": THETA,
    "exit_piece": DIM,
    "from_dict": {"content": lambda: O.answer().certificate.to_dict()},
    "from_file": {"path": "bounds.toml"},
    "from_json": {"text": lambda: O.answer().certificate.to_json()},
    "gauge": THETA,
    "gaussian_width": DIM,
    "gradient": THETA,
    "gradients": THETA,
    "half_widths": DIM,
    "interior_point": DIM,
    "kind": {"column": "age"},
    "least_epsilon": {"t": 1.0},
    "lipschitz": {"p": 2.0},
    "lipschitz_or_inf": {"p": 2.0},
    "load": {"path": "fit.json"},
    "Statistic.load": {"path": "statistic.json"},
    "to_html": {"publisher": {"purpose": "a report"}},
    "loss_range": {},
    "loss_range_or_inf": {},
    "log_density": THETA,
    "margin": {"features": O.ROWS},
    "margins": THETA,
    "max_norm": {"p": 2.0, "center": [0.0, 0.0], "dim": 2},
    "max_schatten": {"p": 2.0, "center": [0.0] * 4, "dim": 4, "shape": O.SHAPE},
    "mean_square": DIM,
    "metric": {"name": "square"},
    "norm_moment": {"order": 2.0, "dim": 2},
    "plot": {},
    "predict": {"features": O.ROWS},
    "predict_proba": {"features": O.ROWS},
    "printed_growth_bound": {**RECIPE, "exponent": 2.0, "constant": 1.0},
    "privacy_loss": {"outputs": [0.5], "value": [0.0], "neighbor": [1.0]},
    "project": THETA,
    "prox": {**RECORD, "step": [0.5]},
    "range_on": {"domain": dps.domains.Ball(1.0), "dim": 2},
    "rdp": {"order": 2.0, "stddev": 0.1},
    "recipe": RECIPE,
    "release": {"value": 1.0, "seed": 1},
    "remaining": {},
    "replicates_of": {"cell": lambda: O.study().cells()[0]},
    "require": {"target": O.target},
    "risk": THETA,
    "risk_bound": RECIPE,
    "save": {"path": "saved.json"},
    "verify": {},
    "slope": RECORD,
    "support": {"directions": [[1.0, 0.0]]},
    "supports": {"target": O.target},
    "target": {"problem": O.the_problem},
    "tv_bound": {"t": 10},
    "tv_curve": {"steps": [0, 10]},
    "value": RECORD,
    "PublicFacts.from_dict": {"facts": lambda: O.facts().to_dict()},
    "domains.Polytope.affine_dim": {"dim": 1},
    "domains.Polytope.body": {"dim": 1},
    "domains.Polytope.chord": {"theta": [0.1], "direction": [1.0]},
    "domains.Polytope.contains": {"theta": [0.1]},
    "domains.Polytope.coordinates": {"dim": 1},
    "domains.Polytope.exit_piece": {"dim": 1},
    "domains.Polytope.hull": {"dim": 1},
    "domains.Polytope.project": {"theta": [0.1]},
    "domains.Polytope.check": {"dim": 1},
    "domains.Polytope.default_center": {"dim": 1},
    "domains.Polytope.reduced": {"A": [[1.0], [-1.0]], "b": [1.0, 1.0]},
    "domains.Polytope.diameter": {"p": 2.0, "dim": 1},
    "domains.Polytope.max_norm": {"p": 2.0, "center": [0.0], "dim": 1},
    "domains.Polytope.support": {"directions": [[1.0]]},
    "domains.SchattenBall.body": {"dim": 4},
    "domains.SchattenBall.check": {"dim": 4},
    "domains.SchattenBall.default_center": {"dim": 4},
    "domains.SchattenBall.diameter": {"p": 2.0, "dim": 4},
    "domains.SchattenBall.exit_piece": {"dim": 4},
    "domains.SchattenBall.max_norm": {"p": 2.0, "center": [0.0] * 4, "dim": 4},
    "domains.SchattenBall.support": {"directions": [[1.0, 0.0, 0.0, 0.0]]},
    "privacy.Ledger.from_json": {"text": lambda: O.ledger().to_json()},
    "privacy.PerturbedObjective.delta": {"epsilon": 1.0, "stddev": 0.1},
    "privacy.PerturbedObjective.epsilon": {"delta": 1e-6, "stddev": 0.1},
    "regularizers.Entropy.gradient": {"theta": [0.4, 0.6]},
    "regularizers.Entropy.range_on": {"domain": dps.domains.Simplex(), "dim": 2},
    "regularizers.Entropy.value": {"theta": [0.4, 0.6]},
    "regularizers.SchattenSquared.curvature_l2": {"dim": 4},
    "regularizers.SchattenSquared.range_on": {
        "domain": dps.domains.SchattenBall(1.0, p=1.0, shape=O.SHAPE),
        "dim": 4,
    },
    "Problem.from_table": {
        "data": lambda: tables.from_frame(O.frame(), target="y", row_bound=3.0),
        "loss": dps.losses.Absolute(),
        "domain": dps.domains.Ball(1.0),
    },
    "Problem.with_model": {
        "loss": dps.losses.Logistic(),
        "domain": dps.domains.Ball(1.0),
    },
    "Problem.with_records": {"features": O.ROWS, "response": O.LABELS},
    "tables.Encoding.features": {"frame": O.frame},
    "tables.Encoding.new_features": {"frame": O.frame},
    "tables.Encoding.response": {"frame": O.frame},
    "tables.Encoding.raw_response": {"margins": [0.5], "is_label": False},
    "tables.Encoding.from_dict": {"content": lambda: O.encoding().to_dict()},
    "tables.Schema.from_dict": {"content": {"numeric": {"age": [0.0, 100.0]}}},
}
METHODS |= {
    f"noise.{name}.log_density": {"z": [0.1, 0.2, 0.3, 0.4]}
    for name in (
        "DiscreteLaplace",
        "Gaussian",
        "GeneralizedGaussian",
        "KNorm",
        "Laplace",
        "SchattenGaussian",
    )
}
GROWTH = {"exponent": 2.0, "constant": 1.0}
METHODS |= {
    f"optimizers.{name}.{method}": {
        "facts": O.facts_for(name),
        "budget": O.budget_for(name),
        **(GROWTH if name.startswith("Iterated") and method == "risk_bound" else {}),
    }
    for name in dps.optimizers.__all__
    for method in ("recipe", "risk_bound")
}
METHODS["noise.SchattenGaussian.draw"] = {"rng": lambda: O.rng(), "size": (2, 4)}


def instance(door):
    """Object whose method the door is; the class itself for a class method."""
    name = door.name.rpartition(".")[0]
    if name in INSTANCES:
        return INSTANCES[name]()
    fresh = {
        k: v() if callable(v) and k != "sampler" else v
        for k, v in ARGUMENTS[name].items()
    }
    return door.owner(**fresh)
