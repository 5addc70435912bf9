"""Every public optimizer in the settings that its contract is tested in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import dpsample as dps
from dpsample import optimizers as opt
from dpsample.domains import Ball, WholeSpace
from dpsample.optimizers.loop.optimizer import Optimizer

BUDGET = dps.Budget(epsilon=2.0, delta=1e-3)
NEAR = {"distance": 1.0}
WIDE = {"clip": 9.0}  # above every gradient of the affine cases
TWO = {"num_steps": 2, "smoothness": 1.0}
ONE_PASS = ("disjoint", "shuffle", "best")
SCHEMES = ("poisson", *ONE_PASS)


@dataclass(frozen=True)
class Case:
    """An optimizer with the domain and the losses that it serves here."""

    optimizer: Optimizer
    domain: dps.domains.Domain = Ball(2.0)
    losses: tuple[str, ...] = ("linear", "squared")

    def __str__(self) -> str:
        names = ("scheme", "estimator", "batches", "noise", "solver", "p", "tilt")
        words = [getattr(self.optimizer, name, None) for name in names]
        words += [f"m{self.batch_size}"] if self.batch_size else []
        return "-".join([self.name, *(str(w) for w in words if w is not None)])

    @property
    def name(self) -> str:
        return type(self.optimizer).__name__

    @property
    def batch_size(self) -> int | None:
        return getattr(self.optimizer, "batch_size", None)

    @property
    def budget(self) -> dps.Budget | None:
        """ProximalSGD refuses every budget."""
        return None if self.name == "ProximalSGD" else BUDGET

    def recipe(self, problem: dps.Problem, budget: dps.Budget | None = None):
        return self.optimizer.recipe(problem.facts, budget or self.budget)


def problem(
    loss: dps.losses.Loss,
    domain: dps.domains.Domain,
    *,
    num_records: int = 40,
    dim: int = 2,
    scale: float = 1.0,
    row_norm: float = 2.0,
) -> dps.Problem:
    """Rows of norm at most 1, labels of both signs; rows times ``scale``."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((num_records, dim))
    rows /= 1.01 * np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    response = np.where(rng.random(num_records) < 0.5, -1.0, 1.0)
    return dps.Problem(
        scale * rows,
        response,
        loss=loss,
        domain=domain,
        row_bound=scale,
        row_norm=row_norm,
        response_bound=1.0,
    )


# No clipping, no penalty that is not quadratic: iterates are affine in the noise.
AFFINE = (
    Case(opt.NoisyGD(num_steps=5)),
    Case(opt.NoisyGD(num_steps=5, output="tail", tail_share=0.4)),
    Case(opt.NoisyGD(num_steps=5, output="decaying", step_size=0.3)),
    Case(opt.NoisyGD(num_steps=5, output="last", ridge=0.3)),
    Case(opt.NoisySGD(num_steps=3, batches="poisson", batch_size=9)),
    Case(opt.ProxGD(num_steps=4)),
    Case(opt.DPSGD(sampling_rate=0.4, num_steps=3)),
    Case(opt.ObjectivePerturbation()),
    Case(opt.ApproximateObjectivePerturbation(ridge=0.3)),
    Case(opt.SVRG()),
    Case(opt.PhasedSGD()),
    Case(opt.NoisyMirrorDescent(p=2.0, num_steps=4, **NEAR), WholeSpace(), ("linear",)),
    *(
        Case(opt.TruncatedMirrorDescent(scheme=word, num_steps=3, threshold=9.0))
        for word in SCHEMES
    ),
    Case(opt.ClippedGD(num_steps=4, ridge=0.2, step_size=0.5, **WIDE)),
    Case(opt.ClippedGD(num_steps=4, noise="steps", step_size=0.5, **WIDE)),
    Case(opt.LocalizedClippedGD(**WIDE)),
    Case(opt.PrivateStochasticApproximation(**WIDE)),
    Case(opt.IteratedLocalizedClippedGD(**WIDE)),
    *(Case(opt.AcceleratedClippedSGD(scheme=w, num_steps=3, **WIDE)) for w in SCHEMES),
    *(
        Case(opt.IteratedAcceleratedClippedSGD(scheme=word, num_steps=2, **WIDE))
        for word in ("disjoint", "poisson")
    ),
    Case(opt.PrivateProximalSGD(l2=0.3, batch_size=40, **TWO)),
    Case(opt.PrivateProximalSGD(l2=0.3, batch_size=10, **TWO)),
    Case(
        opt.PrivateProximalSGD(
            estimator="bucketed_median",
            num_buckets=1,
            threshold=1e3,
            batch_size=10,
            **TWO,
        )
    ),
    Case(
        opt.PrivateProximalSGD(estimator="catoni", threshold=1e8, batch_size=10, **TWO),
        losses=("linear",),
    ),
    Case(opt.ProximalSGD(l2=0.3, batch_size=40, **TWO)),
)

# Hyper-parameters as they are by default, wherever there is a default.
DEFAULTS = (
    Case(opt.NoisyGD()),
    Case(opt.NoisyGD(output="tail")),
    Case(opt.NoisyGD(output="scaled")),
    Case(opt.NoisyGD(output="decaying")),
    Case(opt.NoisyGD(output="last")),
    Case(opt.NoisySGD(num_steps=3, batches="poisson", batch_size=9)),
    Case(opt.ProxGD()),
    Case(opt.DPSGD(sampling_rate=0.4, num_steps=3)),
    Case(opt.ObjectivePerturbation()),
    Case(opt.ObjectivePerturbation(tilt="norm")),
    Case(opt.ApproximateObjectivePerturbation()),
    Case(opt.ApproximateObjectivePerturbation(solver="svrg")),
    Case(opt.SVRG()),
    Case(opt.PhasedSGD()),
    Case(opt.NoisyMirrorDescent(p=1.5, **NEAR), WholeSpace()),
    Case(
        opt.NoisyMirrorDescent(p=1.5, noise="generalized_gaussian", **NEAR),
        WholeSpace(),
    ),
    *(Case(opt.TruncatedMirrorDescent(scheme=word)) for word in SCHEMES),
    Case(opt.TruncatedMirrorDescent(), Ball(2.0, p=1.5)),
    Case(opt.ClippedGD(num_steps=4, clip=0.7, ridge=0.2)),
    Case(opt.ClippedGD(num_steps=4, clip=0.5, noise="steps")),
    Case(opt.LocalizedClippedGD(clip=0.4)),
    Case(opt.LocalizedClippedGD()),
    Case(opt.PrivateStochasticApproximation()),
    Case(opt.IteratedLocalizedClippedGD()),
    *(Case(opt.AcceleratedClippedSGD(scheme=word)) for word in SCHEMES),
    *(
        Case(opt.IteratedAcceleratedClippedSGD(scheme=word))
        for word in ("disjoint", "poisson")
    ),
    *(
        Case(opt.PrivateProximalSGD(estimator=word, l1=0.03))
        for word in ("clip", "bucketed_median", "catoni")
    ),
    Case(opt.ProximalSGD(l1=0.03)),
    Case(opt.HeavyTailedFrankWolfe(), Ball(2.0, p=1.0)),
    Case(opt.HeavyTailedLasso(), Ball(2.0, p=1.0)),
    Case(opt.AdaSSP()),
)

# Thresholds that are active: a record moves as much as it is ever allowed to.
LIMITED = (
    Case(opt.NoisyGD(num_steps=3)),
    Case(opt.NoisyGD(num_steps=3, clip=0.4)),
    Case(opt.NoisyGD(num_steps=1, clip=0.4, output="last", step_size=0.5)),
    Case(opt.NoisySGD(num_steps=3, batches="poisson", batch_size=4)),
    Case(opt.ProxGD(num_steps=3)),
    Case(opt.DPSGD(sampling_rate=0.6, num_steps=3, clip=0.3)),
    Case(opt.SVRG(ridge=0.3, gap=1e-16)),
    Case(opt.PhasedSGD()),
    Case(opt.NoisyMirrorDescent(p=1.5, num_steps=3, **NEAR), WholeSpace()),
    Case(
        opt.NoisyMirrorDescent(
            p=1.5, num_steps=3, noise="generalized_gaussian", **NEAR
        ),
        WholeSpace(),
    ),
    Case(opt.TruncatedMirrorDescent(num_steps=2)),
    Case(opt.TruncatedMirrorDescent(num_steps=2, scheme="poisson")),
    Case(opt.TruncatedMirrorDescent(num_steps=2), Ball(2.0, p=1.5)),
    Case(opt.ClippedGD(num_steps=4, clip=0.4, ridge=0.2, step_size=0.5)),
    Case(opt.ClippedGD(num_steps=4, clip=0.4, noise="steps", step_size=0.5)),
    Case(opt.LocalizedClippedGD(clip=0.4)),
    Case(opt.PrivateStochasticApproximation(clip=0.4)),
    Case(opt.IteratedLocalizedClippedGD(clip=0.4)),
    Case(opt.AcceleratedClippedSGD(num_steps=2, clip=0.4)),
    Case(opt.AcceleratedClippedSGD(num_steps=2, clip=0.4, scheme="disjoint")),
    Case(opt.IteratedAcceleratedClippedSGD(num_steps=1, clip=0.4)),
    Case(opt.IteratedAcceleratedClippedSGD(num_steps=1, clip=0.4, scheme="disjoint")),
    Case(opt.PrivateProximalSGD(threshold=0.4, batch_size=8, **TWO)),
    Case(opt.PrivateProximalSGD(threshold=0.4, batch_size=4, **TWO)),
    Case(
        opt.PrivateProximalSGD(
            estimator="bucketed_median", num_buckets=1, batch_size=8, **TWO
        )
    ),
    Case(
        opt.PrivateProximalSGD(estimator="catoni", threshold=0.1, batch_size=8, **TWO)
    ),
)
