"""Compilation: once per machine, never per problem, never for a user's loss."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpsample.api.warm import public_samplers, sampler_targets
from tests.support.processes import files_below, run_python

SET_UP = """
import json, time
import numpy as np
import dpsample as dps
from dpsample.running import chains
from dpsample.core.streams import streams
from dpsample.samplers.proximal import alternation

def make(loss, domain, p=2.0, rows=None, response=None, **options):
    rng = np.random.default_rng(1)
    given = rng.uniform(-0.5, 0.5, (12, 4))
    problem = dps.Problem(
        given if rows is None else rows(given),
        np.where(given[:, 0] > 0.0, 1.0, -1.0) if response is None else response,
        loss=loss, domain=domain, row_bound=1.0, response_bound=1.0, **options,
    )
    regularizer = dps.regularizers.SquaredNorm(p)
    return dps.Gibbs(problem, k=3.0, mu=1.0, regularizer=regularizer)

def draw(target):
    pilot, stream = streams(1, 2)
    prepared = dps.Proximal().prepare(target, pilot)
    state = prepared.init()
    chains.advance(prepared.runner(), state, stream, 3)
    return state.position

LOSSES = [
    dps.losses.Linear(), dps.losses.Logistic(), dps.losses.Hinge(),
    dps.losses.SmoothedHinge(), dps.losses.Absolute(), dps.losses.Quantile(),
    dps.losses.Huber(), dps.losses.Squared(), dps.losses.PowerFour(),
    dps.losses.CappedLogistic(), dps.losses.CalibratedLogistic(),
]
BALL, BOX = dps.domains.Ball(1.0), dps.domains.Box(-1.0, 2.0)
SPACE, ROUND = dps.domains.WholeSpace(), dps.domains.Ball(1.0, p=1.5)
CROSS = dps.domains.Ball(1.0, p=1.0)
MATRICES = dps.domains.SchattenBall(1.0, p=1.0, shape=(2, 2))
HALVES = dps.domains.Polytope(np.vstack([np.eye(4), -np.eye(4)]), np.ones(8))
"""
WARM = """
from dpsample.core.cache import CACHE_DIRECTORY
from dpsample.api.warm import warm
warm(is_whole=True)
print(CACHE_DIRECTORY)
"""
EVERYTHING = """
from scipy import sparse
for loss in LOSSES:
    for domain in (BALL, BOX, SPACE):
        draw(make(loss, domain))
for domain in (BALL, BOX, SPACE, ROUND, CROSS, MATRICES, HALVES):
    for p in (1.0, 1.5, 2.0):
        draw(make(LOSSES[1], domain, p, rows=sparse.csr_matrix))
draw(make(LOSSES[2], BALL, offset=np.full(12, 0.1), offset_bound=0.2))
for risk in ("population", "empirical"):
    problem = make(LOSSES[1], BALL).problem
    dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-6), risk=risk)
for p in (1.5, 2.0):
    target = make(LOSSES[1], ROUND, p)
    dps.sample(target, num_draws=3, init=[0.1, 0.0, 0.0, 0.0], progress=False)
"""
LAYOUTS = """
LAYOUT = {
    "list": lambda a: a.tolist(),
    "fortran": np.asfortranarray,
    "float32": lambda a: a.astype(np.float32),
    "integers": lambda a: np.sign(np.round(a)).astype(int) * np.eye(12, 4, dtype=int),
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "frame": lambda a: __import__("pandas").DataFrame(a),
}
labels = [1, -1] * 6
for rows in LAYOUT.values():
    target = make(LOSSES[1], BALL, rows=rows, response=labels)
    draw(target)
"""
CUSTOM = """
# A cell of a notebook: no file holds these functions.
mine = dps.losses.custom(
    lambda u, y: np.sqrt(1.0 + (u - y) ** 2),
    lambda u, y: (u - y) / np.sqrt(1.0 + (u - y) ** 2),
    slope_bound=1.0, upper_curvature=1.0,
)
for domain in (BALL, BOX, SPACE):
    assert np.isfinite(draw(make(mine, domain))).all()
dps.release(make(mine, BALL).problem, dps.Budget(epsilon=1.0, delta=1e-6))
"""
SAMPLERS = """
from dpsample import domains
from dpsample.api import warm
cases = warm.sampler_targets()
for regularizer in (None, dps.regularizers.SquaredNorm(1.5)):
    for domain in (BALL, BOX, SPACE, ROUND, MATRICES, HALVES, domains.Simplex()):
        for loss in (LOSSES[1], LOSSES[2], LOSSES[7]):
            cases.append(warm.make(loss, domain, regularizer))
for kind in warm.public_samplers():
    for target in cases:
        if kind().supports(target)[0]:
            options = dict(num_draws=2, num_warmup=0, num_chains=1, progress=False)
            dps.sample(target, sampler=kind(), **options)
draw(make(LOSSES[1], BALL))
"""
REPORT = """
run = alternation.run
hits = sum(run.stats.cache_hits.values()), sum(run.stats.cache_misses.values())
print(json.dumps({"signatures": len(run.signatures), "hits": hits}))
"""


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    """Copy of the cache after one process has filled it; nobody else writes to it."""
    filled = Path(run_python(WARM)[0].strip())
    cache = tmp_path_factory.mktemp("numba")
    shutil.copytree(filled, cache / filled.name)
    assert len(files_below(cache)) > 50
    return cache


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [EVERYTHING, LAYOUTS, CUSTOM, SAMPLERS],
    ids=["everything", "layouts", "custom", "samplers"],
)
def test_a_warm_process_compiles_no_kernel(warm_cache, code):
    """Every loss, domain, layout, verb, and a user's own loss."""
    before = files_below(warm_cache)
    output, _ = run_python(SET_UP + code + REPORT, NUMBA_CACHE_DIR=warm_cache)
    after = files_below(warm_cache)
    assert sorted(after.keys() - before.keys()) == []
    assert after == before
    assert json.loads(output) == {"signatures": 1, "hits": [1, 0]}


@pytest.mark.slow
def test_a_process_without_bytecode_compiles_no_kernel(warm_cache, tmp_path):
    """Some installers leave Numba as source, which the first process compiles."""
    code = "draw(make(LOSSES[1], BALL))" + REPORT
    fresh = {"NUMBA_CACHE_DIR": warm_cache, "PYTHONPYCACHEPREFIX": tmp_path}
    before = files_below(warm_cache)
    output, _ = run_python(SET_UP + code, **fresh)
    assert files_below(warm_cache) == before
    assert json.loads(output) == {"signatures": 1, "hits": [1, 0]}


FIRST = """
import pickle, time
import numpy as np
import dpsample as dps
from dpsample.core.streams import streams
from dpsample.samplers.chain import NUM_STATS

target = pickle.loads({target!r})
sampler = dps.samplers.{name}()
pilot, stream = streams(1, 2)
prepared = sampler.prepare(target, pilot)
row, stats = np.empty((1, target.dim)), np.empty((1, NUM_STATS))
prepared.runner()(prepared.init(), stream, row, stats)
first = time.process_time()
dps.sample(target, sampler=sampler, num_draws=100, progress=False)
print(first, time.process_time())
"""


@pytest.mark.alone
@pytest.mark.parametrize("kind", public_samplers())
def test_a_warm_process_is_quick(warm_cache, kind):
    """Seconds of this process, the best of four; bytecode is kept, as at a user's."""
    target = next(t for t in sampler_targets() if kind().supports(t)[0])
    code = FIRST.format(name=kind.__name__, target=pickle.dumps(target))
    kept = {"PYTHONDONTWRITEBYTECODE": None, "PYTHONPYCACHEPREFIX": warm_cache / "py"}
    times = []
    for _ in range(4):
        output, _ = run_python(code, NUMBA_CACHE_DIR=warm_cache, **kept)
        times.append([float(word) for word in output.split()])
    first, tree = np.min(times, axis=0)
    assert first < 1.5
    assert tree < 2.5


@pytest.mark.slow
def test_a_piece_that_was_never_compiled_would_be_seen(warm_cache):
    """Negative control: a loss with a new compiled type leaves new files."""
    code = """
from dpsample.numerics import stable
stable.vexp(np.float32(1.0))
"""
    before = files_below(warm_cache)
    run_python(SET_UP + code, NUMBA_CACHE_DIR=warm_cache)
    assert files_below(warm_cache) != before


TINY = """
problem = make(LOSSES[{loss}], BALL).problem
answer = dps.release(problem, dps.Budget(epsilon=1.0, delta=1e-3), seed=5)
tree = dps.sample(
    make(LOSSES[{loss}], BOX, {p}), num_draws=4, num_warmup=2, num_chains=2, seed=5,
    sampler=dps.Proximal(), progress=False,
)
draws = tree.posterior["theta"].values.tolist()
print(json.dumps([answer.theta.tolist(), draws]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "p"), [(1, 2.0), (2, 1.5)])
def test_interpreted_kernels_give_the_compiled_draws(warm_cache, loss, p):
    code = SET_UP + TINY.format(loss=loss, p=p)
    compiled, _ = run_python(code, NUMBA_CACHE_DIR=warm_cache)
    before = files_below(warm_cache)
    plain, _ = run_python(code, NUMBA_CACHE_DIR=warm_cache, NUMBA_DISABLE_JIT=1)
    assert files_below(warm_cache) == before
    for a, b in zip(json.loads(compiled), json.loads(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


CPU = """
import time
begin = time.process_time()
{code}
print(time.process_time() - begin)
"""
HEAVY = "scipy pandas typer rich xarray dp_accounting matplotlib".split()


@pytest.mark.slow
def test_importing_costs_no_more_than_numba():
    def cost(code):
        runs = [float(run_python(CPU.format(code=code))[0]) for _ in range(5)]
        return min(runs)

    assert cost("import dpsample") <= cost("import numba") + 0.1


def test_importing_loads_no_heavy_library():
    code = f"import sys, dpsample; print([m for m in {HEAVY} if m in sys.modules])"
    assert run_python(code)[0] == "[]\n"


@pytest.mark.slow
def test_a_heavy_library_would_be_seen():
    control = f"import sys, pandas; print([m for m in {HEAVY} if m in sys.modules])"
    assert run_python(control)[0] == "['pandas']\n"


@pytest.mark.slow
def test_using_the_core_loads_neither_the_command_line_nor_the_tables():
    code = f"""
import sys, dpsample
for name in dpsample.__all__:
    getattr(dpsample, name)
heavy = {HEAVY} + ["scipy.optimize", "scipy.stats"]
print([m for m in heavy if m in sys.modules and m != "scipy"])
"""
    assert run_python(code)[0] == "[]\n"
