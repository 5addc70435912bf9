r"""Steps of an optimizer: how the iterate w moves, given a gradient estimate g.

A class here checks and holds a step's constants, and names the kernel in `advance` that
takes it. P denotes the projection to the domain. A *phase* is one loop of an algorithm.
Its *anchor* is the point at which it starts.

**Geometry of mirror descent.** Gradients are measured in the l_q norm, q = p/(p-1), the
dual of the domain's l_p norm. The square of the l_q norm is kappa-regular through the
l_r norm (see `regularity`). The potential :math:`\Phi = \frac\kappa2 \|w\|_s^2`, s =
r/(r-1), is 1-strongly convex in l_p: :math:`\frac12 \|w\|_s^2` is (s-1)-strongly convex
in l_s, and :math:`\|w\|_s \ge \|w\|_p/c` with the constant c between the two norms,
for which :math:`\kappa (s-1) = c^2`. (With the exponent kappa/(kappa - 1) that
arXiv:2303.18047 prints, the potential is not 1-strongly convex: entry gradient-E1 of
docs/errata.md.)
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

# Maximum number of steps whose sizes or weights differ. An array holds them, 8 bytes
# each, half a gigabyte.
MAX_LISTED = 2**26
NoiseName = Literal["gaussian", "generalized_gaussian"]
NOISES = ("gaussian", "generalized_gaussian")


def step_numbers(num_steps: int) -> Array:
    """Return 1, ..., num_steps, for sizes or weights that differ from step to step."""
    if num_steps > MAX_LISTED:
        remedy = "Their sizes or weights are listed. Take larger batches."
        check.fail("num_steps", f"<= {MAX_LISTED}", num_steps, remedy)
    return np.arange(1.0, num_steps + 1.0)


# Kernels take the tuple by one address, not field by field, see `core.frames`.
@by_address
class GradientNumbers(NamedTuple):
    """A projected gradient step as its kernel reads it."""

    sizes: Array  # (num_steps,), or (1,) if all steps have one size
    ridge: float  # lambda of the penalty lambda/2 |w - anchor|^2
    local_radius: float  # radius of the l2 ball about the phase's start


@by_address
class ScaledNumbers(NamedTuple):
    """A step of a scaled descent, and its average, as their kernels read them."""

    size: float  # eta before any scaling
    stage: int  # FIRST, MIDDLE or LAST, see `scaled`
    stddev: float  # scale of the noise in a coordinate of its gradients
    longest: float  # largest size of its steps
    moved_factor: float  # first factor of the size, if the anchor is not 0
    weights: Array  # (1,) weight of all iterates, or empty to keep the last one


@by_address
class ProximalNumbers(NamedTuple):
    """A proximal step as its kernel reads it."""

    sizes: Array  # (num_steps,) or (1,)
    l1: float  # strength of the l1 norm, or of the groups' norms
    l2: float  # strength of half the squared l2 norm
    groups: Ints  # (dim,) group numbers, or empty


@by_address
class MirrorNumbers(NamedTuple):
    """A mirror step as its kernel reads it."""

    sizes: Array  # (num_steps,) or (1,)
    alpha: float  # strength of the penalty alpha Phi
    radius: float  # radius of the l_p ball
    exponent: float  # s of the potential kappa/2 |w|_s^2
    ball_exponent: float  # p <= s of the ball
    kappa: float


@by_address
class AcceleratedNumbers(NamedTuple):
    """An accelerated step as its kernel reads it."""

    size: float  # 1/eta
    local_radius: float  # radius of the l2 ball about the phase's start


@by_address
class FrankWolfeNumbers(NamedTuple):
    """A Frank-Wolfe step as its kernel reads it."""

    sizes: Array  # (num_steps,) or (1,)
    radius: float  # radius of the l1 ball
    selection: float  # cells per unit of the gradient, infinite without privacy
    cell: float  # width of a cell of log weights of a private choice
    is_pure: bool  # whether random numbers must have no error


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
        Whether gradients are taken at ``memory.middle``, which the step before has
        written, instead of at the iterate.
    """

    piece: ClassVar[Piece]
    reads_middle: ClassVar[bool] = False

    def _freeze_sizes(self, sizes: ArrayLike) -> None:
        """Check the step sizes, all > 0, and keep them as an array."""
        values = check.array("sizes", np.atleast_1d(sizes), shape=(None,))
        if not (values > 0.0).all():
            check.fail("sizes", "> 0", float(values.min()))
        # The dataclass is frozen, so this sets the field in the only way that is left.
        object.__setattr__(self, "sizes", freeze(values))

    @property
    def is_noisy(self) -> bool:
        """Whether the step protects the records without noise in the gradient."""
        return False

    def numbers(self, dim: int) -> Numbers:
        """Return the kernel's numbers for ``dim`` parameters. Arrays are copied."""
        raise NotImplementedError

    def compile(self, dim: int) -> CompiledStep:
        """Return the compiled kernel and its numbers."""
        numbers = self.numbers(dim)
        return CompiledStep(
            advance=compile_piece(self.piece, ADVANCE, numbers), numbers=numbers
        )

    def compile_average(self, weights: Array) -> CompiledAverage:
        # A copy, because the kernel keeps the address of its numbers.
        """Return the kernel that averages, or that keeps the last iterate."""
        numbers = AverageNumbers(weights)
        piece = add_to_average if len(weights) > 0 else keep_last
        return CompiledAverage(
            average=compile_piece(piece, AVERAGE, numbers), numbers=numbers
        )


@dataclass(frozen=True, eq=False)
class GradientStep(Step):
    """Projected step w <- P(w - size_t (g + ridge (w - anchor))).

    P projects to the intersection of the domain and an l2 ball of radius
    ``local_radius`` about the anchor.
    """

    sizes: ArrayLike  # one for all steps, or one for each
    ridge: float = 0.0
    local_radius: float = math.inf
    name: ClassVar[str] = "gradient"
    piece: ClassVar[Piece] = staticmethod(gradient_step)

    def __post_init__(self) -> None:
        """Check the constants."""
        self._freeze_sizes(self.sizes)
        check.non_negative(ridge=self.ridge)
        check.at_least(0.0, local_radius=self.local_radius)

    def numbers(self, dim: int) -> GradientNumbers:
        """Return the kernel's numbers."""
        del dim
        radius = float(self.local_radius)
        return GradientNumbers(np.array(self.sizes), float(self.ridge), radius)


@dataclass(frozen=True, eq=False)
class ScaledStep(Step):
    """Projected step w <- P(w - size g), whose size `scaled` changes after a stage."""

    sizes: ArrayLike
    stage: int
    stddev: float
    longest: float
    moved_factor: float = 1.0
    name: ClassVar[str] = "scaled"
    piece: ClassVar[Piece] = staticmethod(scaled_step)

    def __post_init__(self) -> None:
        """Check the constants."""
        self._freeze_sizes(self.sizes)
        check.integer(1, stage=self.stage)
        check.non_negative(stddev=self.stddev)
        check.greater_than(0.0, longest=self.longest)
        check.positive(moved_factor=self.moved_factor)

    def numbers(self, dim: int) -> ScaledNumbers:
        """Return the kernel's numbers."""
        del dim
        return self._with_weights(np.empty(0))

    def compile_average(self, weights: Array) -> CompiledAverage:
        """Return the kernel that averages and, after the last step, ends the stage."""
        numbers = self._with_weights(weights)
        piece = compile_piece(average_and_scale, AVERAGE, numbers)
        return CompiledAverage(average=piece, numbers=numbers)

    def _with_weights(self, weights: Array) -> ScaledNumbers:
        """Return the numbers of the step and of an average with these weights."""
        # `scaled` derives later sizes from the first one.
        return ScaledNumbers(
            size=float(np.ravel(self.sizes)[0]),
            stage=int(self.stage),
            stddev=float(self.stddev),
            longest=float(self.longest),
            moved_factor=float(self.moved_factor),
            weights=weights,
        )


@dataclass(frozen=True, eq=False)
class ProximalStep(Step):
    """Proximal step: the prox of size_t times the penalty at w - size_t g.

    The penalty is l1 |w|_1 + l2/2 |w|_2^2, or, with ``groups``, l1 times the sum over
    groups of sqrt(size) |w_group|_2. The domain must be the whole space, an l2 ball
    about 0 or (without groups) a box that contains 0. For these the projection of the
    shrunk vector is the proximal point of penalty plus indicator of the domain.
    """

    sizes: ArrayLike
    l1: float = 0.0
    l2: float = 0.0
    groups: tuple[int, ...] = ()
    name: ClassVar[str] = "proximal"
    piece: ClassVar[Piece] = staticmethod(proximal_step)

    def __post_init__(self) -> None:
        """Check the constants."""
        self._freeze_sizes(self.sizes)
        check.non_negative(l1=self.l1, l2=self.l2)

    def numbers(self, dim: int) -> ProximalNumbers:
        """Return the kernel's numbers."""
        groups = np.array(self.groups, dtype=np.int64)
        if groups.size not in (0, dim):
            check.fail("groups", f"of length {dim}", f"length {groups.size}")
        if groups.size and not (0 <= groups.min() and groups.max() < dim):
            # Kernels use them as positions in arrays of length dim, without a check.
            check.fail("groups", f"numbers from 0 to {dim - 1}", self.groups)
        sizes = np.array(self.sizes)
        return ProximalNumbers(sizes, float(self.l1), float(self.l2), groups)


@dataclass(frozen=True, eq=False)
class MirrorStep(Step):
    """Mirror step of Phi = kappa/2 |w|_s^2 with penalty alpha Phi.

    The next iterate minimizes <g, w> + gamma_t D_Phi(w, w_t) + alpha Phi(w) over the
    l_p ball of the given radius about 0. Here D_Phi is the Bregman divergence of Phi,
    gamma_t = 1/size_t, s = ``exponent``, and p = ``ball_exponent`` <= s (default s).
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
        """Check the constants."""
        self._freeze_sizes(self.sizes)
        check.positive(kappa=self.kappa)
        check.non_negative(alpha=self.alpha)
        check.at_least(0.0, radius=self.radius)
        check.open_interval(1.0, math.inf, exponent=self.exponent)
        if self.ball_exponent is not None:
            check.at_least(1.0, ball_exponent=self.ball_exponent)
            if self.ball_exponent > self.exponent:
                check.fail("ball_exponent", "<= exponent", self.ball_exponent)

    def numbers(self, dim: int) -> MirrorNumbers:
        """Return the kernel's numbers."""
        del dim
        return MirrorNumbers(
            sizes=np.array(self.sizes),
            alpha=float(self.alpha),
            radius=float(self.radius),
            exponent=float(self.exponent),
            # Without an exponent of its own the ball is that of the potential's norm.
            ball_exponent=float(self.ball_exponent or self.exponent),
            kappa=float(self.kappa),
        )


@dataclass(frozen=True, eq=False)
class AcceleratedStep(Step):
    """Accelerated stochastic approximation (AC-SA) with alpha_t = 2/(t + 1).

    With the gradient g at (1 - alpha) w_ag + alpha w, w <- P(w - t/(2 eta) g). Then
    w_ag <- alpha w + (1 - alpha) w_ag, which is the phase's output.
    """

    eta: float
    local_radius: float = math.inf
    name: ClassVar[str] = "accelerated"
    piece: ClassVar[Piece] = staticmethod(accelerated_step)
    reads_middle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the constants."""
        check.positive(eta=self.eta)
        check.at_least(0.0, local_radius=self.local_radius)

    def numbers(self, dim: int) -> AcceleratedNumbers:
        """Return the kernel's numbers."""
        del dim
        # The recursion takes steps of t/2 times this size.
        return AcceleratedNumbers(float(1.0 / self.eta), float(self.local_radius))


@dataclass(frozen=True, eq=False)
class FrankWolfeStep(Step):
    """Frank-Wolfe step w <- (1 - size_t) w + size_t v, v a vertex of the l1 ball.

    The ball is centered at 0. The exponential mechanism draws v with scores -<v, g>,
    exactly (`noise.selection`). One record moves a coordinate of g by at most
    ``sensitivity``, which includes rounding errors. With an infinite epsilon v is the
    best vertex. With ``is_pure`` the draw has no error probability at all. Then an
    epsilon above 2^25 is not used up, because a cell may be at most 1.
    """

    sizes: ArrayLike
    radius: float
    epsilon: float = math.inf
    sensitivity: float = 1.0
    is_pure: bool = False
    name: ClassVar[str] = "frank_wolfe"
    piece: ClassVar[Piece] = staticmethod(frank_wolfe_step)

    def __post_init__(self) -> None:
        """Check the constants."""
        self._freeze_sizes(self.sizes)
        check.positive(radius=self.radius, sensitivity=self.sensitivity)
        check.greater_than(0.0, epsilon=self.epsilon)

    @property
    def selection(self) -> float:
        """Factor of a score in the log weight of a vertex (inverse temperature)."""
        per_unit, cell = self._grid()
        # A vertex +-radius e_j has the score -+radius g_j, and g_j is counted in cells.
        return per_unit * cell / self.radius

    @property
    def is_noisy(self) -> bool:
        """Whether vertices are chosen privately."""
        return math.isfinite(self.selection)

    def numbers(self, dim: int) -> FrankWolfeNumbers:
        """Return the kernel's numbers."""
        del dim
        per_unit, cell = self._grid()
        sizes, radius = np.array(self.sizes), float(self.radius)
        return FrankWolfeNumbers(
            sizes, radius, float(per_unit), float(cell), self.is_pure
        )

    def error(self, count: int) -> float:
        """Bound the mean excess score of the chosen vertex over the best of ``count``.

        For N vertices and inverse temperature l it is log(N)/l, because the entropy of
        the choice is at most log N. A cell is added, by which rounding moves the
        differences of scores.
        """
        per_unit, cell = self._grid()
        if math.isinf(per_unit):
            return 0.0
        # log(N) / cell cells, and one more for the rounding of scores to cells.
        units = (math.log(count) / cell + 1.0) * self.radius
        return units / per_unit if per_unit > 0.0 else math.inf

    def _grid(self) -> tuple[float, float]:
        """Return cells per unit of the gradient, and a cell's width in log weights."""
        if math.isinf(self.epsilon):
            return math.inf, 1.0
        epsilon = min(self.epsilon, 2.0**25) if self.is_pure else self.epsilon
        return selection_grid(epsilon, self.sensitivity)


class Geometry(NamedTuple):
    """Exponents and constants of a potential, and the noise used with it.

    The module's docstring defines the letters.
    """

    dim: int
    q: float  # exponent of the norm of gradients
    r: float  # exponent of the smooth norm and of generalized Gaussian noise
    s: float  # exponent of the potential
    kappa: float
    noise: NoiseName

    def record_bound(self, facts: PublicFacts, threshold: float = math.inf) -> float:
        """Bound a gradient of l_q norm <= threshold in the norm of the noise.

        This is the l_2 norm for Gaussian noise and the l_r norm for generalized
        Gaussian noise.
        """
        declared_bound = facts.lipschitz_or_inf(dual(self.noise_exponent))
        return min(threshold * self.threshold_ratio, declared_bound)

    @property
    def noise_exponent(self) -> float:
        """Exponent of the norm of gradients in which the noise is calibrated."""
        return 2.0 if self.noise == "gaussian" else self.r

    @property
    def threshold_ratio(self) -> float:
        """Largest ratio of the norm of the noise and the l_q norm."""
        return conversion(self.dim, self.q, self.noise_exponent)

    def perturbation(self, stddev: float, copies: int = 1) -> Perturbation:
        """Return noise that protects as well as Gaussian noise of ``stddev``.

        Generalized Gaussian noise needs sqrt(r-1) times as much. In a mean of m =
        ``copies`` draws each must be sqrt(m) times larger. If the mean is shifted by
        v, so is every draw, and the gdp of m draws is sqrt(m) times the gdp of one.
        """
        if stddev == 0.0:
            return NoNoise()
        if self.noise == "gaussian":
            return GaussianNoise(stddev)
        # The privacy of Gaussian noise, times sqrt(copies), rounded up so that it never
        # protects less.
        sigma = round_up(math.sqrt(self.r - 1.0) * math.sqrt(copies) * stddev)
        return GeneralizedGaussianNoise(r=self.r, sigma=sigma, copies=copies)

    def mean_square(self, copies: int = 1) -> float:
        """Bound the mean square l_q norm of `perturbation` with stddev 1."""
        if self.noise == "gaussian":
            return gaussian_mean_square(self.dim, self.q)
        # By the regularity of the squared l_r norm, the mean of several draws, each
        # sqrt(copies) times as large, has at most r - 1 times the mean square of one
        # draw with copies = 1.
        growth = self.r - 1.0 if copies > 1 else 1.0
        return growth * (self.r - 1.0) * self.dim


def geometry(
    p: float,
    dim: int,
    noise: NoiseName,
    *,
    r: Literal["best", "printed"] = "best",
) -> Geometry:
    """Return the geometry of l_p, 1 <= p <= 2, with the best or the published r."""
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
    r"""Bound :math:`E\|g\|_q^2` for a standard normal vector, q >= 2.

    :math:`\|g\|_q \le \|g\|_u` and :math:`E\|g\|_u^2 \le d^{2/u} (E|g_1|^u)^{2/u}` for
    u <= q. The bound takes u = min{q, 2 log d}, at least 2. It is exact for q = 2.
    """
    u = min(q, max(2.0, 2.0 * math.log(dim)))
    # E |g_1|^u = 2^(u/2) Gamma((u + 1)/2) / sqrt(pi)
    log_moment = 0.5 * u * math.log(2.0) + math.lgamma(0.5 * (u + 1.0))
    return math.exp(2.0 / u * (math.log(dim) + log_moment - 0.5 * math.log(math.pi)))
