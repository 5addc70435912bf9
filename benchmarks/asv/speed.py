"""Times that asv compares between commits; each is warm except for `FirstDraw`."""

import os
import subprocess
import sys
import tempfile

import numpy as np

import dpsample as dps

BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
QUIET = {"seed": 3, "progress": False, "threads": 1}


def problem(loss, num_records=2_000, dim=5):
    """Synthetic records in the unit ball, coefficients in another."""
    data = dps.datasets.logistic(num_records, dim, seed=1)
    return dps.Problem(
        data.features,
        data.response,
        loss=loss,
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )


class FirstDraw:
    """A release in a new process: imports, and compilation if the cache is empty."""

    params = ("warm", "cold")
    param_names = ("cache",)
    timeout, number, repeat, rounds, warmup_time = 600.0, 1, 1, 1, 0.0
    CODE = (
        "import dpsample as dps; data = dps.datasets.logistic(2000, 5, seed=1);"
        "dps.release(dps.Problem(data.features, data.response, row_bound=1.0,"
        "loss=dps.losses.Logistic(), domain=dps.domains.Ball(1.0)),"
        "dps.Budget(epsilon=1.0, delta=1e-6))"
    )

    def setup(self, cache):
        """Fill the cache, or take an empty one."""
        self.folder = tempfile.TemporaryDirectory()
        self.environment = dict(os.environ)
        if cache == "cold":
            self.environment["NUMBA_CACHE_DIR"] = self.folder.name
        else:
            self.time_process(cache)

    def teardown(self, cache):
        """Delete what was compiled."""
        self.folder.cleanup()

    def time_process(self, cache):
        """Run a new process that releases once."""
        subprocess.run(
            [sys.executable, "-c", self.CODE], env=self.environment, check=True
        )


class Release:
    """One certified draw."""

    params = (["Logistic", "Hinge"], [5, 50])
    param_names = ("loss", "dim")

    def setup(self, loss, dim):
        """Make the problem and compile."""
        self.problem = problem(getattr(dps.losses, loss)(), dim=dim)
        dps.release(self.problem, BUDGET)

    def time_release(self, loss, dim):
        """From records to an answer."""
        dps.release(self.problem, BUDGET)


class Samplers:
    """A thousand draws of one chain."""

    params = (
        "Localized",
        "BilliardHMC",
        "WhitenedSlice",
        "LaplaceIndependence",
        "FactorizedMetropolis",
        "MALA",
        "HitAndRun",
    )
    param_names = ("sampler",)

    def setup(self, sampler):
        """Make the target, tune once and compile."""
        logistic = problem(dps.losses.Logistic(), dim=10)
        self.target = dps.Gibbs(logistic, k=500.0, mu=0.1)
        self.sampler = getattr(dps.samplers, sampler)()
        self.draw(10)

    def draw(self, number):
        """Draw from one chain."""
        options = QUIET | {"num_chains": 1, "check": False}
        dps.sample(self.target, sampler=self.sampler, num_draws=number, **options)

    def time_draws(self, sampler):
        """Warm-up included."""
        self.draw(1_000)


class Optimizers:
    """A private fit of 20 000 records."""

    params = ("DPSGD", "NoisyGD", "ObjectivePerturbation", "PhasedSGD")
    param_names = ("optimizer",)

    def setup(self, optimizer):
        """Make the problem, calibrate and compile."""
        options = {"DPSGD": {"sampling_rate": 0.01, "num_steps": 1_000}}
        self.problem = problem(dps.losses.Logistic(), 20_000, 20)
        self.method = getattr(dps.optimizers, optimizer)(**options.get(optimizer, {}))
        self.time_fit(optimizer)

    def time_fit(self, optimizer):
        """From records to a fit."""
        dps.minimize(self.problem, self.method, BUDGET, seed=1)


class Noise:
    """A million numbers of noise."""

    params = (1.0, 2.0, 3.0)
    param_names = ("r",)

    def setup(self, r):
        """Compile."""
        self.rng = np.random.default_rng(1)
        self.time_generalized_gaussian(r)

    def time_generalized_gaussian(self, r):
        """Vectors of 20 numbers."""
        dps.noise.generalized_gaussian(self.rng, size=(50_000, 20), r=r, sigma=1.0)


class Accounting:
    """Epsilon of composed events, and certificates."""

    def setup(self):
        """Make the events and a certificate."""
        privacy = dps.privacy
        self.sampled = privacy.PoissonGaussianEvent(
            sampling_rate=0.01, noise_multiplier=1.0, num_steps=1_000
        )
        pure = privacy.PureEvent(0.01)
        self.mixed = privacy.ComposedEvent((privacy.GaussianEvent(0.3),) + (pure,) * 10)
        self.certificate = dps.release(
            problem(dps.losses.Logistic()), BUDGET
        ).certificate

    def time_poisson_samples(self):
        """Privacy loss distributions of 1000 steps."""
        dps.privacy.epsilon_of(self.sampled, delta=1e-6, relation="zero_out")

    def time_mixed_composition(self):
        """Compose a Gaussian and ten pure events."""
        dps.privacy.epsilon_of(self.mixed, delta=1e-6, relation="replace_one")

    def time_verify(self):
        """Recompute a certificate."""
        dps.verify(self.certificate)

    def time_page(self):
        """Write the page for readers who are not experts."""
        self.certificate.to_html()
