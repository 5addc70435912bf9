"""CSV, TSV, Parquet and LIBSVM files to a `Dataset`."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpsample import _check as check
from dpsample.tables import encode, files, libsvm, response
from dpsample.tables.dataset import Dataset
from dpsample.tables.schema import Schema

FORMATS = ("csv", "tsv", "parquet", "libsvm")


def read_table(
    path: str | Path,
    *,
    target: str | None = None,
    positive_label: str | None = None,
    bounds: Schema | str | Path | None = None,
    clip: bool = False,
    symmetric: bool = True,
    row_norm: float = 2.0,
    row_bound: float | None = None,
    scale: float = 1.0,
    format: str | None = None,
    num_features: int | None = None,
) -> Dataset:
    r"""Read a file into features with a public bound and a response.

    With ``bounds``, numeric columns are scaled from their public ranges, categorical
    ones become indicators of their public levels, and rows of m columns are divided
    by m^(1/row_norm), so that the implied row bound is 1 (times ``scale``). Without,
    all columns must be numbers and are taken as they are.

    Parameters
    ----------
    path : str or Path
        File, possibly compressed by bz2, gzip or xz.
    target : str, optional
        Name of the response column; a LIBSVM file has its own.
    positive_label : str, optional
        Label that becomes 1, all others becoming -1.
    bounds : Schema, str or Path, optional
        Public facts about the columns, or the TOML or JSON file that has them.
    clip : bool
        Move values to their public bounds instead of refusing them.
    symmetric : bool
        Scale numbers to [-1, 1] rather than [0, 1].
    row_norm : float
        Exponent, in [1, inf], of the norm that the row bound is about.
    row_bound : float, optional
        Declared bound of the scaled rows of a file read without ``bounds``.
    scale : float
        Public factor of all features.
    format : {"csv", "tsv", "parquet", "libsvm"}, optional
        By default told from the name.
    num_features : int, optional
        Number of columns of a LIBSVM file, which the file does not tell.

    Returns
    -------
    Dataset
        Records and their public bounds. They are checked by `dpsample.Problem`.

    Raises
    ------
    ValueError
        If the file is missing or malformed, a value is missing or outside its public
        bounds, or a column is not declared; the message names record and column.
    ImportError
        If the file is Parquet and pyarrow is not installed.

    Guarantee
    ---------
    The encoding of a record depends on that record and on public facts only.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "small.csv"
    >>> _ = file.write_text("age,color,ill\n20,red,no\n70,blue,yes\n")
    >>> schema = Schema(numeric={"age": (0, 100)},
    ...                 categorical={"color": ("blue", "red")})
    >>> data = read_table(file, target="ill", positive_label="yes", bounds=schema)
    >>> data.feature_names, data.row_bound, data.response.tolist()
    (('age', 'color=blue', 'color=red'), 1.0, [-1.0, 1.0])
    >>> data.features.round(3).tolist()
    [[-0.424, 0.0, 0.707], [0.283, 0.707, 0.0]]
    >>> folder.cleanup()
    """
    check.instance(bool, clip=clip, symmetric=symmetric)
    check.at_least(1.0, row_norm=row_norm)
    check.scale(scale=scale)
    if row_bound is not None:
        check.scale(row_bound=row_bound)
    if num_features is not None:
        check.integer(1, num_features=num_features)
    for name, text in (("target", target), ("positive_label", positive_label)):
        check.instance((str, type(None)), **{name: text})
    check.instance((Schema, str, Path, type(None)), bounds=bounds)
    file = check.path("path", path, exists=True)
    content = files.content(file)
    kind = files.format_of(file) if format is None else format
    check.one_of(FORMATS, format=kind)
    if kind == "libsvm":
        data = from_libsvm(content, num_features, positive_label=positive_label)
        if bounds is not None:
            check.fail("bounds", "absent for LIBSVM", str(bounds), "Use row_bound.")
    else:
        schema = Schema.from_file(bounds) if isinstance(bounds, str | Path) else bounds
        data = from_frame(
            to_frame(content, kind, schema),
            target=target,
            positive_label=positive_label,
            schema=schema,
            clip=clip,
            symmetric=symmetric,
            row_norm=row_norm,
        )
    implied = None if data.row_bound is None else scale * data.row_bound
    return replace(
        data,
        features=data.features if scale == 1.0 else data.features * scale,
        row_bound=implied if row_bound is None else float(row_bound),
        row_norm=float(row_norm),
        source=file.name,
    )


def from_libsvm(
    content: bytes, num_features: int | None, *, positive_label: str | None = None
) -> Dataset:
    """Parse LIBSVM text: records unscaled and without a row bound."""
    if num_features is None:
        remedy = (
            "Pass the public number of columns (num_features=..., --num-features ...): "
            "the records may never use the last ones."
        )
        check.fail("num_features", "given for a LIBSVM file", "None", remedy)
    rows, y = libsvm.parse(
        content.decode("ascii", "replace").splitlines(), num_features
    )
    bound = None
    if positive_label is not None:
        import pandas as pd

        y, bound = response.labels("label", pd.Series(y), positive_label), 1.0
    names = tuple(str(j + 1) for j in range(num_features))
    return Dataset(
        features=rows,
        response=y,
        row_bound=None,
        response_bound=bound,
        feature_names=names,
        source="LIBSVM text",
    )


def to_frame(content: bytes, kind: str, schema: Schema | None) -> Any:
    """Parse a table; categorical columns stay text, so that no label turns missing."""
    import pandas as pd

    if kind == "parquet":
        try:
            return pd.read_parquet(io.BytesIO(content), engine="pyarrow")
        except ImportError as error:
            message = "Parquet files need pyarrow. Run: pip install 'dpsample[studies]'"
            raise ImportError(message) from error
    columns = list(schema.columns) if schema is not None and schema.columns else None
    text = set() if schema is None else set(schema.categorical)
    header = 0 if columns is None else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.BytesIO(content),
                sep="," if kind == "csv" else "\t",
                header=header,
                names=columns,
                index_col=False,
                skipinitialspace=True,
                keep_default_na=False,
                dtype=dict.fromkeys(text, str),
                low_memory=False,
            )
    except (ValueError, pd.errors.ParserWarning) as error:
        check.fail("path", f"a {kind.upper()} table", " ".join(str(error).split()))


def from_frame(
    frame: Any,
    *,
    target: str | None,
    positive_label: str | None = None,
    schema: Schema | None,
    clip: bool = False,
    symmetric: bool = True,
    row_norm: float = 2.0,
) -> Dataset:
    """Encode a DataFrame; see `read_table`."""
    names = [str(column) for column in frame.columns]
    frame = frame.set_axis(names, axis=1)
    if target not in names:
        remedy = "Pass the response column (target=..., --target ...)."
        listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        check.fail("target", f"one of the columns {listed}", target, remedy)
    if len(frame) == 0:
        check.fail("path", "a table with records", "none")
    features = frame.drop(columns=[target])
    if schema is None:
        rows, labels = encode.unbounded_features(features)
    else:
        rows, labels = encode.features(
            features, schema, clip=clip, symmetric=symmetric, row_norm=row_norm
        )
    y, bound = response.encoded(
        str(target),
        frame[target],
        schema or Schema(),
        positive_label=positive_label,
        clip=clip,
    )
    return Dataset(
        features=rows,
        response=y,
        row_bound=None if schema is None else 1.0,
        row_norm=row_norm,
        response_bound=bound,
        feature_names=labels,
        source="table",
    )
