"""Release, ledger file and draws work on systems without the modules of Unix."""

import pytest

from tests.support.processes import run_python
from tests.support.tiers import slow


def program(planted=""):
    """A program for a system without these modules."""
    return f"""
import os, sys, tempfile, types
import numba, scipy.special, xarray
from pathlib import Path

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in "fork register_at_fork sched_getaffinity fchmod statvfs".split():
    if hasattr(os, name):
        delattr(os, name)
locks = []
fake = types.ModuleType("msvcrt")
fake.LK_LOCK, fake.locking = 1, lambda *arguments: locks.append(arguments)
sys.modules["msvcrt"] = fake

import dpsample as dps
system, sys.platform = sys.platform, "win32"
import dpsample.privacy.certificates.ledger_file
sys.platform = system
{planted}
data = dps.datasets.logistic(1_000, 3, seed=1)
problem = dps.Problem(
    data.features, data.response, loss=dps.losses.Logistic(),
    domain=dps.domains.Ball(1.0), row_bound=1.0,
)
budget = dps.Budget(epsilon=1.0, delta=1e-6)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "spent.json")
    ledger = dps.privacy.LedgerFile(path, budget=budget)
    answer = dps.release(problem, budget, ledger=ledger)
    try:
        dps.release(problem, budget, ledger=ledger)
    except ValueError as error:
        assert "ledger" in str(error)
    else:
        raise AssertionError("spent twice")
    answer.save(Path(folder, "answer.json"))
    dps.Release.load(Path(folder, "answer.json")).verify()
assert locks
target = dps.calibrate(problem, budget).target(problem)
draws = dps.sample(target, num_draws=20, num_chains=2, seed=1, progress=False)
assert draws.posterior["theta"].shape == (2, 20, 3)
print("all of it")
"""


@pytest.mark.slow  # a new process with a release and draws
def test_release_ledger_file_and_draws_need_no_module_of_unix():
    assert run_python(program())[0] == "all of it\n"


@pytest.mark.parametrize("name", ["fcntl", slow("resource")])
def test_a_module_of_unix_that_is_imported_is_found(name):
    with pytest.raises(AssertionError, match=f"import of {name} halted"):
        run_python(program(f"import {name}"))
