"""What a verification found: each stated number next to the recomputed one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

from dpsample import _check as check

# Platforms differ in the last digits of logarithms and linear programs.
TOLERANCE = 1e-9
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of a report: what is claimed, and the recomputed value."""

    name: str
    stated: str
    recomputed: str


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """Every check that a certificate passed; printing it lists them.

    Attributes
    ----------
    statement : str
        The certificate's guarantee, in words.
    checks : tuple of Check
        ``name``, ``stated`` and ``recomputed`` of each check, as words.

    Examples
    --------
    >>> import dpsample as dps
    >>> from dpsample.facts import PublicFacts
    >>> facts = PublicFacts(num_records=2000, dim=20, row_bound=1.0, row_norm=2.0,
    ...                     loss=dps.losses.Linear(), domain=dps.domains.Ball(1.0))
    >>> mech = dps.calibrate(facts, dps.Budget(epsilon=1.0, delta=1e-6))
    >>> checks = dps.verify(mech.certificate).checks
    >>> [line.stated for line in checks if line.name == "gdp"]
    ['0.236704']
    """

    statement: str
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        """One line for each check."""
        width = max(len(line.name) for line in self.checks)
        lines = [
            f"{line.name:<{width}}  {line.stated}  [{line.recomputed}]"
            for line in self.checks
        ]
        return "\n".join([f"Verified: {self.statement}", *lines])

    __repr__ = __str__


def agreeing(name: str, stated: Any, recomputed: float) -> Check:
    """Return the line of a number that agrees; fail if it does not."""
    agrees = isinstance(stated, float | int) and math.isclose(
        stated, recomputed, rel_tol=TOLERANCE, abs_tol=0.0
    )
    if not agrees:
        disagree(name, recomputed, stated)
    return _line(name, stated, f"{recomputed:.6g}")


def at_most(name: str, value: float, limit: float) -> Check:
    """Return the line of an inequality that holds; fail if it does not."""
    if not value <= limit * (1.0 + ROUNDING):
        check.fail(name, f"at most {limit!r}", repr(value), "It is not a proof.")
    return _line(name, value, f"{limit:.6g}")


def _line(name: str, stated: float, recomputed: str) -> Check:
    return Check(name=name, stated=f"{stated:.6g}", recomputed=recomputed)


def disagree(name: str, expected: Any, stated: Any) -> NoReturn:
    """Fail because of one field."""
    check.fail(
        f"certificate.{name}",
        f"{expected!r}, recomputed from the public inputs",
        repr(stated),
        "The certificate was edited or made by other code: do not trust it.",
    )
