"""Bad values for the parameters of all optimizers, of minimize and of replicate.

Parameters of one name mean the same in every optimizer, so they refuse the same values.
"""

import inspect

import dpsample as dps
from tests.contracts.bad_values import (
    BUDGET,
    CHOICE,
    COUNT,
    FLAG,
    FRACTION,
    NAN,
    NON_NEGATIVE,
    OBJECT,
    POSITIVE,
    SEED,
    problem,
)

INNER_EXPONENT = {"one": 1.0, "negative": -1.0, "nan": NAN, "text": "2", "none": None}
THRESHOLD = {"zero": 0.0, "negative": -1.0, "nan": NAN, "text": "1"}
# What None means differs, infinity clips nothing where a threshold is optional.
BY_NAME = {
    "accuracy": FRACTION,
    "averages": FLAG,
    "batch_size": COUNT,
    "batches": {"unknown": "nonsense", "number": 3},
    "clip": THRESHOLD,
    "distance": POSITIVE,
    "entry_bound": POSITIVE,
    "estimator": CHOICE,
    "failure": FRACTION,
    "failure_probability": FRACTION,
    "gap": POSITIVE,
    "groups": {"fraction": (0.5, 1.0), "text": "ab", "number": 3, "negative": (-1, 0)},
    "l1": NON_NEGATIVE,
    "l2": NON_NEGATIVE,
    "least_exponent": INNER_EXPONENT,
    "max_steps": COUNT,
    "mean_bound": NON_NEGATIVE,
    "moment": POSITIVE,
    "moment_bound": POSITIVE,
    "moment_order": INNER_EXPONENT,
    "noise": CHOICE,
    "num_buckets": COUNT,
    "num_central": COUNT,
    "num_steps": COUNT,
    "optimal_slope": NON_NEGATIVE,
    "order": INNER_EXPONENT,
    "p": {"below_one": 0.5, "nan": NAN, "text": "2"},
    "printed": CHOICE,
    "ridge": {"negative": -1.0, "nan": NAN, "inf": float("inf"), "text": "1"},
    "risk": CHOICE,
    "sampling_rate": POSITIVE | {"above_one": 1.5},
    "scale": POSITIVE,
    "scheme": CHOICE,
    "share": FRACTION,
    "smoothing": POSITIVE,
    "smoothness": POSITIVE,
    "solver": CHOICE,
    "step_scale": POSITIVE,
    "step_size": POSITIVE,
    "strong_convexity": NON_NEGATIVE,
    "threshold": THRESHOLD,
}
REQUIRED = {
    "DPSGD": {"sampling_rate": 0.5, "num_steps": 2},
    "ClippedGD": {"num_steps": 2, "clip": 1.0},
    "NoisyMirrorDescent": {"p": 1.5, "distance": 1.0},
}
OPTIMIZERS = {name: getattr(dps.optimizers, name) for name in dps.optimizers.__all__}


def minimize(**changes):
    method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=1)
    return dps.minimize(**({"problem": problem(), "optimizer": method} | changes))


def replicate(arguments=None, verb=dps.minimize, options=None, **changes):
    method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=1)
    given = (problem(), method) if arguments is None else arguments
    return dps.replicate(
        verb, *given, **({"num_replicates": 1} | changes | (options or {}))
    )


def gradient(row, response, theta, out):
    out[:] = theta - row


OPTIMIZER_KINDS = {
    name: (
        kind,
        REQUIRED.get(name, {}),
        {p: BY_NAME[p] for p in inspect.signature(kind).parameters},
    )
    for name, kind in OPTIMIZERS.items()
} | {
    "minimize": (
        minimize,
        {},
        {
            "problem": OBJECT,
            "optimizer": OBJECT | {"class": dps.optimizers.DPSGD},
            "budget": {"text": "1", "number": 1.0},
            "calibration": CHOICE,
            "seed": SEED,
            "evaluation": {"text": "nonsense", "number": 3},
            "progress": FLAG,
        },
    ),
    "replicate": (
        replicate,
        {},
        {
            "verb": {"none": None, "text": "minimize", "other": dps.calibrate},
            "arguments": {"no_problem": (None, None), "text": ("a", "b", BUDGET)},
            "num_replicates": COUNT,
            "seed": SEED,
            "threads": COUNT,
            "evaluate": {"text": "risk", "number": 3},
            "progress": FLAG,
            "options": {
                "calibration": {"calibration": "nonsense"},
                "evaluation": {"evaluation": problem()},
            },
        },
    ),
    "record_gradient": (
        lambda **changes: dps.losses.record_gradient(
            **({"gradient": gradient} | changes)
        ),
        {},
        {
            "gradient": {"none": None, "text": "g", "arguments": lambda row: None},
            "value": {"text": "v", "arguments": lambda row: None},
            "dim": COUNT,
            "smoothness": {"zero": 0.0, "negative": -1.0, "nan": NAN, "text": "1"},
            "name": {},
        },
    ),
}
OPTIMIZER_SIGNATURES = OPTIMIZERS | {
    "minimize": dps.minimize,
    "replicate": dps.replicate,
    "record_gradient": dps.losses.record_gradient,
}
