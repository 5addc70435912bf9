"""One valid call of every door: add the example of a new public name here.

ARGUMENTS has the arguments of functions and constructors, INSTANCES the objects whose
methods are called, METHODS the arguments of methods, by method name or in full. A
function stands for an argument that is made afresh.
"""

import dpsample as dps
from tests.contracts import door_objects as O


def half_square(theta):
    return 0.5 * (theta * theta).sum()


def in_disk(theta):
    return theta @ theta <= 1.0


def identity(theta):
    return theta.copy()


DIM = {"dim": 2}
NOISE = {"rng": lambda: O.rng(), "size": (2, 2)}
DATA = {"num_records": 12, "dim": 10, "seed": 1}
TARGET = {"target": O.target}
DRAWS = {"draws": O.draws}
WALK = {"target": O.target, "sampler": O.walk}
BUDGET = {"budget": O.BUDGET}
COLUMN = {"values": [0.5, 0.25], "bounds": (0.0, 1.0)}
EPSILON_DELTA = {"epsilon": 1.0, "delta": 1e-6}
EVENT = {"event": O.EVENT, "relation": "replace_one"}
SHUFFLE = {"local_epsilon": 1.0, "num_records": 1000}

ARGUMENTS = {
    **{
        f"datasets.{name}": DATA
        for name in (
            "growth_regression",
            "halfspace",
            "heavy_tailed_logistic",
            "heavy_tailed_regression",
            "logistic",
            "regression",
            "tilted_signs",
        )
    },
    "Budget": EPSILON_DELTA,
    "Density": {"energy": lambda: half_square, "dim": 2},
    "Gibbs": {"problem": O.the_problem, "k": 1.0, "mu": 1.0},
    "Problem": {
        "features": O.ROWS,
        "response": O.LABELS,
        "loss": dps.losses.Logistic(),
        "domain": dps.domains.Ball(radius=1.0),
        "row_bound": 1.0,
    },
    "Proximal": {},
    "PublicFacts": {
        "num_records": 10,
        "dim": 2,
        "loss": dps.losses.Logistic(),
        "domain": dps.domains.Ball(radius=1.0),
        "row_bound": 1.0,
        "row_norm": 2.0,
    },
    "advise": {"problem": O.facts, "budget": O.BUDGET},
    "audit": {
        "mechanism": O.additive,
        "problem": 0.0,
        "neighbor": 1.0,
        "budget": O.BUDGET,
        "num_draws": 200,
        "seed": 1,
        "progress": False,
    },
    "calibrate": {"problem": O.the_problem, "budget": O.BUDGET},
    "fit": {"problem": O.many_records, "budget": O.BUDGET, "seed": 1},
    "intervals": {
        "problem": O.many_records,
        "budget": dps.Budget(epsilon=9.0, delta=1e-6),
        "seed": 1,
    },
    "minimize": {"problem": O.the_problem, "optimizer": O.optimizer, "seed": 1},
    "minimizer": {"target_or_problem": O.the_problem, "progress": False},
    "release": {"problem": O.the_problem, "budget": O.BUDGET, "seed": 1},
    "replicate": {
        "verb": dps.minimize,
        "arguments": (O.problem(), O.optimizer()),
        "num_replicates": 1,
    },
    "sample": {**TARGET, "num_draws": 2, "seed": 1, "progress": False},
    "tune": {
        "problem": O.the_problem,
        "candidates": lambda: [O.optimizer()],
        "budget": O.BUDGET,
        "score": O.the_problem,
        "cap": 1.0,
        "mean_tries": 2.0,
        "seed": 1,
    },
    "verify": {"certificate": lambda: O.answer().certificate},
    "stats.count": {"mask": [True, False], **BUDGET, "seed": 1},
    "stats.histogram": {"values": [1, 2], **BUDGET, "levels": [1, 2], "seed": 1},
    **{f"stats.{name}": {**COLUMN, **BUDGET, "seed": 1} for name in ("sum", "mean")},
    "stats.quantile": {**COLUMN, "level": 0.5, **BUDGET, "seed": 1},
    "stats.group_means": {
        **COLUMN,
        "groups": ["a", "b"],
        **BUDGET,
        "levels": ["a", "b"],
        "seed": 1,
    },
    "audits.exact_curve": {
        **TARGET,
        "neighbor_target": lambda: dps.Gibbs(
            O.problem(response=[1.0, -1.0, -1.0]), k=5.0, mu=1.0
        ),
        "epsilons": [0.5, 1.0],
    },
    **{
        f"audits.neighbors.{name}": {"facts": O.facts}
        for name in ("at_kink", "copies", "opposite", "worst_case", "zero_out")
    },
    "audits.neighbors.shifts": {"dim": 2, "sensitivity": 1.0},
    "papers.clipping_instance.clipped_descent": {},
    "papers.clipping_instance.clipped_mean_gradient": {"w": [0.1, 0.2]},
    "papers.clipping_instance.printed_release": {
        "rng": lambda: O.rng(),
        "size": 2,
        **EPSILON_DELTA,
    },
    "papers.clipping_instance.printed_stddev": EPSILON_DELTA,
    "datasets.growth_constant": {"exponent": 4.0},
    "datasets.load": {"name": "a9a", "folder": "."},
    "datasets.rare_records": {**DATA, "rho": 1.0},
    "diagnostics.check": DRAWS,
    "diagnostics.compare": {**DRAWS, **TARGET, "num_replicates": 20},
    "diagnostics.gamma_check": {**DRAWS, **TARGET},
    "diagnostics.plot_autocorrelation": DRAWS,
    "diagnostics.plot_draws": DRAWS,
    "diagnostics.plot_ess_evolution": DRAWS,
    "diagnostics.plot_rank": DRAWS,
    "diagnostics.plot_trace": DRAWS,
    "diagnostics.simulation_based_calibration": {
        "target": O.likelihood,
        "sampler": O.walk,
        "num_replicates": 20,
        "num_draws": 3,
        "spacing": 1,
    },
    "diagnostics.stein_check": {**DRAWS, **TARGET},
    "diagnostics.summary": DRAWS,
    "diagnostics.tv_bound": {**WALK, "lag": 5, "replicates": 5, "max_steps": 200},
    "diagnostics.unbiased_moments": {
        **WALK,
        "lag": 5,
        "burn_in": 5,
        "num_draws": 5,
        "replicates": 20,
        "max_steps": 200,
    },
    "domains.Ball": {"radius": 1.0},
    "domains.Box": {"lower": -1.0, "upper": 1.0},
    "domains.Ellipsoid": {"precision": [[4.0, 0.0], [0.0, 1.0]]},
    "domains.Intersection": {
        "parts": (dps.domains.Ball(1.0), dps.domains.Box(0.0, 2.0))
    },
    "domains.Polytope": {"A": [[1.0], [-1.0]], "b": [1.0, 1.0]},
    "domains.SchattenBall": {"radius": 1.0, "p": 1.0, "shape": O.SHAPE},
    "domains.custom": {
        "contains": lambda: in_disk,
        "dim": 2,
        "interior_point": [0.0, 0.0],
    },
    "domains.from_dict": {"data": {"name": "ball", "radius": 1.0}},
    "losses.CalibratedLogistic": {},
    "losses.CappedLogistic": {},
    "losses.Huber": {},
    "losses.Quantile": {},
    "losses.SmoothedHinge": {},
    "losses.custom": {
        "value": O.value_scalar,
        "slope": O.value_scalar,
        "slope_bound": 1.0,
    },
    "losses.from_dict": {"spec": {"name": "hinge"}},
    "losses.record_gradient": {"gradient": O.gradient},
    "noise.DiscreteLaplace": {"scale": 1.0},
    "noise.Gaussian": {"stddev": 1.0},
    "noise.GeneralizedGaussian": {"r": 3.0, "sigma": 1.0},
    "noise.KNorm": {"domain": dps.domains.Ball(1.0, p=1.0), "scale": 1.0},
    "noise.Laplace": {"scale": 1.0},
    "noise.SchattenGaussian": {"r": 2.0, "sigma": 1.0, "shape": O.SHAPE},
    "noise.cone_table": {"r": 3.0},
    "noise.from_dict": {"data": {"name": "laplace", "scale": 1.0}},
    "noise.gaussian": NOISE,
    "noise.gaussian_mechanism": {**BUDGET, "sensitivity": 1.0},
    "noise.generalized_gaussian": {**NOISE, "r": 3.0},
    "noise.generalized_gaussian_mechanism": {
        **BUDGET,
        "dim": 2,
        "sensitivity": 1.0,
        "p": 1.5,
    },
    "noise.geometric_mechanism": {**BUDGET, "sensitivity": 1},
    "noise.k_norm": {**NOISE, "domain": dps.domains.Ball(1.0, p=1.0)},
    "noise.k_norm_mechanism": {
        **BUDGET,
        "domain": dps.domains.Ball(1.0, p=1.0),
        "dim": 2,
        "sensitivity": 1.0,
    },
    "noise.k_norm_table": {"domain": dps.domains.Ball(1.0, p=1.0), "dim": 2},
    "noise.laplace": NOISE,
    "noise.laplace_mechanism": {**BUDGET, "sensitivity": 1.0},
    "noise.schatten_gaussian": {"rng": lambda: O.rng(), "size": (1, 2, 2), "r": 2.0},
    "noise.schatten_gaussian_mechanism": {
        **BUDGET,
        "shape": O.SHAPE,
        "sensitivity": 1.0,
        "p": 2.0,
        "r": 2.0,
    },
    "noise.schatten_plan": {"shape": O.SHAPE, "r": 3.0},
    "privacy.ApproximateEvent": EPSILON_DELTA,
    "privacy.AttackRisk": {"event": O.EVENT, "relation": "zero_out"},
    "privacy.ComposedEvent": {"events": (O.EVENT,)},
    "privacy.BoundedRangeEvent": {"range": 1.0},
    "privacy.ConcentratedEvent": {"rho": 0.1},
    "privacy.GaussianEvent": {"gdp": 0.5},
    "privacy.Ledger": {},
    "privacy.BestOfEvent": {
        "events": (O.EVENT,),
        "stop": "logarithmic",
        "mean_tries": 10.0,
    },
    "privacy.LedgerFile": {"path": "spent.json"},
    "privacy.NearEvent": {"event": O.EVENT, "total_variation": 1e-9},
    "privacy.ParallelEvent": {"events": (O.EVENT,)},
    "privacy.TiltEvent": {"log_determinant": 0.1, "distance": 0.2},
    "privacy.PerturbedObjective": {
        "lipschitz": 1.0,
        "smoothness": 1.0,
        "num_records": 1000,
        "ridge": 0.1,
    },
    "privacy.PoissonGaussianEvent": {
        "sampling_rate": 0.1,
        "noise_multiplier": 2.0,
        "num_steps": 10,
    },
    "privacy.AllocatedGaussianEvent": {
        "noise_multiplier": 2.0,
        "num_steps": 10,
        "num_epochs": 3,
    },
    "privacy.PureEvent": {"epsilon": 1.0},
    "privacy.allocated_noise_multiplier": {**BUDGET, "num_steps": 10},
    "privacy.approximate_noise": {"objective": O.objective, **BUDGET, "gap": 1e-3},
    "privacy.best_exponent": {**DIM, "p": 1.5},
    "privacy.compose_gdp": {"values": [0.5, 0.5]},
    "privacy.delta_of": {**EVENT, "epsilon": 1.0},
    "privacy.epsilon_of": {**EVENT, "delta": 1e-6},
    "privacy.closed_form_gdp": EPSILON_DELTA,
    "privacy.fixed_size_epsilon": {
        "delta": 1e-6,
        "num_records": 1000,
        "batch_size": 10,
        "noise_multiplier": 2.0,
        "num_steps": 10,
    },
    "privacy.gaussian_delta": {"epsilon": 1.0, "gdp": 1.0},
    "privacy.gaussian_epsilon": {"delta": 1e-6, "gdp": 1.0},
    "privacy.gaussian_stddev": {**BUDGET, "sensitivity": 1.0},
    "privacy.gdp_from_budget": EPSILON_DELTA,
    "privacy.generalized_gaussian_gdp": {
        "sensitivity": 1.0,
        "sigma": 1.0,
        "dim": 2,
        "p": 1.5,
        "r": 3.0,
    },
    "privacy.generalized_gaussian_sigma": {
        **BUDGET,
        "sensitivity": 1.0,
        "dim": 2,
        "p": 1.5,
        "r": 3.0,
    },
    "privacy.group_delta": {**EVENT, "epsilon": 1.0, "size": 2},
    "privacy.group_epsilon": {**EVENT, "delta": 1e-6, "size": 2},
    "privacy.group_event": {"event": O.EVENT, "size": 2},
    "privacy.minimizer_error": {"strong_convexity": 1.0},
    "privacy.minimizer_sensitivity": {"facts": O.facts, "strong_convexity": 1.0},
    "privacy.noise_cost": {**DIM, "p": 1.5, "r": 3.0},
    "privacy.objective_event": {
        "objective": O.objective,
        "stddev": 0.1,
        "delta": 1e-6,
    },
    "privacy.objective_stddev": {"objective": O.objective, **BUDGET},
    "privacy.paper_gdp": EPSILON_DELTA,
    "privacy.poisson_noise_multiplier": {
        **BUDGET,
        "sampling_rate": 0.1,
        "num_steps": 10,
    },
    "privacy.pure_scale": {**BUDGET, "sensitivity": 1.0},
    "privacy.rdp_delta": {"epsilon": 1.0, "curve": O.curve},
    "privacy.rdp_epsilon": {"delta": 1e-6, "curve": O.curve},
    "privacy.rho_from_bounded_range": {"epsilon": 1.0},
    "privacy.rho_from_budget": EPSILON_DELTA,
    "privacy.rho_from_gdp": {"gdp": 1.0},
    "privacy.rho_from_pure": {"epsilon": 1.0},
    "privacy.shuffle_closed_form": {**SHUFFLE, "delta": 1e-6},
    "privacy.shuffle_delta": {**SHUFFLE, "epsilon": 0.5},
    "privacy.shuffle_epsilon": {**SHUFFLE, "delta": 1e-6},
    "privacy.shuffle_local_noise": {**BUDGET, "num_records": 1000},
    "privacy.shuffle_total_delta": {
        **SHUFFLE,
        "delta": 1e-6,
        "epsilon": 0.5,
        "local_delta": 1e-9,
    },
    "privacy.zcdp_delta": {"epsilon": 1.0, "rho": 0.1},
    "privacy.zcdp_epsilon": {"delta": 1e-6, "rho": 0.1},
    "privacy.accounting.events.from_dict": {"data": {"name": "gaussian", "gdp": 0.5}},
    "papers.claims": {"paper": "nobody"},
    "papers.bound": {"paper": "su", "item": "Theorem 7"},
    "papers.bounds": {"paper": "su"},
    "regularizers.PowerNorm": {"p": 3.0},
    "regularizers.custom": {
        "value": lambda: half_square,
        "gradient": lambda: identity,
    },
    "regularizers.SchattenSquared": {"p": 1.5, "shape": O.SHAPE},
    "regularizers.SquaredNorm": {},
    "regularizers.from_dict": {"data": {"name": "squared_norm"}},
    "regularizers.optimal_exponent": DIM,
    "diagnostics.couplings.meeting_times": {
        **WALK,
        "lag": 5,
        "replicates": 5,
        "max_steps": 200,
    },
    "diagnostics.couplings.unbiased_moments": {
        **WALK,
        "lag": 5,
        "burn_in": 5,
        "replicates": 5,
        "max_steps": 200,
    },
    "experiments.Figure": {"x": "n", "y": "square"},
    "experiments.Inapplicable": {"when": lambda: lambda params: True, "reason": "None"},
    "experiments.Metric": {"name": "square"},
    "experiments.Slope": {"x": "n", "y": "square", "expected": 1.0, "theorem": "One"},
    "experiments.Study": O.STUDY,
    "tables.Encoding": {"schema": O.schema()},
    "tables.TextFormat": {"separator": ";"},
    "tables.from_frame": {"frame": O.frame, "target": "y"},
    "tables.Schema": {"numeric": {"age": (0.0, 100.0)}},
    "tables.read_table": {"path": "table.csv", "target": "y"},
}
for names, module in (
    (dps.optimizers.__all__, "optimizers"),
    (dps.samplers.__all__, "samplers"),
):
    ARGUMENTS |= {f"{module}.{name}": {} for name in names}
ARGUMENTS |= {
    "optimizers.DPSGD": {"sampling_rate": 0.5, "num_steps": 2},
    "optimizers.ClippedGD": {"num_steps": 2, "clip": 1.0},
    "optimizers.NoisyMirrorDescent": {"p": 1.5, "distance": 1.0},
}
