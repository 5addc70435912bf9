"""Settings of the whole suite: examples, tiers, seeds and the ledger of levels.

SUITE_SEED, a whole number, gives every seeded stream of the tests another one. Only
statistical checks stay right under other seeds, and of these the ones whose level is
exact: SUITE_LEDGER names the file into which a run writes them, and from which a run
with SUITE_SEED reads what to run.
"""

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

import numba
import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

import dpsample
from tests.support.processes import ROOT, STARTED, count_processes
from tests.support.statistics import ALPHA, FIXED, LEDGER, SUITE_ALPHA, spent
from tests.support.tiers import defer

# Derandomized: a red test must be red again. Compilation makes any deadline flaky.
# The default tier looks at few examples, the nightly run at as many as is usual.
settings.register_profile("nightly", derandomize=True, deadline=None, database=None)
settings.register_profile("suite", settings.get_profile("nightly"), max_examples=20)
settings.load_profile("suite")

SEED = int(os.environ.get("SUITE_SEED", "0"))
RECORD = os.environ.get("SUITE_LEDGER", "")
# They compile most kernels, of samplers and of optimizers: first, one to each process.
# The first one's kernel is also that of the file which would run beside it.
# The next ones take longest in the slow tier: no process is to end with one of them.
FIRST = (
    "api/test_replicate.py",
    "contracts/test_samplers.py",
    "contracts/test_hostile_records.py",
    "samplers/test_agreement.py",
    "samplers/test_sampler_runs.py",
    "project/test_contributing.py",
    "project/test_site.py",
)
TARGETS = "tests.support.gibbs_cases"
# Processes that the default tier may start: each imports the package for two seconds.
MOST_PROCESSES = 60
# Their examples draw or compile for seconds.
LONG_EXAMPLES = (
    "couplings/unbiased.py",
    "diagnostics/identities.py",
    "couplings/meeting.py",
    "diagnostics/simulation_based.py",
    "diagnostics/mixing.py",
    "diagnostics/moments.py",
)
# Examples that need a library, which may be missing.
EXAMPLE_LIBRARIES = {
    "interop/bridge.py": "jax",
    "interop/jax_functions.py": "jax",
    "interop/pymc_models.py": "pymc",
    "interop/stan_models.py": "bridgestan",
}


def pytest_configure(config):
    """Give one thread of BLAS to each process of the suite, and let it hear Ctrl-C.

    Threads wait for each other in loops that take the processor from another process:
    accounting, which multiplies long vectors, then takes five times as long. A shell
    starts what it puts into the background with interrupts ignored.
    """
    threadpool_limits(1, "blas")
    count_processes()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if numba.config.DISABLE_JIT:  # compiled code never warns of floating point
        for what in ("overflow", "underflow", "divide by zero", "invalid value"):
            line = f"ignore:{what} encountered:RuntimeWarning"
            config.addinivalue_line("filterwarnings", line)


@pytest.fixture
def two_blas_threads():
    """Threads that the package has to limit itself."""
    with threadpool_limits(2, "blas"):
        yield


if SEED:
    from dpsample.core import streams

    plain_rng, plain_sequence = np.random.default_rng, streams.seed_sequence

    def new_rng(seed=None):
        """A generator of the tests; the package's own probes stay as they are.

        So do targets: chains are long enough, and bounds low enough, for these.
        """
        caller = sys._getframe(1).f_globals["__name__"]
        is_ours = caller.startswith("tests.") and caller != TARGETS
        if is_ours and not isinstance(seed, np.random.Generator):
            seed = [SEED, *np.ravel(seed)]
        return plain_rng(seed)

    def new_sequence(seed):
        """Root of the streams of one call of the package."""
        if isinstance(seed, int | np.integer):
            return np.random.SeedSequence([SEED, int(seed)])
        return plain_sequence(seed)

    np.random.default_rng, streams.seed_sequence = new_rng, new_sequence


def import_by_turns(folders):
    """Import the modules of tests, each process of a run in another order.

    Every process collects every test, and pytest rewrites the asserts of a file before
    its bytecode is kept. Without this all processes would do so for the same file at
    the same moment. Now most files are ready when a process comes to them.
    """
    files = sorted(file for folder in folders for file in folder.rglob("test_*.py"))
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for turn in range(count):
        for file in files[(number + turn) % count :: count]:
            # What fails here fails again when pytest collects it, and is reported.
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Let the garbage collector pass by what is collected, which lives to the end.

    To look through so many objects again and again is 4 of 9 seconds of the collection.
    """
    if session.config.pluginmanager.hasplugin("dsession"):
        return (yield)  # other processes collect
    gc.disable()
    # Or else pytest makes second modules of the files that it is told to read first.
    for room in iter_modules(dpsample.__path__, "dpsample."):
        import_module(room.name)
    if hasattr(session.config, "workerinput"):
        folders = (Path(argument) for argument in session.config.args)
        import_by_turns([x.resolve() for x in folders if x.is_dir()])
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Move cases to the slow tier, the kernels' files to the front."""
    defer(items)
    for item in items:
        if item.nodeid.split("::")[0].endswith(LONG_EXAMPLES):
            item.add_marker(pytest.mark.slow)
        for file, library in EXAMPLE_LIBRARIES.items():
            if item.nodeid.split("::")[0].endswith(file) and not find_spec(library):
                item.add_marker(pytest.mark.skip(f"{library} is not installed"))
    items.sort(key=lambda item: not item.nodeid.split("::")[0].endswith(FIRST))
    if SEED and RECORD:
        wanted = set(Path(RECORD).read_text().splitlines())
        config.hook.pytest_deselected(
            items=[i for i in items if i.nodeid not in wanted]
        )
        items[:] = [item for item in items if item.nodeid in wanted]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Add what a process spent and started to this one's ledgers."""
    output = getattr(node, "workeroutput", {})
    checks, fixed, started = output.get("ledgers", ({}, [], {}))
    LEDGER.update(checks)
    FIXED.update(fixed)
    STARTED.update(started)


def is_default(config):
    """Whether a run selects the default tier, or a part of it."""
    return config.option.markexpr == config.getini("addopts")[-1]


def pytest_sessionfinish(session):
    """A run whose checks together may fail too often is a failure.

    So is one of the default tier that starts too many processes.
    """
    if hasattr(session.config, "workeroutput"):
        ledgers = (dict(LEDGER), sorted(FIXED), dict(STARTED))
        session.config.workeroutput["ledgers"] = ledgers
        return
    too_many = STARTED.total() > MOST_PROCESSES and is_default(session.config)
    if spent() > SUITE_ALPHA or too_many:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if RECORD and not SEED:
        Path(RECORD).write_text("\n".join(sorted(LEDGER.keys() - FIXED)))


def pytest_terminal_summary(terminalreporter):
    """Say what the checks of this run have spent, and how many processes it started."""
    verdict = "TOO MUCH" if spent() > SUITE_ALPHA else "within"
    seeds = f", seeds drawn anew from SUITE_SEED={SEED}" if SEED else ""
    terminalreporter.write_line(
        f"statistical checks: {LEDGER.total()} at level {ALPHA:g} in {len(LEDGER)} "
        f"tests spend {spent():.2g}, {verdict} {SUITE_ALPHA:g}{seeds}"
    )
    if is_default(terminalreporter.config):
        number = STARTED.total()
        verdict = "TOO MANY, at most" if number > MOST_PROCESSES else "at most"
        terminalreporter.write_line(
            f"processes that {len(STARTED)} tests started: {number}, {verdict} "
            f"{MOST_PROCESSES}"
        )
