"""Private optimizers: recipes over one compiled gradient loop."""

from dpsample.core.public import dir_of
from dpsample.optimizers.algorithms.accelerated_clipped_sgd import (
    AcceleratedClippedSGD,
    IteratedAcceleratedClippedSGD,
)
from dpsample.optimizers.algorithms.ada_ssp import AdaSSP
from dpsample.optimizers.algorithms.clipped_gd import ClippedGD
from dpsample.optimizers.algorithms.dp_sgd import DPSGD
from dpsample.optimizers.algorithms.heavy_tailed_frank_wolfe import (
    HeavyTailedFrankWolfe,
    HeavyTailedLasso,
)
from dpsample.optimizers.algorithms.localized_clipped_gd import (
    IteratedLocalizedClippedGD,
    LocalizedClippedGD,
    PrivateStochasticApproximation,
)
from dpsample.optimizers.algorithms.noisy_gd import NoisyGD, NoisySGD
from dpsample.optimizers.algorithms.noisy_mirror_descent import NoisyMirrorDescent
from dpsample.optimizers.algorithms.objective_perturbation import (
    ApproximateObjectivePerturbation,
    ObjectivePerturbation,
)
from dpsample.optimizers.algorithms.phased_sgd import PhasedSGD
from dpsample.optimizers.algorithms.private_proximal_sgd import PrivateProximalSGD
from dpsample.optimizers.algorithms.prox_gd import ProxGD
from dpsample.optimizers.algorithms.proximal_sgd import ProximalSGD
from dpsample.optimizers.algorithms.svrg import SVRG
from dpsample.optimizers.algorithms.truncated_mirror_descent import (
    TruncatedMirrorDescent,
)

__all__ = [
    "DPSGD",
    "SVRG",
    "AcceleratedClippedSGD",
    "AdaSSP",
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
