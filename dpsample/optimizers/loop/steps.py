r"""How an iterate moves: projected, proximal, mirror, accelerated, Frank-Wolfe.

**Geometry of mirror descent.** Gradients are measured in l_q, q = p/(p-1), whose square
is kappa-regular through l_r (see `regularity`). The potential :math:`\Phi =
\frac\kappa2 \|w\|_s^2`, s = r/(r-1), is 1-strongly convex in l_p: :math:`\frac12
\|w\|_s^2` is (s-1)-strongly convex in l_s, :math:`\kappa (s-1) = c^2` and
:math:`\|w\|_s \ge \|w\|_p/c`. (The exponent that arXiv:2303.18047 prints is wrong:
gradient-E1.)
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check
from dpsample.core.arrays import Array, Ints
from dpsample.core.frames import by_address
from dpsample.core.jit import Piece
from dpsample.core.spec import Spec, freeze
from dpsample.noise.selection import selection_grid
from dpsample.numerics.norms import conversion, dual, regularity
from dpsample.optimizers.loop.advance import (
    accelerated_step,
    add_to_average,
    average_and_scale,
    frank_wolfe_step,
    gradient_step,
    keep_last,
    mirror_step,
    proximal_step,
    scaled_step,
)
from dpsample.optimizers.loop.perturbations import (
    GaussianNoise,
    GeneralizedGaussianNoise,
    NoNoise,
    Perturbation,
)
from dpsample.optimizers.loop.pieces import (
    ADVANCE,
    AVERAGE,
    CompiledAverage,
    CompiledStep,
    Numbers,
    compile_piece,
)
from dpsample.privacy.curves.additive import round_up
from dpsample.problem.facts import PublicFacts

# Steps whose sizes or weights differ from step to step: they are listed, at 8 bytes.
MAX_LISTED = 2**26
NoiseName = Literal["gaussian", "generalized_gaussian"]
NOISES = ("gaussian", "generalized_gaussian")


def step_numbers(num_steps: int) -> Array:
    """1, ..., num_steps, for sizes or weights that differ from step to step."""
    if num_steps > MAX_LISTED:
        remedy = "Their sizes or weights are listed. Take larger batches."
        check.fail("num_steps", f"<= {MAX_LISTED}", num_steps, remedy)
    return np.arange(1.0, num_steps + 1.0)


@by_address
class GradientNumbers(NamedTuple):
    """A projected gradient step as its kernel reads it."""

    sizes: Array  # (num_steps,) or (1,)
    ridge: float  # lambda of the penalty lambda/2 |w - anchor|^2
    local_radius: float  # radius of the l2 ball about the phase's start


@by_address
class ScaledNumbers(NamedTuple):
    """A step of a scaled descent, and its average, as their kernels read them."""

    size: float
    stage: int
    stddev: float  # scale of the noise in a coordinate of its gradients
    longest: float  # largest size of its steps
    weights: Array  # weight of all iterates, (1,); or empty: the last iterate


@by_address
class ProximalNumbers(NamedTuple):
    """A proximal step as its kernel reads it."""

    sizes: Array  # (num_steps,) or (1,)
    l1: float
    l2: float
    groups: Ints  # (dim,) group numbers, or empty


@by_address
class MirrorNumbers(NamedTuple):
    """A mirror step as its kernel reads it."""

    sizes: Array  # (num_steps,) or (1,)
    alpha: float
    radius: float
    exponent: float  # s of the mirror map kappa/2 |w|_s^2
    ball_exponent: float  # p <= s of the ball
    kappa: float


@by_address
class AcceleratedNumbers(NamedTuple):
    """An accelerated step as its kernel reads it."""

    size: float
    local_radius: float


@by_address
class FrankWolfeNumbers(NamedTuple):
    """A Frank-Wolfe step as its kernel reads it."""

    sizes: Array  # (num_steps,) or (1,)
    radius: float
    selection: float  # cells in a unit of the gradient (`noise.selection`)
    cell: float  # width of a cell of log weights of a private choice


@by_address
class AverageNumbers(NamedTuple):
    """An average as its kernel reads it."""

    weights: Array  # weights of the iterates after each step, or one for all


class Step(Spec):
    """Base of all steps.

    Attributes
    ----------
    piece : compiled function
        Kernel of signature `ADVANCE`.
    reads_middle : bool
        Whether gradients are those at ``memory.middle``, which the step before has
        written, instead of those at the iterate.
    """

    piece: ClassVar[Piece]
    reads_middle: ClassVar[bool] = False

    def _freeze_sizes(self, sizes: ArrayLike) -> None:
        """Check the step sizes, all > 0, and keep them as an array."""
        values = check.array("sizes", np.atleast_1d(sizes), shape=(None,))
        if not (values > 0.0).all():
            check.fail("sizes", "> 0", float(values.min()))
        object.__setattr__(self, "sizes", freeze(values))

    @property
    def is_noisy(self) -> bool:
        """Whether the step itself protects what the gradient tells."""
        return False

    def numbers(self, dim: int) -> Numbers:
        """Return what the piece reads, for ``dim`` parameters, in arrays of its own."""
        raise NotImplementedError

    def compile(self, dim: int) -> CompiledStep:
        """Return what the loop calls."""
        numbers = self.numbers(dim)
        return CompiledStep(
            advance=compile_piece(self.piece, ADVANCE, numbers), numbers=numbers
        )

    def compile_average(self, weights: Array) -> CompiledAverage:
        """Return what the loop calls after each step; no weights: the last iterate."""
        numbers = AverageNumbers(weights)
        piece = add_to_average if len(weights) > 0 else keep_last
        return CompiledAverage(
            average=compile_piece(piece, AVERAGE, numbers), numbers=numbers
        )


@dataclass(frozen=True, eq=False)
class GradientStep(Step):
    """w <- P(w - size_t (g + ridge (w - anchor))); anchor: the start of the phase.

    P projects on the domain, cut by an l2 ball of radius ``local_radius`` about the
    anchor.
    """

    sizes: ArrayLike  # one for all steps, or one for each
    ridge: float = 0.0
    local_radius: float = math.inf
    name: ClassVar[str] = "gradient"
    piece: ClassVar[Piece] = staticmethod(gradient_step)

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._freeze_sizes(self.sizes)
        check.non_negative(ridge=self.ridge)
        check.at_least(0.0, local_radius=self.local_radius)

    def numbers(self, dim: int) -> GradientNumbers:
        """Return what the piece reads."""
        del dim
        radius = float(self.local_radius)
        return GradientNumbers(np.array(self.sizes), float(self.ridge), radius)


@dataclass(frozen=True, eq=False)
class ScaledStep(Step):
    """w <- P(w - size g), the size scaled as `loop.scaled` says at the stage's end."""

    sizes: ArrayLike
    stage: int
    stddev: float
    longest: float
    name: ClassVar[str] = "scaled"
    piece: ClassVar[Piece] = staticmethod(scaled_step)

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._freeze_sizes(self.sizes)
        check.integer(1, stage=self.stage)
        check.non_negative(stddev=self.stddev)
        check.greater_than(0.0, longest=self.longest)

    def numbers(self, dim: int) -> ScaledNumbers:
        """Return what the piece reads."""
        del dim
        return self._with_weights(np.empty(0))

    def compile_average(self, weights: Array) -> CompiledAverage:
        """Return a piece that also ends the stage."""
        numbers = self._with_weights(weights)
        piece = compile_piece(average_and_scale, AVERAGE, numbers)
        return CompiledAverage(average=piece, numbers=numbers)

    def _with_weights(self, weights: Array) -> ScaledNumbers:
        return ScaledNumbers(
            size=float(np.ravel(self.sizes)[0]),
            stage=int(self.stage),
            stddev=float(self.stddev),
            longest=float(self.longest),
            weights=weights,
        )


@dataclass(frozen=True, eq=False)
class ProximalStep(Step):
    """w <- prox of size_t (penalty + indicator of the domain) at w - size_t g.

    The penalty is l1 |w|_1 + l2/2 |w|_2^2, or, with ``groups``, l1 times the sum over
    groups of sqrt(size) |w_group|_2. The domain must be the whole space, an l2 ball
    about 0 or (without groups) a box that contains 0: there the projection of the
    shrunk vector is the proximal point.
    """

    sizes: ArrayLike
    l1: float = 0.0
    l2: float = 0.0
    groups: tuple[int, ...] = ()
    name: ClassVar[str] = "proximal"
    piece: ClassVar[Piece] = staticmethod(proximal_step)

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._freeze_sizes(self.sizes)
        check.non_negative(l1=self.l1, l2=self.l2)

    def numbers(self, dim: int) -> ProximalNumbers:
        """Return what the piece reads."""
        groups = np.array(self.groups, dtype=np.int64)
        if groups.size not in (0, dim):
            check.fail("groups", f"of length {dim}", f"length {groups.size}")
        if groups.size and not (0 <= groups.min() and groups.max() < dim):
            # Kernels index memory of length dim with them.
            check.fail("groups", f"numbers from 0 to {dim - 1}", self.groups)
        sizes = np.array(self.sizes)
        return ProximalNumbers(sizes, float(self.l1), float(self.l2), groups)


@dataclass(frozen=True, eq=False)
class MirrorStep(Step):
    """Mirror step of Phi = kappa/2 |w|_s^2 with penalty alpha Phi.

    argmin <g, w> + gamma_t D_Phi(w, w_t) + alpha Phi(w), gamma_t = 1/size_t, over the
    ball of the given radius about 0 in the l_p norm, p = ``ball_exponent`` <= s (None:
    s).
    """

    sizes: ArrayLike
    exponent: float
    kappa: float = 1.0
    alpha: float = 0.0
    radius: float = math.inf
    ball_exponent: float | None = None
    name: ClassVar[str] = "mirror"
    piece: ClassVar[Piece] = staticmethod(mirror_step)

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._freeze_sizes(self.sizes)
        check.positive(kappa=self.kappa)
        check.non_negative(alpha=self.alpha)
        check.at_least(0.0, radius=self.radius)
        if not 1.0 < self.exponent <= 2.0:
            check.fail("exponent", "> 1 and <= 2", self.exponent)
        if self.ball_exponent is not None:
            check.at_least(1.0, ball_exponent=self.ball_exponent)
            if self.ball_exponent > self.exponent:
                check.fail("ball_exponent", "<= exponent", self.ball_exponent)

    def numbers(self, dim: int) -> MirrorNumbers:
        """Return what the piece reads."""
        del dim
        return MirrorNumbers(
            sizes=np.array(self.sizes),
            alpha=float(self.alpha),
            radius=float(self.radius),
            exponent=float(self.exponent),
            ball_exponent=float(self.ball_exponent or self.exponent),
            kappa=float(self.kappa),
        )


@dataclass(frozen=True, eq=False)
class AcceleratedStep(Step):
    """Accelerated stochastic approximation (AC-SA) with alpha_t = 2/(t + 1).

    The gradient is taken at (1 - alpha) w_ag + alpha w; w <- P(w - t/(2 eta) g); w_ag
    <- alpha w + (1 - alpha) w_ag, the phase's output.
    """

    eta: float
    local_radius: float = math.inf
    name: ClassVar[str] = "accelerated"
    piece: ClassVar[Piece] = staticmethod(accelerated_step)
    reads_middle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.positive(eta=self.eta)
        check.at_least(0.0, local_radius=self.local_radius)

    def numbers(self, dim: int) -> AcceleratedNumbers:
        """Return what the piece reads."""
        del dim
        return AcceleratedNumbers(float(1.0 / self.eta), float(self.local_radius))


@dataclass(frozen=True, eq=False)
class FrankWolfeStep(Step):
    """w <- (1 - size_t) w + size_t v, v a vertex of the l1 ball about 0.

    v is drawn by the exponential mechanism with scores -<v, g>, exactly
    (`noise.selection`), one record moving a coordinate of g by at most ``sensitivity``,
    rounding errors included. An infinite epsilon takes the best vertex.
    """

    sizes: ArrayLike
    radius: float
    epsilon: float = math.inf
    sensitivity: float = 1.0
    name: ClassVar[str] = "frank_wolfe"
    piece: ClassVar[Piece] = staticmethod(frank_wolfe_step)

    def __post_init__(self) -> None:
        """Check the numbers."""
        self._freeze_sizes(self.sizes)
        check.positive(radius=self.radius, sensitivity=self.sensitivity)
        check.greater_than(0.0, epsilon=self.epsilon)

    @property
    def selection(self) -> float:
        """Inverse temperature: what multiplies a score."""
        per_unit, cell = self._grid()
        return per_unit * cell / self.radius

    @property
    def is_noisy(self) -> bool:
        """Whether vertices are chosen privately."""
        return math.isfinite(self.selection)

    def numbers(self, dim: int) -> FrankWolfeNumbers:
        """Return what the piece reads."""
        del dim
        per_unit, cell = self._grid()
        sizes, radius = np.array(self.sizes), float(self.radius)
        return FrankWolfeNumbers(sizes, radius, float(per_unit), float(cell))

    def error(self, count: int) -> float:
        """Bound the mean excess score of the chosen vertex over the best of ``count``.

        log(N)/l at inverse temperature l, for the entropy of the law is at most log N,
        and a cell by which rounding moves the scores' differences.
        """
        per_unit, cell = self._grid()
        if math.isinf(per_unit):
            return 0.0
        units = (math.log(count) / cell + 1.0) * self.radius
        return units / per_unit if per_unit > 0.0 else math.inf

    def _grid(self) -> tuple[float, float]:
        if math.isinf(self.epsilon):
            return math.inf, 1.0
        return selection_grid(self.epsilon, self.sensitivity)


class Geometry(NamedTuple):
    """Exponents and constants of one potential, and the noise that goes with it."""

    dim: int
    q: float  # exponent of the norm of gradients
    r: float  # exponent of the smooth norm and of generalized Gaussian noise
    s: float  # exponent of the potential
    kappa: float
    noise: NoiseName

    def record_bound(self, facts: PublicFacts, threshold: float = math.inf) -> float:
        """Bound of a gradient of l_q norm <= threshold in the norm of the noise.

        The l_2 norm for Gaussian noise, the l_r norm for generalized Gaussian noise.
        """
        declared_bound = facts.lipschitz_or_inf(dual(self.noise_exponent))
        return min(threshold * self.threshold_ratio, declared_bound)

    @property
    def noise_exponent(self) -> float:
        """Exponent of the norm of gradients in which the noise is calibrated."""
        return 2.0 if self.noise == "gaussian" else self.r

    @property
    def threshold_ratio(self) -> float:
        """Largest ratio of that norm and the l_q norm."""
        return conversion(self.dim, self.q, self.noise_exponent)

    def perturbation(self, stddev: float, copies: int = 1) -> Perturbation:
        """Noise that protects as Gaussian noise of ``stddev`` on the record bounds.

        Generalized Gaussian noise needs sqrt(r-1) times as much; a mean of ``copies``
        draws needs each to be sqrt(copies) times larger: its shift v is that of copies
        shifted by v each, whose gdp composes to sqrt(copies) gdp/copies.
        """
        if stddev == 0.0:
            return NoNoise()
        if self.noise == "gaussian":
            return GaussianNoise(stddev)
        sigma = round_up(math.sqrt(self.r - 1.0) * math.sqrt(copies) * stddev)
        return GeneralizedGaussianNoise(r=self.r, sigma=sigma, copies=copies)

    def mean_square(self, copies: int = 1) -> float:
        """Bound of the mean square l_q norm of `perturbation` of stddev 1."""
        if self.noise == "gaussian":
            return gaussian_mean_square(self.dim, self.q)
        growth = self.r - 1.0 if copies > 1 else 1.0
        return growth * (self.r - 1.0) * self.dim


def geometry(
    p: float,
    dim: int,
    noise: NoiseName,
    *,
    r: Literal["best", "printed"] = "best",
) -> Geometry:
    """Geometry of l_p, 1 <= p <= 2, with the best or with the printed exponent r."""
    regular = regularity(p, dim=dim, r=r)
    return Geometry(
        dim=dim,
        q=regular.q,
        r=regular.r,
        s=dual(regular.r),
        kappa=regular.kappa,
        noise=noise,
    )


def gaussian_mean_square(dim: int, q: float) -> float:
    r"""Bound of :math:`E\|g\|_q^2` for a standard normal vector, q >= 2.

    :math:`\|g\|_q \le \|g\|_u` and :math:`E\|g\|_u^2 \le d^{2/u} (E|g_1|^u)^{2/u}` for
    u <= q, at u = min{q, 2 log d}; an equality for q = 2.
    """
    u = min(q, max(2.0, 2.0 * math.log(dim)))
    log_moment = 0.5 * u * math.log(2.0) + math.lgamma(0.5 * (u + 1.0))
    return math.exp(2.0 / u * (math.log(dim) + log_moment - 0.5 * math.log(math.pi)))
