"""What the verbs return: a release, or draws as an ArviZ DataTree."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from dpsample import _check as check
from dpsample import _columns, _files
from dpsample._axes import axes
from dpsample._sparse import as_csr, is_sparse
from dpsample._version import __version__
from dpsample.privacy import Certificate
from dpsample.samplers.chain import ENERGY, NUM_RECORDS, STAT_NAMES
from dpsample.targets import energy

Array = NDArray[np.float64]
FORMAT = "dpsample-release-1"
BLOCK = 8192  # draws whose statistics are converted at once
# Record evaluations for energies afterwards, relative to those of the draws.
FILL_SHARE = 0.1
# Rows of a plot that have a name: of more coefficients, some are named.
MAX_ROWS = 80


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """One differentially private parameter vector and its certificate.

    Attributes
    ----------
    theta : array of shape (dim,)
        The private draw; the intercept, if any, comes last.
    certificate : Certificate
        The proof's public inputs and numbers.
    mechanism : ExponentialMechanism or None
        The calibrated mechanism; None after `load`.
    feature_names : tuple of str
        Names of the coefficients.
    nonprivate_diagnostics : dict or None
        Steps, step size, metric, acceptance and risks. They depend on the records and
        are not private: they are in no repr, JSON, file, pickle or copy. None after
        `load`, unpickling and ``copy``.
    """

    theta: Array
    certificate: Certificate
    feature_names: tuple[str, ...]
    mechanism: Any = field(default=None, repr=False)
    nonprivate_diagnostics: dict[str, Any] | None = field(default=None, repr=False)

    def margin(self, features: Any) -> Array:
        """Return <a, theta> for each row; the intercept is added if there is one.

        Parameters
        ----------
        features : array, sparse matrix or DataFrame, number of features columns
            Rows scaled as the training rows were. Columns of a DataFrame are matched by
            name with ``feature_names``, whatever their order; a missing, unknown or
            repeated one is refused. Arrays are matched by position.

        Returns
        -------
        array of shape (num_rows,)
            The margins.
        """
        has_intercept = int(self.certificate.facts.intercept)
        names = self.feature_names[: self.theta.size - has_intercept]
        features = _columns.in_order("features", features, names)
        facts = self.certificate.facts
        width = self.theta.size - int(facts.intercept)
        if is_sparse(features):
            features = as_csr("features", features, width=width)
        else:
            features = check.array("features", features, shape=(None, width))
        margins = np.asarray(features @ self.theta[:width])
        return margins + (self.theta[-1] if facts.intercept else 0.0)

    def predict(self, features: Any) -> Array:
        """Labels -1 or 1 of a classification loss, else the margins.

        Parameters
        ----------
        features : array, sparse matrix or DataFrame, number of features columns
            Rows scaled as the training rows were. Columns of a DataFrame are matched by
            name with ``feature_names``, whatever their order; a missing, unknown or
            repeated one is refused. Arrays are matched by position.

        Returns
        -------
        array of shape (num_rows,)
            The predictions; post-processing, so private as the release is.
        """
        margins = self.margin(features)
        if self.certificate.facts.loss.is_classification:
            return np.where(margins >= 0.0, 1.0, -1.0)
        return margins

    def to_json(self) -> str:
        """Return the private answer and the certificate as JSON, as `save` writes."""
        content = {
            "format": FORMAT,
            "theta": self.theta.tolist(),
            "feature_names": list(self.feature_names),
            "certificate": json.loads(self.certificate.to_json()),
        }
        return json.dumps(content, indent=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the private answer and the certificate to a JSON file.

        The file is replaced as a whole, by one that is written beside it: an error
        leaves what was at ``path``.
        """
        _files.write(check.path("path", path), self.to_json().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            If the file is not a release.
        """
        check.path("path", path, exists=True)
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError):  # brackets without end
            content = {}
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            check.fail("path", "a file written by Release.save", str(path))
        certificate = Certificate.from_json(json.dumps(content.get("certificate")))
        names = content.get("feature_names")
        if not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
            check.fail("feature_names", "a list of names", check.shown(names))
        _columns.distinct("the file", names)
        dim = certificate.facts.dim
        if len(names) != dim:
            check.fail("feature_names", f"of length {dim}", f"length {len(names)}")
        theta = check.array("theta", content.get("theta"), shape=(dim,))
        return cls(theta=theta, certificate=certificate, feature_names=tuple(names))

    def plot(self, ax: Any = None) -> Any:
        """Draw coefficients with the spread that the mechanism can have.

        Strong convexity k mu bounds the variance of each coefficient by 1 / (k mu), a
        public number (Brascamp-Lieb).

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        count = self.theta.size
        ax = axes(ax, figsize=(7.0, 0.25 * min(count, MAX_ROWS) + 1.2))
        place, every = np.arange(count), -(-count // MAX_ROWS)
        spread = 1.0 / np.sqrt(self.certificate.k * self.certificate.mu)
        ax.errorbar(self.theta, place, xerr=spread, fmt="o", capsize=2, ms=4)
        ax.axvline(0.0, color="0.7", lw=0.8, zorder=0)
        ax.set_yticks(place[::every], self.feature_names[::every])
        ax.set_ylim(count - 0.5, -0.5)
        ax.set_xlabel("coefficient, with the largest sd that the mechanism can have")
        budget = self.certificate.budget
        ax.set_title(f"({budget.epsilon:g}, {budget.delta:g})-DP release")
        return ax

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and copies hold: nothing that is not private."""
        return self.__dict__ | {"nonprivate_diagnostics": None}

    def __repr__(self) -> str:
        """Coefficients and the certificate's statement."""
        shown = np.array2string(self.theta, precision=4, threshold=8, edgeitems=3)
        return f"Release(theta={shown},\n  certificate={self.certificate!r})"


def fill_energies(target: Any, draws: Array, stats: Array) -> None:
    """Fill in energies that a sampler did without, unless they cost much.

    The rule counts evaluations, not seconds, and so does not depend on the machine.
    """
    missing = np.argwhere(np.isnan(stats[:, :, ENERGY]))
    records = target.problem.num_records
    if len(missing) * records > FILL_SHARE * stats[:, :, NUM_RECORDS].sum():
        return
    work = target.new_work()
    for c, t in missing:
        numbers, pieces = target.numbers, target.pieces
        stats[c, t, ENERGY] = energy(numbers, pieces, draws[c, t], work)


def named_stats(stats: Array, *, step_size: float | None) -> dict[str, Any]:
    """Columns of the statistics by name, numbers of evaluations as integers.

    The integers take the place of the floats in ``stats``: new memory would cost more
    time than the conversion, and after Ctrl-C somebody waits.
    """
    counts = stats.view(np.int64)
    is_count = [name.startswith("num_") for name in STAT_NAMES]
    for chain, draws in enumerate(stats):
        for start in range(0, len(draws), BLOCK):
            part = slice(start, start + BLOCK)
            counts[chain][part, is_count] = draws[part, is_count].astype(np.int64)
    named: dict[str, Any] = {
        name: (counts if is_count[column] else stats)[:, :, column]
        for column, name in enumerate(STAT_NAMES)
    }
    if step_size is not None:
        named["step_size"] = np.broadcast_to(step_size, stats.shape[:2])
    return named


def to_datatree(
    draws: Array,
    sample_stats: dict[str, Any],
    *,
    coefficients: Sequence[str],
    constant_data: dict[str, Any],
    attributes: dict[str, Any],
) -> Any:
    """Pack chains as an ArviZ DataTree that says it is not releasable.

    Parameters
    ----------
    draws : array of shape (chain, draw, dim)
        Draws.
    sample_stats : dict of arrays of shape (chain, draw)
        What is known of each draw, by name.
    coefficients : sequence of str
        Names of the coefficients.
    constant_data : dict
        Numbers of the target.
    attributes : dict
        Sampler, class, seed. Versions are added. Flags are stored as 0 and 1: a netCDF
        file, in which a tree must fit, has no booleans.

    Returns
    -------
    xarray.DataTree
        Groups posterior, sample_stats and constant_data.
    """
    from arviz_base import from_dict

    tree = from_dict(
        {
            "posterior": {"theta": draws},
            "sample_stats": sample_stats,
            "constant_data": constant_data,
        },
        coords={"coefficient": list(coefficients)},
        dims={"theta": ["coefficient"]},
        check_conventions=False,  # fewer draws than chains are no mistake
    )
    flags = {k: int(v) if isinstance(v, bool) else v for k, v in attributes.items()}
    versions = {
        "dpsample_version": __version__,
        "numba_version": numba.__version__,
        "numpy_version": np.__version__,
    }
    tree.attrs.update(flags, **versions, releasable=0)
    return tree
