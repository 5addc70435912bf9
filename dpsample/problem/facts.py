"""Public facts of a problem, which are all that privacy may depend on.

The slope of a loss is its derivative in the margin <a, theta> + offset of a record with
the row a. Bounds of slopes, margins and gradients follow from the domain and from
declared bounds, and never from the records.
"""

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
from dpsample.domains import Domain
from dpsample.losses import Custom, Loss, RecordGradient
from dpsample.losses.record_gradient import ONLY_MINIMIZE
from dpsample.numerics import norms

# Neighboring data sets differ in one record: it is replaced by any other one, or its
# loss is set to zero. Their number of records is the same.
RELATIONS = ("replace_one", "zero_out")


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """Sizes, loss, domain and declared bounds, on which alone privacy may depend.

    On matrix problems (a `SchattenBall` domain) norms are Schatten norms of the
    features reshaped to the domain's shape. Otherwise they are vector norms.

    Parameters
    ----------
    num_records : int
        Number of records.
    dim : int
        Number of coefficients, the intercept included.
    loss : Loss
        Loss of one record.
    domain : Domain
        Convex set of the coefficients.
    row_bound : float
        Largest norm of a row, without the 1 of the intercept.
    row_norm : float
        Exponent of that norm, at least 1.
    response_bound : float, optional
        Largest size of a response. Without it none is declared.
    offset_bound : float
        Largest size of an offset.
    intercept : bool
        Whether rows end with a 1.
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
        if not self.domain.has_public_bounds:
            remedy = "Such a domain is for a dps.Density."
            condition = "one whose bounds are proved, such as a Ball, Box or Polytope"
            check.fail("domain", condition, self.domain, remedy)
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
        # The range of margins follows from the facts that are checked above.
        if isinstance(self.loss, Custom):
            self.loss.check_declarations(self.margin_bound, self.response_bound)

    def __getstate__(self) -> dict[str, object]:
        """Leave out derived values, as a copy derives them from its own fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def is_matrix(self) -> bool:
        """Whether norms are Schatten norms."""
        return self.domain.matrix_shape is not None

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
        """Bound of the loss's slope on the domain, perhaps infinite."""
        # Without a declared bound, responses are at most 1 or are not read by the loss.
        bound = 1.0 if self.response_bound is None else self.response_bound
        slope = float(self.loss.slope_bound(self.margin_bound, bound))
        return slope if math.isfinite(slope) else math.inf

    @cached_property
    def margin_bound(self) -> float:
        """Bound of abs(<a, theta> + offset) over the domain and all possible rows."""
        return float(self.full_row_bound * self._dual_radius + self.offset_bound)

    @cached_property
    def margin_width(self) -> float:
        """Bound of the length of the interval of margins of one record.

        It is the bound of a row times the diameter of the domain in the dual norm, and
        at most twice `margin_bound`, without the offset.
        """
        # The diameter may be smaller than twice the radius about 0, from which a domain
        # may be far.
        dual = norms.dual(self.row_norm)
        diameter = 2.0 * self._dual_radius
        if not self.is_matrix:
            diameter = min(diameter, self.domain.diameter(dual, self.dim))
        return float(self.full_row_bound * diameter)

    def loss_range(self, relation: str = "replace_one") -> float:
        """Return the range Omega of one record in the sum of losses, rounded up.

        It is the largest oscillation (supremum less infimum over the domain) of the
        change of the sum of losses between neighbors. If a record is set to zero, the
        change is its loss f(.; s). With Omega_1, the largest oscillation of f(.; s)
        over all records s, it is at most Omega_1. If a record is replaced, the change
        f(.; s) - f(.; s') has at most 2 Omega_1. On centered balls and on boxes of two
        or more dimensions this is attained.

        Parameters
        ----------
        relation : {"replace_one", "zero_out"}
            Neighboring relation.

        Returns
        -------
        float
            Omega > 0, finite.

        Raises
        ------
        ValueError
            If Omega is infinite: the domain is unbounded, or the loss's slope is.

        Examples
        --------
        >>> import dpsample as dps
        >>> facts = PublicFacts(num_records=10, dim=3, row_bound=1.0, row_norm=2.0,
        ...                     loss=dps.losses.Logistic(),
        ...                     domain=dps.domains.Ball(2.0))
        >>> [round(facts.loss_range(r), 9) for r in ("replace_one", "zero_out")]
        [4.0, 2.0]
        """
        check.one_of(RELATIONS, relation=relation)
        single = self._single_range
        if math.isinf(single):
            if not self.domain.is_bounded:
                remedy = "Use a Ball or a Box."
                check.fail("domain", "bounded for a finite range", self.domain, remedy)
            self._fail_unbounded()
        return 2.0 * single if relation == "replace_one" else single

    def loss_range_or_inf(self, relation: str = "replace_one") -> float:
        """Return `loss_range`, or infinity if there is no such bound."""
        check.one_of(RELATIONS, relation=relation)
        return (
            self.loss_range(relation) if math.isfinite(self._single_range) else math.inf
        )

    @cached_property
    def _single_range(self) -> float:
        """Largest oscillation of one record's loss on the domain, perhaps infinite."""
        if not self.domain.is_bounded:
            return math.inf
        return self.loss.oscillation(
            self.margin_bound, self.margin_width, self.response_bound
        )

    @property
    def _dual_radius(self) -> float:
        """Largest norm of a point of the domain, in the dual of the rows' norm."""
        dual, zero = norms.dual(self.row_norm), np.zeros(self.dim)
        shape = self.domain.matrix_shape
        if shape is not None:
            return self.domain.max_schatten(dual, zero, self.dim, shape=shape)
        return self.domain.max_norm(dual, zero, self.dim)

    def margin_bounds(self, sizes: Array, offset: Array | None) -> Array:
        """Return bounds of abs(<a, theta> + offset) for rows of given norms."""
        if self.intercept:
            # The norm of a row with a 1 appended is the norm of (its norm, 1).
            pairs = np.stack([sizes, np.ones_like(sizes)], axis=1)
            sizes = np.asarray(norms.norm(pairs, self.row_norm))
        shift = 0.0 if offset is None else np.abs(offset)
        # The margin of a row of zeros is 0, even if the radius is infinite.
        with np.errstate(invalid="ignore"):
            reaches = sizes * self._dual_radius
            return np.nan_to_num(reaches, nan=0.0, posinf=np.inf) + shift

    def lipschitz(self, p: float) -> float:
        r"""Return the Lipschitz constant G of one record's loss in the l_p norm.

        It is the slope bound times the row bound times
        :math:`\max \|a\|_{p^*} / \|a\|_q`, where q is the exponent of the row norm. On
        matrix problems norms are Schatten norms.
        """
        check.at_least(1.0, p=p)
        if math.isinf(self.slope_bound):
            self._fail_unbounded()
        return float(self.slope_bound * self.full_row_bound * self.dual_ratio(p))

    def lipschitz_or_inf(self, p: float) -> float:
        """Return `lipschitz`, or infinity if there is no such constant."""
        check.at_least(1.0, p=p)
        return self.lipschitz(p) if math.isfinite(self.slope_bound) else math.inf

    def dual_ratio(self, p: float) -> float:
        """Return the largest ratio of the dual of the l_p norm and the row norm."""
        check.at_least(1.0, p=p)
        if p not in self._constants:
            size = self.domain.norm_length(self.dim)
            # The dual of l_p is l_q with 1/p + 1/q = 1.
            ratio = norms.conversion(size, self.row_norm, norms.dual(p))
            self._constants[p] = float(ratio)
        return self._constants[p]

    @cached_property
    def _constants(self) -> dict[float | tuple[str, float], float]:
        """Computed constants: ratios by p, and smoothness by ("smoothness", p)."""
        return {}

    def _fail_unbounded(self) -> NoReturn:
        """Raise for an infinite bound of slopes, with a remedy for its cause."""
        if not self.loss.has_margin:
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
        """Return the Lipschitz constant of the change between neighboring data sets.

        If a record s is replaced by s', the change f(.; s) - f(.; s') has the constant
        2 G. If its loss is set to zero, the constant is G. (The papers use G for both,
        see GLLST-E1.)
        """
        check.one_of(RELATIONS, relation=relation)
        return self.lipschitz(p) * (2.0 if relation == "replace_one" else 1.0)

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Return names and texts of a certificate's lines about the problem."""
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
        """Return the facts as values for JSON."""
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        return facts | {"loss": self.loss.to_dict(), "domain": self.domain.to_dict()}

    @classmethod
    def from_dict(cls, facts: Json) -> PublicFacts:
        """Rebuild the facts that `to_dict` described."""
        check.instance(dict, facts=facts)
        parts = {
            "loss": losses.from_dict(facts.get("loss", {})),
            "domain": domains.from_dict(facts.get("domain", {})),
        }
        return check.build("facts", cls, facts | parts)


def smoothness(facts: PublicFacts, p: float = 2.0) -> float:
    """Return the l_p smoothness of one record's loss on the domain, for p >= 1.

    It is the largest phi'' |a|_q^2 with q = p / (p - 1) over all possible records. A
    ValueError says that the loss is not smooth, or that phi'' is unbounded.

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
    """Return `smoothness`, or infinity if the loss is not smooth on the domain."""
    try:
        return smoothness(facts, p)
    except ValueError:
        return math.inf


def _smoothness(facts: PublicFacts, p: float) -> float:
    """Return `smoothness` of a loss of the margin, without the cache."""
    # Without a declared bound, responses are at most 1 or are not read by the loss.
    bound = 1.0 if facts.response_bound is None else facts.response_bound
    if facts.loss.is_classification:
        bound = max(bound, 1.0)  # labels are -1 and 1 below any declared bound
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
