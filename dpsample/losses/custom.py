"""A loss from a user's own scalar functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numba.extending import is_jitted

from dpsample import _check as check
from dpsample._jit import kernel
from dpsample.losses._base import Array, Loss, compile_pieces

# Margins and responses at which a user's loss is tried once before it is trusted.
PROBES = np.array([-30.0, -7.0, -2.5, -1.0, -0.3, 0.0, 0.2, 0.9, 1.5, 4.0, 25.0])


def _uncached(function: Any) -> Any:
    # The user's own functions may change without a trace in our sources.
    return kernel(function, cached=False)


@dataclass(frozen=True, kw_only=True)
class Custom(Loss):
    """Loss made by `custom`; without functions it only carries declared facts."""

    label: str
    declared_slope: float
    lower_curvature: float = 0.0
    upper_curvature: float = np.inf
    third_derivative: float = np.inf
    functions: Any = field(default=None, compare=False, repr=False)
    name: ClassVar[str] = "custom"
    is_cached: ClassVar[bool] = False  # the user's sources are not in our fingerprint

    @property
    def params(self) -> Array:
        """Return no numbers: the user's functions carry their own."""
        return np.zeros(0)

    def slope_bound(self, margin_bound: float, response_bound: float) -> float:
        """Return the declared slope bound."""
        del margin_bound, response_bound
        return self.declared_slope

    def curvature(
        self, lower: Array, upper: Array, response: Array
    ) -> tuple[Array, Array]:
        """Return the declared range of curvatures."""
        del upper, response
        return (
            np.full_like(lower, self.lower_curvature),
            np.full_like(lower, self.upper_curvature),
        )

    def third_derivative_bound(
        self, margin_bound: float, response_bound: float
    ) -> float:
        """Return the declared bound."""
        del margin_bound, response_bound
        return self.third_derivative

    @property
    def pieces(self) -> Any:
        """Return the compiled pieces; a loss read from a file has none."""
        if self.functions is None:
            check.fail("loss", "a custom loss with its functions", self.label)
        return self.functions

    def to_dict(self) -> dict[str, Any]:
        """Return the declared facts only: functions do not travel."""
        return {
            "name": self.name,
            "label": self.label,
            "declared_slope": self.declared_slope,
            "lower_curvature": self.lower_curvature,
            "upper_curvature": self.upper_curvature,
            "third_derivative": self.third_derivative,
        }


def _compiled(name: str, function: Callable[..., float]) -> Any:
    if is_jitted(function):
        return function
    if not inspect.isfunction(function):
        remedy = "Wrap it: lambda u, y: ..."
        check.fail(name, "a Python or Numba function of (u, y)", function, remedy)
    return kernel(function, cached=False)


def custom(
    value: Callable[[float, float], float],
    slope: Callable[[float, float], float],
    *,
    slope_bound: float,
    lower_curvature: float = 0.0,
    upper_curvature: float = np.inf,
    third_derivative_bound: float = np.inf,
    name: str = "custom",
) -> Custom:
    r"""Make a loss from two scalar functions of the margin u and the response y.

    The functions are compiled alone: no sampler kernel is compiled again for them.
    Everything declared is an assumption of the certificate; what can be seen at a few
    probe points (convexity, the slope, its bound) is checked here.

    Parameters
    ----------
    value, slope : callable
        ``value(u, y)`` convex in ``u`` and ``slope(u, y)``, its derivative or a
        subgradient; plain Python or Numba functions.
    slope_bound : float
        Public bound of ``|slope|`` for every possible record on the domain.
    lower_curvature, upper_curvature : float
        Bounds of the second derivative for every margin that can occur.
    third_derivative_bound : float
        Bound of the third derivative; infinite if there is none.
    name : str
        Shown in the certificate.

    Returns
    -------
    Custom
        A loss for `Problem`.

    Raises
    ------
    ValueError
        If a function raises, returns NaN, or contradicts what is declared.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.losses import custom
    >>> loss = custom(lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
    ...               lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
    ...               slope_bound=1.0, upper_curvature=1.0, name="pseudo-Huber")
    >>> loss.value(0.0, 0.0)
    array(1.)
    """
    check.positive(slope_bound=slope_bound)
    check.non_negative(lower_curvature=lower_curvature)
    check.at_least(lower_curvature, upper_curvature=upper_curvature)
    check.at_least(0.0, third_derivative_bound=third_derivative_bound)
    check.instance(str, name=name)
    phi, dphi = _compiled("value", value), _compiled("slope", slope)

    def scalar(params: Array, u: float, y: float) -> tuple[float, float]:
        return phi(u, y), dphi(u, y)

    loss = Custom(
        label=name,
        declared_slope=float(slope_bound),
        lower_curvature=float(lower_curvature),
        upper_curvature=float(upper_curvature),
        third_derivative=float(third_derivative_bound),
        functions=compile_pieces(_uncached(scalar), _uncached),
    )
    _probe(phi, dphi, float(slope_bound))
    return loss


def _probe(phi: Any, dphi: Any, slope_bound: float) -> None:
    for y in (-1.0, 1.0):
        try:
            # Uncompiled functions warn where compiled ones return NaN.
            with np.errstate(all="ignore"):
                values = np.array([float(phi(u, y)) for u in PROBES])
                slopes = np.array([float(dphi(u, y)) for u in PROBES])
        except Exception as error:
            check.fail("value and slope", "scalar functions of (u, y)", repr(error))
        if not (np.isfinite(values).all() and np.isfinite(slopes).all()):
            check.fail("value and slope", "finite at every margin", "NaN or infinity")
        if np.any(np.abs(slopes) > slope_bound * (1.0 + 1e-12)):
            worst = float(np.abs(slopes).max())
            check.fail("slope", f"at most slope_bound = {slope_bound:g}", worst)
        # Convexity: the secant lies between the slopes at its two ends.
        secants = np.diff(values) / np.diff(PROBES)
        slack = 1e-9 * (1.0 + np.abs(values).max())
        if np.any(secants < slopes[:-1] - slack) or np.any(
            secants > slopes[1:] + slack
        ):
            check.fail(
                "value",
                "convex in u with derivative slope",
                f"secants that contradict the slopes at y = {y:g}",
            )
