"""`dpsample verify`, `--version` and completion."""

import contextlib
import io
import json
import os
import sys
import threading

import pytest

import dpsample as dps
from dpsample import cli
from dpsample.verification import ball_checker
from dpsample.verification import recomputation as verification
from tests.support.tiers import one_in

RELEASABLE = "May be published, if what is not checked here was as stated."
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def problem():
    data = dps.datasets.logistic(60, 2, seed=1)
    return dps.Problem(
        data.features,
        data.response,
        loss=dps.losses.Logistic(),
        domain=dps.domains.Ball(1.0),
        row_bound=1.0,
    )


@pytest.fixture(scope="module")
def answer(problem):
    return dps.release(problem, BUDGET)


@pytest.fixture
def file(answer, tmp_path):
    answer.save(tmp_path / "answer.json")
    return tmp_path / "answer.json"


def test_a_release_is_verified(answer, file, capsys):  # U8
    assert cli.main(["verify", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Consistent: 16 numbers recomputed.\nStated: (1, 1e-06)-DP")
    assert answer.certificate.digest in out and "Verified" not in out
    assert answer.digest in out and answer.digest in answer.to_html()
    assert "\nNot checked: that the program was run as stated" in out
    assert "(1+e^epsilon)*gamma<=delta-delta_0" in out and "digest" in out
    assert "theta" in out and out.splitlines()[-1] == RELEASABLE
    assert err == ""


def test_files_that_went_through_an_editor_of_windows_are_read(answer, file, capsys):
    for text in (file.read_text(), answer.certificate.to_json()):
        file.write_text(text, encoding="utf-8-sig", newline="\r\n")
        for checker in ("standard", "ball"):
            assert cli.main(["verify", str(file), "--checker", checker]) == 0
        assert ball_checker.main([str(file)]) == 0
        assert capsys.readouterr().out.endswith("Proved.\n")
    file.write_text(file.read_text("utf-8-sig"), encoding="utf-16")
    assert cli.main(["verify", str(file)]) == 2


def test_a_release_is_verified_by_balls(file, capsys):
    assert cli.main(["verify", str(file), "--checker", "ball"]) == 0
    out = capsys.readouterr().out
    assert "delta(epsilon;gdp)<=delta_0" in out and RELEASABLE not in out
    assert "Not checked: bounds of the risk; that the program" in out
    assert cli.main(["verify", str(file), "--checker", "dice"]) == 2
    assert "checker must be one of 'standard', 'ball'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "certificate"])
def test_an_answer_is_read_from_a_pipe(file, capsys, monkeypatch, command):
    assert cli.main([command, str(file)]) == 0
    expected, written = capsys.readouterr(), file.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written)))
    assert cli.main([command, "-"]) == 0
    assert capsys.readouterr() == expected
    pipe = file.with_name("pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(written,))
    writer.start()
    assert cli.main([command, str(pipe)]) == 0
    writer.join()
    assert capsys.readouterr() == expected


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("{}", 2, "file must be the JSON of a release or a certificate, got -. Rel"),
        ('{"format": "dpsample-release-3"}', 1, "NOT verified: path must be a file of"),
        (None, 2, "dpsample: error: stdin must be open, got none."),
    ],
)
def test_stdin_without_an_answer_is_refused(capsys, monkeypatch, given, code, words):
    stdin = None if given is None else io.TextIOWrapper(io.BytesIO(given.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli.main(["verify", "-"]) == code
    assert words in "".join(capsys.readouterr())


@pytest.mark.parametrize("command", [[], ["verify"], ["study"], ["study", "run"]])
def test_help_has_a_short_name(capsys, command):
    assert cli.main([*command, "--help"]) == 0
    expected = capsys.readouterr().out
    assert cli.main([*command, "-h"]) == 0
    assert capsys.readouterr().out == expected and "-h, --help" in expected


def test_certificates_of_every_kind_are_verified(problem, answer, tmp_path, capsys):
    # U8
    method = dps.optimizers.DPSGD(sampling_rate=1.0, num_steps=3)
    fit = dps.minimize(problem, method, BUDGET)
    seeded = dps.minimize(problem, method, BUDGET, seed=1)
    paper = dps.calibrate(problem, BUDGET, calibration="paper")
    for certificate, last in (
        (answer.certificate, RELEASABLE),
        (fit.certificate, RELEASABLE),
        (seeded.certificate, "Not for publication: the random bits are seeded."),
        (
            paper.certificate,
            "Not for publication: the published constants",
        ),
        (
            dps.calibrate(problem, BUDGET).certificate,
            "Not for publication: no",
        ),
    ):
        (tmp_path / "c.json").write_text(certificate.to_json())
        assert cli.main(["verify", str(tmp_path / "c.json")]) == 0
        out = capsys.readouterr().out
        assert certificate.statement in out
        assert out.splitlines()[-1].startswith(last)


@pytest.mark.slow
def test_a_certificate_is_printed_or_becomes_a_page(answer, file, tmp_path, capsys):
    assert cli.main(["certificate", str(file)]) == 0
    assert capsys.readouterr().out == f"{answer.certificate}\n"
    page = tmp_path / "page.html"
    assert cli.main(["certificate", str(file), "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert page.read_text(encoding="utf-8") == answer.to_html()
    nowhere = str(tmp_path / "no" / "page.html")
    assert cli.main(["certificate", str(file), "--html", nowhere]) == 2
    page.unlink()
    file.write_text(file.read_text().replace('"seeded": false', '"seeded": true'))
    assert cli.main(["certificate", str(file), "--html", str(page)]) == 1
    assert "NOT verified" in capsys.readouterr().out and not page.exists()


@one_in(2)
@pytest.mark.parametrize("options", [[], ["--html", "page.html", "--overwrite"]])
def test_a_certificate_is_recomputed_once(answer, file, tmp_path, monkeypatch, options):
    # Some take long: a plan of constant time, a chosen optimizer.
    monkeypatch.chdir(tmp_path)
    recomputed, seen = verification.recompute, []

    def counted(certificate):
        seen.append(certificate.digest)
        return recomputed(certificate)

    monkeypatch.setattr(verification, "recompute", counted)
    assert cli.main(["certificate", str(file), *options]) == 0
    file.write_text(answer.certificate.to_json())
    assert cli.main(["certificate", str(file), *options]) == 0
    assert seen == 2 * [answer.certificate.digest]


@pytest.mark.parametrize("command", ["verify", "certificate", "predict"])
def test_ctrl_c_in_the_import_of_a_compiled_module_is_no_verdict(
    file, capsys, monkeypatch, command
):
    # As pybind11 has it; found by signals to the command at random moments.
    def interrupted(*_):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr("dpsample.cli.release.load_answer", interrupted)
    monkeypatch.setattr("dpsample.cli.verify.parse_answer", interrupted)
    records = [str(file)] if command == "predict" else []
    assert cli.main([command, str(file), *records]) == 130
    assert capsys.readouterr() == ("", "")


EDITS = {
    "k": lambda c: c["certificate"].update(k=2.0 * c["certificate"]["k"]),
    "epsilon": lambda c: c["certificate"]["budget"].update(epsilon=0.1),
    "statement": lambda c: c["certificate"].update(statement="(0.01, 0)-DP"),
    "digest": lambda c: c["certificate"].update(digest="0" * 64),
    "a word": lambda c: c["certificate"]["theorems"].append("trust me"),
    "far away": lambda c: c.update(theta=[2.0, 0.0]),
    "theta": lambda c: c.update(theta=[0.0]),
    "a number": lambda c: c.update(theta=["x", 0.0]),
    "names": lambda c: c.update(feature_names=["a", "a"]),
    "no names": lambda c: c.update(feature_names=7),
    "no certificate": lambda c: c.pop("certificate"),
    "no loss": lambda c: c["certificate"]["facts"].update(loss=None),
    "no digits": lambda c: c["certificate"].update(gamma=10**400),
    "nothing": lambda c: c.update(certificate=[]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_not_verified(file, capsys, edit):  # U8
    content = json.loads(file.read_text())
    EDITS[edit](content)
    file.write_text(json.dumps(content))
    assert cli.main(["verify", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("NOT verified: ") and out.count("\n") == 1
    assert err == "" and RELEASABLE not in out


NO_CERTIFICATES = {
    "empty": b"",
    "binary": bytes(range(256)),
    "a list": b"[1, 2]",
    "a number": b"1",
    "another format": b'{"format": "dpsample ledger 1"}',
    "a list as format": b'{"format": []}',
    "brackets": b"[" * 100_000,
    "cut": b'{"format": "dpsample-release-1"',
    "digits": b"1" * 5000,
}


@pytest.mark.parametrize("case", NO_CERTIFICATES)
def test_a_file_that_claims_nothing_is_an_error_of_the_user(tmp_path, capsys, case):
    # U8
    (tmp_path / "x.json").write_bytes(NO_CERTIFICATES[case])
    assert cli.main(["verify", str(tmp_path / "x.json")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "the JSON of a release or a certificate, got" in err


@pytest.mark.parametrize("name", ["none.json", "."])
def test_a_file_that_is_missing_is_an_error_of_the_user(tmp_path, capsys, name):
    assert cli.main(["verify", str(tmp_path / name)]) == 2
    assert "file must be an existing file" in capsys.readouterr().err


def test_the_version_is_printed(capsys):  # U8
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dpsample {dps.__version__}\n"


@pytest.fixture
def completed(monkeypatch, capsys):
    """Run what a shell runs to complete words, and return what it is told."""
    # Typer's own switch: a test has no shell above it that could be found.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")

    def run(*words, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with contextlib.suppress(SystemExit):
            assert cli.main(words) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def test_a_shell_completes_commands_and_options(completed):  # U8
    ask = {"_DPSAMPLE_COMPLETE": "complete_bash"}
    words = completed(COMP_WORDS="dpsample ", COMP_CWORD="1", **ask).split()
    assert {"release", "verify", "sample", "study", "claims", "warm"} <= set(words)
    words = completed(COMP_WORDS="dpsample release --ev", COMP_CWORD="2", **ask)
    assert words.split() == ["--evaluate"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_shown(completed, shell):  # U8
    assert "_DPSAMPLE_COMPLETE" in completed("--show-completion", shell)


def test_completion_is_installed_for_a_shell(completed, tmp_path):  # U8
    out = completed("--install-completion", "bash", HOME=str(tmp_path))
    assert "bash completion installed" in out
    assert "completions" in (tmp_path / ".bashrc").read_text()


def test_a_page_does_not_replace_its_answer(file, tmp_path, capsys):
    before = file.read_bytes()
    link = tmp_path / "page.html"
    link.symlink_to(file)
    for page in (file, link):
        assert cli.main(["certificate", str(file), "--html", str(page)]) == 2
        assert "html must be another file than the others" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_certificate_has_three_levels(answer, file, capsys):
    """The first screen, the details and the JSON, of which one is chosen."""
    certificate = answer.certificate
    for options, text in (
        (["--details"], certificate.details()),
        (["--json"], certificate.to_json()),
    ):
        assert cli.main(["certificate", str(file), *options]) == 0
        assert capsys.readouterr().out == f"{text}\n"
    assert dps.Certificate.from_json(certificate.to_json()) == certificate
    assert cli.main(["certificate", str(file), "--details", "--json"]) == 2
    assert "shown in one form, got --details --json" in capsys.readouterr().err


def test_the_publisher_states_purpose_and_record(answer, file, tmp_path, capsys):
    page, stated = tmp_path / "page.html", tmp_path / "publisher.toml"
    command = ["certificate", str(file), "--html", str(page), "--publisher"]
    stated.write_text('purpose = "<b>Returns</b>"\nrecord = "one patient"\n')
    assert cli.main([*command, str(stated)]) == 0
    shown = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;Returns&lt;/b&gt;" in shown and "one patient" in shown
    page.unlink()
    for text, words in (
        ('aim = "x"', "publisher must be with names among data_set"),
        (f'purpose = "{"x" * 201}"', "publisher.purpose must be a text of at most"),
        ("purpose = 3", "publisher.purpose must be a text of at most"),
        ("purpose", "--publisher must be a TOML file"),
    ):
        stated.write_text(text)
        assert cli.main([*command, str(stated)]) == 2
        assert words in capsys.readouterr().err and not page.exists()
    assert cli.main(["certificate", str(file), "--publisher", str(stated)]) == 2
