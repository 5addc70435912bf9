"""Files of the compilation cache: whole again after any damage."""

import os
import pickle
import runpy
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from dpsample.core import cache as cache_module
from dpsample.core import jit
from tests.support.processes import files_below, run_python
from tests.support.tiers import one_in
from tests.support.toy_kernels import SHOW, make_toy, show

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is cached")


def doubled(x):
    return 2.0 * x


SIGNATURE = numba.types.float64(numba.types.float64)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, in which `doubled` is kept once as a kernel and a pointer."""
    monkeypatch.setattr(cache_module, "CACHE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(cache_module, "_warned", set())
    monkeypatch.setattr(jit, "_pointers", {})
    assert used() == (0, 0)
    assert used() == (1, 1)
    return tmp_path


def used():
    """Whether the kernel and the pointer came from the cache; both must be right."""
    made = jit.kernel(doubled)
    assert made(4.0) == 8.0
    jit._pointers.clear()
    piece = jit.pointer(doubled, SIGNATURE)
    assert piece.ctypes(4.0) == 8.0
    return sum(made.stats.cache_hits.values()), piece.cache_hits


def entries():
    """Index and data files of the kernel."""
    with cache_module.package_cache():
        return cache_module.KernelCache(doubled)._cache_file


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


@one_in(4)
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
    files = entries()
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
    files = entries()
    for key, name in files._load_index().items():
        files._save_data(name, ("another key", files.load(key)))
        assert files.load(key) is None
    assert used()[0] == 0 and used() == (1, 1)


@compiled
def test_two_writers_of_one_index_lose_nothing(cache, monkeypatch):
    files = entries()
    write = type(files)._save_index

    def slowly(self, overloads):
        time.sleep(0.05)  # the other one could read what is about to change
        write(self, overloads)

    monkeypatch.setattr(type(files), "_save_index", slowly)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: files.save(("key", i), i), range(4)))
    assert [files.load(("key", i)) for i in range(4)] == [0, 1, 2, 3]


@pytest.mark.slow
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
def test_numbas_own_cache_class_is_back_after_each_use():
    from numba.core import caching, ccallback, dispatcher

    with cache_module.package_cache():
        assert dispatcher.FunctionCache is cache_module._cache_of
    for module in (dispatcher, ccallback):
        assert module.FunctionCache is caching.FunctionCache


@compiled
def test_a_kernel_opens_its_cache_when_it_first_compiles(tmp_path, monkeypatch):
    """To open them all at the import would take a fifth of its time."""
    monkeypatch.setattr(cache_module, "CACHE_DIRECTORY", str(tmp_path))
    made = jit.kernel(doubled)
    assert not any(tmp_path.iterdir())
    assert made(4.0) == 8.0
    assert len(cached_files(tmp_path, ".nbc")) == 1


@compiled
def test_a_kernel_whose_source_is_gone_compiles(tmp_path):
    """An upgrade may replace the package while a notebook runs."""
    source = tmp_path / "gone.py"
    source.write_text("def tripled(x):\n    return 3.0 * x\n")
    tripled = jit.kernel(runpy.run_path(str(source))["tripled"])
    source.unlink()
    assert tripled(2.0) == 6.0


@pytest.mark.slow
def test_the_oldest_numba_that_is_allowed_imports():
    """Numba 0.61 has the locator of the user's folder under a private name."""
    run_python(
        "from numba.core import caching\n"
        "if hasattr(caching, 'UserProvidedCacheLocator'):\n"
        "    caching._UserProvidedCacheLocator = caching.UserProvidedCacheLocator\n"
        "    del caching.UserProvidedCacheLocator\n"
        "import dpsample.core.cache"
    )


@compiled
def test_who_waits_is_told_of_what_is_not_cached(cache, monkeypatch):
    misses = []
    monkeypatch.setattr(cache_module, "on_miss", [lambda: misses.append(1)])
    assert used() == (1, 1) and not misses
    for path in cached_files(cache, ".nbi"):
        path.unlink()
    assert used() == (0, 0)
    assert len(misses) == 2  # a kernel and a pointer


@compiled
@pytest.mark.skipif(os.name != "posix", reason="modes mean nothing")
@pytest.mark.parametrize("is_full_first", [True, False])
def test_a_full_disk_does_not_hide_an_unsafe_directory(
    cache, monkeypatch, is_full_first
):
    def fail(self, key, data):
        raise OSError("disk full")

    monkeypatch.setattr(cache_module._Files, "save", fail)
    for path in cached_files(cache, ".nbi"):
        path.unlink()
    warned = []
    for mode in (0o700, 0o755) if is_full_first else (0o755, 0o700):
        cache.chmod(mode)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            used()
        warned.append([str(w.message) for w in caught])
    first, second = warned
    if is_full_first:
        assert len(first) == 1 and "cannot be written (disk full)" in first[0]
        assert len(second) == 1 and "cannot be used" in second[0]
    else:  # one warning for one failure
        assert len(first) == 1 and "cannot be used" in first[0]
        assert second == []
