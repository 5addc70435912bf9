"""Private optimizers: recipes over one compiled gradient loop."""

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
from dpsample.optimizers.noisy_sgd import NoisySGD
from dpsample.optimizers.private_proximal_sgd import PrivateProximalSGD
from dpsample.optimizers.private_stochastic_approximation import (
    PrivateStochasticApproximation,
)
from dpsample.optimizers.prox_gd import ProxGD
from dpsample.optimizers.proximal_sgd import ProximalSGD

__all__ = [
    "DPSGD",
    "AcceleratedClippedSGD",
    "ClippedGD",
    "HeavyTailedFrankWolfe",
    "HeavyTailedLasso",
    "IteratedAcceleratedClippedSGD",
    "IteratedLocalizedClippedGD",
    "LocalizedClippedGD",
    "NoisySGD",
    "PrivateProximalSGD",
    "PrivateStochasticApproximation",
    "ProxGD",
    "ProximalSGD",
]
