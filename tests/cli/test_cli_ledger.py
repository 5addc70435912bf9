"""``--ledger``: entered before the draw, refused without room, and what remains."""

import stat

import pytest

from dpsample import cli
from dpsample.privacy import Budget, Ledger, LedgerFile
from dpsample.privacy.accounting.events import PureEvent

TABLE = "x,y\n" + "\n".join(f"{i % 7 / 7},{(-1) ** i}" for i in range(60))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "b.toml").write_text("[numeric]\nx = [0, 1]\n")
    return tmp_path


def run(folder, *more, epsilon="0.5", delta="1e-6"):
    return cli.main(
        ["release", str(folder / "t.csv"), "--target", "y", "--radius", "1",
         "--bounds", str(folder / "b.toml"), "--seed", "1",
         "--epsilon", epsilon, "--delta", delta, *more]
    )  # fmt: skip


def test_releases_of_a_file_are_added_up_until_there_is_no_room(folder, capsys):  # F9
    file = folder / "spent.json"
    total = ("--ledger", str(file), "--ledger-epsilon", "1", "--ledger-delta", "2e-6")
    assert run(folder, *total) == 0
    out = capsys.readouterr().out
    assert "1 release(s)" in out and "Remaining: one release" in out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run(folder, "--ledger", str(file)) == 0  # the total is the file's
    assert "2 release(s)" in capsys.readouterr().out
    answer = folder / "answer.json"
    code = run(folder, "--ledger", str(file), "--output", str(answer), epsilon="0.9")
    out, err = capsys.readouterr()
    assert code == 2 and "with room for this release" in err
    assert not answer.exists() and "Private parameters" not in out
    kept = Ledger.from_json(file.read_text())
    assert len(kept.entries) == 2
    assert kept.budget == Budget(epsilon=1.0, delta=2e-6)
    assert kept.epsilon() <= 1.0


def test_without_a_ledger_the_output_says_that_releases_add_up(folder, capsys):  # F9
    assert run(folder) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "releases of the same records add up" in words and "--ledger" in words


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--ledger", "new.json"), "a new --ledger must be made with its total"),
        (("--ledger-epsilon", "1"), "--ledger must be given with a total"),
        (("--ledger", "t.csv"), "ledger must be another file"),
        (("--ledger", "b.json"), "--ledger must be the file of a ledger, got b.json"),
        (("--ledger", "latin"), "--ledger must be the file of a ledger, got latin"),
        (("--ledger", "l.json", "--relation", "zero_out"), "Pass its own with"),
        (("--ledger", "endless.json"), "must be a ledger with a total, got one"),
    ],
)
def test_a_ledger_that_cannot_be_kept_is_refused_before_the_draw(
    folder, capsys, more, words, monkeypatch
):  # F9
    (folder / "b.json").write_text("{}")
    (folder / "endless.json").write_text(Ledger().to_json())
    (folder / "latin").write_bytes(b"\xff\xfe")
    LedgerFile(folder / "l.json", budget=Budget(epsilon=1.0, delta=1e-5))
    monkeypatch.chdir(folder)
    assert run(folder, *more) == 2
    out, err = capsys.readouterr()
    assert words in err and "Private parameters" not in out


def test_a_new_ledger_is_left_behind_with_an_entry_only(folder, monkeypatch):
    file = folder / "spent.json"
    total = ("--ledger", str(file), "--ledger-epsilon", "1", "--ledger-delta", "2e-6")
    assert run(folder, *total, epsilon="2") == 2 and not file.exists()
    LedgerFile(file, budget=Budget(epsilon=1.0, delta=2e-6))
    assert run(folder, *total, epsilon="2") == 2 and file.exists()
    file.unlink()

    def spent(_problem, _budget, *, ledger, **_):
        ledger.spend(PureEvent(0.1))
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsample.release", spent)
    assert run(folder, *total) == 130
    assert len(Ledger.from_json(file.read_text()).entries) == 1


def test_another_total_than_the_ledgers_is_refused(folder, capsys):  # F9
    file = ("--ledger", str(folder / "spent.json"), "--ledger-delta", "1e-5")
    assert run(folder, *file, "--ledger-epsilon", "1") == 0
    assert run(folder, *file, "--ledger-epsilon", "2") == 2
    assert "with the total that is given" in capsys.readouterr().err


def test_a_pure_budget_is_kept_on_the_command_line(folder, capsys):  # A5
    assert run(folder, delta="0") == 0
    assert "privacy (pure), epsilon = 0.5" in capsys.readouterr().out
