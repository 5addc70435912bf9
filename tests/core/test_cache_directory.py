"""The directory of the compilation cache: ours, private, and not to be swapped."""

import os
import pickle
import stat
import tempfile
from pathlib import Path

import numba
import pytest

from dpsample.core import cache as cache_module
from tests.support.toy_kernels import make_toy, show

posix = pytest.mark.skipif(os.name != "posix", reason="no owners and modes")
root_only = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is cached")
NOBODY = 65534
# The libraries may lie where only root can read: they are imported before.
ORDINARY = f"""
import os, grp, pwd, warnings
import numba
from toy.core import cache
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
warnings.simplefilter("ignore")
for place in {{places}}:
    numba.config.CACHE_DIR = place
    print(place, cache._open_cache().startswith(place))
"""
WHERE = "from toy.core.jit import CACHE_DIRECTORY; print(CACHE_DIRECTORY)"


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def is_open(path):
    path.mkdir()
    path.chmod(0o777)


def is_open_to_the_group(path):
    path.mkdir()
    path.chmod(0o770)


def is_readable(path):
    path.mkdir()
    path.chmod(0o755)


def is_a_link(path):
    (path.parent / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(path.parent / "elsewhere", target_is_directory=True)


def is_a_broken_link(path):
    path.symlink_to(path.parent / "nowhere")


def is_a_file(path):
    path.touch()


def is_foreign(path):
    path.mkdir(mode=0o700)
    os.chown(path, NOBODY, NOBODY)


def has_an_open_parent(path):
    path.parent.chmod(0o777)


def has_a_foreign_parent(path):
    os.chown(path.parent, NOBODY, NOBODY)


def has_a_foreign_sticky_parent(path):
    path.parent.chmod(0o1777)
    os.chown(path.parent, NOBODY, NOBODY)


def has_a_parent_of_a_group(path):
    os.chown(path.parent, 0, 12345)
    path.parent.chmod(0o770)


WRONG = [is_open, is_open_to_the_group, is_readable, is_a_link, is_a_broken_link]
WRONG += [is_a_file, has_an_open_parent]
FOREIGN = [is_foreign, has_a_foreign_parent, has_a_foreign_sticky_parent]
FOREIGN += [has_a_parent_of_a_group]


@posix
@pytest.mark.parametrize(
    "spoil", [*WRONG, *(pytest.param(way, marks=root_only) for way in FOREIGN)]
)
def test_a_directory_that_others_might_have_a_hand_in_is_refused(tmp_path, spoil):  # S2
    (tmp_path / "root").mkdir()
    spoil(tmp_path / "root" / "name")
    with pytest.raises(OSError):
        cache_module.private_directory(tmp_path / "root", "name")


@posix
def test_an_own_directory_is_made_and_found_again(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    made = cache_module.private_directory(tmp_path / "link" / "a" / "b", "name")
    assert made == tmp_path.resolve() / "a" / "b" / "name"
    assert [mode(path) for path in (made, made.parent, made.parent.parent)] == [448] * 3
    assert cache_module.private_directory(tmp_path / "a" / "b", "name") == made
    with tempfile.TemporaryDirectory(dir="/tmp") as below_a_sticky_one:
        cache_module.private_directory(Path(below_a_sticky_one), "name")


@posix
def test_the_group_that_a_user_has_alone_is_no_other_user(tmp_path, monkeypatch):
    tmp_path.chmod(0o775)
    monkeypatch.setattr(cache_module, "_is_private_group", lambda gid: True)
    cache_module.private_directory(tmp_path, "name")
    monkeypatch.setattr(cache_module, "_is_private_group", lambda gid: False)
    with pytest.raises(PermissionError, match="others can write"):
        cache_module.private_directory(tmp_path, "name")


class Attack:
    """What an attacker puts in an index: to unpickle it runs code."""

    def __init__(self, proof):
        self.proof = str(proof)

    def __reduce__(self):
        return os.mkdir, (self.proof,)


@posix
@compiled
@pytest.mark.parametrize(
    "spoil",
    [is_open, pytest.param(is_foreign, marks=[root_only, pytest.mark.slow])],
)
def test_code_in_a_planted_cache_never_runs(tmp_path, spoil):  # S2
    toy, cache, proof = make_toy(tmp_path), tmp_path / "cache", tmp_path / "proof"
    show(toy, cache)
    (folder,) = cache.iterdir()
    for index in folder.rglob("*.nbi"):
        index.write_bytes(pickle.dumps(numba.__version__) + pickle.dumps(Attack(proof)))
    folder.rename(tmp_path / "planted")
    spoil(folder)
    for inner in (tmp_path / "planted").iterdir():
        inner.rename(folder / inner.name)
    output, errors = show(toy, cache, TMPDIR=tmp_path)
    assert output == "21.0\n" and not proof.exists()
    assert errors.count("RuntimeWarning: The compilation cache cannot be used") == 1


@pytest.mark.slow
@posix
@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_any_umask_gives_a_private_directory(tmp_path, mask):  # S2
    toy = make_toy(tmp_path)
    folder = show(toy, tmp_path / "cache", WHERE, options={"umask": mask})[0].strip()
    assert mode(folder) == 0o700 and mode(Path(folder).parent) == 0o700


@posix
@root_only
def test_an_ordinary_user_refuses_what_root_or_others_left_open():  # S2
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        toy = make_toy(folder)
        for place, owner, access in (
            ("own", NOBODY, 0o700),
            ("foreign", 12345, 0o777),
            ("sticky", 0, 0o1777),
        ):
            (folder / place).mkdir()
            os.chown(folder / place, owner, owner)
            (folder / place).chmod(access)
        (folder / "sticky" / "link").symlink_to(folder / "foreign")
        names = ("own", "sticky", "foreign", "sticky/link")
        code = ORDINARY.format(places=[str(folder / name) for name in names])
        output, _ = show(toy, folder / "of root", code, TMPDIR=folder / "own")
        kept = [line.rpartition(" ")[2] for line in output.splitlines()]
        assert kept == ["True", "True", "False", "False"]


SPOILED = """
import os, shutil
from toy.core.cache import CACHE_DIRECTORY as folder
shutil.rmtree(folder)
{spoil}
from toy.caller import answer
print(answer(10.0))
print(os.path.isdir(folder) and oct(os.stat(folder).st_mode & 0o777))
"""


@pytest.mark.slow
@compiled
@posix
@pytest.mark.parametrize(
    ("spoil", "left", "is_said"),
    [
        ("", "0o700", False),
        ("open(folder, 'w').close()", "False", True),
        ("os.mkdir(folder); os.chmod(folder, 0o755)", "0o755", True),
    ],
    ids=["gone", "a file", "open to others"],
)
def test_a_directory_that_changes_later_is_made_anew_or_left_alone(
    tmp_path, spoil, left, is_said
):
    """Nothing is written where no hash of all sources says whose code it is."""
    toy = make_toy(tmp_path)
    code = SPOILED.format(spoil=spoil)
    out, err = show(toy, tmp_path / "cache", code, HOME=tmp_path)
    assert out.split() == ["21.0", left]
    assert ("The compilation cache cannot be used" in err) == is_said
    written = {path.parent for path in tmp_path.rglob("*.nbi")}
    assert all("dpsample-" in str(path) for path in written)
    assert bool(written) == (not is_said)
