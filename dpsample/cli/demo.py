"""Command ``dpsample demo``: a private fit of synthetic records, and its page.

It needs what the package itself installs, and no picture.
"""

from pathlib import Path

import numpy as np

import dpsample as dps
from dpsample.cli import screen
from dpsample.core import files

# Number of synthetic records.
NUM_RECORDS = 10_000


def run(output: Path | None, *, overwrite: bool = False) -> None:
    """Fit, print losses, certificate and its meaning, and save the page to publish.

    The page of an earlier demo is replaced, but no other file.
    """
    page = output or Path("dpsample-demo.html")
    screen.check_outputs(output=page, overwrite=overwrite or output is None)
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
    answer = dps.fit(problem, dps.Budget(epsilon=1.0, delta=1e-6))
    rows = [
        ("private", f"{problem.risk(answer.theta):.4f}"),
        ("true, not private", f"{problem.risk(np.asarray(data.theta)):.4f}"),
        ("theta = 0", f"{problem.risk(np.zeros(dim)):.4f}"),
    ]
    title = f"{screen.NOT_PRIVATE} (here they are synthetic)"
    screen.print_table(title, ("parameters", "mean loss"), rows)
    certificate = answer.certificate
    assert certificate is not None  # there is one, as there is a budget
    console.print(str(certificate))
    coefficients = ", ".join(f"{value:.3f}" for value in answer.theta)
    console.print(f"The private parameters, which may be published: {coefficients}")
    files.write(page, answer.to_html().encode())
    console.print(f"Saved, for readers who are not experts: {page}")
