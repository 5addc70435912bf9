"""Run a study in two processes and write its report. It needs the extra ``studies``."""

import tempfile

from dpsample import cli

with tempfile.TemporaryDirectory() as folder:
    words = "study run privacy_curve --quick --processes --jobs 2 --report"
    code = cli.main([*words.split(), "--output", folder])
assert code == 0, code
