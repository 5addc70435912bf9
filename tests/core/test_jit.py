"""The decorator and its cache: never stale, never another's, never a failure."""

import ast
import gc
import os
import re
import sys
import time
import weakref
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numba
import numpy as np
import pytest

from dpsample.core import cache as cache_module
from dpsample.core import jit
from dpsample.core.streams import secret_streams
from tests.support.ctrl_c import moments
from tests.support.processes import ROOT, files_below
from tests.support.toy_kernels import CALLEE, make_toy, show


def secret_generator():
    return secret_streams(1)[0]


@pytest.fixture
def toy(tmp_path):
    return make_toy(tmp_path)


def edit_callee(toy):
    file = toy / "callee.py"
    file.write_text(CALLEE.format(factor=3.0))
    # Python's own bytecode is stale if the size and the second are the same.
    later = file.stat().st_mtime + 2.0
    os.utime(file, (later, later))


def test_an_edit_in_a_callee_is_never_served_stale(toy, tmp_path):
    cache = tmp_path / "cache"
    assert show(toy, cache)[0] == "21.0\n"
    edit_callee(toy)
    assert show(toy, cache)[0] == "31.0\n"


@pytest.mark.slow
def test_a_second_process_compiles_nothing(toy, tmp_path):
    cache = tmp_path / "cache"
    assert show(toy, cache)[0] == "21.0\n"
    before = files_below(cache)
    assert show(toy, cache)[0] == "21.0\n"
    assert files_below(cache) == before


@pytest.mark.slow
def test_a_cache_with_a_fixed_name_serves_the_old_value(toy, tmp_path):
    """Planted bug: Numba itself looks at the caller's file only."""
    source = (toy / "core" / "cache.py").read_text()
    planted = source.replace('f"dpsample-{fingerprint()}"', '"dpsample-fixed"')
    assert planted != source
    (toy / "core" / "cache.py").write_text(planted)
    assert show(toy, tmp_path / "cache")[0] == "21.0\n"
    edit_callee(toy)
    assert show(toy, tmp_path / "cache")[0] == "21.0\n"


def test_the_fingerprint_follows_sources_names_and_versions(toy, monkeypatch):
    seen = [cache_module.fingerprint(toy)]
    assert cache_module.fingerprint(toy) == seen[0]
    edit_callee(toy)
    seen.append(cache_module.fingerprint(toy))
    (toy / "sub").mkdir()
    (toy / "sub" / "new.py").touch()
    seen.append(cache_module.fingerprint(toy))
    (toy / "sub" / "new.py").rename(toy / "new.py")
    seen.append(cache_module.fingerprint(toy))
    for module in (numba, np, cache_module.llvmlite):
        monkeypatch.setattr(module, "__version__", "0.0.0")
        seen.append(cache_module.fingerprint(toy))
    assert len(set(seen)) == len(seen) == 7


def test_a_fingerprint_ignores_what_is_no_source(toy):
    before = cache_module.fingerprint(toy)
    (toy / "notes.txt").write_text("text")
    (toy / "__pycache__").mkdir(exist_ok=True)
    assert cache_module.fingerprint(toy) == before


def test_an_edit_where_no_kernel_can_be_recompiles_nothing(toy):
    before = cache_module.fingerprint(toy)
    for folder in cache_module.WITHOUT_KERNELS:
        (toy / folder).mkdir(parents=True)
        (toy / folder / "new.py").touch()
        assert cache_module.fingerprint(toy) == before
        sources = [f.read_text() for f in (cache_module.PACKAGE / folder).rglob("*.py")]
        words = r"njit|cfunc|numba\.(?!__version__)|import kernel|pointer\("
        assert sources and not [text for text in sources if re.search(words, text)]


def test_only_stale_caches_of_this_package_are_removed(tmp_path):
    old, young, now = (f"dpsample-{16 * digit}" for digit in "0af")
    ages = {old: 15, young: 13, now: 15, "other": 99, "dpsample-thesis": 99}
    for name, days in ages.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.nbc").touch()
        then = time.time() - days * 86400.0
        os.utime(tmp_path / name, (then, then))
    file = "dpsample-" + 16 * "1"
    (tmp_path / file).touch()
    os.utime(tmp_path / file, (0.0, 0.0))
    cache_module._remove_stale(tmp_path, tmp_path / now)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {young, now, "other", "dpsample-thesis", file}


@pytest.mark.slow
def test_use_keeps_a_cache_young(toy, tmp_path):
    show(toy, tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    os.utime(folder, (0.0, 0.0))
    show(toy, tmp_path / "cache")
    assert time.time() - folder.stat().st_mtime < 3600.0


@pytest.mark.slow
def test_an_unwritable_cache_warns_once_and_works(toy, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    cache, temporary = tmp_path / "file" / "below", tmp_path / "temporary"
    output, errors = show(toy, cache, TMPDIR=temporary)
    assert output == "21.0\n"
    assert errors.count("RuntimeWarning: The compilation cache cannot be used") == 1
    assert "Set NUMBA_CACHE_DIR to a folder that only you can write to." in errors
    assert not list(temporary.iterdir())  # nothing is left behind


OWN_CACHE = """
import numba
from numba import njit
from toy.caller import answer
before = numba.config.CACHE_DIR
answer(1.0)
import users
users.mine(1.0)
assert numba.config.CACHE_DIR == before
"""
USERS = """
from numba import njit

@njit(cache=True)
def mine(x):
    return x
"""


@pytest.mark.slow
def test_users_keep_their_own_cache(toy, tmp_path):
    (toy.parent / "users.py").write_text(USERS)
    cache = tmp_path / "cache"
    show(toy, cache, code=OWN_CACHE)
    ours = {name for name in files_below(cache) if "dpsample-" in name}
    theirs = files_below(cache).keys() - ours
    assert ours and all("toy" in name for name in ours)
    assert theirs and all("users.mine" in name for name in theirs)


@pytest.mark.slow
def test_the_platforms_cache_is_used_without_a_users_one(toy, tmp_path):
    environment = {"NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": tmp_path / "xdg"}
    environment |= {"HOME": tmp_path, "LOCALAPPDATA": tmp_path}
    show(toy, None, **environment)
    assert [name for name in files_below(tmp_path) if name.endswith(".nbc")]
    assert not list(toy.rglob("*.nbc"))


def test_the_setting_comes_back_when_a_decoration_fails():
    before = numba.config.CACHE_DIR
    if not numba.config.DISABLE_JIT:
        with pytest.raises(TypeError):
            jit.kernel(3.0)
    with pytest.raises(RuntimeError), cache_module.package_cache():
        raise RuntimeError
    assert numba.config.CACHE_DIR == before


@pytest.mark.slow
def test_interpreted_code_gives_the_same(toy, tmp_path):
    cache = tmp_path / "cache"
    assert show(toy, cache, NUMBA_DISABLE_JIT=1)[0] == "21.0\n"
    assert not [name for name in files_below(cache) if name.endswith(".nbc")]


def test_a_pointer_is_made_once_and_keeps_its_function():
    @jit.kernel(cached=False)
    def piece(x, out):
        out[0] = 2.0 * x[0]

    signature = numba.types.void(jit.vector, jit.vector)
    first = jit.pointer(piece, signature, cached=False)
    assert jit.pointer(piece, signature, cached=False) is first
    if numba.config.DISABLE_JIT:
        assert first is piece


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_in_a_piece_leaves_nan():
    """Why pieces write into arrays: Numba swallows what a C function raises."""

    @jit.kernel(cached=False)
    def piece(x, out):
        if x[0] > 0.0:
            raise ValueError("lost")
        out[0] = 1.0

    @jit.kernel(cached=False)
    def call(pointer, x, out):
        out[0] = np.nan
        pointer(x, out)
        return out[0]

    signature = numba.types.void(jit.vector, jit.vector)
    made = jit.pointer(piece, signature, cached=False)
    assert call(made, np.array([-1.0]), np.empty(1)) == 1.0
    if not numba.config.DISABLE_JIT:
        assert np.isnan(call(made, np.array([1.0]), np.empty(1)))


FORBIDDEN = {"njit", "jit", "cfunc", "vectorize", "guvectorize", "jitclass", "stencil"}
FORBIDDEN |= {
    "CPUDispatcher",
    "compile_extra",
    "prange",
    "overload",
    "intrinsic",
    "generated_jit",
    "objmode",
}


def compilers_named(source):
    """Names of Numba's compilers that a source imports or uses."""
    found = set()
    own = source.replace("dpsample.core.jit", "")
    if "numba" not in own and not any(f".{name}" in own for name in FORBIDDEN):
        return found  # which spares the parsing of most files
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba"):
            found |= {alias.name for alias in node.names} & FORBIDDEN
        elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN:
            found.add(node.attr)
    return found


def test_nothing_but_the_one_decorator_compiles():
    sources = sorted((ROOT / "dpsample").rglob("*.py"))
    guilty = {str(s): compilers_named(s.read_text("utf-8")) for s in sources}
    guilty = {name: found for name, found in guilty.items() if found}
    core = ROOT / "dpsample" / "core"
    assert guilty == {
        # Addresses of arrays and of entries, which Python cannot write.
        str(core / "addresses.py"): {"intrinsic"},
        # Views that functions cannot write to, and results of a declared type.
        str(core / "user_functions.py"): {"intrinsic", "overload"},
        # JAX's own compiler, whose functions a density calls back.
        str(ROOT / "dpsample" / "interop" / "jax_functions.py"): {"jit"},
        str(core / "jit.py"): {"cfunc"},
        str(core / "linking.py"): {"CPUDispatcher", "compile_extra"},
    }
    assert compilers_named("import numba\n@numba.njit\ndef f(): pass") == {"njit"}


def test_no_blanket_fast_math():
    """It licenses the compiler to drop NaN tests, and NaN is the failure code."""
    for source in (ROOT / "dpsample").rglob("*.py"):
        text = source.read_text("utf-8")
        if not any(word in text for word in ("nnan", "ninf", "fast")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant):
                assert node.value not in ("nnan", "ninf", "fast"), source
            if isinstance(node, ast.keyword) and node.arg == "fastmath":
                assert isinstance(node.value, ast.Set | ast.Name), source


def test_threads_that_decorate_at_once_use_our_cache_and_leave_the_users():
    before = numba.config.CACHE_DIR

    def inside(i):
        found = []
        for _ in range(20):
            with cache_module.package_cache():
                time.sleep(1e-4 * (i % 3))
                found.append(numba.config.CACHE_DIR)
        return found

    with ThreadPoolExecutor(8) as pool:
        seen = {name for names in pool.map(inside, range(8)) for name in names}
    assert seen == {cache_module.CACHE_DIRECTORY}
    assert numba.config.CACHE_DIR == before


@pytest.mark.slow
def test_only_compiled_functions_leave_out_their_types():
    """A file's marker lifts mypy's rule for it; everything else keeps the rule."""
    for source in sorted(ROOT.glob("dpsample/**/*.py")):
        text = source.read_text("utf-8")
        if not text.startswith("# mypy: allow-untyped-defs\n"):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        handed_on = {part.id for c in calls for part in c.args if hasattr(part, "id")}
        # One of two functions may be chosen first: `source = f if condition else g`.
        choices = [node for node in nodes if isinstance(node, ast.IfExp)]
        handed_on |= {
            getattr(c, arm).id
            for c in choices
            for arm in ("body", "orelse")
            if hasattr(getattr(c, arm), "id")
        }
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        untyped = [node for node in functions if node.returns is None]
        assert untyped, f"{source} needs no marker"
        for node in untyped:
            decorators = [ast.unparse(each) for each in node.decorator_list]
            is_kernel = any(each.startswith("kernel") for each in decorators)
            assert is_kernel or node.name in handed_on, (source, node.name)


@pytest.mark.slow
def test_no_interrupted_pointer_leaves_the_id_of_its_function_behind(monkeypatch):
    """The next function may get that id, and would be given the other's C function."""
    if numba.config.DISABLE_JIT:
        pytest.skip("there are no C functions")

    @contextmanager
    def interrupted():
        yield
        raise KeyboardInterrupt

    piece = jit.kernel(lambda out: None, cached=False)
    key = id(piece), numba.types.void(jit.vector)
    monkeypatch.setattr(jit, "package_cache", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jit.pointer(piece, key[1], cached=False)
    seen = weakref.ref(piece)
    del piece
    gc.collect()
    assert seen() is not None or key not in jit._pointers


@pytest.mark.parametrize("make", [np.random.default_rng, secret_generator])
def test_ctrl_c_while_a_kernel_reads_its_generator_is_no_crash(make):
    """In a function of Python, called by machine code, it would be one."""
    if numba.config.DISABLE_JIT and make is secret_generator:
        pytest.skip("its words come from functions of Python, called by NumPy")
    uniform = jit.kernel(lambda rng: rng.random(), cached=False)
    uniform(make())
    called = set()

    def look(frame, event, _value):
        if event == "call":
            called.add(frame.f_code.co_filename)

    fresh = make()
    sys.setprofile(look)
    try:
        uniform(fresh)
    finally:
        sys.setprofile(None)
    assert not [name for name in called if "ctypes" in name]
    for _ in moments(lambda: uniform(fresh), ""):
        assert 0.0 <= uniform(fresh) < 1.0
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    assert uniform(first) == second.random()


Named = namedtuple("Named", "number row")


@pytest.mark.parametrize("shape", ["named", "tuple", "rows"])
def test_ctrl_c_while_a_kernel_runs_is_no_crash(shape):
    """Its results are made by functions of Python that machine code calls."""
    if numba.config.DISABLE_JIT:
        pytest.skip("there is no machine code")
    results = {
        "named": lambda x: Named(2.0 * x, np.full(2, x)),
        "tuple": lambda x: (2.0 * x, np.full(2, x)),
        "rows": lambda x: (np.full(2, 2.0 * x), np.full(2, x)),
    }
    double = jit.kernel(results[shape], cached=False)
    number, row = double(3.0)
    assert np.all(number == 6.0) and row.tolist() == [3.0, 3.0]

    def press(frame, event, _value):
        if event == "call" and frame.f_code.co_name == "_numba_unpickle":
            raise KeyboardInterrupt

    sys.setprofile(press)
    try:
        with pytest.raises(KeyboardInterrupt):
            double(3.0)
    finally:
        sys.setprofile(None)
    assert isinstance(double(3.0), Named if shape == "named" else tuple)


def test_a_kernel_that_does_not_count_gets_no_counted_array():
    """The array would never be freed."""
    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")

    @jit.kernel(cached=False)
    def half(x):
        return x[: x.shape[0] // 2]

    @jit.kernel(cached=False, counts_references=False)
    def first(x):
        return half(x)[0]

    @jit.kernel(cached=False)
    def call(x):
        return first(x)

    with pytest.raises(numba.TypingError, match="half returns memory"):
        call(np.ones(4))


def _optional(x):
    return x.copy() if x[0] > 0.0 else None


def _text(x):
    return str(x.shape[0])


def _arrays(x):
    for _ in range(3):
        yield x.copy()


def _is_there(found):
    return 0 if found is None else 1


def _length(found):
    return len(found)


def _count(found):
    total = 0
    for _ in found:
        total += 1
    return total


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"fastmath": {"reassoc"}}], ids=str)
@pytest.mark.parametrize(
    ("made", "used"), [(_optional, _is_there), (_text, _length), (_arrays, _count)]
)
def test_nor_does_it_get_other_memory(made, used, options):
    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    make = jit.kernel(made, cached=False)
    use = numba.njit(used)

    @jit.kernel(cached=False, counts_references=False, **options)
    def first(x):
        return use(make(x))

    @jit.kernel(cached=False)
    def call(x):
        return first(x)

    with pytest.raises(numba.TypingError, match="returns memory"):
        call(np.ones(4))


def test_who_counts_gets_no_array_from_who_does_not():
    """It would be freed twice: the process would die."""
    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")

    @jit.kernel(cached=False, counts_references=False)
    def same(x):
        return x

    @jit.kernel(cached=False)
    def both(n):
        x = np.ones(n)
        return x, same(x)

    with pytest.raises(numba.TypingError, match="same returns memory"):
        both(4)
