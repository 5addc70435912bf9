"""The base class of the estimators: parameters, rows, method and coefficients.

A fit encodes the table by public facts (``bounds``), chooses a method by public facts
and the budget, and makes one private answer in the units of the encoded rows.
Coefficients are converted to the units of the raw columns.
"""

from __future__ import annotations

import os
import sys
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Literal, Self

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from dpsample.answers.answer import Fit, Release
from dpsample.api.advise import advise, default_radius
from dpsample.api.intervals import Intervals, intervals
from dpsample.api.minimize import minimize
from dpsample.api.release import release
from dpsample.core import check, columns
from dpsample.core.arrays import Array
from dpsample.core.sparse import Rows
from dpsample.domains import Ball
from dpsample.inference.sandwich import KINKED
from dpsample.losses import Loss
from dpsample.numerics import norms
from dpsample.privacy import Budget, Certificate, EventCertificate, Ledger, LedgerFile
from dpsample.privacy.budget import Relation
from dpsample.privacy.certificates.sealed import SEARCH
from dpsample.problem.facts import PublicFacts
from dpsample.problem.problem import Problem
from dpsample.tables import Encoding, Schema
from dpsample.tables.encoding import clip_rows, collinear_columns, reject_undeclared

Method = Literal["auto", "objective", "tail", "decaying", "release", "intervals"]
METHODS = ("auto", "objective", "tail", "decaying", "release", "intervals")
# The first sentence says why there are other fits.
MORE_FITS = (
    "{} If their records share people, "
    "budgets add up: every fold of a cross-validation and every candidate of a search "
    "spends one, and no certificate counts the others. A ledger "
    "(ledger=dpsample.privacy.Ledger()) shows the total. A choice by scores of the "
    "records is private with dpsample.tune only."
)
# Options of scikit-learn's validation of rows.
ROWS = {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}
# Whether this process has made a fit without a ledger and without a seed.
_has_fitted = False


def schema_of(bounds: object, names: list[str]) -> Schema:
    """Return the schema of a user's ``bounds``: a schema, its file, or two ends."""
    if isinstance(bounds, Schema):
        return bounds
    if isinstance(bounds, str | os.PathLike):
        return Schema.from_file(os.fspath(bounds))
    if isinstance(bounds, Mapping):
        return Schema.from_dict(bounds)
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        condition = "a Schema, its file or content, or (lower, upper)"
        check.fail(
            "bounds", condition, bounds, "Each end is a number, or one a column."
        )
    num_columns = len(names)
    for end in bounds:
        if np.shape(end) not in ((), (num_columns,)):
            condition = f"of ends that are numbers or have {num_columns}, one a column"
            remedy = "It is (lower, upper), not a pair for each column."
            check.fail("bounds", condition, f"an end of shape {np.shape(end)}", remedy)
    lower, upper = (np.broadcast_to(end, num_columns).tolist() for end in bounds)
    pairs = zip(names, lower, upper, strict=True)
    return Schema(numeric={name: (low, high) for name, low, high in pairs})


Answer = Release | Fit | Intervals


def _is_in_search() -> bool:
    """Return whether scikit-learn's cross-validation or search calls this fit."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith("sklearn.model_selection"):
            return True
        frame = frame.f_back
    return False


def _in_order(table: Any) -> Any:
    """Return a table whose numbered columns 0, 1 and so on are in order.

    A ValueError is raised for a masked array, and for dates and times.
    """
    is_masked = np.ma.isMaskedArray(table)
    kind = getattr(getattr(table, "dtype", None), "kind", None)
    if is_masked or kind in ("m", "M"):
        got = "a masked array" if is_masked else f"entries of {table.dtype}"
        check.fail("X", "of numbers, none of them masked", got)
    labels = columns.labels_of(table) or []
    if any(isinstance(label, str) for label in labels) or not _are_counted(labels):
        return table
    current_order, numeric_order = map(str, labels), map(str, range(len(labels)))
    return np.asarray(table)[
        :, columns.find_positions("X", [*current_order], [*numeric_order])
    ]


def _are_counted(labels: list[object]) -> bool:
    """Return whether labels of columns are 0, 1 and so on, in any order."""
    return bool(labels) and {*map(str, labels)} == {*map(str, range(len(labels)))}


def _one_of_many(answer: Answer) -> Answer:
    """Add the assumption that other fits, as in a search, are not included.

    An estimator cannot know whether it is a clone that a search fits.
    """
    proof: Any = answer.certificate
    certificate = replace(proof, assumptions=(*proof.assumptions, SEARCH), digest="")
    if isinstance(answer, Intervals):
        return replace(answer, certificate=certificate)
    return replace(
        answer, certificate=certificate, digest=""
    )  # the answer computes its digest again


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearModel(BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """A linear model whose coefficients are one private answer with a certificate."""

    epsilon: float = 1.0
    delta: float = 1e-6
    relation: Relation = "replace_one"
    bounds: Any = None
    row_bound: float | None = None
    radius: float | Literal["auto"] = "auto"
    p: float = 2.0
    fit_intercept: bool = True
    method: Method = "auto"
    ledger: Ledger | LedgerFile | None = None
    random_state: Any = None
    progress: bool = True

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss of the model."""

    @abstractmethod
    def _response(self, y: object) -> tuple[Array, float | None]:
        """Return encoded responses and, if they are numbers, their bound."""

    def fit(self, X: object, y: object) -> Self:
        """Fit private coefficients.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (num_records, num_columns)
            Records. Columns of a DataFrame are matched by name from then on.
        y : array or Series of shape (num_records,)
            Labels of two classes, or responses. Responses outside their public range
            are moved to its ends.

        Returns
        -------
        PrivateLinearModel
            Itself.

        Raises
        ------
        ValueError
            If a parameter is malformed, bounds are missing or do not fit the columns, a
            label belongs to no class, a response is not finite, or the fit would exceed
            the budget of the ledger.
        """
        rows = self._rows(X, y)
        self._draw(rows, *self._response(y))
        coefficients: Any = self._coefficients()
        if is_classifier(self):  # in scikit-learn's shapes, for two classes
            coefficients = [np.array([value]) for value in coefficients]
        self.coef_, self.intercept_ = coefficients
        return self

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse rows need no bounds, and that two fits differ."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.bounds is None
        tags.non_deterministic = self.random_state is None
        return tags

    @property
    def certificate_(self) -> Certificate | EventCertificate | None:
        """The proof of the answer."""
        check_is_fitted(self, "answer_")
        certificate: Certificate | EventCertificate | None = self.answer_.certificate
        return certificate

    def _table(self, X: Any, schema: Schema | None, *, reset: bool) -> Any:
        """Return a table of named columns.

        The columns of an array are named x0, x1 and so on, or 0, 1 and so on if the
        schema declares them so.
        """
        import narwhals.stable.v2 as nw
        import pandas as pd

        kind = (schema or Schema()).kind
        is_numbered = kind("0") is not None and kind("x0") is None
        original, X = X, _in_order(X)
        names, labels = columns.names_of(X), columns.labels_of(original) or []
        is_matched = is_numbered and _are_counted(labels)
        if is_matched:  # columns are matched by number, also if they are not numeric
            names = tuple(map(str, range(len(labels))))
            places = columns.find_positions("X", [*map(str, labels)], names).tolist()
            X = nw.from_native(original)[:, places].to_native()
        # After a fit to an array there are no names to which a frame could be matched.
        has_names = reset or is_matched or hasattr(self, "feature_names_in_")
        if names is None or not has_names:
            dense = {**ROWS, "accept_sparse": False}
            if not isinstance(self.bounds, tuple | list):  # there may be rules
                dense["ensure_all_finite"] = "allow-nan"
            X = validate_data(self, X, **dense, reset=reset)
            letter = "" if is_numbered else "x"
            names = tuple(f"{letter}{j}" for j in range(X.shape[1]))
            names = tuple(getattr(self, "feature_names_in_", names))
            return pd.DataFrame(X, columns=list(names))
        if reset:
            self.feature_names_in_ = np.array(names, dtype=object)
            if is_matched and not isinstance(
                labels[0], str
            ):  # scikit-learn has no names then
                del self.feature_names_in_
            self.n_features_in_ = len(names)
        return X

    def _rows(self, X: object, y: object) -> Rows:
        """Return the rows of the records to fit, and set the encoding."""
        # Results of an earlier fit do not belong to the settings of this one.
        for name in ("answer_", "coef_", "intercept_"):
            self.__dict__.pop(name, None)
        if np.ma.isMaskedArray(y):
            check.fail("y", "complete", "a masked array", "Drop such records first.")
        if self.bounds is not None:
            has_ends = isinstance(self.bounds, tuple | list)
            declared = None if has_ends else schema_of(self.bounds, [])
            table = self._table(X, declared, reset=True)
            check_consistent_length(table, y)
            names = [str(label) for label in columns.labels_of(table) or ()]
            schema = schema_of(self.bounds, names) if declared is None else declared
            used = tuple(n for n in names if schema.kind(n) != "ignore")
            for undeclared in (n for n in used if schema.kind(n) is None):
                reject_undeclared(undeclared)
            schema, target = self._declare_response(
                schema, used, getattr(y, "name", None)
            )
            # Columns are scaled to [-1, 1] and not further, so that the 1 of the
            # intercept has the same size, and adds as little to the sensitivity, as a
            # column.
            length = max(len(used), 1) ** 0.5
            contrasts: tuple[str, ...] = ()
            if self.method == "intervals":
                # With all levels and an intercept no interval would be finite.
                contrasts = collinear_columns(
                    schema, used, intercept=bool(self.fit_intercept)
                )
            self.encoding_: Encoding | None = Encoding(
                schema=schema,
                columns=used,
                target=target,
                clip=True,
                row_bound=length if self.row_bound is None else self.row_bound,
                scale=length,
                contrasts=contrasts,
            )
            return self.encoding_.features(table)
        if self.row_bound is None:
            remedy = (
                "Pass public ranges and levels of columns (bounds=...), or a public "
                "length to which longer rows are scaled down (row_bound=...)."
            )
            check.fail("bounds", "declared", "None", remedy)
        self.encoding_, X = None, _in_order(X)
        rows: Rows = validate_data(self, X, **ROWS)
        texts: Any = getattr(self, "feature_names_in_", None)
        self._names = columns.names_of(X) if texts is None else tuple(texts)
        check_consistent_length(rows, y)
        return rows

    def _declare_response(
        self, schema: Schema, used: tuple[str, ...], name: object
    ) -> tuple[Schema, str | None]:
        """Return the schema including the response, and the response's name."""
        if not isinstance(name, str) or name not in schema.declared:
            return schema, None
        if name not in used:
            return schema, name
        if not isinstance(self.bounds, tuple | list):
            remedy = "Drop the response from X, or rename y."
            check.fail("columns of X", "those of features", f"also {name!r}", remedy)
        return schema, None

    def _margins(self, X: Any) -> Array:
        """Return <x, coef> + intercept in the encoding's units, for new records."""
        import narwhals.stable.v2 as nw

        check_is_fitted(self, "answer_")
        if self.encoding_ is not None:
            rows: Rows = self.encoding_.new_features(
                self._table(X, self.encoding_.schema, reset=False)
            )
        else:
            X = _in_order(X)
            names = columns.names_of(X)
            if names is not None and self._names is not None:
                places = columns.find_positions("X", names, self._names).tolist()
                X = nw.from_native(X)[:, places].to_native()
            rows = validate_data(self, X, **ROWS, reset=False)
            # The bounds are those of the fit, as parameters may have been changed
            # since.
            proof: Any = self.answer_.certificate
            norm = partial(norms.norm, p=proof.facts.row_norm)
            rows = clip_rows(rows, proof.facts.row_bound, norm)
        slopes, intercept = self._split(self.answer_.theta)
        margins: Array = np.asarray(rows @ slopes) + intercept
        return margins

    def _draw(self, rows: Rows, response: Array, bound: float | None) -> None:
        """Choose the method, and set the private answer."""
        check.one_of(METHODS, method=self.method)
        check.instance(bool, fit_intercept=self.fit_intercept)
        budget = Budget(epsilon=self.epsilon, delta=self.delta, relation=self.relation)
        names = getattr(self, "feature_names_in_", None)
        loss = self._loss()
        self.radius_ = self._radius(rows.shape, loss, bound, budget)

        def problem_of(loss: Loss) -> Problem:
            return Problem(
                rows,
                response,
                loss=loss,
                domain=Ball(radius=self.radius_, p=self.p),
                row_bound=self._length,
                response_bound=bound,
                intercept=self.fit_intercept,
                clip_rows=True,
                feature_names=None if self.encoding_ else names,
                encoding=self.encoding_,
            )

        if self.method == "intervals" and isinstance(loss, KINKED):
            remedy = "dpsample.intervals takes the bandwidth that such a loss needs."
            check.fail("method", f"one for the {loss.name} loss", self.method, remedy)
        problem = problem_of(loss)
        method: Any = self.method
        if method in ("auto", "objective", "tail", "decaying"):
            table = advise(problem, budget).table
            advised = {row.method: row for row in table if row.loss == loss}
            advised["auto"] = table[0]
            if method not in advised:
                remedy = "Choose another, or 'auto'."
                check.fail("method", f"one for the {loss.name} loss", method, remedy)
            # The advice may be for another loss, such as a smoothed one.
            method, fitted = advised[method].choice, advised[method].loss
            if fitted != loss:
                problem = problem_of(fitted)
        self._warn_again()
        # scikit-learn passes integers or RandomState objects, of which one seed is
        # drawn.
        seed = self.random_state
        if seed is not None:
            seed = int(check_random_state(seed).randint(2**31))
        options: dict[str, Any] = {"ledger": self.ledger, "seed": seed}
        options["progress"] = self.progress
        if method == "release":
            answer: Any = release(problem, budget, p=self.p, **options)
        elif method == "intervals":
            answer = intervals(problem, budget, **options)
        else:
            answer = minimize(problem, method, budget, **options)
        self.answer_: Answer = _one_of_many(answer)

    def _radius(
        self, shape: tuple[int, int], loss: Loss, bound: float | None, budget: Budget
    ) -> float:
        """Return the radius of the ball, as given or from public facts."""
        if not isinstance(self.radius, str):
            return self.radius
        check.one_of(("auto",), radius=self.radius)
        n, width = shape
        facts = PublicFacts(
            num_records=n,
            dim=width + self.fit_intercept,
            loss=loss,
            domain=Ball(1.0),
            row_bound=self._length,
            row_norm=2.0,
            response_bound=bound,
            intercept=self.fit_intercept,
        )
        # A column of rows of length b has a size from b/sqrt(d), if all columns are
        # alike, to b. The geometric mean is wrong by a factor of at most d^(1/4).
        row_divisor = 1.0 if self.encoding_ else width**0.25 / facts.row_bound
        return default_radius(facts, budget, row_divisor=row_divisor)

    @property
    def _length(self) -> float:
        """Public bound of the norm of encoded rows."""
        bound = self.encoding_.row_bound if self.encoding_ else self.row_bound
        return 1.0 if bound is None else bound

    def _warn_again(self) -> None:
        """Warn that budgets add up, before a releasable fit spends one.

        The first fit of a process warns if scikit-learn makes it for a cross-validation
        or a search. Other first fits have nothing to add to.
        """
        global _has_fitted  # noqa: PLW0603
        if self.ledger is None and self.random_state is None:
            reason = ""
            if _has_fitted:
                reason = "This process has fitted a private model before."
            if _is_in_search():
                reason = "This fit is one of a cross-validation or a search."
            if reason:
                text, level = MORE_FITS.format(reason), check.user_stack_level()
                warnings.warn(text, UserWarning, stacklevel=level)
            _has_fitted = True

    @property
    def _units(self) -> tuple[float, float]:
        """Raw units of a margin, and the response where it is 0."""
        return 1.0, 0.0

    def _split(self, theta: Array) -> tuple[Array, float]:
        """Return slopes and intercept of theta, by the facts of the fit."""
        proof: Any = self.answer_.certificate
        return (theta[:-1], theta[-1]) if proof.facts.intercept else (theta, 0.0)

    def _raw(self) -> Array:
        """Return the matrix from theta to slopes and intercept in raw units.

        It has shape (number of slopes + 1, dim of theta). Its last row is for the
        intercept.
        """
        slopes = self._split(self.answer_.theta)[0].size
        # Margins are in units of the scaled response. The last row turns shifts of
        # columns into a part of the intercept.
        matrix = np.eye(slopes + 1, self.answer_.theta.size)
        if self.encoding_ is not None:
            factors, shifts = self.encoding_.feature_scales()
            matrix[:slopes, :slopes] = np.diag(factors)
            matrix[-1, :slopes] = shifts
        return self._units[0] * matrix

    def _coefficients(self) -> tuple[Array, float]:
        """Return slopes and intercept in raw units."""
        values = self._raw() @ self.answer_.theta
        return values[:-1], float(values[-1] + self._units[1])

    def conf_int(self, level: float = 0.95) -> Array:
        """Return confidence intervals, of a fit with ``method="intervals"``.

        They include the privacy noise. They cost no further privacy, at any level.

        Parameters
        ----------
        level : float
            Probability, in (0, 1), with which each single interval holds.

        Returns
        -------
        array of shape (num_features + 1, 2)
            Ends, in the units of ``coef_``. The intercept comes last.

        Raises
        ------
        ValueError
            If the fit was made by another method.
        """
        check_is_fitted(self, "answer_")
        check.open_interval(0.0, 1.0, level=level)
        if not isinstance(self.answer_, Intervals):
            remedy = 'Fit with method="intervals".'
            got = f"a {type(self.answer_).__name__}"
            check.fail("method", "'intervals' at the last fit", got, remedy)
        matrix = self._raw()
        with np.errstate(invalid="ignore"):  # an infinite variance times 0
            variance = np.einsum("ij,jk,ik->i", matrix, self.answer_.covariance, matrix)
        wide = ndtri(0.5 + level / 2.0) * np.sqrt(np.nan_to_num(variance, nan=np.inf))
        slopes, intercept = self._coefficients()
        center = np.append(slopes, intercept)
        return np.column_stack([center - wide, center + wide])
