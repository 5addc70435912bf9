"""Public facts of a problem: all that privacy may depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NoReturn

import numpy as np

from dpsample import domains, losses
from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.core.spec import Json, freeze
from dpsample.domains import Domain, SchattenBall
from dpsample.losses import Custom, Loss, RecordGradient
from dpsample.losses.record_gradient import ONLY_MINIMIZE
from dpsample.numerics import norms

RELATIONS = ("replace_one", "zero_out")


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """All that privacy may depend on: sizes, loss, domain and declared bounds.

    On matrix problems (a `SchattenBall` domain) norms are Schatten norms of the
    features reshaped to the domain's shape; otherwise vector norms.
    """

    num_records: int
    dim: int
    loss: Loss
    domain: Domain
    row_bound: float
    row_norm: float
    response_bound: float | None = None
    offset_bound: float = 0.0
    intercept: bool = False

    def __post_init__(self) -> None:
        """Check every fact on its own and against the others."""
        check.instance(Loss, loss=self.loss, remedy="Use one of dps.losses.")
        check.instance(Domain, domain=self.domain, remedy="Use one of dps.domains.")
        check.integer(1, maximum=check.MAX_EXACT_INT, num_records=self.num_records)
        check.integer(1, dim=self.dim)
        check.instance(bool, intercept=self.intercept)
        check.unwrap_numpy_fields(self)
        remedy = "Declare the public bound of a row's norm."
        check.scale(row_bound=self.row_bound, remedy=remedy)
        check.at_least(1.0, row_norm=self.row_norm)
        check.non_negative(offset_bound=self.offset_bound)
        if self.offset_bound > 0.0:
            check.scale(offset_bound=self.offset_bound)
        if self.response_bound is not None:
            check.greater_than(0.0, response_bound=self.response_bound)
            if self.response_bound != np.inf:
                check.scale(response_bound=self.response_bound)
        elif self.loss.needs_response_bound:
            remedy = "Pass the public bound of |response|, infinity if there is none."
            if isinstance(self.loss, Custom):
                remedy += " If it is a label -1 or 1, say labels=True in losses.custom."
            condition = f"declared for the {self.loss.name} loss"
            check.fail("response_bound", condition, "None", remedy)
        if self.intercept and self.is_matrix:
            remedy = "Make the constant one entry of the matrices and of row_bound."
            check.fail("intercept", "False on a SchattenBall", True, remedy)
        if isinstance(self.loss, RecordGradient):
            if self.intercept:
                check.fail("intercept", "False for a record gradient", True)
            if self.loss.dim is not None:
                check.one_of((self.loss.dim,), dim=self.dim)
        self.domain.check(self.dim)
        if isinstance(self.loss, Custom):
            self.loss.check_declarations(self.margin_bound, self.response_bound)

    def __getstate__(self) -> dict[str, object]:
        """Leave out what was derived: a copy derives it from its own fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def is_matrix(self) -> bool:
        """Whether norms are Schatten norms."""
        return isinstance(self.domain, SchattenBall)

    @cached_property
    def full_row_bound(self) -> float:
        """Bound of a row with the intercept's 1 appended."""
        if not self.intercept:
            return self.row_bound
        return float(norms.norm(np.array([self.row_bound, 1.0]), self.row_norm))

    @cached_property
    def center(self) -> Array:
        """Center of the domain, shape (dim,): where algorithms start."""
        return freeze(self.domain.default_center(self.dim))

    @cached_property
    def radius(self) -> float:
        """Largest l2 distance of a point of the domain from its center."""
        return float(self.domain.max_norm(2.0, self.center, self.dim))

    @cached_property
    def slope_bound(self) -> float:
        """Bound of the loss's slope on the domain; infinite where there is none."""
        bound = 1.0 if self.response_bound is None else self.response_bound
        slope = float(self.loss.slope_bound(self.margin_bound, bound))
        return slope if math.isfinite(slope) else math.inf

    @cached_property
    def margin_bound(self) -> float:
        """Bound of abs(<a, theta> + offset) over the domain and all possible rows."""
        return float(self.full_row_bound * self._radius + self.offset_bound)

    @property
    def _radius(self) -> float:
        """Largest norm on the domain, in the norm dual to that of the rows."""
        dual, zero = norms.dual(self.row_norm), np.zeros(self.dim)
        if isinstance(self.domain, SchattenBall):
            return self.domain.max_schatten(dual, zero, self.dim)
        return self.domain.max_norm(dual, zero, self.dim)

    def margin_bounds(self, sizes: Array, offset: Array | None) -> Array:
        """Bounds of abs(<a, theta> + offset) on the domain for rows of given norms."""
        if self.intercept:
            pairs = np.stack([sizes, np.ones_like(sizes)], axis=1)
            sizes = np.asarray(norms.norm(pairs, self.row_norm))
        shift = 0.0 if offset is None else np.abs(offset)
        with np.errstate(invalid="ignore"):  # 0 times an infinite radius is 0
            return np.nan_to_num(sizes * self._radius, nan=0.0, posinf=np.inf) + shift

    def lipschitz(self, p: float) -> float:
        r"""Lipschitz constant G of one record's loss in the l_p (Schatten-p) norm.

        The slope bound times the row bound times
        :math:`\max \|a\|_{p^*} / \|a\|_q`, q the row norm.
        """
        check.at_least(1.0, p=p)
        if math.isinf(self.slope_bound):
            self._fail_unbounded()
        return float(self.slope_bound * self.full_row_bound * self.dual_ratio(p))

    def lipschitz_or_inf(self, p: float) -> float:
        """`lipschitz`, infinite where there is none."""
        check.at_least(1.0, p=p)
        return self.lipschitz(p) if math.isfinite(self.slope_bound) else math.inf

    def dual_ratio(self, p: float) -> float:
        """Largest ratio of a row's norm dual to l_p and its declared norm."""
        check.at_least(1.0, p=p)
        if p not in self._constants:
            size = self.dim
            if isinstance(self.domain, SchattenBall):
                size = min(self.domain.shape)
            ratio = norms.conversion(size, self.row_norm, norms.dual(p))
            self._constants[p] = float(ratio)
        return self._constants[p]

    @cached_property
    def _constants(self) -> dict[float | tuple[str, float], float]:
        """Ratios by p, and smoothness by ("smoothness", p), once asked for."""
        return {}

    def _fail_unbounded(self) -> NoReturn:
        if isinstance(self.loss, RecordGradient):
            condition = "a function of the margin <a, theta>"
            check.fail("loss", condition, self.loss, ONLY_MINIMIZE)
        if isinstance(self.loss, Custom) and self.loss.declared_slope == np.inf:
            remedy = "Declare the loss's slope_bound, or clip gradients."
            check.fail("slope_bound", "finite for this method", np.inf, remedy)
        if self.response_bound == np.inf:
            remedy = "Clip the response, or use a method that clips gradients."
            check.fail("response_bound", "finite for this method", np.inf, remedy)
        name = self.loss.name
        condition = f"bounded for the {name} loss, whose slope grows without end"
        check.fail("domain", condition, self.domain, "Use a Ball or a Box.")

    def diff_lipschitz(self, p: float, relation: str = "replace_one") -> float:
        """Lipschitz constant of the change of one record's loss between neighbors.

        Replacing a record changes f(.; s) to f(.; s'): 2 G. Setting its loss to zero
        changes it to 0: G. (The papers use G for both: GLLST-E1.)
        """
        check.one_of(RELATIONS, relation=relation)
        return self.lipschitz(p) * (2.0 if relation == "replace_one" else 1.0)

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Name and value of every line of a certificate that is about the problem."""
        kind = "Schatten" if self.is_matrix else "l"
        words = f"rows with {kind}-{self.row_norm:g} norm <= {self.row_bound:g}"
        if self.intercept:
            words += " and an intercept"
        if self.response_bound is not None:
            words += f", |response| <= {self.response_bound:g}"
        if self.offset_bound:
            words += f", |offset| <= {self.offset_bound:g}"
        return (
            ("loss, domain", f"{self.loss!r} on {self.domain!r}"),
            ("records", f"n = {self.num_records}, d = {self.dim}, {words}"),
        )

    def to_dict(self) -> Json:
        """Facts as JSON-able values."""
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        return facts | {"loss": self.loss.to_dict(), "domain": self.domain.to_dict()}

    @classmethod
    def from_dict(cls, facts: Json) -> PublicFacts:
        """Facts that `to_dict` described."""
        check.instance(dict, facts=facts)
        pieces = {
            "loss": losses.from_dict(facts.get("loss", {})),
            "domain": domains.from_dict(facts.get("domain", {})),
        }
        return check.build("facts", cls, facts | pieces)


def smoothness(facts: PublicFacts, p: float = 2.0) -> float:
    """Bound of phi'' |a|_q^2, q = p/(p - 1), over the domain and all possible records.

    The l_p smoothness beta of one record's loss, p >= 1; a ValueError if the loss has a
    kink, or its curvature is unbounded on the domain.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = PublicFacts(num_records=10, dim=3, row_bound=2.0, row_norm=2.0,
    ...                     loss=dps.losses.SmoothedHinge(0.5),
    ...                     domain=dps.domains.Ball(1.0))
    >>> smoothness(facts)
    8.0
    """
    check.instance(PublicFacts, facts=facts, remedy="Pass problem.facts.")
    check.at_least(1.0, p=p)
    if isinstance(facts.loss, RecordGradient) and p == 2.0:
        if math.isinf(facts.loss.smoothness):
            remedy = (
                "Pass smoothness=... to dps.losses.record_gradient, or a step size."
            )
            check.fail("loss", "of declared smoothness", facts.loss, remedy)
        return facts.loss.smoothness
    key = ("smoothness", p)
    if key not in facts._constants:
        facts._constants[key] = _smoothness(facts, p)
    return facts._constants[key]


def smoothness_or_inf(facts: PublicFacts, p: float = 2.0) -> float:
    """`smoothness`, infinite where there is none."""
    try:
        return smoothness(facts, p)
    except ValueError:  # a kink, or a curvature without end
        return math.inf


def _smoothness(facts: PublicFacts, p: float) -> float:
    bound = 1.0 if facts.response_bound is None else facts.response_bound
    # Every built-in curvature is largest at one of these responses.
    response = np.array([-bound, bound])
    if not facts.loss.is_classification:
        response = np.array([-bound, 0.0, bound])
    reaches = np.full(response.shape, facts.margin_bound)
    curvature = float(facts.loss.curvature(-reaches, reaches, response)[1].max())
    if not math.isfinite(curvature):
        remedy = "Use a smooth loss, and a bounded domain if its curvature grows."
        check.fail("loss", "of bounded curvature on the domain", facts.loss, remedy)
    return curvature * float(facts.full_row_bound * facts.dual_ratio(p)) ** 2
