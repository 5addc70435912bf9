"""A study that costs nothing: two files, memory-mapped records, known means."""

import os
import subprocess
import sys

import numpy as np

from dpsample.experiments.configuration import bundle
from dpsample.experiments.run import open_store, run, store_path
from dpsample.experiments.tasks import Backend
from tests.support.processes import ROOT

BESIDE = '''"""Beside the study."""
LEVEL = 2.0
'''
TOY = '''"""A mean of normals has variance 1/n."""
import os
import signal
import time

import numpy as np

from dpsample.experiments import Figure, Inapplicable, Metric, Slope, Study
from .beside import LEVEL


def records():
    return np.load(os.environ["TOY_RECORDS"], mmap_mode="r")


def cell(params, seed, data):
    """One mean; the matrix product has last bits that threads of BLAS change."""
    found, replicate = data["records"], seed.spawn_key[-1]
    assert isinstance(found, np.memmap) and not found.flags.writeable
    if os.environ.get("TOY_INTERRUPT") == str(replicate):
        signal.raise_signal(signal.SIGINT)
    time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
    rng = np.random.default_rng(seed)
    values = rng.normal(LEVEL, size=params["n"])
    product = rng.standard_normal((200, 150))
    result = {"square": (values.mean() - LEVEL) ** 2 + 0.0 * found[0, 0]}
    if params["kind"] == "a":
        result["product"] = (product.T @ product).sum()
    return result


study = Study(
    name="toy",
    title="Means of normals",
    question="Is the mean square 1/n?",
    grid={"n": (10, 100, 1000), "kind": ("a", "b")},
    quick={"n": 10, "kind": ("a", "b")},
    replicates=8,
    quick_replicates=2,
    cell=cell,
    data={"records": records},
    metrics=(
        Metric("square", bound=lambda p: 5 / p["n"], expected=lambda p: 1 / p["n"]),
        Metric("product"),
    ),
    figures=(Figure(x="n", y="square", lines="kind"),),
    slopes=(Slope(x="n", y="square", expected=-1.0, theorem="T", is_exact=True),),
    inapplicable=(
        Inapplicable(when=lambda p: p["n"] == 10, reason="n < 11", metrics=("square",)),
    ),
)
'''
NUM_ROWS = 48
CLI = "import sys; from dpsample.cli import main; sys.exit(main())"


def write_toy(folder, text=TOY):
    """Write both files and the records, and name the records for all processes."""
    (folder / "toy.py").write_text(text)
    (folder / "beside.py").write_text(BESIDE)
    records = folder / "records.npy"
    if not records.exists():
        np.save(records, np.arange(6.0).reshape(3, 2))
    os.environ["TOY_RECORDS"] = str(records)
    return bundle(folder, "toy")


def run_toy(folder, output, **options):
    """Run it without a display; the number of rows computed."""
    backend = Backend(**options.pop("backend", {}))
    given = write_toy(folder, options.pop("text", TOY))
    return run(given, output, backend=backend, progress=False, **options)


def table(output, *, quick=False):
    """Rows of the store without their times."""
    with open_store(store_path("toy", output, quick=quick)) as store:
        return [(row.key, row.replicate, row.values) for row in store.rows()]


def start(folder, output, *options, **environment):
    """Run the command in a process group of its own."""
    options = ("--studies", folder, "--output", output, *options)
    return subprocess.Popen(
        [sys.executable, "-c", CLI, "study", "run", "toy", *map(str, options)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
