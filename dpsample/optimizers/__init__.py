"""Private optimizers: recipes over one compiled gradient loop."""

from dpsample.optimizers.heavy_tailed_frank_wolfe import HeavyTailedFrankWolfe
from dpsample.optimizers.heavy_tailed_lasso import HeavyTailedLasso
from dpsample.optimizers.private_proximal_sgd import PrivateProximalSGD
from dpsample.optimizers.proximal_sgd import ProximalSGD

__all__ = [
    "HeavyTailedFrankWolfe",
    "HeavyTailedLasso",
    "PrivateProximalSGD",
    "ProximalSGD",
]
