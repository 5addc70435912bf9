"""A published noise formula with its claim and the true epsilon."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Literal

from dpsample.core.spec import Json
from dpsample.privacy.budget import Relation

# Keys of the five papers, and their titles.
PAPERS = {
    "bassily": "Bassily et al. (2019), Private SCO with optimal rates",
    "gopi": "Gopi et al. (2022), Private convex optimization in general norms",
    "su": "Su, Zhao and Wang (2023), DP-SCO in (non-)Euclidean space revisited",
    "xie": "Xie et al. (2022), Statistica Sinica preprint SS-2022-0282",
    "xu": "Xu et al. (2026), DP-SCO under the Tsybakov noise condition",
}

Meaning = Literal["exact", "upper bound", "attack", "unproved"]
# Epsilon at the claimed delta, as a function of a factor by which the noise is
# multiplied.
EpsilonAt = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class Formula:
    """A published formula and its claim. `Claim` explains the fields."""

    paper: str
    place: str  # a field of the JSON output, lint: ok
    formula: str
    setting: str
    accounting: str
    relation: Relation
    epsilon: float
    delta: float
    meaning: Meaning = "exact"
    hidden: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim(Formula):
    """One line of the table: a published noise formula at one setting.

    Attributes
    ----------
    paper : str
        Key of `PAPERS`.
    place : str
        Algorithm or theorem.
    formula : str
        The published formula, as text.
    setting : str
        Numbers at which it is evaluated.
    accounting : str
        Mechanism or pair of distributions for which epsilon is computed.
    relation : {"replace_one", "zero_out"}
        Neighboring relation of the accounting.
    epsilon, delta : float
        What is claimed.
    meaning : {"exact", "upper bound", "attack", "unproved"}
        ``exact``: attained, and no more is possible (for Poisson sampling up to the
        discretization of losses, below one percent). ``upper bound``: proved, perhaps
        not attained. ``attack``: attained by the pair named in ``accounting``, so that
        a value above the claim refutes it and one below proves nothing. ``unproved``:
        nothing is known.
    hidden : str
        The constants that the paper hides in O(.), and the values at which
        ``true_epsilon`` is computed; "" if there are none. Then the claim cannot fail:
        ``noise_factor`` says what the constant would have to be.
    true_epsilon : float or None
        Epsilon at ``delta`` in that sense. Infinite if no epsilon holds.
    noise_factor : float or None
        Noise that meets the claim, in units of the published noise.

    Examples
    --------
    >>> from dpsample import papers as printed
    >>> row = printed.claims("gopi")[1]
    >>> print(row.place, row.delta, round(row.true_epsilon, 2), row.verdict)
    Theorems 3 to 6 1e-05 1.68 fails
    """

    true_epsilon: float | None
    noise_factor: float | None

    @property
    def verdict(self) -> str:
        """``holds``, ``fails``, ``not refuted``, ``unproved`` or ``no constant``."""
        # A hidden constant may have any value, so no epsilon contradicts the claim.
        if self.hidden:
            return "no constant"
        if self.true_epsilon is None:
            return "unproved"
        # An upper bound may be too large and an attack too weak, so that each of them
        # decides in one direction only.
        within = self.true_epsilon <= self.epsilon
        words = {
            "exact": ("holds", "fails"),
            "upper bound": ("holds", "unproved"),
            "attack": ("not refuted", "fails"),
        }
        return words[self.meaning][0 if within else 1]

    def to_dict(self) -> Json:
        """Return fields and verdict for JSON, with None for an infinite epsilon."""
        content = asdict(self) | {"verdict": self.verdict}
        return {k: None if v == math.inf else v for k, v in content.items()}


@dataclass(frozen=True, kw_only=True)
class Case(Formula):
    """A claim before its numbers are computed. `Claim` explains the other fields."""

    epsilon_at: EpsilonAt | None = None  # None if nothing is known
    needed: float | None = None  # factor that meets the claim, if it is known

    def claim(self) -> Claim:
        """Compute the true epsilon, and the noise that meets the claim."""
        true, factor = None, None
        if self.epsilon_at is not None:
            true = self.epsilon_at(1.0)  # the published noise itself
            factor = self.needed
            if factor is None:
                factor = needed_factor(self.epsilon_at, self.epsilon, start=true)
        shared = {f.name: getattr(self, f.name) for f in fields(Formula)}
        if true == math.inf and self.meaning == "upper bound":
            # An infinite upper bound proves nothing.
            true = None
        return Claim(**shared, true_epsilon=true, noise_factor=factor)


def needed_factor(
    epsilon_at: EpsilonAt, claimed: float, *, start: float
) -> float | None:
    """Return the multiple of the noise that meets ``claimed``, rounded up.

    Its relative accuracy is 5e-4. ``start`` is epsilon at the published noise. None is
    returned if no multiple up to 10,000 meets the claim.
    """
    from scipy.optimize import brentq

    def excess(log_factor: float) -> float:
        ratio = epsilon_at(math.exp(log_factor)) / claimed
        # Limits keep the logarithm finite for an epsilon of 0 or infinity.
        return math.log(min(max(ratio, 1e-9), 1e9))

    # Epsilon is about inverse to the noise, so the root is close to this guess.
    guess = min(max(math.log(start / claimed), -4.0), 4.0) if start > 0.0 else 0.0
    low, high = guess - 0.2, guess + 0.2
    while excess(high) > 0.0:
        low, high = high, high + 0.6
        if high > math.log(10_000.0):
            return None
    while excess(low) <= 0.0:
        low, high = low - 0.6, low
    # Relative accuracy of the factor.
    accuracy = 5e-4
    root = float(brentq(excess, low, high, xtol=0.4 * accuracy))
    return math.exp(root + 0.5 * accuracy)
