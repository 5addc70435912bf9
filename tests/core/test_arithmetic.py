"""Seeded draws depend on the BLAS kernel, so results say which one made them."""

import json
import platform

import numpy as np
import pytest

import dpsample as dps
from dpsample.core.arithmetic import arithmetic
from dpsample.experiments.configuration import check_environment, environment
from tests.contracts.door_objects import target
from tests.support.processes import run_python
from tests.support.walks import assert_same, run

OTHER = "Nehalem"  # runs wherever OpenBLAS for x86-64 does
SEEN = """
import json
from dpsample.experiments.configuration import check_environment, environment
wanted = json.loads('''{wanted}''')
try:
    check_environment(wanted)
    said = ""
except ValueError as error:
    said = str(error)
print(json.dumps([environment()["blas"], said]))
"""


def under(kernel):
    """The BLAS of a process with that kernel, and what it says as a worker of ours."""
    code = SEEN.format(wanted=json.dumps(environment()))
    return json.loads(run_python(code, OPENBLAS_CORETYPE=kernel)[0])


@pytest.mark.slow
def test_a_worker_with_another_blas_kernel_is_refused():  # S9
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("no other kernel is known to run here")
    blas, said = under(OTHER)
    if blas == environment()["blas"]:
        pytest.skip("this BLAS has one kernel")
    assert OTHER in blas
    assert said.startswith("blas of a worker must be ") and "OPENBLAS_CORETYPE" in said


def test_a_worker_of_the_same_kind_is_taken():
    check_environment(environment())
    assert {"blas", "processor"} <= environment().keys()
    for name in ("blas", "processor"):
        with pytest.raises(ValueError, match=f"^{name} of a worker must be"):
            check_environment(environment() | {name: "another"})


def test_draws_say_which_kernels_made_them():  # S9
    draws = dps.sample(target(), num_draws=2, num_chains=1, progress=False)
    assert {k: draws.attrs[k] for k in arithmetic()} == arithmetic()


def test_a_checkpoint_of_another_machine_goes_on_with_a_warning(tmp_path):  # S9
    path = tmp_path / "run.npz"
    run(30, checkpoint=path)
    with np.load(path) as file:
        arrays = dict(file)
    other = json.dumps(arithmetic() | {"blas": "openblas 0.3 SkylakeX"})
    np.savez(path, **(arrays | {"arithmetic": np.array(other)}))
    with pytest.warns(RuntimeWarning, match="SkylakeX.* not bit for bit"):
        resumed = run(100, checkpoint=path)
    assert_same(resumed, run(100))
