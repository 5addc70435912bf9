"""No diagnostic enters a certificate, and each says what it cannot show."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpsample as dps
from dpsample import diagnostics
from tests.support.gibbs_targets import CASES

PACKAGE = Path(dps.__file__).parent
# Whatever makes or checks a certificate.
PROVING = [
    *sorted((PACKAGE / "privacy").rglob("*.py")),
    *sorted((PACKAGE / "verification").rglob("*.py")),
    *sorted((PACKAGE / "inference").rglob("*.py")),
    *sorted((PACKAGE / "answers").rglob("*.py")),
    *sorted((PACKAGE / "api").rglob("*.py")),
    *sorted((PACKAGE / "optimizers").rglob("*.py")),
    *sorted((PACKAGE / "noise").rglob("*.py")),
    *sorted((PACKAGE / "samplers").rglob("*.py")),
]


def imported(source):
    """Full names of modules that a file imports, at its top or in functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def uses_diagnostics(source):
    return "diagnostics" in source and any(
        "diagnostics" in name.split(".") for name in imported(source)
    )


def test_nothing_that_proves_privacy_imports_a_diagnostic():
    assert len(PROVING) > 100
    for path in PROVING:
        assert not uses_diagnostics(path.read_text(encoding="utf-8")), path
    for bug in (
        "from dpsample.diagnostics import tv_bound",
        "def f():\n    from dpsample import diagnostics",
        "import dpsample.diagnostics.mixing",
    ):
        assert uses_diagnostics(bug)


@pytest.mark.slow
def test_a_release_loads_no_diagnostic():
    code = (
        "import sys, dpsample as dps\n"
        "problem = dps.Problem([[1.0], [0.5]], [1.0, -1.0], row_bound=1.0,\n"
        "    loss=dps.losses.Logistic(), domain=dps.domains.Ball(radius=2.0))\n"
        "answer = dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-3), seed=1)\n"
        "dps.verify(answer.certificate)\n"
        "assert not [m for m in sys.modules if m.startswith('dpsample.diagnostics')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def reports():
    target = CASES["logistic on a ball"].target
    points = CASES["logistic on a ball"].exact(np.random.default_rng(151), 500)
    data = dps.datasets.logistic(20, 1, seed=1)
    problem = dps.Problem(
        data.features, data.response, row_bound=1.0, loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(3.0),
    )  # fmt: skip
    posterior = dps.Gibbs(problem, k=20.0, mu=0.1)
    mala, exact = dps.samplers.MALA(step_size=0.5), dps.samplers.Exact()
    yield diagnostics.tv_bound(target, mala, replicates=20, lag=20)
    yield diagnostics.unbiased_moments(target, mala, replicates=20, lag=20)
    yield diagnostics.compare(points, target)
    yield diagnostics.stein_check(points, target)
    yield diagnostics.gamma_check(points, target)
    yield diagnostics.simulation_based_calibration(posterior, exact, num_replicates=20)


@pytest.mark.slow
def test_every_printed_report_ends_with_what_it_cannot_show():
    kinds = set()
    for report in reports():
        kinds.add(type(report).__name__)
        ending = " ".join(repr(report).splitlines()[-3:])
        assert "not a privacy proof" in ending, ending
        assert "unseen" in ending or "cannot" in ending or "harder" in ending, ending
    own = {"MixingBound", "MomentCheck", "Comparison", "Expectations", "Calibration"}
    assert kinds == own


@pytest.mark.parametrize("name", diagnostics.__all__)
def test_every_public_name_is_documented(name):
    assert len(getattr(diagnostics, name).__doc__) > 40
