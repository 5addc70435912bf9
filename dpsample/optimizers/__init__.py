"""Private optimizers: recipes over one compiled gradient loop."""

from dpsample._public import dir_of
from dpsample.optimizers.accelerated_clipped_sgd import AcceleratedClippedSGD
from dpsample.optimizers.clipped_gd import ClippedGD
from dpsample.optimizers.dp_sgd import DPSGD
from dpsample.optimizers.heavy_tailed_frank_wolfe import HeavyTailedFrankWolfe
from dpsample.optimizers.heavy_tailed_lasso import HeavyTailedLasso
from dpsample.optimizers.iterated_accelerated_clipped_sgd import (
    IteratedAcceleratedClippedSGD,
)
from dpsample.optimizers.iterated_localized_clipped_gd import IteratedLocalizedClippedGD
from dpsample.optimizers.localized_clipped_gd import LocalizedClippedGD
from dpsample.optimizers.noisy_gd import NoisyGD
from dpsample.optimizers.noisy_mirror_descent import NoisyMirrorDescent
from dpsample.optimizers.noisy_sgd import NoisySGD
from dpsample.optimizers.objective_perturbation import (
    ApproximateObjectivePerturbation,
    ObjectivePerturbation,
)
from dpsample.optimizers.phased_sgd import PhasedSGD
from dpsample.optimizers.private_proximal_sgd import PrivateProximalSGD
from dpsample.optimizers.private_stochastic_approximation import (
    PrivateStochasticApproximation,
)
from dpsample.optimizers.prox_gd import ProxGD
from dpsample.optimizers.proximal_sgd import ProximalSGD
from dpsample.optimizers.svrg import SVRG
from dpsample.optimizers.truncated_mirror_descent import TruncatedMirrorDescent

__all__ = [
    "DPSGD",
    "SVRG",
    "AcceleratedClippedSGD",
    "ApproximateObjectivePerturbation",
    "ClippedGD",
    "HeavyTailedFrankWolfe",
    "HeavyTailedLasso",
    "IteratedAcceleratedClippedSGD",
    "IteratedLocalizedClippedGD",
    "LocalizedClippedGD",
    "NoisyGD",
    "NoisyMirrorDescent",
    "NoisySGD",
    "ObjectivePerturbation",
    "PhasedSGD",
    "PrivateProximalSGD",
    "PrivateStochasticApproximation",
    "ProxGD",
    "ProximalSGD",
    "TruncatedMirrorDescent",
]
__dir__ = dir_of(__all__)
