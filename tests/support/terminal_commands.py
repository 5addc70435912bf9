"""One command line for each command, and a folder with its files."""

import numpy as np
import pytest

from dpsample import cli
from tests.support.toy_study import write_toy

COEFFICIENT = "systolic_blood_pressure_at_admission"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records whose columns have long and foreign names, an answer, and a study."""
    folder = tmp_path_factory.mktemp("terminals")
    rows = np.random.default_rng(1).uniform(-0.5, 0.5, (40, 2)).round(3).tolist()
    lines = [f"{COEFFICIENT},\u6536\u5165,y"]
    lines += [f"{a},{b},{1 if a > 0 else -1}" for a, b in rows]
    (folder / "r.csv").write_text("\n".join(lines), encoding="utf-8")
    (folder / "new.csv").write_text("\n".join(lines[:4]), encoding="utf-8")
    (folder / "bounds.toml").write_text(f"[numeric]\n{COEFFICIENT} = [-1, 1]\n")
    write_toy(folder)
    assert cli.main([*RECORDS(folder, "release"), "--output", f"{folder}/a.json"]) == 0
    assert cli.main(["study", "run", "toy", "--quick", "--studies", str(folder)]) == 0
    return folder


def RECORDS(folder, command):
    budget = ("--epsilon", "1", "--delta", "1e-6", "--radius", "2", "--row-bound", "1")
    return [command, f"{folder}/r.csv", "--target", "y", *budget, "--seed", "3"]


# Arguments of each command, and its exit code.
CASES = {
    "fit": (lambda f: [*RECORDS(f, "fit"), "--evaluate", f"{f}/new.csv"], 0),
    "release": (lambda f: [*RECORDS(f, "release"), "--evaluate", f"{f}/new.csv"], 0),
    "sample": (lambda f: [*RECORDS(f, "sample"), "--draws", "8", "--chains", "2"], 0),
    "verify": (lambda f: ["verify", f"{f}/a.json"], 0),
    "certificate": (lambda f: ["certificate", f"{f}/a.json"], 0),
    "predict": (lambda f: ["predict", f"{f}/a.json", f"{f}/new.csv"], 0),
    "bounds": (lambda f: ["bounds", f"{f}/r.csv"], 0),
    "demo": (lambda f: ["demo", "--output", f"{f}/demo.html", "--overwrite"], 0),
    "stat": (
        lambda f: [
            *("stat", f"{f}/r.csv", "mean", "--column", COEFFICIENT, "--seed", "3"),
            *("--bounds", f"{f}/bounds.toml", "--epsilon", "1"),
        ],
        0,
    ),
    "claims": (lambda f: ["claims", "--paper", "gopi"], 0),
    "errata": (lambda f: ["errata"], 0),
    "papers": (lambda f: ["papers"], 0),
    "warm": (lambda f: ["warm"], 0),
    "study list": (lambda f: ["study", "list", "--studies", str(f)], 0),
    "study run": (
        lambda f: "study run toy --quick --resume --studies".split() + [str(f)],
        0,
    ),
    "study report": (
        lambda f: ["study", "report", "toy", "--quick", "--studies", str(f)],
        0,
    ),
}
