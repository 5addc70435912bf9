"""Bad values for every public parameter, by kind of failure."""

import numpy as np

import dpsample as dps

S = dps.samplers
NAN, INF = float("nan"), float("inf")

POSITIVE = {"zero": 0.0, "negative": -1.0, "nan": NAN, "inf": INF, "text": "1"}
NON_NEGATIVE = {"negative": -1.0, "nan": NAN, "inf": INF, "text": "1", "none": None}
FRACTION = {"zero": 0.0, "one": 1.0, "nan": NAN, "text": "0.5", "bool": True}
EXPONENT = {"below_one": 0.5, "nan": NAN, "text": "2", "none": None}
COUNT = {"zero": 0, "negative": -3, "fraction": 1.5, "text": "3"}
CHOICE = {"unknown": "nonsense", "number": 3, "none": None}
SEED = {"negative": -1, "fraction": 0.5, "text": "seed"}
FLAG = {"text": "yes", "none": None}
OBJECT = {"none": None, "text": "nonsense"}
CENTER = {"nan": [NAN, 0.0], "long": np.zeros(3), "text": "here", "matrix": np.eye(2)}
TUNED = {"step_size": POSITIVE, "num_steps": COUNT}
SHARE = TUNED | {"step_size": POSITIVE | {"above_one": 1.5}}


def problem(**changes):
    arguments = {
        "features": [[0.6, 0.8], [1.0, 0.0], [0.0, -1.0]],
        "response": [1.0, -1.0, 1.0],
        "loss": dps.losses.Logistic(),
        "domain": dps.domains.Ball(radius=1.0),
        "row_bound": 1.0,
    }
    return dps.Problem(**(arguments | changes))


BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


def target():
    return dps.Gibbs(problem(), k=5.0, mu=1.0)


# name: (callable, valid keyword arguments, {parameter: {kind: bad value}})
KINDS = {
    "Budget": (
        dps.Budget,
        {"epsilon": 1.0, "delta": 1e-6},
        {"epsilon": POSITIVE, "delta": FRACTION, "relation": CHOICE},
    ),
    "Problem": (
        problem,
        {},
        {
            "features": {
                "nan": [[NAN, 0.0]] * 3,
                "inf": [[INF, 0.0]] * 3,
                "vector": [1.0, 2.0, 3.0],
                "empty": np.empty((0, 2)),
                "no_columns": np.empty((3, 0)),
                "text": [["a", "b"]] * 3,
                "above_bound": [[3.0, 0.0]] * 3,
                "none": None,
            },
            "response": {
                "nan": [NAN, 1.0, 1.0],
                "short": [1.0, -1.0],
                "zero_one": [0.0, 1.0, 1.0],
                "text": "abc",
                "none": None,
            },
            "loss": OBJECT,
            "domain": OBJECT | {"wrong_dim": dps.domains.Ball(1.0, center=[0.0] * 5)},
            "row_bound": POSITIVE,
            "row_norm": EXPONENT,
            "response_bound": {"zero": 0.0, "negative": -1.0, "nan": NAN, "text": "1"},
            "intercept": FLAG,
            "clip_rows": FLAG,
            "feature_names": {"short": ["a"], "long": ["a", "b", "c"]},
            "offset": {
                "nan": [NAN, 0.0, 0.0],
                "short": [0.0],
                "above": [1.0, 0.0, 0.0],
            },
            "offset_bound": NON_NEGATIVE,
        },
    ),
    "Gibbs": (
        lambda **changes: dps.Gibbs(**({"problem": problem(), "k": 1.0} | changes)),
        {"mu": 1.0},
        {
            "problem": OBJECT,
            "k": POSITIVE,
            "mu": NON_NEGATIVE,
            "regularizer": {"text": "l2", "number": 2.0},
        },
    ),
    "calibrate": (
        lambda **changes: dps.calibrate(
            **({"problem": problem(), "budget": BUDGET} | changes)
        ),
        {},
        {
            "problem": OBJECT,
            "budget": OBJECT,
            "p": EXPONENT,
            "risk": CHOICE,
            "calibration": CHOICE,
            "sampler_share": {"negative": -0.1, "one": 1.0, "nan": NAN, "text": "1"},
            "strong_convexity": NON_NEGATIVE,
            "confidence": FRACTION,
        },
    ),
    "release": (
        lambda **changes: dps.release(
            **({"problem": problem(), "budget": BUDGET} | changes)
        ),
        {},
        {
            "problem": OBJECT,
            "budget": OBJECT,
            "p": EXPONENT,
            "risk": CHOICE,
            "calibration": CHOICE,
            "sampler_share": FRACTION,
            "strong_convexity": NON_NEGATIVE,
            "confidence": FRACTION,
            "sampler": {"text": "auto", "number": 3},
            "seed": SEED,
        },
    ),
    "sample": (
        lambda **changes: dps.sample(
            **({"target": target(), "num_draws": 2, "progress": False} | changes)
        ),
        {},
        {
            "target": OBJECT,
            "sampler": {"unknown": "nonsense", "number": 3, "class": dps.Proximal},
            "num_draws": COUNT,
            "num_warmup": {"negative": -1, "fraction": 1.5, "text": "3"},
            "num_chains": COUNT,
            "seed": SEED,
            "threads": COUNT,
            "progress": FLAG,
            "target_ess": POSITIVE,
            "init": {"nan": [NAN, 0.0], "long": [0.0] * 3, "outside": [2.0, 0.0]},
            "checkpoint": {"number": 3},
        },
    ),
    "Ball": (
        lambda **changes: dps.domains.Ball(**({"radius": 1.0} | changes)).check(2),
        {},
        {"radius": POSITIVE, "p": EXPONENT, "center": CENTER},
    ),
    "Box": (
        lambda **changes: dps.domains.Box(
            **({"lower": -1.0, "upper": 1.0} | changes)
        ).check(2),
        {},
        {
            "lower": {"nan": NAN, "text": "a", "above": 2.0, "long": [0.0] * 3},
            "upper": {"nan": NAN, "text": "a", "below": -2.0, "long": [2.0] * 3},
        },
    ),
    "Polytope": (
        lambda **changes: dps.domains.Polytope(
            **({"A": [[1.0], [-1.0]], "b": [1.0, 1.0]} | changes)
        ).check(1),
        {},
        {
            "A": {"nan": [[NAN], [1.0]], "vector": [1.0, -1.0], "text": "a"},
            "b": {"nan": [NAN, 1.0], "short": [1.0], "empty_set": [-1.0, -1.0]},
        },
    ),
    "SchattenBall": (
        lambda **changes: dps.domains.SchattenBall(
            **({"radius": 1.0, "p": 1.0, "shape": (2, 1)} | changes)
        ).check(2),
        {},
        {
            "radius": POSITIVE,
            "p": EXPONENT,
            "shape": {"zero": (0, 2), "three": (1, 1, 2), "wrong": (3, 3), "text": "a"},
        },
    ),
    "SquaredNorm": (
        lambda **changes: dps.regularizers.SquaredNorm(**changes).params(
            2, np.zeros(2)
        ),
        {},
        {"p": EXPONENT, "center": CENTER, "variant": CHOICE},
    ),
    "SmoothedHinge": (dps.losses.SmoothedHinge, {}, {"width": POSITIVE}),
    "Huber": (dps.losses.Huber, {}, {"width": POSITIVE}),
    "Quantile": (dps.losses.Quantile, {}, {"level": FRACTION}),
    "Proximal": (
        dps.Proximal,
        {},
        {"oracle": CHOICE, "step_size": POSITIVE},
    ),
    "BallWalk": (S.BallWalk, {}, TUNED),
    "CoordinateHitAndRun": (S.CoordinateHitAndRun, {}, {}),
    "Exact": (S.Exact, {}, {}),
    "FactorizedMetropolis": (S.FactorizedMetropolis, {}, SHARE),
    "HitAndRun": (S.HitAndRun, {}, {"num_steps": COUNT}),
    "LaplaceIndependence": (
        S.LaplaceIndependence,
        {},
        {"batch": COUNT, "tail": EXPONENT},
    ),
    "MALA": (S.MALA, {}, TUNED),
    "MirrorLangevin": (S.MirrorLangevin, {}, TUNED | {"geometry": CHOICE}),
    "PreconditionedCrankNicolson": (S.PreconditionedCrankNicolson, {}, SHARE),
    "RandomWalk": (S.RandomWalk, {}, TUNED | {"p": EXPONENT}),
    "RandomizedSeries": (
        S.RandomizedSeries,
        {},
        TUNED | {"error": FRACTION, "anchored": FLAG},
    ),
    "TiltedGibbs": (S.TiltedGibbs, {}, TUNED),
    "TunaMH": (S.TunaMH, {}, TUNED | {"chi": POSITIVE}),
    "gaussian_delta": (
        lambda epsilon=1.0, gdp=1.0: dps.privacy.gaussian_delta(epsilon, gdp),
        {},
        {"epsilon": NON_NEGATIVE, "gdp": NON_NEGATIVE},
    ),
    "gaussian_epsilon": (
        lambda delta=1e-6, gdp=1.0: dps.privacy.gaussian_epsilon(delta, gdp),
        {},
        {"delta": FRACTION, "gdp": NON_NEGATIVE},
    ),
    "gdp_from_budget": (
        lambda epsilon=1.0, delta=1e-6: dps.privacy.gdp_from_budget(epsilon, delta),
        {},
        {"epsilon": NON_NEGATIVE, "delta": FRACTION},
    ),
}
