"""Compiled functions stay inside their arrays, where Numba checks each index."""

import subprocess
import sys

import numpy as np
import pytest

import dpsample as dps
from dpsample.samplers.proximal import alternation
from tests.support.gibbs_cases import example
from tests.support.processes import ROOT, run_python
from tests.support.series_runs import prepared

OUTSIDE = """
import numpy as np
from dpsample.core.jit import kernel

@kernel
def last(values, index):
    return values[index]

try:
    last(np.zeros(3), 3)
except IndexError:
    print("refused")
"""


@pytest.mark.slow
def test_a_variable_of_numba_switches_the_checks_on(tmp_path):
    variables = {"NUMBA_CACHE_DIR": tmp_path, "NUMBA_BOUNDSCHECK": "1"}
    assert "refused" in run_python(OUTSIDE, **variables)[0]


def test_a_series_has_the_rows_of_its_exact_draws():
    box = dps.domains.Box(-2.0, 2.0)
    case = example(dps.losses.Hinge(), box, num_records=5, k=3.0, mu=0.5, seed=4)
    state = prepared(case).init(np.zeros(case.target.dim))
    assert len(state.vectors) >= len(alternation.ROW)


@pytest.mark.slow
@pytest.mark.parametrize("room", ["samplers", "optimizers"])
def test_no_kernel_leaves_its_arrays(room, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    options = ("-q", "-x", "-p", "no:cacheprovider", "-n1")
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"tests/{room}"],
        cwd=ROOT,
        check=True,
    )
