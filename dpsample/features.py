"""Feature rows as they come: dense or sparse, normalized once, measured, scaled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import _columns, norms
from dpsample._sparse import as_csr, is_sparse
from dpsample.domains import SchattenBall
from dpsample.facts import PublicFacts

Array = NDArray[np.float64]


def as_features(features: Any) -> tuple[Any, Sequence[str] | None]:
    """Fresh float64 features, dense (C order) or CSR, and column names if any."""
    if is_sparse(features):
        return as_csr("features", features), None
    columns = getattr(features, "columns", None)
    remedy = "Encode categories and drop or fill missing values first."
    names = None if columns is None else unique([str(c) for c in columns])
    dense = check.array("features", features, shape=(None, None), remedy=remedy)
    return dense, names


def unique(names: Any) -> list[str]:
    """Names of columns as text, each of which stands for one column only."""
    is_list = isinstance(names, Sequence) or getattr(names, "ndim", 0) == 1
    if isinstance(names, str | bytes) or not is_list:
        check.fail("feature_names", "a sequence of names", check.shown(names))
    text = [str(name) for name in names]
    _columns.distinct("feature_names", text)
    return text


def row_norms(features: Any, facts: PublicFacts) -> Array:
    """Norm of each row, in the declared norm."""
    if isinstance(facts.domain, SchattenBall) and facts.row_norm != 2.0:
        dense = features.toarray() if hasattr(features, "indptr") else features
        return np.asarray(norms.schatten(dense, facts.row_norm, facts.domain.shape))
    return np.asarray(norms.norm(features, facts.row_norm))


def scale_rows(features: Any, factors: Array) -> None:
    """Multiply each row by its factor, in place."""
    if hasattr(features, "indptr"):
        features.data *= np.repeat(factors, np.diff(features.indptr))
    else:
        features *= factors[:, None]


def append_ones(features: Any) -> Any:
    """Append the intercept's column."""
    if hasattr(features, "indptr"):
        from scipy import sparse

        ones = sparse.csr_matrix(np.ones((features.shape[0], 1)))
        return sparse.hstack([features, ones], format="csr")
    return np.ascontiguousarray(np.column_stack([features, np.ones(len(features))]))
