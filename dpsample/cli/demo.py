"""Command ``dpsample demo``: a private release of synthetic records, with a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import dpsample as dps
from dpsample.answers.answer import Release
from dpsample.cli import screen
from dpsample.core import files
from dpsample.privacy.curves.gaussian import gaussian_delta
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
    console.print(str(answer.certificate))
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
    """Save a picture of the coefficients and the privacy curve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_coefficients(left, answer, data)
    _draw_curve(right, answer)
    with files.replacing(picture) as draft:
        figure.savefig(draft, dpi=150)


def _draw_coefficients(axes: Axes, answer: Release, data: Dataset) -> None:
    """Draw the private coefficients next to the true and the best ones."""
    index = np.arange(answer.theta.size)
    best = (answer.nonprivate_diagnostics or {})["non_private_theta"]
    # Marginals of a k mu strongly log-concave density are strongly log-concave as well
    # (Prekopa), and the monotone map from a normal distribution to them contracts. So
    # a coordinate is this close to its median with probability at least 0.95.
    spread = 1.96 / np.sqrt(answer.certificate.k * answer.certificate.mu)
    axes.errorbar(
        index, answer.theta, yerr=spread, fmt="o", ms=4, capsize=2, label="private draw"
    )
    axes.plot(index, best, "x", color="C1", label="best in the ball, not private")
    axes.plot(index, np.asarray(data.theta), "_", color="0.4", label="true")
    axes.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    axes.set_xticks(index)
    axes.set_xlabel("coefficient")
    axes.set_ylabel("value (bars: 95% of the noise, without the shrinkage to 0)")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _draw_curve(axes: Axes, answer: Release) -> None:
    """Draw the proved delta for each epsilon, and the bound of attacks by each pair."""
    certificate = answer.certificate
    epsilon = np.linspace(0.0, 1.5 * certificate.budget.epsilon, 200)
    curve = [
        gaussian_delta(e, certificate.gdp) + (1.0 + np.exp(e)) * certificate.gamma
        for e in epsilon
    ]
    # A pair (epsilon, delta) implies every pair with a larger epsilon.
    delta = np.minimum.accumulate(curve)
    axes.semilogy(epsilon, delta, label="certified")
    budget = (certificate.budget.epsilon, certificate.budget.delta)
    axes.plot(*budget, "o", color="C3", label="budget")
    axes.set_xlabel("epsilon")
    axes.set_ylabel("delta")
    axes.legend(frameon=False, loc="lower left")
    false_alarms = 0.01
    success = certificate.attack_risk.true_positive_rate(false_alarms)
    right = axes.twinx()
    reach = np.minimum(delta + np.exp(epsilon) * false_alarms, 1.0)
    right.plot(epsilon, 100.0 * reach, "--", color="C1")
    right.set_ylim(0.0, 5.0)
    right.set_ylabel("dashed: attacks found in %, by this pair alone", color="C1")
    right.set_title(
        f"at {100 * false_alarms:g} % false alarms an attack finds "
        f"{100 * success:.2g} % at most",
        fontsize="medium",
    )
