"""``dpsample predict``: what a saved answer says of new records."""

import csv
import io
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from dpsample.cli import screen
from dpsample.core import files
from dpsample.core.arrays import Array
from dpsample.core.sparse import Rows
from dpsample.losses import Logistic
from dpsample.tables import Encoding, read
from dpsample.tables.encoding import shortened, warn_of
from dpsample.verbs.results import Fit, Release, load_answer


def run(answer: Path, file: Path, output: Path | None, format: str | None) -> None:
    """Write one line for each record; what was clipped is told on stderr."""
    screen.check_outputs(answer, file, output=output)
    release = load_answer(answer)
    facts = release.public_facts
    names = release.feature_names[: facts.dim - int(facts.intercept)]
    encoding = release.encoding or Encoding(schema=None, columns=names)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        margins = release.margin(rows_of(file, encoding, format))
    for warning in told:
        screen.tell(str(warning.message))
    text = as_csv(release, encoding, margins)
    if output is None:
        sys.stdout.write(text)
    else:
        files.write(output, text.encode())
        screen.console().print(f"{len(margins)} predictions saved: {output}")


def rows_of(file: Path, encoding: Encoding, format: str | None) -> Rows:
    """Encode a file of new records."""
    content, kind = read.contents(file, format)
    if kind == "libsvm":
        clipped: Counter[str] = Counter()
        long, _ = read.parse_libsvm(content, encoding, source=file.name)
        rows = shortened(long, encoding, clipped)
        warn_of(clipped)
        return rows
    frame = read.to_frame(content, kind, encoding.schema, file.name, encoding.target)
    return encoding.new_features(frame)


def as_csv(release: Release | Fit, encoding: Encoding, margins: Array) -> str:
    """Predictions, and for the logistic loss the probability of the second label."""
    from scipy.special import expit

    loss = release.public_facts.loss
    columns: dict[str, Any] = {
        "prediction": encoding.raw_response(margins, is_label=loss.is_classification)
    }
    if isinstance(loss, Logistic):
        columns["probability"] = expit(margins)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(c.tolist() for c in columns.values()), strict=True))
    return text.getvalue()
