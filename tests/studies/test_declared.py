"""Exclusions of the studies, and the commits in which they were declared."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from dpsample.experiments.configuration import bundle, study_names
from studies import _declared as declared


@pytest.mark.slow
def test_every_exclusion_carries_a_commit():
    known = tomllib.loads(declared.FILE.read_text("utf-8"))
    for name in study_names(declared.FOLDER):
        reasons = declared.reasons(bundle(declared.FOLDER, name))
        assert set(reasons) == set(known.get(name, {})), name


@pytest.mark.slow
def test_the_commits_state_the_reasons():
    try:
        is_short = declared.git("rev-parse", "--is-shallow-repository") != "false\n"
    except (subprocess.CalledProcessError, FileNotFoundError):
        is_short = True
    if is_short:
        pytest.skip("no history here")
    for name, entries in tomllib.loads(declared.FILE.read_text("utf-8")).items():
        paths = [Path(s.path) for s in bundle(declared.FOLDER, name).sources]
        for reason, commit in entries.items():
            assert any(declared.states(commit, path, reason) for path in paths), reason
