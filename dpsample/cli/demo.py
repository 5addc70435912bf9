"""Command ``dpsample demo``: a private release of synthetic records, with a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dpsample as dps
from dpsample.answers.answer import Release
from dpsample.cli import screen
from dpsample.core import files
from dpsample.tables import Dataset

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Number of synthetic records.
NUM_RECORDS = 10_000


def run(output: Path | None, *, overwrite: bool = False) -> None:
    """Release, print the certificate and the risks, and save the picture.

    The picture of an earlier demo is replaced, but no other file.
    """
    picture = output or Path("dpsample-demo.png")
    screen.check_outputs(output=picture, overwrite=overwrite or output is None)
    console = screen.console()
    dim, radius = 10, 3.0
    console.print(
        f"{NUM_RECORDS} synthetic records of a logistic model, {dim} features, rows of "
        f"norm <= 1, parameters in the ball of radius {radius:g}"
    )
    # The norm of the true coefficients is 2.5, so they lie inside the ball.
    data = dps.datasets.logistic(NUM_RECORDS, dim, seed=1, signal=2.5)
    problem = dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(radius),
        row_bound=1.0,
    )
    answer = dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    screen.print_whole(answer.certificate.__rich__())
    diagnostics = answer.nonprivate_diagnostics or {}
    rows = [
        ("private", f"{diagnostics['risk']:.4f}"),
        ("not private", f"{diagnostics['non_private_risk']:.4f}"),
        ("theta = 0", f"{problem.risk(np.zeros(dim)):.4f}"),
    ]
    title = f"{screen.NOT_PRIVATE} (here they are synthetic)"
    screen.print_table(title, ("parameters", "mean loss"), rows)
    try:
        draw(answer, data, picture)
    except ImportError:
        command = "pip install 'dpsample[plots]'"
        console.print(f"No picture: matplotlib is missing. To get it: {command}")
    else:
        console.print(f"Picture saved: {picture}")


def draw(answer: Release, data: Dataset, picture: Path) -> None:
    """Save a picture of the coefficients and of what attacks can reach."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_coefficients(left, answer, data)
    answer.certificate.attack_risk.plot(right)
    right.set_title("What an attacker can reach", fontsize="medium")
    with files.replacing(picture) as draft:
        figure.savefig(draft, dpi=150)


def _draw_coefficients(axes: Axes, answer: Release, data: Dataset) -> None:
    """Draw the private coefficients next to the true and the best ones."""
    best = (answer.nonprivate_diagnostics or {})["non_private_theta"]
    answer.plot(axes)
    rows = np.arange(answer.theta.size)
    axes.plot(best, rows, "x", color="C1", label="best in the ball, not private")
    axes.plot(np.asarray(data.theta), rows, "|", ms=10, color="0.4", label="true")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.06))
