"""Compilation ahead of use, so that later processes load compiled code from the cache.

Numba compiles a kernel when it is called with new types. So each part of this module
calls some functions on tiny problems, for the sake of compiling only. Types do not
depend on numbers of records or coefficients, but on the loss, the domain, whether rows
are sparse, and whether random numbers come from a seed or from secret bits.
"""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dpsample import domains, losses, noise, optimizers, regularizers, samplers
from dpsample.api.minimize import minimize
from dpsample.api.release import release
from dpsample.api.sample import sample
from dpsample.core.streams import release_streams
from dpsample.numerics.r_hat_and_ess import (
    effective_share,
    largest_r_hat,
    plain_sizes,
    verdicts,
)
from dpsample.privacy import (
    AllocatedGaussianEvent,
    Budget,
    ComposedEvent,
    PoissonGaussianEvent,
    delta_of,
)
from dpsample.problem.problem import Problem
from dpsample.samplers import Proximal, Sampler, gaussian_fit
from dpsample.samplers.proximal import metric
from dpsample.samplers.proximal.proximal import Pilot, start_bound
from dpsample.samplers.proximal.screened import MIN_RECORDS
from dpsample.targets.gibbs import Gibbs

# Name of a part, and the function that compiles it.
Part = tuple[str, Callable[[], None]]

# Number of coefficients of most problems here.
DIM = 4
LOGISTIC = losses.Logistic()
LOSSES = tuple(kind() for kind in losses.BUILT_IN.values())
BALL = domains.Ball(1.0)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
# Arguments of optimizers that have no default.
REQUIRED: dict[str, dict[str, Any]] = {
    "ClippedGD": {"num_steps": 2, "clip": 1.0},
    "DPSGD": {"sampling_rate": 0.5, "num_steps": 2},
    "NoisyMirrorDescent": {"p": 1.5, "distance": 1.0},
}
# Number of records of a usual problem. With fewer, the noise would exceed the answer,
# which is a warning.
NUM_RECORDS = 1000
POLYTOPE = domains.Polytope(np.vstack([np.eye(DIM), -np.eye(DIM)]), np.ones(2 * DIM))
MATRICES = domains.SchattenBall(1.0, p=1.0, shape=(2, 2))
DOMAINS = (
    domains.WholeSpace(),
    domains.Box(-1.0, 1.0),
    domains.Ball(1.0, p=1.0),
    domains.Ball(1.0, p=1.5),
    POLYTOPE,
    MATRICES,
)
REGULARIZERS = (
    regularizers.SquaredNorm(1.5),
    regularizers.SquaredNorm(1.0),
    regularizers.SchattenSquared(1.5, shape=(2, 2)),
)


def make(
    loss: losses.Loss,
    domain: domains.Domain,
    regularizer: regularizers.Regularizer | None = None,
    *,
    dim: int = DIM,
    is_sparse: bool = False,
    num_records: int = 3,
) -> Gibbs:
    """Return a target of some random records in the unit ball."""
    rows: Any = np.random.default_rng(0).standard_normal((num_records, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if is_sparse:
        from scipy import sparse

        rows = sparse.csr_array(rows)
    problem = Problem(
        rows,
        (-1.0) ** np.arange(num_records),
        loss=loss,
        domain=domain,
        row_bound=1.0,
        response_bound=1.0,
    )
    return Gibbs(problem, k=3.0, mu=1.0, regularizer=regularizer)


def piece_targets() -> Iterator[tuple[str, Gibbs]]:
    """Yield small targets that together use every built-in loss, domain and so on."""
    for loss in LOSSES:
        yield f"loss {loss.name}", make(loss, BALL)
    for domain in DOMAINS:
        yield f"domain {domain.name}", make(LOGISTIC, domain)
    for regularizer in REGULARIZERS:
        yield f"regularizer {regularizer.name}", make(LOGISTIC, BALL, regularizer)
    entropy = regularizers.Entropy()
    yield "regularizer entropy", make(LOGISTIC, domains.Simplex(), entropy)
    yield "sparse records", make(LOGISTIC, BALL, is_sparse=True)
    many = make(losses.Hinge(), BALL, num_records=MIN_RECORDS)
    yield "screened records", many


def public_samplers() -> list[type[Sampler]]:
    """Return every public sampler class. Each can be built without an argument."""
    public = [getattr(samplers, name) for name in samplers.__all__]
    classes = [c for c in public if isinstance(c, type) and issubclass(c, Sampler)]
    return [c for c in classes if c is not Sampler]


def sampler_targets() -> list[Gibbs]:
    """Return small targets of different kinds. Every sampler supports one of them."""
    return [
        make(LOGISTIC, BALL),
        make(losses.Hinge(), domains.Box(-1.0, 1.0)),
        make(losses.Absolute(), POLYTOPE),
        make(losses.Linear(), BALL),
        make(LOGISTIC, domains.WholeSpace(), is_sparse=True),
        make(LOGISTIC, domains.Simplex(), regularizers.Entropy()),
        make(LOGISTIC, BALL, dim=2),
    ]


def warm(
    on_progress: Callable[[str, int], None] | None = None,
    *,
    processes: int = 1,
    is_whole: bool = False,
) -> int:
    """Compile the usual functions, or all, and return the number of parts.

    ``on_progress`` receives the name of each part before this process compiles it, and
    the number of parts that no process has begun. With 2 or more ``processes``, a
    second one takes parts from the other end of the list until they meet.
    """
    with TemporaryDirectory() as claims:
        options = f"backwards=True, is_whole={is_whole}"
        call = f"warm.share({claims!r}, {options})"
        command = [sys.executable, "-c", f"from dpsample.api import warm; {call}"]
        second = subprocess.Popen(command) if processes > 1 else None
        with second or nullcontext():
            count = share(claims, on_progress, is_whole=is_whole)
    if second is not None and second.returncode != 0:
        # The second process failed, and its claims do not show which parts it compiled.
        # All parts run again. Those that are in the cache take no time.
        with TemporaryDirectory() as claims:
            share(claims, on_progress, is_whole=is_whole)
    return count


def parts(*, is_whole: bool = False) -> list[Part]:
    """Return the parts in an order that suits two processes.

    Each process begins at one end. Long parts are at the ends and short ones in the
    middle, so that both finish at about the same time. The usual parts are the
    top-level functions with their defaults, and each loss on a ball.
    """
    usual: list[Part] = [
        ("release of a non-smooth loss", partial(_usual_release, losses.Hinge())),
        ("release of a smooth loss", partial(_usual_release, LOGISTIC)),
        ("sampling", _usual_samples),
        ("gradient loop and solvers", _usual_minimizations),
        ("noise", _usual_noises),
        ("accounting", _accounting),
        *((f"loss {name}", partial(_evaluate, target)) for name, target in on_balls()),
    ]
    if not is_whole:
        return usual
    kinds = reversed(public_samplers())
    return [
        *usual,
        ("optimizers", _optimizers),
        ("all releases", _releases),
        ("all noises", noises),
        ("verdicts", _verdicts),
        ("curved walls", _curved_walls),
        ("chords of other balls", _other_chords),
        *((name, partial(_pieces, target)) for name, target in piece_targets()),
        *((f"sampler {kind.__name__}", partial(_draws, kind())) for kind in kinds),
    ]


def share(
    claims: str,
    on_progress: Callable[[str, int], None] | None = None,
    *,
    backwards: bool = False,
    is_whole: bool = False,
) -> int:
    """Run the parts that no process has claimed, and return the number of all parts.

    A process claims a part when it creates a file with the part's number in the folder
    ``claims``. Only one process can create it.
    """
    numbered = list(enumerate(parts(is_whole=is_whole)))
    for number, (name, part) in numbered[:: -1 if backwards else 1]:
        try:
            Path(claims, str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        if on_progress is not None:
            num_begun = sum(1 for _ in Path(claims).iterdir())
            on_progress(name, len(numbered) - num_begun)
        with warnings.catch_warnings():
            # Warnings that the noise exceeds the answer of so few records are expected.
            warnings.simplefilter("ignore", UserWarning)
            part()
    return len(numbered)


def on_balls() -> Iterator[tuple[str, Gibbs]]:
    """Yield a target of each loss on a ball."""
    for loss in LOSSES:
        yield loss.name, make(loss, BALL)


def _usual_noises() -> None:
    """Draw generalized Gaussian noise, from a seed and from the bits of a release."""
    noise.generalized_gaussian(np.random.default_rng(0), size=(1, DIM), r=3.0)
    with release_streams(None, 1) as (rng,):
        noise.generalized_gaussian(rng, size=(1, DIM), r=3.0)


def noises() -> None:
    """Draw each noise once, from the bits of a release."""
    with release_streams(None, 1) as (rng,):
        noise.generalized_gaussian(rng, size=(1, DIM), r=3.0)
        noise.schatten_gaussian(rng, size=(1, 2, 3), r=3.0)
        noise.k_norm(rng, size=(1, DIM), domain=BALL)
        for plain in (noise.Gaussian(1.0), noise.Laplace(1.0)):
            plain._noisy(rng, np.zeros(1))


def _usual_release(loss: losses.Loss) -> None:
    """Release once, from the bits of a release and from a seed."""
    problem = make(loss, BALL, num_records=NUM_RECORDS).problem
    for seed in (None, 0):
        release(problem, BUDGET, seed=seed)


def _usual_samples() -> None:
    """Draw by the sampler that is chosen for a ball and for the whole space."""
    for domain in (BALL, domains.WholeSpace()):
        sample(make(LOGISTIC, domain), num_draws=8, num_chains=2, progress=False)


def _usual_minimizations() -> None:
    """Minimize by the usual optimizers, with noise."""
    problem = make(LOGISTIC, BALL, num_records=NUM_RECORDS).problem
    for optimizer in (
        optimizers.NoisyGD(),
        optimizers.DPSGD(sampling_rate=0.5, num_steps=2),
        optimizers.ObjectivePerturbation(),
        optimizers.ObjectivePerturbation(tilt="norm"),
    ):
        for seed in (None, 0):
            minimize(problem, optimizer, BUDGET, seed=seed)


def _evaluate(target: Gibbs) -> None:
    """Evaluate a target's energy and gradient."""
    start, _ = gaussian_fit.minimize(target)
    target.log_density(start)


def _releases() -> None:
    """Release once with a smooth, a non-smooth and a user-written loss."""
    user_loss = losses.custom(
        lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
        lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
        slope_bound=1.0,
        upper_curvature=1.0,
    )
    for loss in (LOGISTIC, losses.Hinge(), user_loss):
        release(make(loss, BALL).problem, BUDGET)
    release(make(LOGISTIC, BALL).problem, BUDGET, risk="empirical")


def _accounting() -> None:
    """Compose steps on samples, and on allocated records."""
    steps = PoissonGaussianEvent(sampling_rate=0.5, noise_multiplier=1.0, num_steps=1)
    epoch = AllocatedGaussianEvent(noise_multiplier=1.0, num_steps=2)
    delta_of(ComposedEvent((steps, epoch)), epsilon=1.0, relation="zero_out")


def _curved_walls() -> None:
    """Draw in a body whose curved boundary is found by bracketing."""
    _draw(make(LOGISTIC, MATRICES), samplers.BilliardHMC())


def _other_chords() -> None:
    """Draw along chords of balls that are not Euclidean, which have their own kernels.

    Starts of chains call the chords and projections of curved bodies from Python.
    """
    balls: list[domains.Domain] = [domains.Ball(1.0, p=1.5), MATRICES]
    for ball in balls:
        _draw(make(LOGISTIC, ball), samplers.HitAndRun())
    direction = np.array([1.0, -1.0, 0.0, 0.0])
    for domain in (*balls, domains.Simplex()):
        center = domain.project(np.full(DIM, 1.0 / DIM))
        domain.chord(center, direction)


def _verdicts() -> None:
    """Judge a few draws, as short chains and as long ones."""
    draws = np.random.default_rng(0).standard_normal((2, 8, 1))
    verdicts(draws)
    plain_sizes(draws)
    largest_r_hat(draws)
    effective_share(draws)


def _pieces(target: Gibbs) -> None:
    """Run the certified sampler in every metric, and each piece from Python."""
    start, _ = gaussian_fit.minimize(target)
    if Proximal().supports(target)[0]:
        for option in metric.candidates(target, oracle=Proximal().oracle):
            rng = np.random.default_rng(0)
            pilot = Pilot(
                target, option, start, rng, lambda *, step: 1, is_screened=True
            )
            # Records are screened in short steps only.
            pilot.trial(1e-6, 2)
            start_bound(target, option, start)
    # A function that Python calls is compiled in addition to the one that kernels call
    # by its address.
    target.log_density(start)
    target.regularizer.value(start)
    target.problem.loss.value(0.0, 1.0)


def _optimizers() -> None:
    """Minimize by each optimizer, on a domain that it supports."""
    for name in optimizers.__all__:
        domain: domains.Domain = BALL
        if name in ("HeavyTailedFrankWolfe", "HeavyTailedLasso"):
            domain = domains.Ball(1.0, p=1.0)
        elif name == "NoisyMirrorDescent":
            domain = domains.WholeSpace()
        is_linear = name in ("AdaSSP", "HeavyTailedLasso")
        loss = losses.Squared() if is_linear else LOGISTIC
        problem = make(loss, domain, num_records=NUM_RECORDS).problem
        optimizer = getattr(optimizers, name)(**REQUIRED.get(name, {}))
        minimize(problem, optimizer, None if name == "ProximalSGD" else BUDGET)


def _draws(sampler: Sampler) -> None:
    """Prepare the sampler and draw twice, wherever it can."""
    for target in sampler_targets():
        if sampler.supports(target)[0]:
            _draw(target, sampler)


def _draw(target: Gibbs, sampler: Sampler) -> None:
    """Draw twice, which compiles what a sampler needs for a target."""
    sample(
        target,
        sampler=sampler,
        num_draws=2,
        num_warmup=0,
        num_chains=1,
        progress=False,
    )
