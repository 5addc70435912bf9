"""Predictions of an answer, from raw tables by its encoding or from encoded rows.

The encoding of an answer is the public rule by which the columns of a raw table became
the features of the fit. The margin of a row a is <a, theta>, plus the intercept. All
functions here are post-processing of theta, which costs no privacy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsample.core import check, columns
from dpsample.core.arrays import Array
from dpsample.core.sparse import Rows, as_csr, is_sparse
from dpsample.losses import CalibratedLogistic, Custom, Linear, Logistic, Quantile
from dpsample.problem.facts import PublicFacts
from dpsample.problem.storage import row_norms
from dpsample.tables import Encoding
from dpsample.tables.encoding import clip_rows

# Losses whose population minimizer is the logarithm of the odds of the label 1.
LOG_ODDS = (Logistic, CalibratedLogistic)


class Predictor(ABC):
    """Base of answers theta: ``margin`` and ``predict``, which are post-processing."""

    theta: Array
    feature_names: tuple[str, ...]
    encoding: Encoding | None
    certificate: Any

    @property
    @abstractmethod
    def public_facts(self) -> PublicFacts:
        """Loss, and whether there is an intercept."""

    def margin(self, features: object) -> Array:
        """Return <a, theta> for each row, plus the intercept if there is one.

        Parameters
        ----------
        features : DataFrame, array or sparse matrix
            If the answer has an ``encoding``, a DataFrame of raw columns. They are
            matched by name and encoded. Values outside their public bounds are moved
            there, with a warning. Otherwise rows that are encoded like those of the
            fit. Columns of a DataFrame are matched by name with ``feature_names``, and
            columns of an array by position. Rows above the row bound are scaled down,
            with a warning, if the certificate says so about the rows of the fit.

        Returns
        -------
        array of shape (num_rows,)
            The margins, in encoded units.

        Raises
        ------
        ValueError
            If a column is missing, unknown or repeated, or an entry cannot be encoded.
        """
        return self._margins(features)[0]

    def predict(self, features: object, *, offset: ArrayLike | None = None) -> Any:
        """Return labels for a classification loss, and responses for others.

        Parameters
        ----------
        features : DataFrame, array or sparse matrix
            As in `margin`.
        offset : array of shape (num_rows,), optional
            Numbers that are added to the margins. They are required if the records of
            the fit had offsets.

        Returns
        -------
        array of shape (num_rows,)
            For a raw DataFrame, labels of the response column if the encoding has both
            of them, and responses in their raw units, by the inverse of the public
            scaling. Otherwise the labels -1 or 1, or the margins.
        """
        margins, is_raw = self._margins_with_offset(features, offset)
        is_label = self.public_facts.loss.is_classification
        if is_raw and self.encoding is not None:
            return self.encoding.raw_response(margins, is_label=is_label)
        return np.where(margins >= 0.0, 1.0, -1.0) if is_label else margins

    def predict_proba(
        self, features: object, *, offset: ArrayLike | None = None
    ) -> Array:
        """Return the probabilities of both labels, for losses with log-odds as margins.

        These losses are `Logistic` and `CalibratedLogistic`.

        Parameters
        ----------
        features, offset
            As in `predict`.

        Returns
        -------
        array of shape (num_rows, 2)
            Probabilities of the label -1, which is the first level of a raw response,
            and of the label 1, its positive level.

        Raises
        ------
        ValueError
            If the margins of the loss are not log-odds, or for a reason of `predict`.
        """
        loss = self.public_facts.loss
        if not isinstance(loss, LOG_ODDS):
            names = " or ".join(loss_class.name for loss_class in LOG_ODDS)
            remedy = "Margins of other losses are not log-odds. Use predict or margin."
            check.fail("loss", names, loss.name, remedy)
        return probabilities(self._margins_with_offset(features, offset)[0])

    def _margins_with_offset(
        self, features: object, offset: ArrayLike | None
    ) -> tuple[Array, bool]:
        """Return margins with offsets, and whether the features were a raw table."""
        margins, is_raw = self._margins(features)
        if offset is not None:
            margins = margins + check.array("offset", offset, shape=margins.shape)
        elif self.public_facts.offset_bound > 0.0:
            check.fail("offset", "given, as the model has one", "None")
        return margins, is_raw

    def _margins(self, features: object) -> tuple[Array, bool]:
        """Return margins, and whether the features were a raw table."""
        facts = self.public_facts
        if not facts.loss.has_margin:
            check.fail("loss", "one of a linear margin", facts.loss.name)
        width = self.theta.size - int(facts.intercept)
        names = self.feature_names[:width]
        is_raw = self.encoding is not None and _is_raw(features, names, self.encoding)
        rows: Rows
        if is_raw and self.encoding is not None:
            rows = self.encoding.new_features(features)
        else:
            features = columns.reorder_columns("features", features, names)
            if is_sparse(features):
                rows = as_csr("features", features, width=width)
            else:
                rows = check.array("features", features, shape=(None, width))
            # The rows of the fit were scaled down, so new ones must be, too.
            if "RECORDS.CLIPPED" in getattr(self.certificate, "assumptions", ()):
                rows = clip_rows(rows, facts.row_bound, partial(row_norms, facts=facts))
        margins = np.asarray(rows @ self.theta[:width])
        return margins + (self.theta[-1] if facts.intercept else 0.0), is_raw


@np.errstate(under="ignore")
def probabilities(margins: Array) -> Array:
    """Return probabilities of the labels -1 and 1, in this order, from log-odds."""
    from scipy.special import expit

    # Both are computed, because 1 - expit(m) would lose all digits of a small one.
    return np.column_stack([expit(-margins), expit(margins)])


def _is_raw(table: object, names: tuple[str, ...], encoding: Encoding) -> bool:
    """Return whether a table has raw columns, and not encoded features."""
    table_names = columns.names_of(table)
    if table_names is None:
        # Columns with numbers as labels may be those of the table that was encoded.
        labels = columns.labels_of(table) or ()
        return set(encoding.columns) <= {str(label) for label in labels}
    # If all features are numeric, raw and encoded columns have the same names. Then the
    # table counts as raw.
    return set(table_names) != set(names) or set(table_names) == set(encoding.columns)


def describe_model(facts: PublicFacts, encoding: Encoding | None) -> str:
    """Return what the coefficients mean, in a sentence. Empty if that is unknown.

    Examples
    --------
    >>> import dpsample as dps
    >>> facts = PublicFacts(num_records=9, dim=2, loss=dps.losses.Squared(),
    ...                     domain=dps.domains.Ball(1.0), row_bound=1.0, row_norm=2.0,
    ...                     response_bound=1.0)
    >>> describe_model(facts, None)
    'The predicted response is the sum of each feature times its value in the table.'
    """
    loss = facts.loss
    if isinstance(loss, Custom | Linear) or not loss.has_margin:
        return ""
    terms = "the sum of each feature times its value in the table"
    target = None if encoding is None else encoding.target
    if not loss.is_classification:
        name = "response" if target is None else repr(target)
        which = f"{loss.level:g}-quantile of the" if isinstance(loss, Quantile) else ""
        of_name = f"The {which or 'predicted'} {name} is {terms}"
        is_scaled = encoding is not None and encoding.response_bound is not None
        return of_name + (
            ", scaled back to the range of the column." * is_scaled or "."
        )
    event = "the label 1"
    labels = None if encoding is None else encoding.labels
    if encoding is not None and target is not None:
        positive = encoding.positive_label if labels is None else labels[1]
        event = f"{target!r} being {1 if positive is None else positive!r}"
    if isinstance(loss, LOG_ODDS):
        return f"The log-odds of {event} are {terms}."
    return f"The model predicts {event} if {terms} is at least 0."
