"""CSV, TSV, Parquet and LIBSVM files to a `Dataset`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dpsample.core import check
from dpsample.core import columns as columns_module
from dpsample.tables import encode, formats
from dpsample.tables import schema as rules_module
from dpsample.tables.dataset import Dataset
from dpsample.tables.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

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
    columns: Sequence[str] | None = None,
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
    columns : sequence of str, optional
        `Dataset.columns` of a table that this one goes with, such as the training
        records of a test set: columns are matched by name, whatever their order here.

    Returns
    -------
    Dataset
        Records and their public bounds. They are checked by `dpsample.Problem`.

    Raises
    ------
    ValueError
        If the file is missing or malformed, a value is missing or outside its public
        bounds, a column is not declared, declared but absent, or not one of
        ``columns``; the message names record and column.
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
    check.instance((str, type(None)), target=target, positive_label=positive_label)
    if columns is not None:
        check.members(str, columns=columns)
    check.instance((Schema, str, Path, type(None)), bounds=bounds)
    file = check.path("path", path, exists=True)
    content = formats.content(file)
    kind = formats.format_of(file) if format is None else format
    check.one_of(FORMATS, format=kind)
    if kind == "libsvm":
        data = from_libsvm(
            content, num_features, positive_label=positive_label, source=file.name
        )
        if columns is not None:
            columns_module.order("the table", data.columns, columns)
        if bounds is not None:
            check.fail("bounds", "absent for LIBSVM", str(bounds), "Use row_bound.")
    else:
        schema = Schema.from_file(bounds) if isinstance(bounds, str | Path) else bounds
        data = from_frame(
            to_frame(content, kind, schema, file.name),
            target=target,
            positive_label=positive_label,
            schema=schema,
            clip=clip,
            symmetric=symmetric,
            row_norm=row_norm,
            columns=columns,
        )
    implied = None if data.row_bound is None else scale * data.row_bound
    return replace(
        data,
        features=data.features if scale == 1.0 else data.features * scale,
        row_bound=implied if row_bound is None else float(row_bound),
        row_norm=float(row_norm),
        source=file.name,
        rules=(*data.rules, *rules_module.of_scale(scale)),
    )


def from_libsvm(
    content: bytes,
    num_features: int | None,
    *,
    positive_label: str | None = None,
    source: str = "",
) -> Dataset:
    """Parse LIBSVM text: records unscaled and without a row bound."""
    if num_features is None:
        remedy = (
            "Pass the public number of columns (num_features=..., --num-features ...): "
            "the records may never use the last ones."
        )
        check.fail("num_features", "given for a LIBSVM file", "None", remedy)
    rows, y = formats.parse(
        content.decode("ascii", "replace").splitlines(), num_features, source=source
    )
    bound = None
    if positive_label is not None:
        import pandas as pd

        y, bound = encode.labels("label", pd.Series(y), positive_label), 1.0
    names = tuple(str(j + 1) for j in range(num_features))
    return Dataset(
        features=rows,
        response=y,
        row_bound=None,
        response_bound=bound,
        feature_names=names,
        source="LIBSVM text",
        columns=names,
        rules=rules_module.of_libsvm(positive_label),
    )


def to_frame(
    content: bytes, kind: str, schema: Schema | None, source: str = "table"
) -> pd.DataFrame:
    """Parse a table; categorical columns stay text, so that no label turns missing."""
    import pandas as pd

    if kind == "parquet":
        try:
            return pd.read_parquet(io.BytesIO(content), engine="pyarrow")
        except ImportError as error:
            message = "Parquet files need pyarrow. Run: pip install 'dpsample[studies]'"
            raise ImportError(message) from error
        except Exception as error:  # of Arrow's own kinds, on damaged files
            _refuse(source, "Parquet", error)
    columns = list(schema.columns) if schema is not None and schema.columns else None
    text = set() if schema is None else set(schema.categorical)
    read: Callable[..., Any] = partial(
        pd.read_csv,
        sep="," if kind == "csv" else "\t",
        index_col=False,
        skipinitialspace=True,
        keep_default_na=False,
        low_memory=False,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            if columns is None:  # pandas would rename the second of two columns
                head = read(io.BytesIO(content), header=None, nrows=1, dtype=str)
                columns_module.distinct(
                    "the table", [str(name) for name in head.iloc[0]]
                )
            frame: pd.DataFrame = read(
                io.BytesIO(content),
                header=0 if columns is None else None,
                names=columns,
                dtype=dict.fromkeys(text, str),
            )
            return frame
    except (ValueError, OverflowError, pd.errors.ParserWarning) as error:
        _refuse(source, kind.upper(), error)


def _refuse(source: str, kind: str, error: Exception) -> NoReturn:
    """Say what is wrong with a file; pandas and Arrow name the line if they know it."""
    reason = " ".join(str(error).split()).rstrip(".")
    check.fail("path", f"a {kind} table", f"{source}: {reason}")


def from_frame(
    frame: pd.DataFrame,
    *,
    target: str | None,
    positive_label: str | None = None,
    schema: Schema | None,
    clip: bool = False,
    symmetric: bool = True,
    row_norm: float = 2.0,
    columns: Sequence[str] | None = None,
) -> Dataset:
    """Encode a DataFrame; see `read_table`."""
    names = [str(column) for column in frame.columns]
    frame = frame.set_axis(names, axis=1)
    columns_module.distinct("the table", names)
    if target not in names:
        remedy = "Pass the response column (target=..., --target ...)."
        condition = f"one of the columns {columns_module.listed(names)}"
        check.fail("target", condition, target, remedy)
    if len(frame) == 0:
        check.fail("path", "a table with records", "none")
    if schema is not None:
        encode.check_columns(names, schema, str(target))
    used = _used(names, schema or Schema(), str(target), columns)
    if schema is None:
        rows, labels = encode.unbounded_features(frame[used])
    else:
        rows, labels = encode.features(
            frame[used], schema, clip=clip, symmetric=symmetric, row_norm=row_norm
        )
    y, bound = encode.encoded(
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
        columns=tuple(used),
        rules=rules_module.of_table(
            used,
            schema,
            target=str(target),
            positive_label=positive_label,
            clip=clip,
            symmetric=symmetric,
            row_norm=row_norm,
        ),
    )


def _used(
    names: list[str], schema: Schema, target: str, columns: Sequence[str] | None
) -> list[str]:
    """Columns that become features, in their order or in that of ``columns``."""
    used = [n for n in names if n != target and schema.kind(n) != "ignore"]
    if not used:
        check.fail("the table", "one with a column to use", "none", "Ignore fewer.")
    if columns is None:
        return used
    return [used[place] for place in columns_module.order("the table", used, columns)]
