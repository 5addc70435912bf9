"""Private regressors of a response with a public range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import assert_all_finite, column_or_1d

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.estimators.linear import PrivateLinearModel
from dpsample.losses import Huber, Loss, Quantile, Squared


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """A private linear regressor; responses are scaled to [-1, 1] for the fit."""

    response_range: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Any:
        """Say that noise may hide the signal."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: object, y: object) -> Self:
        """Fit private coefficients.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (num_records, num_columns)
            Records. Columns of a DataFrame are matched by name from then on.
        y : array or Series of shape (num_records,)
            Responses; those outside their public range are moved there.

        Returns
        -------
        PrivateRegressor
            Itself.

        Raises
        ------
        ValueError
            If a parameter is malformed, bounds are missing or do not fit the columns, a
            response is not finite, or the ledger has no room.
        """
        rows = self._rows(X, y)
        response = np.asarray(column_or_1d(y, warn=True), dtype=np.float64)
        assert_all_finite(response, input_name="y")
        lower, upper = self.response_range_ = self._ends()
        unit = (np.clip(response, lower, upper) - lower) / (upper - lower)
        self._draw(rows, np.clip(2.0 * unit - 1.0, -1.0, 1.0), 1.0)
        self.coef_, self.intercept_ = self._coefficients()
        return self

    @property
    def _units(self) -> tuple[float, float]:
        """Raw units in one of the scaled response, and where that is 0."""
        lower, upper = self.response_range_
        return (upper - lower) / 2.0, (upper + lower) / 2.0

    def _ends(self) -> tuple[float, float]:
        """Public range of the response."""
        ends, encoding = self.response_range, self.encoding_
        if ends is None and encoding is not None and encoding.schema is not None:
            ends = encoding.schema.numeric.get(encoding.target or "")
        if ends is None:
            remedy = "Pass the public range of y (response_range=(lower, upper))."
            check.fail("response_range", "declared", "None", remedy)
        lower, upper = check.array("response_range", ends, shape=(2,)).tolist()
        if not lower < upper:
            check.fail("response_range", "of lower < upper", ends)
        return lower, upper

    def predict(self, X: object) -> Array:
        """Return the predicted response of each record.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (num_records, num_columns)
            Records; values outside their public bounds are moved there, with a warning.

        Returns
        -------
        array of shape (num_records,)
            Responses in the units of ``y``.
        """
        margins = self._margins(X)
        width, center = self._units
        return center + width * margins


class PrivateRidge(PrivateRegressor):
    """Differentially private least squares on bounded responses.

    The loss is squared, and "auto" is `dpsample.optimizers.AdaSSP`, whose noisy normal
    equations also give "intervals". For other methods it is linear for residuals beyond
    the width of the response's range, which no prediction within it exceeds: else their
    noise would grow with the radius.

    The private answer is regularized by its noise, its ball and its method; there is no
    penalty to choose. Parameters are those of `PrivateLogisticRegression` without
    ``classes``, and:

    Parameters
    ----------
    response_range : (lower, upper), optional
        Public range of y; by default what ``bounds`` declares for the name of y.

    Attributes
    ----------
    coef_ : array of shape (num_features,)
        Slopes in units of y per unit of the raw columns.
    intercept_ : float
        Prediction where all columns are 0.
    response_range_ : (lower, upper)
        The range.
    answer_, certificate_, encoding_
        As of `PrivateLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.estimators import PrivateRidge
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(0, 10, (4_000, 2))
    >>> y = 30 + 2 * X[:, 0] + rng.normal(size=4_000)
    >>> model = PrivateRidge(bounds=(0, 10), response_range=(25, 55), random_state=1)
    >>> model.fit(X, y).score(X, y) > 0.8
    True
    """

    def _loss(self) -> Loss:
        is_squared = self.method in ("auto", "intervals")
        return Squared() if is_squared else Huber(2.0)  # |response| <= 1


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateHuberRegressor(PrivateRegressor):
    """Differentially private regression whose loss is linear for large residuals.

    Less noise is needed than for `PrivateRidge`, for one record pulls less. Parameters
    and attributes are those of `PrivateRidge`, and:

    Parameters
    ----------
    width : float, optional
        Residual, in units of y, up to which the loss is quadratic; by default a tenth
        of the response's range.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.estimators import PrivateHuberRegressor
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(0, 10, (4_000, 2))
    >>> y = 30 + 2 * X[:, 0] + rng.normal(size=4_000)
    >>> model = PrivateHuberRegressor(
    ...     width=2.0, bounds=(0, 10), response_range=(25, 55), random_state=1)
    >>> model.fit(X, y).score(X, y) > 0.8
    True
    """

    width: float | None = None

    def _loss(self) -> Loss:
        width = 0.2 * self._units[0] if self.width is None else self.width
        check.positive(width=width)
        return Huber(width / self._units[0])


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateQuantileRegressor(PrivateRegressor):
    """Differentially private linear quantiles of a response.

    The score is scikit-learn's R^2, of means: judge quantiles by their pinball loss.
    Parameters and attributes are those of `PrivateRidge`, and:

    Parameters
    ----------
    quantile : float
        Level, in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.estimators import PrivateQuantileRegressor
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(0, 10, (4_000, 1))
    >>> y = 30 + 2 * X[:, 0] + rng.normal(size=4_000)
    >>> model = PrivateQuantileRegressor(
    ...     quantile=0.9, bounds=(0, 10), response_range=(25, 55), random_state=1)
    >>> bool(0.8 < (y <= model.fit(X, y).predict(X)).mean() < 1.0)
    True
    """

    quantile: float = 0.5

    def _loss(self) -> Loss:
        return Quantile(self.quantile)
