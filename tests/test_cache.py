"""The compilation cache: private, owned, and whole again after any damage."""

import os
import pickle
import stat
import tempfile
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest

from dpsample import _cache, _jit
from tests.processes import files_below
from tests.toy_kernels import SHOW, make_toy, show

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
from toy import _cache
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
warnings.simplefilter("ignore")
for place in {{places}}:
    numba.config.CACHE_DIR = place
    print(place, _cache._open_cache().startswith(place))
"""
WHERE = "from toy._jit import CACHE_DIRECTORY; print(CACHE_DIRECTORY)"


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


# --- S2: whose directory it is


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
        _cache.private_directory(tmp_path / "root", "name")


@posix
def test_an_own_directory_is_made_and_found_again(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    made = _cache.private_directory(tmp_path / "link" / "a" / "b", "name")
    assert made == tmp_path.resolve() / "a" / "b" / "name"
    assert [mode(path) for path in (made, made.parent, made.parent.parent)] == [448] * 3
    assert _cache.private_directory(tmp_path / "a" / "b", "name") == made
    with tempfile.TemporaryDirectory(dir="/tmp") as below_a_sticky_one:
        _cache.private_directory(Path(below_a_sticky_one), "name")


@posix
def test_the_group_that_a_user_has_alone_is_no_other_user(tmp_path, monkeypatch):
    tmp_path.chmod(0o775)
    monkeypatch.setattr(_cache, "_is_private_group", lambda gid: True)
    _cache.private_directory(tmp_path, "name")
    monkeypatch.setattr(_cache, "_is_private_group", lambda gid: False)
    with pytest.raises(PermissionError, match="others can write"):
        _cache.private_directory(tmp_path, "name")


class Attack:
    """What an attacker puts in an index: to unpickle it runs code."""

    def __init__(self, proof):
        self.proof = str(proof)

    def __reduce__(self):
        return os.mkdir, (self.proof,)


@posix
@compiled
@pytest.mark.parametrize("spoil", [is_open, pytest.param(is_foreign, marks=root_only)])
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


@posix
def test_any_umask_gives_a_private_directory(tmp_path):  # S2
    toy = make_toy(tmp_path)
    found = {
        mask: show(toy, tmp_path / str(mask), WHERE, options={"umask": mask})[0].strip()
        for mask in (0o000, 0o077)
    }
    for folder in found.values():
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


# --- S3: what is in it


def doubled(x):
    return 2.0 * x


SIGNATURE = numba.types.float64(numba.types.float64)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, in which `doubled` is kept once as a kernel and a pointer."""
    monkeypatch.setattr(_cache, "CACHE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(_cache, "_warned", set())
    monkeypatch.setattr(_jit, "_pointers", {})
    assert used() == (0, 0)
    assert used() == (1, 1)
    return tmp_path


def used():
    """Whether the kernel and the pointer came from the cache; both must be right."""
    made = _jit.kernel(doubled)
    assert made(4.0) == 8.0
    _jit._pointers.clear()
    piece = _jit.pointer(doubled, SIGNATURE)
    assert piece.ctypes(4.0) == 8.0
    return sum(made.stats.cache_hits.values()), piece.cache_hits


def cached_files(folder, suffix):
    return sorted(folder.rglob(f"*{suffix}"))


def empty(path):
    path.write_bytes(b"")


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path):
    path.write_bytes(np.random.default_rng(1).bytes(1000))


def wrong_pickle(path):
    wrong = pickle.dumps(numba.__version__) if path.suffix == ".nbi" else b""
    path.write_bytes(wrong + pickle.dumps([1, 2, 3]))


def directory(path):
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def lying_hash(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@compiled
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize(
    "damage", [empty, half, garbage, wrong_pickle, directory, lying_hash]
)
def test_a_damaged_file_is_deleted_and_compiled_again(cache, damage, suffix):  # S3
    for path in cached_files(cache, suffix):
        damage(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        used()  # the pointer may find what the kernel has just mended
    told = [str(w.message) for w in caught]
    assert len(told) <= 1 and all("damaged file" in text for text in told)
    # Numba itself takes an unreadable data file for a missing one.
    assert told or (damage is directory and suffix == ".nbc")
    assert used() == (1, 1)


def contents():
    """All that the cache would hand out, as bytes; None if it notices damage."""
    files = _jit.kernel(doubled)._cache._cache_file
    try:
        return [pickle.dumps(files.load(key)) for key in files._load_index()]
    except Exception:
        return None


@compiled
def test_any_flipped_bit_is_noticed(cache):  # S3
    rng = np.random.default_rng(2)
    files = {p: p.read_bytes() for p in cache.rglob("*.nb?")}
    expected = contents()
    assert len(files) >= 2 and expected
    for path, content in files.items():
        for place in rng.integers(len(content), size=150):
            spoiled = bytearray(content)
            spoiled[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(spoiled))
            found = contents()
            # Harmless: another version's index, or exactly what was written.
            assert found in (None, [], expected), (path, place)
        path.write_bytes(content)
    assert used() == (1, 1)


@compiled
def test_one_warning_tells_of_all_damage(cache):  # S3
    caught = []
    for _ in range(2):
        for path in cached_files(cache, ".nbi"):
            empty(path)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            used()
        caught += found
    assert len(caught) == 1


@compiled
def test_two_signatures_never_share_an_entry(cache):
    """Two processes on one empty cache may both call their data file number 1."""
    files = _jit.kernel(doubled)._cache._cache_file
    for key, name in files._load_index().items():
        files._save_data(name, ("another key", files.load(key)))
        assert files.load(key) is None
    assert used()[0] == 0 and used() == (1, 1)


@compiled
def test_a_process_survives_a_truncated_index(tmp_path):  # S3
    toy, cache = make_toy(tmp_path), tmp_path / "cache"
    show(toy, cache)
    for index in cache.rglob("*.nbi"):
        half(index)
    output, errors = show(toy, cache)
    assert output == "21.0\n" and errors.count("RuntimeWarning") == 1
    before = files_below(cache)
    assert show(toy, cache, SHOW) == ("21.0\n", "")
    assert files_below(cache) == before


@compiled
def test_numbas_own_cache_class_is_back_after_each_decoration():
    from numba.core import caching, ccallback, dispatcher

    with _cache.package_cache():
        assert dispatcher.FunctionCache is _cache.KernelCache
    for module in (dispatcher, ccallback):
        assert module.FunctionCache is caching.FunctionCache
