# mypy: allow-untyped-defs
"""Noise that a step adds to its gradient estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from dpsample.core import check
from dpsample.core.jit import kernel
from dpsample.core.spec import Spec
from dpsample.noise import cone_table
from dpsample.noise.generalized_gaussian import fill_generalized_gaussian

NONE, GAUSSIAN, GENERALIZED = range(3)


class NoiseNumbers(NamedTuple):
    """Noise as the kernel reads it."""

    kind: int
    scale: float
    copies: int
    table: Any


class Perturbation(Spec):
    """Base of all perturbations."""

    kind: ClassVar[int]

    def numbers(self) -> NoiseNumbers:
        """Return what the kernel reads."""
        return NoiseNumbers(self.kind, *self._fields())

    def _fields(self) -> tuple[float, int, Any]:
        return 0.0, 1, cone_table(2.0)


@dataclass(frozen=True)
class NoNoise(Perturbation):
    """Nothing: the textbook algorithm."""

    name: ClassVar[str] = "none"
    kind: ClassVar[int] = NONE


@dataclass(frozen=True)
class GaussianNoise(Perturbation):
    """N(0, stddev^2) in every coordinate."""

    stddev: float
    name: ClassVar[str] = "gaussian"
    kind: ClassVar[int] = GAUSSIAN

    def __post_init__(self) -> None:
        """Check the size."""
        check.non_negative(stddev=self.stddev)

    def _fields(self) -> tuple[float, int, Any]:
        return float(self.stddev), 1, cone_table(2.0)


@dataclass(frozen=True, kw_only=True)
class GeneralizedGaussianNoise(Perturbation):
    """Mean of ``copies`` generalized Gaussian vectors, one for each record."""

    r: float
    sigma: float
    copies: int = 1
    name: ClassVar[str] = "generalized_gaussian"
    kind: ClassVar[int] = GENERALIZED

    def __post_init__(self) -> None:
        """Check the numbers."""
        check.at_least(1.0, r=self.r)
        check.non_negative(sigma=self.sigma)
        check.integer(1, copies=self.copies)

    def _fields(self) -> tuple[float, int, Any]:
        return float(self.sigma), int(self.copies), cone_table(self.r)


@kernel(forceinline=True, counts_references=False)
def perturb(noise, rng, scratch, gradient):
    """Add one draw of the noise to ``gradient``."""
    if noise.kind == GAUSSIAN:
        for j in range(len(gradient)):
            gradient[j] += noise.scale * rng.standard_normal()
    elif noise.kind == GENERALIZED:
        for _ in range(noise.copies):
            fill_generalized_gaussian(rng, noise.table, noise.scale, scratch)
            for j in range(len(gradient)):
                gradient[j] += scratch[j] / noise.copies
