"""Private classifiers of two classes, and regressors of a response with a range."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, log_expit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import assert_all_finite, column_or_1d

from dpsample.core import check
from dpsample.core.arrays import Array
from dpsample.estimators.linear import PrivateLinearModel
from dpsample.losses import Hinge, Huber, Logistic, Loss, Quantile, Squared
from dpsample.tables import Encoding, Schema
from dpsample.tables.entries import is_missing, spellings
from dpsample.tables.schema import level_key


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """A private linear regressor, which scales responses to [-1, 1] for the fit.

    A fit calls `_response` first, which sets ``response_range_``. Losses and
    predictions depend on it.
    """

    response_range: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn's tests that noise may make scores poor."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _response(self, y: object) -> tuple[Array, float | None]:
        """Return scaled responses (num_records,), and the bound of their size."""
        values = column_or_1d(y, warn=True)
        if values.dtype.kind in "mM":  # they would become numbers of nanoseconds
            check.fail("y", "numbers, not dates or times", str(values.dtype))
        response = np.asarray(values, dtype=np.float64)
        assert_all_finite(response, input_name="y")
        lower, upper = self.response_range_ = self._public_range(self.encoding_)
        unit = (np.clip(response, lower, upper) - lower) / (upper - lower)
        # Clipped again, because the privacy proof rests on the bound 1, which rounding
        # could exceed.
        return np.clip(2.0 * unit - 1.0, -1.0, 1.0), 1.0

    @property
    def _units(self) -> tuple[float, float]:
        """Raw units of one scaled unit, and the response whose scaled value is 0."""
        lower, upper = self.response_range_
        return (upper - lower) / 2.0, (upper + lower) / 2.0

    def _declare_response(
        self, schema: Schema, used: tuple[str, ...], name: object
    ) -> tuple[Schema, str | None]:
        """Add the range of the response to the schema.

        So a saved answer predicts in the units of the response. ``used`` are names of
        columns, and ``name`` is the name of y if it has one.
        """
        schema, target = super()._declare_response(schema, used, name)
        if target is not None and target not in schema.numeric:
            got = f"in {schema.kind(target)}"
            check.fail(f"response {target!r}", "declared as numeric", got)
        if self.response_range is None:
            return schema, target
        if target is None:
            # The response needs a name that neither a column nor the schema has.
            target = name if isinstance(name, str) and name else "response"
            while target in used or schema.kind(target) is not None:
                target += "_"
        ends = self._public_range()
        # The bounds may declare another range for the response.
        if schema.numeric.get(target, ends) != ends:
            condition = f"what bounds declares for {target!r}"
            check.fail("response_range", condition, self.response_range)
        return replace(schema, numeric={**schema.numeric, target: ends}), target

    def _public_range(self, encoding: Encoding | None = None) -> tuple[float, float]:
        """Return the public range of the response."""
        ends = self.response_range
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
            Records. Values outside their public bounds are moved there, with a warning.

        Returns
        -------
        array of shape (num_records,)
            Responses in the units of ``y``.
        """
        margins = self._margins(X)
        scale, center = self._units
        return center + scale * margins


class PrivateRidge(PrivateRegressor):
    """Differentially private least squares on bounded responses.

    The loss is squared, and "auto" is `dpsample.optimizers.AdaSSP`, whose noisy normal
    equations also give "intervals". Other methods use Huber's loss, which is squared up
    to the width of the response's range and linear above it. No prediction within the
    range has a larger residual. With an unbounded slope, as of the squared loss, the
    noise of these methods would grow with the radius.

    The private answer is regularized by its noise, its ball and its method. There is no
    penalty to choose. Parameters are those of `PrivateLogisticRegression` without
    ``classes``, and:

    Parameters
    ----------
    response_range : (lower, upper), optional
        Public range of y. By default what ``bounds`` declares for the name of y.

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
        # The width of the scaled range [-1, 1] is 2.
        return Squared() if is_squared else Huber(2.0)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateHuberRegressor(PrivateRegressor):
    """Differentially private regression whose loss is linear for large residuals.

    It needs less noise than `PrivateRidge`, because one record has less influence.
    Parameters and attributes are the same as of `PrivateRidge`, and:

    Parameters
    ----------
    width : float, optional
        Residual, in units of y, up to which the loss is quadratic. By default a tenth
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
        # Half of the range is one unit of the scaled response, so a tenth of the range
        # is 0.2 of it.
        width = 0.2 * self._units[0] if self.width is None else self.width
        check.positive(width=width)
        return Huber(width / self._units[0])


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateQuantileRegressor(PrivateRegressor):
    """Differentially private linear quantiles of a response.

    The score is scikit-learn's R^2, which is for means. Judge quantiles by their
    pinball loss. Parameters and attributes are the same as of `PrivateRidge`, and:

    Parameters
    ----------
    quantile : float
        Level of the quantile, > 0 and < 1.

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


def _convert_levels(levels: Sequence[str], dtype: np.dtype[Any]) -> Sequence[Any]:
    """Convert declared levels, which are texts, to a dtype: "1" to 1, 1.0 or True.

    The texts are returned if one of them has no such value.
    """
    labels: list[Any] = []
    for level in levels:
        values: list[Any] = [False, True] if dtype.kind == "b" else []
        if dtype.kind in "iuf":  # integers and floats
            with suppress(ValueError, OverflowError):
                values = [dtype.type(float(level))]
        labels += [value for value in values if level_key(level) in spellings(value)]
    return labels if len(labels) == len(levels) else levels


def _comparison_keys(labels: Any) -> Any:
    """Return labels in the form in which they are compared, texts by `level_key`."""
    if labels.dtype.kind not in "OUT":  # objects and texts
        return labels
    return np.array([level_key(label) for label in labels.tolist()], dtype=object)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """A private linear classifier of two classes."""

    classes: Sequence[Any] | None = None

    def __sklearn_tags__(self) -> Any:
        """Declare that there are two classes, and that noise may make scores poor."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags

    def _response(self, y: object) -> tuple[Array, float | None]:
        """Return -1 or 1 for each record, and None, because labels need no bound."""
        labels = column_or_1d(y, warn=True)
        # Missing labels in an array of objects are None or texts such as "NA". NaN is
        # found by scikit-learn below.
        if labels.dtype == object and any(
            is_missing(label) for label in labels if not isinstance(label, float)
        ):
            check.fail("y", "complete", "a missing label", "Drop such records first.")
        assert_all_finite(labels, input_name="y")
        self.classes_ = self._public_classes(labels)
        if self.encoding_ is not None and self.encoding_.levels is not None:
            self.encoding_ = self._with_classes(self.encoding_)
        keys = _comparison_keys(labels)
        first, second = _comparison_keys(self.classes_)
        is_second = keys == second
        foreign = labels[~is_second & (keys != first)]
        if len(foreign):
            remedy = (
                f"Pass the two public classes=(...) as in y, of type {labels.dtype}: "
                "stacking, voting, bagging and cross_val_predict make them 0 and 1."
            )
            got = check.describe(foreign.tolist()[0])
            check.fail("y", f"of the classes {self.classes_.tolist()}", got, remedy)
        return np.where(is_second, 1.0, -1.0), None

    def _with_classes(self, encoding: Encoding) -> Encoding:
        """Return an encoding in which 1 stands for the second of `classes_`."""
        levels = [str(level) for level in encoding.levels or ()]
        matches = [
            [v for v in levels if v == str(label) or level_key(v) in spellings(label)]
            for label in self.classes_
        ]
        if sorted(matches[0] + matches[1]) != sorted(levels):
            condition = f"those that bounds declares for {encoding.target!r}"
            check.fail("classes", condition, self.classes_.tolist())
        # Both lists together are the levels, of which there are two, so each has one.
        return replace(encoding, positive_label=matches[1][0])

    def _public_classes(self, labels: Any) -> Any:
        """Return the two declared classes.

        Without a declaration they are 0 and 1, because the classes that occur in y
        would reveal something about the records. Only a fit for study, with a
        ``random_state``, reads them from y.
        """
        levels = None if self.encoding_ is None else self.encoding_.levels
        public: Any = self.classes
        if public is None and levels is not None:
            public = _convert_levels(levels, labels.dtype)
        if public is None:  # continuous values are no classes
            check_classification_targets(labels)
        if public is None and self.random_state is None:
            return np.array([0, 1], dtype=bool if labels.dtype.kind == "b" else int)
        try:
            candidates = np.unique(labels if public is None else np.asarray(public))
        except TypeError:  # labels of several types, which have no order
            check.fail("classes", "two of one kind", check.describe(public))
        if public is None:
            warnings.warn(
                "The two classes were read from y, as this fit with a random_state is "
                "for study. Which labels there are is a public fact: declare them "
                "(classes=...).",
                UserWarning,
                stacklevel=check.user_stack_level(),
            )
        # Candidates that are compared as equal are one class.
        distinct = candidates[
            np.unique(_comparison_keys(candidates), return_index=True)[1]
        ]
        if len(distinct) > 2:
            # scikit-learn's check_estimator looks for this message.
            kind = type_of_target(distinct)
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{kind}."
            )
        if len(distinct) < 2:
            remedy = "Pass the public ones (classes=...)."
            got = f"one class: {candidates.tolist()}"
            check.fail("classes", "two different ones", got, remedy)
        return distinct

    def decision_function(self, X: object) -> Array:
        """Return <x, coef> + intercept: positive for the second class.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (num_records, num_columns)
            Records. Values outside their public bounds are moved there, with a warning.

        Returns
        -------
        array of shape (num_records,)
            Margins.
        """
        return self._margins(X)

    def predict(self, X: object) -> Any:
        """Return the more likely class of each record.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (num_records, num_columns)
            As in `decision_function`.

        Returns
        -------
        array of shape (num_records,)
            Classes, as they were in ``y``.
        """
        is_second = self._margins(X) >= 0.0
        return self.classes_[is_second.astype(int)]


class PrivateLogisticRegression(PrivateClassifier):
    r"""Differentially private logistic regression of two classes.

    Parameters
    ----------
    epsilon, delta : float
        The budget of one fit.
    relation : {"replace_one", "zero_out"}
        Which records are neighbors. See `dpsample.Budget`.
    bounds : mapping, Schema, path or (lower, upper), optional
        Public ranges and levels of the columns: the content of a bounds file
        (`dpsample.tables.Schema`), its path, or two ends for the columns of an array.
        Values outside are moved to their range. Bounds are never computed from X.
    row_bound : float, optional
        Public length to which longer rows are scaled down. It is required without
        ``bounds``. With them it is the length of rows whose columns are scaled to
        [-1, 1]. By default it is the root of their number, which no row exceeds.
    radius : float or "auto"
        Radius of the ball of allowed coefficients. They refer to columns scaled to
        [-1, 1] or, without ``bounds``, to those of X. "auto" takes
        `dpsample.api.advise.default_radius`.
    p : float
        Exponent of the ball's norm. Only ``method="release"`` allows others than 2.
    fit_intercept : bool
        Whether there is an intercept.
    method : {"auto", "objective", "tail", "decaying", "release", "intervals"}
        "objective" is objective perturbation, "tail" the average of the last iterates
        of noisy gradient descent, "decaying" the last iterate of steps that decay to 0,
        and "release" one draw of the exponential mechanism. "intervals" is
        `dpsample.intervals`, which spends a part of the budget on `conf_int`, and
        leaves out a reference level of categorical columns. "auto" takes the method
        that `dpsample.advise` chooses by public facts. "objective", "tail" and
        "decaying" have the options of `dpsample.advise`, and support the losses that it
        lists.
    ledger : Ledger or LedgerFile, optional
        Ledger in which every fit is entered, including the fits of clones. Fits in
        other processes (``n_jobs``) need a LedgerFile, because processes get copies of
        a Ledger.
    random_state : int or RandomState, optional
        Seed that makes a fit reproducible, for studies. Such a fit is not releasable.
        By default the operating system's entropy is used.
    progress : bool
        Whether to show a live line in a terminal or notebook if a fit takes long.
    classes : pair, optional
        The two public labels. By default the labels that ``bounds`` declare for the
        name of y, or 0 and 1 if it declares none. With a ``random_state``, which is for
        studies, they are read from y instead, with a warning.

    Attributes
    ----------
    coef_ : array of shape (1, num_features)
        Slopes per unit of the raw columns. They are per level for indicators, and per
        unit of sign(x) log(1 + abs(x)) for log columns.
    intercept_ : array of shape (1,)
        Margin where all of these columns and indicators are 0.
    classes_ : array of shape (2,)
        The two labels. The second one counts as 1.
    answer_ : Release, Fit or Intervals
        The private answer in the units of encoded rows, to be published. A Release or
        a Fit can be saved.
    certificate_ : Certificate or EventCertificate
        Certificate of the answer.
    radius_ : float
        Radius of the ball.
    encoding_ : Encoding or None
        Encoding of raw columns as rows. None without ``bounds``.

    Notes
    -----
    **Guarantee.** ``answer_`` is (epsilon, delta)-differentially private under the
    relation by the theorems that ``certificate_`` names. Predictions from it are
    post-processing. Every fit spends the budget again, and so does every fold of a
    cross-validation and every step of a search. These are for studies (pass
    ``random_state``), or are accounted for by `dpsample.tune`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.estimators import PrivateLogisticRegression
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(0, 10, (2_000, 2))
    >>> y = X[:, 0] + rng.normal(size=2_000) > 5
    >>> model = PrivateLogisticRegression(
    ...     bounds=(0, 10), classes=(False, True), random_state=1)
    >>> model.fit(X, y).score(X, y) > 0.85
    True
    >>> model.certificate_.releasable  # seeded
    False
    """

    def _loss(self) -> Loss:
        return Logistic()

    def predict_proba(self, X: object) -> Array:
        """Return the probability of each class.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (num_records, num_columns)
            As in `decision_function`.

        Returns
        -------
        array of shape (num_records, 2)
            Probabilities of ``classes_``.
        """
        second = expit(self._margins(X))
        return np.column_stack([1.0 - second, second])

    def predict_log_proba(self, X: object) -> Array:
        """Return logarithms of `predict_proba`, without overflow."""
        margins = self._margins(X)
        return np.column_stack([log_expit(-margins), log_expit(margins)])


class PrivateSVC(PrivateClassifier):
    """A differentially private linear support vector machine of two classes.

    Its hinge loss is not differentiable everywhere. Parameters, attributes and
    guarantee are the same as of `PrivateLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsample.estimators import PrivateSVC
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(0, 10, (2_000, 2))
    >>> y = X[:, 0] + rng.normal(size=2_000) > 5
    >>> model = PrivateSVC(bounds=(0, 10), classes=(False, True), random_state=1)
    >>> model.fit(X, y).score(X, y) > 0.85
    True
    """

    def _loss(self) -> Loss:
        return Hinge()
