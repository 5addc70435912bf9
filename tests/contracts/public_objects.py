"""One object of every public class, made as users make them."""

import importlib
import inspect
import pkgutil
import tempfile
from pathlib import Path

import numpy as np

import dpsample as dps
from dpsample import audits, datasets, diagnostics, experiments, noise, privacy
from dpsample import papers as printed
from dpsample.diagnostics import couplings
from dpsample.interop import Bridge
from dpsample.tables import Schema
from tests.contracts.door_objects import BUDGET, encoding, problem, target

D, L, N, OPT, P, R = (
    dps.domains,
    dps.losses,
    noise,
    dps.optimizers,
    privacy,
    dps.regularizers,
)
# Nobody makes one of these: each has public children.
BASES = {"Domain", "Event", "Loss", "Noise", "Regularizer", "Sampler"}
SQUARE = (np.vstack([np.eye(2), -np.eye(2)]), np.ones(4))


def pseudo_huber(u, y):
    return np.sqrt(1.0 + (u - y) ** 2)


def pseudo_huber_slope(u, y):
    return (u - y) / np.sqrt(1.0 + (u - y) ** 2)


def half_square(theta):
    return 0.5 * (theta @ theta)


def density():
    return dps.Density(energy=half_square, dim=2)


def variables_of(points):
    return {"x": points}


def linear_gradient(row, response, theta, out):
    for j in range(len(out)):
        out[j] = -response * row[j]


def custom():
    return L.custom(
        pseudo_huber,
        pseudo_huber_slope,
        slope_bound=1.0,
        upper_curvature=1.0,
        labels=True,
    )


def cell(params, seed):
    return {"value": float(seed.spawn_key[-1] + params["n"])}


def study():
    return experiments.Study(
        name="toy",
        title="Toy",
        question="Does it travel?",
        grid={"n": (1, 2)},
        quick={"n": (1,)},
        replicates=2,
        quick_replicates=1,
        cell=cell,
        metrics=(experiments.Metric("value"),),
    )


def numbers(kind, **given):
    """A result by its fields: arrays of two numbers where nothing else is said."""
    names = getattr(kind, "_fields", None) or list(kind.__dataclass_fields__)
    return kind(**{name: given.get(name, np.array([0.25, 0.5])) for name in names})


def meetings():
    return couplings.MeetingTimes(
        times=np.array([3, 4]),
        is_censored=np.zeros(2, dtype=bool),
        lag=1,
        max_steps=9,
        num_steps=9,
        sampler="MALA",
    )


def gaussian():
    return N.gaussian_mechanism(BUDGET, sensitivity=1.0)


def fit():
    return dps.Fit(
        theta=np.zeros(2),
        certificate=gaussian().certificate,
        feature_names=("a", "b"),
        num_gradients=3,
        trace={"risk": np.ones(2)},
    )


def bars():
    return dps.Intervals(
        theta=np.zeros(2),
        covariance=np.eye(2),
        se=np.ones(2),
        lower=-np.ones(2),
        upper=np.ones(2),
        level=0.95,
        feature_names=("a", "b"),
        diagnostics={"flags": ()},
        certificate=gaussian().certificate,
    )


def minimum():
    return dps.Minimum(
        theta=np.zeros(2),
        value=1.0,
        gap=1e-9,
        dual=np.zeros(2),
        feature_names=("a", "b"),
    )


def release():
    return dps.Release(
        theta=np.zeros(2),
        certificate=dps.calibrate(problem(), BUDGET).certificate,
        feature_names=("a", "b"),
    )


def ledger():
    book = P.Ledger()
    book.add(gaussian().certificate, "mean")
    return book


def statistic():
    return dps.stats.histogram(["a"], BUDGET, levels=["a", "b"], seed=1)


def ledger_file():
    return P.LedgerFile(Path(tempfile.mkdtemp(), "spent.json"))


EXAMPLES = {
    "Problem": problem,
    "PublicFacts": lambda: problem().facts,
    "Gibbs": target,
    "Density": density,
    "Bridge": lambda: Bridge(density=density(), variables_fn=variables_of),
    "Release": release,
    "Fit": fit,
    "Statistic": statistic,
    "Intervals": bars,
    "Minimum": minimum,
    "Budget": lambda: BUDGET,
    "ExponentialMechanism": lambda: dps.calibrate(problem(), BUDGET),
    "Certificate": lambda: dps.calibrate(problem(), BUDGET).certificate,
    "VerificationReport": lambda: dps.verify(release().certificate),
    "Custom": custom,
    "RecordGradient": lambda: L.record_gradient(linear_gradient),
    "Ball": lambda: D.Ball(1.0, center=[0.1, 0.2]),
    "Box": lambda: D.Box([-1.0, -2.0], 1.0),
    "Ellipsoid": lambda: D.Ellipsoid([[4.0, 1.0], [1.0, 1.0]], center=[1.0, 2.0]),
    "Intersection": lambda: D.Intersection(D.Ball(1.0), D.Box(0.0, 2.0)),
    "Polytope": lambda: D.Polytope(*SQUARE),
    "SchattenBall": lambda: D.SchattenBall(1.0, p=1.0, shape=(2, 1)),
    "Body": lambda: D.Ball(1.0).body(2),
    "Width": lambda: D.Width(1.0, 0.1),
    "RegularizerParams": lambda: R.SquaredNorm(2.0).params(2, np.zeros(2)),
    "PowerNorm": lambda: R.PowerNorm(3.0),
    "SchattenSquared": lambda: R.SchattenSquared(1.5, shape=(2, 1)),
    "ClippedGD": lambda: OPT.ClippedGD(num_steps=2, clip=1.0),
    "DPSGD": lambda: OPT.DPSGD(sampling_rate=0.1, num_steps=2),
    "NoisyMirrorDescent": lambda: OPT.NoisyMirrorDescent(p=1.5, distance=1.0),
    "AdditiveMechanism": lambda: gaussian(),
    "NoisyAnswer": lambda: gaussian().release([0.5]),
    "Gaussian": lambda: N.Gaussian(1.0),
    "GeneralizedGaussian": lambda: N.GeneralizedGaussian(r=3.0, sigma=1.0),
    "DiscreteLaplace": lambda: N.DiscreteLaplace(1.0),
    "Laplace": lambda: N.Laplace(1.0),
    "KNorm": lambda: N.KNorm(D.Ball(1.0), 1.0),
    "SchattenGaussian": lambda: N.SchattenGaussian(r=3.0, sigma=1.0, shape=(2, 2)),
    "ConeTable": lambda: N.cone_table(3.0),
    "KNormTable": lambda: N.k_norm_table(D.Ball(1.0), 2),
    "SchattenPlan": lambda: N.schatten_plan((2, 2), 3.0),
    "ApproximateEvent": lambda: P.ApproximateEvent(epsilon=1.0, delta=1e-6),
    "ApproximateNoise": lambda: P.ApproximateNoise(1.0, 2.0),
    "AttackRisk": lambda: (
        dps.noise.laplace_mechanism(BUDGET, sensitivity=1.0).certificate.attack_risk
    ),
    "TiltEvent": lambda: P.TiltEvent(log_determinant=0.1, distance=0.2),
    "BestOfEvent": lambda: P.BestOfEvent(
        (P.GaussianEvent(1.0),), stop="geometric", mean_tries=2.0
    ),
    "BoundedRangeEvent": lambda: P.BoundedRangeEvent(1.0),
    "ComposedEvent": lambda: P.ComposedEvent((P.PureEvent(1.0), P.GaussianEvent(1.0))),
    "ConcentratedEvent": lambda: P.ConcentratedEvent(0.5),
    "Entry": lambda: ledger().entries[0],
    "EventCertificate": lambda: gaussian().certificate,
    "ExponentChoice": lambda: P.ExponentChoice(2.0, 1.0, 1.0),
    "GaussianEvent": lambda: P.GaussianEvent(1.0),
    "Ledger": ledger,
    "LedgerFile": ledger_file,
    "LocalNoise": lambda: P.LocalNoise(1.0, 2.0, 0.1),
    "NearEvent": lambda: P.NearEvent(P.PureEvent(1.0), 0.1),
    "ParallelEvent": lambda: P.ParallelEvent((P.PureEvent(1.0),)),
    "PerturbedObjective": lambda: P.PerturbedObjective(
        lipschitz=1.0, smoothness=1.0, num_records=9, ridge=1.0
    ),
    "PoissonGaussianEvent": lambda: P.PoissonGaussianEvent(
        sampling_rate=0.1, noise_multiplier=2.0, num_steps=3
    ),
    "AllocatedGaussianEvent": lambda: P.AllocatedGaussianEvent(
        noise_multiplier=2.0, num_steps=10
    ),
    "PureEvent": lambda: P.PureEvent(1.0),
    "Remaining": lambda: P.Remaining(1.0, 2.0),
    "Dataset": lambda: datasets.logistic(9, 2, seed=1),
    "GrowthRegression": lambda: datasets.growth_regression(9, 2, exponent=2.0, seed=1),
    "HardInstance": lambda: datasets.tilted_signs(9, 2, seed=1),
    "Encoding": encoding,
    "Schema": lambda: Schema(numeric={"age": (0.0, 1.0)}, categorical={"c": ("a",)}),
    "MeetingTimes": meetings,
    "NoCertificate": lambda: dps.NoCertificate("no proof"),
    "SamplingError": lambda: dps.SamplingError("no draw"),
    "Study": study,
    "Metric": lambda: experiments.Metric("value"),
    "Figure": lambda: experiments.Figure(x="n", y="value"),
    "Slope": lambda: experiments.Slope(x="n", y="value", expected=-1.0, theorem="t"),
    "Inapplicable": lambda: experiments.Inapplicable(when=cell, reason="none"),
}
# Results that only long computations give, by their fields.
EXAMPLES |= {
    kind.__name__: lambda kind=kind: numbers(kind)
    for kind in (
        audits.AuditCurve,
        audits.AuditReport,
        audits.SequentialReport,
        audits.ExactCurve,
        diagnostics.Calibration,
        diagnostics.CheckReport,
        diagnostics.Comparison,
        diagnostics.Expectations,
        diagnostics.Finding,
        diagnostics.MixingBound,
        diagnostics.MomentCheck,
        couplings.TotalVariationCurve,
        couplings.UnbiasedMoments,
        printed.Claim,
    )
}


def public_classes():
    """Every class in the ``__all__`` of the package or of a module of it."""
    modules = [dps]
    for info in pkgutil.walk_packages(dps.__path__, "dpsample."):
        modules.append(importlib.import_module(info.name))
    named = (getattr(m, name) for m in modules for name in getattr(m, "__all__", ()))
    kinds = {kind for kind in named if inspect.isclass(kind)}
    return sorted(kinds, key=lambda kind: kind.__name__)


def example(kind):
    """An object of a public class; a class without an entry needs no arguments."""
    return EXAMPLES.get(kind.__name__, kind)()
