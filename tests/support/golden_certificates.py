"""A certificate of every kind that the registry has."""

import dataclasses
from functools import cache
from typing import Any

import dpsample as dps
from dpsample import optimizers as opt
from dpsample.api import minimize
from dpsample.noise import totals
from dpsample.privacy import EventCertificate, GaussianEvent
from dpsample.samplers.proximal import constant_time
from tests.support.public_facts import final, linear_facts

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
PURE = dps.Budget(epsilon=1.0, delta=0.0)


@cache
def problem(**options):
    data = dps.datasets.logistic(400, 3, seed=1)
    given = {"loss": dps.losses.Logistic(), "domain": dps.domains.Ball(1.0)}
    return dps.Problem(data.features, data.response, row_bound=1.0, **given | options)


L1 = dps.domains.Ball(1.0, p=1.0)


LEAST_SQUARES = {"loss": dps.losses.Squared(), "domain": L1, "response_bound": 1.0}


FREE = {"domain": dps.domains.WholeSpace()}


PROXIMAL = opt.PrivateProximalSGD


MIRROR = {"p": 1.5, "distance": 1.0, "num_steps": 3}


FITS = {
    "steps/full": opt.NoisyGD(),
    "steps/poisson": opt.ProxGD(batches="poisson", num_steps=3),
    "steps/with_replacement": opt.NoisySGD(num_steps=3),
    "clipped/full": opt.NoisyGD(clip=0.1),
    "clipped/poisson": opt.DPSGD(sampling_rate=0.5, num_steps=3),
    "clipped/allocated": opt.DPSGD(
        sampling_rate=0.5, num_steps=4, sampling="allocation"
    ),
    "clipped/with_replacement": opt.NoisySGD(num_steps=3, clip=0.1),
    "clipped/output": opt.ClippedGD(num_steps=3, clip=0.5),
    "clipped/output/rounded": opt.ClippedGD(num_steps=3, clip=0.5),
    "phased": opt.PhasedSGD(),
    "phased/rounded": opt.PhasedSGD(),
    "svrg": opt.SVRG(),
    "svrg/rounded": opt.SVRG(),
    "objective": opt.ObjectivePerturbation(),
    "objective/rounded": opt.ObjectivePerturbation(),
    "objective/pure": opt.ObjectivePerturbation(tilt="norm"),
    "objective/pure/rounded": opt.ObjectivePerturbation(tilt="norm"),
    "objective/inexact": opt.ObjectivePerturbation(),
    "accelerated/poisson": opt.AcceleratedClippedSGD(scheme="poisson", num_steps=3),
    "accelerated/disjoint": opt.IteratedAcceleratedClippedSGD(scheme="disjoint"),
    "accelerated/shuffle": opt.AcceleratedClippedSGD(scheme="shuffle", num_steps=3),
    "accelerated/paper": opt.AcceleratedClippedSGD(num_steps=3),
    "localized": opt.LocalizedClippedGD(),
    "localized/printed": opt.LocalizedClippedGD(order=4.0, moment=1.0),
    "localized/truncated": opt.LocalizedClippedGD(order=4.0, moment=1.0, max_steps=5),
    "proximal/clip/full": PROXIMAL(batch_size=400, num_steps=3),
    "proximal/clip/poisson": PROXIMAL(batch_size=40, num_steps=3),
    **{
        f"proximal/{word}/{batches}": PROXIMAL(
            estimator=word, batch_size=size, num_steps=3
        )
        for word in ("bucketed_median", "catoni")
        for batches, size in (("full", 400), ("poisson", 40))
    },
    "frank_wolfe": opt.HeavyTailedFrankWolfe(),
    "last/full": opt.NoisyGD(output="last", num_steps=9, ridge=0.1),
    "last/full/rounded": opt.NoisyGD(output="last", num_steps=9, ridge=0.1),
    "normal_equations": opt.AdaSSP(),
    "frank_wolfe/pure": opt.HeavyTailedFrankWolfe(),
    "lasso": opt.HeavyTailedLasso(),
    "lasso/pure": opt.HeavyTailedLasso(),
    "mirror/gaussian": opt.NoisyMirrorDescent(**MIRROR, noise="gaussian"),
    "mirror/generalized_gaussian": opt.NoisyMirrorDescent(
        **MIRROR, noise="generalized_gaussian"
    ),
    "truncated/poisson": opt.TruncatedMirrorDescent(scheme="poisson", num_steps=3),
    **{
        f"truncated/{scheme}{noise and '/' + noise}": opt.TruncatedMirrorDescent(
            scheme=scheme, num_steps=4, noise=noise or "gaussian"
        )
        for scheme in ("disjoint", "shuffle")
        for noise in ("", "generalized_gaussian")
    },
}


PRINTED = {
    "steps/with_replacement",
    "clipped/with_replacement",
    "objective/inexact",
    "accelerated/paper",
    "localized/printed",
    "localized/truncated",
}


SPECIAL = {
    "lasso": LEAST_SQUARES,
    "lasso/pure": LEAST_SQUARES,
    "normal_equations": LEAST_SQUARES,
    "last/full": FREE,
} | {name: FREE for name in FITS if name.startswith("mirror")}


ON_L1 = (
    *(
        "frank_wolfe",
        "frank_wolfe/pure",
        "clipped/output",
        "phased",
        "svrg",
        "objective",
    ),
    "objective/pure",
)


SPECIAL |= {name: {"domain": L1} for name in ON_L1}


def of_fit(kind):
    known = problem(**SPECIAL.get(kind, {}))
    calibration = "paper" if kind in PRINTED else "exact"
    budget = PURE if kind in ("frank_wolfe/pure", "lasso/pure") else BUDGET
    if kind == "clipped/allocated":
        budget = dataclasses.replace(BUDGET, relation="zero_out")
    plan = minimize.plan_minimization(
        known, FITS[kind], budget, calibration, seeded=False
    )
    return plan.certificate


def of_draw(sampler):
    mech = dps.calibrate(problem(), BUDGET, sampler_share=0.1)
    return mech.certificate.with_sampler(sampler=repr(sampler))


def of_plan():
    mech = dps.calibrate(problem(), BUDGET, sampler_share=0.1)
    return mech.certificate.with_sampler(sampler=repr(constant_time.new_plan(mech)))


def of_pure_draw():
    mech = dps.calibrate(problem(), dataclasses.replace(BUDGET, delta=0.0))
    return mech.certificate.with_sampler(sampler=repr(dps.samplers.Global()))


def of_cells():
    mech = dps.calibrate(
        problem(loss=dps.losses.Hinge()), dataclasses.replace(BUDGET, delta=0.0)
    )
    return mech.certificate.with_sampler(sampler=repr(dps.samplers.TangentCells()))


CASE = {"sensitivity": 0.5, "p": 1.5, "r": 3.0}


NOISES = {
    "noise/gaussian": lambda: dps.noise.gaussian_mechanism(BUDGET, sensitivity=0.5),
    "noise/laplace": lambda: dps.noise.laplace_mechanism(BUDGET, sensitivity=0.5),
    "noise/laplace/pure": lambda: dps.noise.laplace_mechanism(PURE, sensitivity=0.5),
    "noise/k_norm/pure": lambda: dps.noise.k_norm_mechanism(
        PURE, domain=dps.domains.Ball(1.0, p=1.0), dim=3, sensitivity=0.5
    ),
    "noise/generalized_gaussian": lambda: dps.noise.generalized_gaussian_mechanism(
        BUDGET, dim=1, **CASE
    ),
    "noise/generalized_gaussian/idealized": (
        lambda: dps.noise.generalized_gaussian_mechanism(BUDGET, dim=7, **CASE)
    ),
    "noise/schatten_gaussian": lambda: dps.noise.schatten_gaussian_mechanism(
        BUDGET, shape=(1, 3), **CASE
    ),
    "noise/schatten_gaussian/idealized": (
        lambda: dps.noise.schatten_gaussian_mechanism(BUDGET, shape=(2, 3), **CASE)
    ),
    "noise/discrete_laplace": lambda: dps.noise.geometric_mechanism(
        BUDGET, sensitivity=2
    ),
    "noise/k_norm": lambda: dps.noise.k_norm_mechanism(
        BUDGET, domain=dps.domains.Ball(1.0, p=1.0), dim=3, sensitivity=0.5
    ),
    "noise/k_norm/idealized": lambda: dps.noise.k_norm_mechanism(
        BUDGET, domain=dps.domains.Box(-1.0, 1.0), dim=3, sensitivity=0.5
    ),
}


BOUNDS = {"lower": -1.0, "upper": 3.0}


STATISTICS = {
    "stats/count": totals.RecordCount(),
    "stats/histogram": totals.CellCounts(num_cells=4),
    "stats/sum": totals.GridSum(**BOUNDS),
    "stats/mean": totals.GridMean(**BOUNDS),
    "stats/group_means": totals.GridGroupMeans(**BOUNDS, num_groups=3),
    "stats/quantile": totals.RankQuantile(**BOUNDS, level=0.9),
}


GOLDEN: dict[str, Any] = {
    "draw": lambda: dps.calibrate(problem(), BUDGET).certificate,
    "draw/localized": lambda: of_draw(dps.samplers.Localized()),
    "draw/proximal": lambda: of_draw(dps.Proximal()),
    "draw/constanttime": lambda: of_plan(),
    "draw/global": lambda: of_pure_draw(),
    "draw/tangentcells": lambda: of_cells(),
    "draw/exact": lambda: final(linear_facts()),
    "declared": lambda: EventCertificate.of(
        mechanism="noisy mean", budget=BUDGET, event=GaussianEvent(0.2)
    ),
    **{name: lambda make=make: make().certificate for name, make in NOISES.items()},
    **{name: lambda name=name: of_fit(name) for name in FITS},
    **{
        name: lambda made=made: made.certificate(100, BUDGET)
        for name, made in STATISTICS.items()
    },
}


@cache
def golden(kind):
    return GOLDEN[kind]()
