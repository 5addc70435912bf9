"""The chain loop: threads, chunks, prefixes, interrupts, checkpoints, failures."""

import os
import signal
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dpsample.core import pauses
from dpsample.core.streams import streams
from dpsample.running import chains, checkpoint
from dpsample.running.checkpoint import identity_of
from dpsample.samplers.chain import NUM_STATS
from tests.support.walks import DIM, Prepared, assert_same, run, walk


def fresh(num_chains=3):
    states = [Prepared().init(None) for _ in range(num_chains)]
    return states, streams(11, num_chains)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("chunk", [1, 7, 1000, None])
def test_threads_and_chunks_change_no_draw(threads, chunk):
    assert_same(run(50, threads=1, chunk=50), run(50, threads=threads, chunk=chunk))


def test_draws_are_those_of_the_runner_alone():
    states, rngs = fresh(2)
    found = run(20, num_chains=2, num_warmup=5)
    for c in range(2):
        draws, stats = np.empty((25, DIM)), np.empty((25, NUM_STATS))
        walk(states[c], rngs[c], draws, stats)
        np.testing.assert_array_equal(found.draws[c], draws[5:])
        np.testing.assert_array_equal(found.stats[c], stats[5:])


def test_a_shorter_run_is_a_prefix():
    np.testing.assert_array_equal(run(10).draws, run(20).draws[:, :10])


def test_a_chain_does_not_depend_on_how_many_there_are():
    np.testing.assert_array_equal(run(10, num_chains=2).draws, run(10).draws[:2])


@pytest.mark.parametrize("stop", [1, 30, 99, 100])
def test_resume_is_bit_identical(tmp_path, stop):
    path = tmp_path / "run.npz"
    run(stop, checkpoint=path, identity="a")
    resumed = run(100, checkpoint=path, identity="a")
    assert_same(resumed, run(100))
    assert [int(state.counts[0]) for state in resumed.states] == [100] * 3
    assert_same(run(100, checkpoint=str(path), identity="a"), resumed)  # nothing left
    assert not list(tmp_path.glob("*.part"))


def test_a_resume_that_forgets_the_stream_would_be_seen(tmp_path, monkeypatch):
    """Negative control: restarted streams give other draws after the checkpoint."""
    path = tmp_path / "run.npz"
    run(30, checkpoint=path)
    monkeypatch.setattr(
        checkpoint, "restore_state", lambda state: np.random.default_rng(0)
    )
    resumed = run(100, checkpoint=path)
    np.testing.assert_array_equal(resumed.draws[:, :30], run(30).draws)
    assert not np.any(resumed.draws[:, 30:] == run(100).draws[:, 30:])


def test_a_crash_loses_nothing_that_was_saved(tmp_path, monkeypatch):
    path, broken = tmp_path / "run.npz", [0]
    monkeypatch.setattr(chains, "CHECKPOINT_SECONDS", -1.0)

    def crashing(state, rng, draws, stats):
        broken[0] += 1
        if broken[0] > 40:
            raise MemoryError("the machine is full")
        walk(state, rng, draws, stats)

    with pytest.raises(MemoryError):
        run(100, runner=crashing, checkpoint=path, chunk=3)
    with np.load(path) as file:
        assert file["draws"].shape == (3, 39, DIM)
    assert_same(run(100, checkpoint=path), run(100))


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    run(30, checkpoint=path, identity="a")
    words = r"^checkpoint must be of this target, .* got another run's file run\.npz\. "
    with pytest.raises(ValueError, match=words):
        run(100, checkpoint=path, identity="b")
    with pytest.raises(ValueError, match=words):
        run(100, num_chains=2, checkpoint=path, identity="a")
    with pytest.raises(
        ValueError, match=r"num_draws must be >= the 30 draws .* got 20"
    ):
        run(20, checkpoint=path, identity="a")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "run.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^checkpoint must be a file .*got run\.npz"):
        run(10, checkpoint=path)
    assert path.read_bytes() == content


def test_arrays_of_another_program_are_refused(tmp_path):
    np.save(tmp_path / "run.npy", np.ones(3))
    np.savez(tmp_path / "run.npz", draws=np.ones(3))
    for name in ("run.npy", "run.npz"):
        with pytest.raises(ValueError, match="^checkpoint must be a file written by"):
            run(10, checkpoint=tmp_path / name)


def interrupt_after(num_draws):
    def on_progress(done, total, run):
        if done >= num_draws:
            os.kill(os.getpid(), signal.SIGINT)

    return on_progress


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_ctrl_c_gives_a_prefix_with_every_chain_as_long(tmp_path, threads):
    before = signal.getsignal(signal.SIGINT)
    path = tmp_path / "run.npz"
    options = {"chunk": 10, "threads": threads, "checkpoint": path}
    stopped = run(100, on_progress=interrupt_after(40), **options)
    assert signal.getsignal(signal.SIGINT) is before
    assert stopped.is_interrupted and stopped.draws.shape == (3, 40, DIM)
    np.testing.assert_array_equal(stopped.draws, run(40).draws)
    resumed = run(100, **options)
    assert not resumed.is_interrupted
    assert_same(resumed, run(100))


def test_ctrl_c_in_the_last_checkpoint_loses_neither_it_nor_the_draws(
    tmp_path, monkeypatch
):
    def pressed(path, identity, run):
        signal.raise_signal(signal.SIGINT)
        save(path, identity, run)

    path, save = tmp_path / "run.npz", chains.save
    monkeypatch.setattr(chains, "save", pressed)
    stopped = run(20, checkpoint=path)
    assert stopped.is_interrupted
    np.testing.assert_array_equal(stopped.draws, run(20).draws)
    monkeypatch.undo()
    assert_same(run(40, checkpoint=path), run(40))


def test_ctrl_c_in_the_warmup_gives_no_draws():
    stopped = run(10, num_warmup=50, chunk=10, on_progress=interrupt_after(20))
    assert stopped.is_interrupted and stopped.draws.shape == (3, 0, DIM)


@pytest.fixture
def clock(monkeypatch):
    """List whose only number is the time, in place of the machine's clock."""
    now = [0.0]
    monkeypatch.setattr(chains.TimeLimit, "clock", lambda _=None: now[0])
    return now


def at_draw(num_draws, clock):
    """Let an hour pass when there are so many draws."""

    def on_progress(done, total, run):
        if done >= num_draws:
            clock[0] = 3600.0

    return on_progress


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_time_limit_gives_a_prefix_and_the_checkpoint_goes_on(
    tmp_path, threads, clock
):
    path, limit = tmp_path / "run.npz", chains.TimeLimit(60.0)
    options = {"chunk": 10, "threads": threads, "checkpoint": path}
    stopped = run(100, on_progress=at_draw(40, clock), limit=limit, **options)
    assert stopped.is_out_of_time and not stopped.is_interrupted
    assert stopped.draws.shape == (3, 40, DIM)
    np.testing.assert_array_equal(stopped.draws, run(40).draws)
    resumed = run(100, **options)
    assert not resumed.is_out_of_time
    assert_same(resumed, run(100))


def test_a_time_limit_in_the_warmup_keeps_it_in_the_checkpoint(tmp_path, clock):
    options = {"num_warmup": 50, "chunk": 10, "checkpoint": tmp_path / "run.npz"}
    passing = {"on_progress": at_draw(20, clock), "limit": chains.TimeLimit(60.0)}
    stopped = run(10, **options, **passing)
    assert stopped.is_out_of_time and stopped.draws.shape == (3, 0, DIM)
    assert stopped.num_discarded == 20
    counted = []
    resumed = run(10, on_progress=lambda done, *_: counted.append(done), **options)
    assert counted[0] == 30
    assert_same(resumed, run(10, num_warmup=50))


def test_a_chunk_that_outlasts_the_limit_is_given_up_at_a_pause(tmp_path, clock):
    def slow(state, rng, draws, stats):
        walk(state, rng, draws, stats)
        if state.counts[0] > 30:
            clock[0] = 3600.0
            pauses.notify_listeners()

    limit = chains.TimeLimit(60.0)
    options = {"chunk": 10, "checkpoint": tmp_path / "run.npz"}
    stopped = run(100, runner=slow, limit=limit, **options)
    assert stopped.is_out_of_time and stopped.draws.shape[1] == 30
    assert_same(run(100, **options), run(100))


def test_a_run_that_ends_in_time_is_not_out_of_time(clock):
    passing = {"on_progress": at_draw(20, clock), "limit": chains.TimeLimit(60.0)}
    assert not run(20, chunk=10, **passing).is_out_of_time
    limit = chains.TimeLimit(60.0)
    assert limit.halfway().due == clock[0] + 30.0
    assert chains.TimeLimit().halfway().due == np.inf


def test_a_second_ctrl_c_raises_unless_the_key_is_held_down(monkeypatch):
    def twice(done, total, run):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    stopped = run(100, chunk=10, on_progress=twice)
    assert stopped.is_interrupted and stopped.draws.shape[1] == 10
    monkeypatch.setattr(pauses, "REPEAT_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        run(100, chunk=10, on_progress=twice)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_in_another_thread_leaves_signals_alone():
    found = []
    thread = threading.Thread(target=lambda: found.append(run(10)))
    thread.start()
    thread.join()
    assert_same(found[0], run(10))


def test_a_failure_in_one_chain_is_raised():
    def failing(state, rng, draws, stats):
        walk(state, rng, draws, stats)
        if state.counts[0] > 30:
            raise ArithmeticError("no draw")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ArithmeticError, match="no draw"):
        run(100, runner=failing, chunk=7)
    assert signal.getsignal(signal.SIGINT) is before


def test_progress_is_reported_in_order_and_to_the_end():
    seen = []
    run(20, num_warmup=10, chunk=7, on_progress=lambda *args: seen.append(args[:2]))
    assert seen == [(7, 30), (10, 30), (17, 30), (24, 30), (30, 30)]  # 10 of warm-up


def test_advance_moves_the_state_as_a_run_does():
    (state, *_), (rng, *_) = fresh()
    chains.advance(walk, state, rng, 50)
    np.testing.assert_array_equal(state.position, run(50).draws[0, -1])


def test_identities_differ_when_anything_does():
    base = identity_of(np.arange(6.0), 1.0, "logistic")
    others = [
        (np.arange(6.0).reshape(2, 3), 1.0, "logistic"),
        (np.arange(6.0, dtype=np.float32), 1.0, "logistic"),
        (np.arange(6.0) + 1e-15, 1.0, "logistic"),
        (np.arange(6.0), 1.0, "hinge"),
        (np.arange(6.0), np.nextafter(1.0, 2.0), "logistic"),
    ]
    assert len({base, *(identity_of(*parts) for parts in others)}) == 6
    assert base == identity_of(np.arange(6.0), 1.0, "logistic")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_draws": 0}, "num_draws must be an integer >= 1, got 0"),
        ({"num_draws": 2.5}, "num_draws must be an integer >= 1, got 2.5"),
        ({"num_draws": 1, "num_warmup": -1}, "num_warmup must be an integer >= 0"),
        ({"num_draws": 1, "threads": 0}, "threads must be an integer >= 1, got 0"),
        ({"num_draws": 1, "chunk": 0}, "chunk must be an integer >= 1, got 0"),
        ({"num_draws": 1, "checkpoint": 3}, "checkpoint must be a str or PathLike"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        run(**options)


def test_of_runs_that_overlap_the_last_one_frees_the_threads_of_blas():
    def limits():
        return {library.num_threads for library in pauses._blas()}

    with threadpool_limits(limits=2, user_api="blas"), ExitStack() as last:
        before = limits()
        with pauses.single_threaded_blas():
            last.enter_context(pauses.single_threaded_blas())
        assert limits() <= {1}
        last.close()
        assert limits() == before


def test_blas_obeys_every_thread_and_is_free_after_the_last_one():
    """OpenBLAS takes limits of one thread only, until that gives up control."""

    def limits():
        return {library.num_threads for library in pauses._blas()}

    def enter():
        with pauses.single_threaded_blas():
            seen.append(limits())
            inside.set()
            leave.wait()

    before, seen = limits(), []
    for first_leaves_last in (False, True):
        inside, leave = threading.Event(), threading.Event()
        other = threading.Thread(target=enter)
        with pauses.single_threaded_blas():
            other.start()
            inside.wait()
            if first_leaves_last:
                leave.set()
                other.join()
        leave.set()
        other.join()
        assert limits() == before
    leave.set()
    alone = threading.Thread(target=enter)
    alone.start()
    alone.join()
    assert limits() == before
    assert all(each <= {1} for each in seen) and len(seen) == 3
