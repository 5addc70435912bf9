# mypy: allow-untyped-defs
"""A density exp(-k (F + mu r)) whose F is a function of the user.

The regularizer r has the weight mu, and k is an inverse temperature.

The function is compiled to a C function with the signature of a loss's value, which is
called with the point in place of margins: so kernels, which get C functions as
arguments, are the same for all densities and for mean losses of records. A gradient has
the signature of a loss's slopes. Without one, gradients are central differences. Every
sampler that takes a `Density` keeps it exactly invariant whatever the gradient is, so
differences change running times alone.

What a user writes is compared with what it has to be at points around the interior
point of the domain. That finds sign errors, wrong gradients, functions that are
infinite, not convex or cannot be normalized, where these points show it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NoReturn

import numpy as np

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.jit import kernel, pointer
from dpsample.core.spec import lazy_property
from dpsample.core.user_functions import recorded_errors
from dpsample.domains import Domain, WholeSpace
from dpsample.losses.loss import LOSS_RECORD
from dpsample.problem import records
from dpsample.problem.records import Data, Work
from dpsample.regularizers import PowerNorm, Regularizer, SquaredNorm
from dpsample.targets.density_functions import DensityFunctions, read_functions
from dpsample.targets.density_trial import EPSILON, DensityTrial
from dpsample.targets.gibbs_target import (
    GibbsTarget,
    TargetFunctions,
    add_penalty,
    penalty_at,
)


# Kernels that allocate nothing need no counts of references to arrays.
@kernel(counts_references=False)
def energy_at_point(target, value, regularizer_value, theta, work):
    """Return V, of the signature `ENERGY`. ``value`` is the C function of F."""
    work.out[0] = np.nan
    # The signature of a loss's value is (parameters, margins, responses, out). The
    # point stands for the first three.
    value(theta, theta, theta, work.out)
    risk = work.out[0]
    # Without a weight the penalty may be infinite, and must not give NaN.
    if target.mu == 0.0:
        return target.k * risk
    penalty = penalty_at(target, regularizer_value, theta, work)
    return target.k * (risk + target.mu * penalty)


@kernel(counts_references=False)
def gradient_at_point(target, slope, penalty, penalty_slope, theta, work, gradient):
    """Return V and fill its gradient. ``slope`` is the C function of F's gradient."""
    work.out[0] = np.nan
    gradient[:] = np.nan
    slope(theta, theta, theta, gradient, work.out)
    risk = work.out[0]
    if target.mu == 0.0:
        for j in range(gradient.shape[0]):
            gradient[j] *= target.k
        return target.k * risk
    return add_penalty(target, risk, penalty, penalty_slope, theta, work, gradient)


@kernel(counts_references=False)
def no_record(params, margin, response, out):
    """Stand for the C function of one record's loss, which a density does not have."""


@dataclass(frozen=True, init=False, eq=False)
class Density(GibbsTarget):
    r"""Density proportional to :math:`e^{-k(F + \mu r)}` for a function F of the user.

    `dpsample.sample`, its diagnostics and `dpsample.minimizer` take it like a `Gibbs`
    target. It has no records, so nothing can be released from it.

    Parameters
    ----------
    energy : callable, optional
        F, called as ``energy(theta)``, or ``energy(theta, data)`` if data are given. A
        plain Python or Numba function that returns a number. Globals that it reads are
        constants from its compilation on.
    log_density : callable, optional
        Minus F, in place of ``energy``: the density is its exponential.
    gradient : callable, optional
        Gradient of the one that is given, of the form ``gradient(theta[, data])``,
        which returns it, or ``gradient(theta[, data], out)``, which fills ``out``.
        Default: differences, which take 2 dim evaluations.
    value_and_gradient : callable, optional
        In place of ``gradient``, ``f(theta[, data])`` that returns both, if they share
        work.
    dim : int
        Number of coefficients.
    domain : Domain
        Convex set of theta.
    data : array, number, tuple or NamedTuple of them, optional
        What the functions read. Arrays are copied.
    k : float
        Inverse temperature, > 0.
    mu : float
        Weight of the regularizer, >= 0.
    regularizer : Regularizer, optional
        The function r. Default: half the squared Euclidean norm about the domain's
        center.
    convex : bool
        Whether F is convex. It is compared with midpoints of 200 pairs of points, and a
        warning says that chains may miss modes if it is not.
    feature_names : sequence of str, optional
        Names of the coefficients. Default: theta0, theta1, ...
    functions : DensityFunctions, optional
        The functions of another density, in place of the ones above.
        `dataclasses.replace` passes them on.

    Raises
    ------
    ValueError
        If a function has another form, raises, is not finite at points of the domain or
        does not compile, the gradient is another one, or the energy does not rise
        along a direction in which the domain is unbounded.

    Notes
    -----
    Compiled loops call ``np.exp`` and ``np.log1p`` for one number after another. For
    logistic terms `dpsample.losses.softplus` takes a third of the time.

    Functions are compiled for their data. About 2 MB of this stay in the process when
    the density is gone, because Numba keeps parts of its own. `dataclasses.replace`
    with another k, mu or domain compiles no function again.

    **Guarantee.** None of privacy: `dpsample.release` refuses a density without
    records. The samplers that take it keep it exactly invariant, whatever its gradient
    is, if F is a deterministic function.

    Examples
    --------
    >>> import numpy as np
    >>> import dpsample as dps
    >>> def energy(theta, scales):
    ...     return np.sum(np.abs(theta) / scales)
    >>> target = dps.Density(energy=energy, dim=2, data=np.array([1.0, 0.5]),
    ...                      domain=dps.domains.Box(-1.0, 3.0))
    >>> target.energy([1.0, 1.0])
    3.0
    """

    may_be_infinite: ClassVar[bool] = True

    functions: DensityFunctions
    dim: int
    domain: Domain
    k: float
    mu: float
    regularizer: Regularizer
    convex: bool
    feature_names: tuple[str, ...]
    # Whether pairs of points have not refuted that F is convex.
    is_convex: bool = field(init=False)

    def __init__(
        self,
        *,
        energy: Callable[..., float] | None = None,
        log_density: Callable[..., float] | None = None,
        gradient: Callable[..., Any] | None = None,
        value_and_gradient: Callable[..., Any] | None = None,
        dim: int,
        domain: Domain | None = None,
        data: object = None,
        k: float = 1.0,
        mu: float = 0.0,
        regularizer: Regularizer | None = None,
        convex: bool = True,
        feature_names: Sequence[str] | None = None,
        functions: DensityFunctions | None = None,
    ) -> None:
        check.integer(1, dim=dim)
        check.positive(k=k)
        check.non_negative(mu=mu)
        check.instance(bool, convex=convex)
        body = WholeSpace() if domain is None else domain
        check.instance(Domain, domain=body, remedy="Use one of dps.domains.")
        body.check(dim)
        if body.affine_dim(dim) < 1:
            remedy = "There is nothing to draw from a single point."
            check.fail("domain", "of dimension >= 1", body, remedy)
        penalty = SquaredNorm(2.0) if regularizer is None else regularizer
        check.instance(Regularizer, regularizer=penalty)
        # A regularizer of the user that has no weight is never evaluated.
        if mu > 0.0 or penalty.name != "custom":
            penalty.check_on(body, dim)
        functions_by_name = {
            "energy": energy,
            "log_density": log_density,
            "gradient": gradient,
            "value_and_gradient": value_and_gradient,
            "data": data,
        }
        if functions is not None:
            for name, value in functions_by_name.items():
                if value is not None:
                    remedy = "Make a new Density, as replace passes functions on."
                    check.fail(name, "None if functions are given", "both", remedy)
            if functions.dim != dim:
                check.fail("dim", f"{functions.dim}, as in functions", dim)
        else:
            functions = read_functions(
                energy, log_density, gradient, value_and_gradient, data, int(dim)
            )
        vars(self).update(
            functions=functions,
            dim=int(dim),
            domain=body,
            k=float(k),
            mu=float(mu),
            regularizer=penalty,
            convex=convex,
            feature_names=_names(feature_names, dim),
            is_convex=convex,
        )
        # Only then is a density on an unbounded domain known to have a finite integral.
        is_regularized = mu > 0.0 and _makes_integrable(penalty, dim)
        with recorded_errors:
            # What compiled functions raise is recorded, because C functions cannot
            # raise.
            is_convex = self._trial().run(is_regularized=is_regularized, convex=convex)
        vars(self)["is_convex"] = is_convex

    def __getstate__(self) -> dict[str, object]:
        """Leave out the C functions, as another process compiles its own."""
        return {field.name: vars(self)[field.name] for field in fields(self)}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the fields of a copy."""
        vars(self).update(state)

    def __getattr__(self, name: str) -> NoReturn:
        """Say that a density has no records, where one asks for them."""
        if name in ("problem", "data", "storage"):
            raise AttributeError(f"A Density has no records, and so no {name}.")
        raise AttributeError(f"'Density' object has no attribute {name!r}")

    @lazy_property
    def _no_records(self) -> Data:
        """Records that kernels for all targets expect: none."""
        return records.make_data(
            np.zeros((0, self.dim)), np.empty(0), None, np.empty(0)
        )

    def _kernel_records(self) -> Data:
        """Return no records."""
        return self._no_records

    @lazy_property
    def pieces(self) -> TargetFunctions:
        """C functions that kernels call, compiled or loaded at first use."""
        functions = self.functions
        if functions.gradient is None:
            slope = functions.difference_pointer(*self._difference_steps)
        else:
            slope = functions.gradient_pointer
        loss = functions.value_pointer, slope, pointer(no_record, LOSS_RECORD)
        return self._functions(loss, energy_at_point, gradient_at_point)

    def _trial(
        self,
        point: Array | None = None,
        energies_fn: Callable[[Array], Array] | None = None,
    ) -> DensityTrial:
        return DensityTrial(
            self.functions,
            self.domain,
            self.dim,
            self.k,
            point,
            energies_fn=energies_fn,
        )

    @property
    def _energies_fn(self) -> Callable[[Array], Array] | None:
        """Function of whole energies, None if they are k F.

        It does without the kernels, which need scales before.
        """
        if self.mu == 0.0:
            return None
        center = self.regularizer_params.center

        def evaluate(points: Array) -> Array:
            penalties = [self.regularizer.value(point, center) for point in points]
            risks = self.functions.values(points)
            return np.asarray(self.k * (risks + self.mu * np.array(penalties)))

        return evaluate

    @lazy_property
    def _difference_steps(self) -> tuple[Array, Array]:
        """Steps of differences and largest slopes, each of shape (dim,).

        With a scale t, over which the energy V changes by about 1, its third derivative
        is about 1 / t^3, and rounding changes V by EPSILON |V|. So the error of a
        central difference is smallest at the step t (3 EPSILON |V|)^(1/3).
        """
        trial = self._trial(energies_fn=self._energies_fn)
        scales = trial.coordinate_scales
        # Coefficients that the domain fixes have no slope.
        is_free = np.isfinite(scales)
        noise = EPSILON * max(1.0, abs(self.k * trial.value))
        steps = np.where(is_free, scales * min((3.0 * noise) ** (1.0 / 3.0), 0.1), 0.0)
        # A slope by differences is at most this number, times the energy's change along
        # a scale, per scale: at a jump of the energy a trajectory would be thrown far
        # away.
        return steps, 100.0 / (self.k * scales)

    def new_work(self) -> Work:
        """Return scratch memory for one chain."""
        return records.make_work(self._no_records)

    @property
    def evaluation_size(self) -> int:
        """Quantity of numbers that one evaluation of the energy reads, about."""
        # Ten operations for each coefficient stand for the user's function.
        return self.functions.value.data.size + 10 * self.dim

    @property
    def num_records(self) -> int:
        """Number of records: none."""
        return 0

    @property
    def gradient_work(self) -> float:
        """Number of multiply-adds that take about as long as a gradient."""
        is_given = self.functions.gradient is not None
        # A value and a given gradient, or a value and two more for each coefficient.
        return 2.0 * self.evaluation_size * (2 if is_given else 1 + 2 * self.dim)

    def scales(self, point: Array, directions: Array) -> Array:
        """Return lengths along directions, see `DensityTrial.scales`.

        The whole energy counts, as F alone may be flat.
        """
        return self._trial(point, energies_fn=self._energies_fn).scales(directions)

    def describe_failure(self) -> str:
        """Return which function failed, and where."""
        return self.functions.describe_failure()

    def identity(self, start: Array) -> list[object]:
        """Return all that defines the target, see `GibbsTarget.identity`."""
        specs = (self.domain, self.regularizer)
        texts = [json.dumps(spec.to_dict()) for spec in specs]
        # F is known by the code and data of its functions.
        return [start, *texts, *self.functions.digests()]

    def __repr__(self) -> str:
        """Return functions, domain and parameters."""
        function = self.functions.value
        name = getattr(function.python, "__name__", "f").replace("<lambda>", "lambda")
        numbers = f"k={self.k:.6g}"
        if self.mu > 0.0:
            described = self.regularizer.describe(self.domain, self.dim)
            numbers += f", mu={self.mu:.6g}, regularizer={described}"
        return (
            f"Density({function.name}={name}, dim={self.dim}, domain={self.domain!r}, "
            f"{numbers})"
        )


def _makes_integrable(regularizer: Regularizer, dim: int) -> bool:
    """Return whether a regularizer rises in all directions."""
    if isinstance(regularizer, PowerNorm):
        return bool((regularizer.params(dim, np.zeros(dim)).center > 0.0).all())
    return regularizer.curvature_l2(dim)[0] > 0.0


def _names(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    """Return the names of the coefficients."""
    if names is None:
        return tuple(f"theta{j}" for j in range(dim))
    texts = tuple(str(name) for name in names)
    if len(texts) != dim or len(set(texts)) != dim:
        check.fail("feature_names", f"{dim} different names", check.describe(names))
    return texts
