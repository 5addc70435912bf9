"""Pauses of compiled code: no draw depends on them, and every loop has them."""

import asyncio
import dataclasses
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dpsample as dps
from dpsample.api.warm import LOGISTIC, make, public_samplers, sampler_targets
from dpsample.core import pauses as pauses_module
from dpsample.core.streams import streams
from dpsample.running import chains
from tests.support.allowances import Allowance, assert_same_bits, chain_of
from tests.support.ctrl_c import moments
from tests.support.processes import run_python
from tests.support.tiers import one_in
from tests.support.walks import run as run_chains
from tests.support.walks import walk

SAMPLERS = {kind.__name__: kind for kind in public_samplers()}
del SAMPLERS["Localized"]  # it calls no kernel that could run for long
SAMPLERS["thinned"] = lambda: dps.samplers.Proximal(oracle="thinned")
SAMPLERS["tangent"] = lambda: dps.samplers.Proximal(oracle="tangent")
SAMPLERS["t law"] = lambda: dps.samplers.LaplaceIndependence(batch=5, tail=3.0)


def prepared_for(sampler, target):
    return sampler.prepare(target, np.random.default_rng(1))


@one_in(8, 3)
@pytest.mark.parametrize("name", SAMPLERS)
def test_pauses_change_no_bit_of_any_sampler(name, monkeypatch):  # S11
    sampler, num_targets = SAMPLERS[name](), 0
    for target in sampler_targets():
        if sampler.supports(target)[0]:
            prepared = prepared_for(sampler, target)
            whole, _ = chain_of(prepared, monkeypatch, np.inf, 12)
            for units in (1, 7):
                cut, pauses = chain_of(prepared, monkeypatch, units, 12)
                assert_same_bits(cut, whole)
                # Global draws in Python, whose compiled calls are short.
                assert pauses > 0 or name in ("Global", "TangentCells")
            num_targets += 1
    assert num_targets > 0


@pytest.mark.parametrize("name", ["Exact", "Proximal"])
def test_pauses_change_no_bit_of_what_is_prepared(name, monkeypatch):
    sampler, loss = SAMPLERS[name](), dps.losses.Hinge()
    target = make(loss, dps.domains.Box(-1.0, 1.0), dim=2)
    whole = prepared_for(sampler, target)
    with monkeypatch.context() as patch:
        allowance = Allowance(patch, 5)
        cut = prepared_for(sampler, target)
    assert allowance.pauses > 0
    np.testing.assert_equal(cut.numbers(), whole.numbers())


def test_several_steps_per_draw_may_be_cut_anywhere(monkeypatch):
    target = make(LOGISTIC, dps.domains.Ball(1.0))
    sampler = dps.samplers.RandomWalk(num_steps=5, step_size=0.3)
    prepared = prepared_for(sampler, target)
    whole, _ = chain_of(prepared, monkeypatch, np.inf, 10)
    cut, pauses = chain_of(prepared, monkeypatch, 3, 10)
    assert_same_bits(cut, whole)
    assert pauses >= 10 * 5 // 3


def test_a_forgotten_stage_would_be_seen(monkeypatch):
    """Negative control: a chain whose pauses lose the stage draws something else."""
    target = make(LOGISTIC, dps.domains.Ball(1.0))
    prepared = prepared_for(dps.samplers.Proximal(), target)
    whole, _ = chain_of(prepared, monkeypatch, np.inf, 12)
    call = pauses_module.call

    def forgetful(control, function, *arguments):
        control["stage"] = 0
        return call(control, function, *arguments)

    monkeypatch.setattr(pauses_module, "call", forgetful)
    cut, _ = chain_of(prepared, monkeypatch, 3, 12)
    assert not np.array_equal(cut[0], whole[0])


def test_a_draw_that_needs_endless_tries_hears_an_interrupt():  # S11
    """The step is far too long, so no proposal is ever accepted."""
    target = make(dps.losses.Absolute(), dps.domains.WholeSpace())
    prepared = dps.samplers.Proximal().prepare(target, np.random.default_rng(1))
    trial = dataclasses.replace(prepared.trial, step=1e12)
    endless = dataclasses.replace(prepared, trial=trial)
    heard = []

    def press():
        heard.append(1)
        if len(heard) == 3:
            raise KeyboardInterrupt

    state, rng = endless.init(), np.random.default_rng(2)
    with pytest.raises(KeyboardInterrupt), pauses_module.listening(press):
        chains.advance(endless.runner(), state, rng, 10**6)
    assert len(heard) == 3


def test_listeners_are_those_of_the_thread_and_of_the_block():
    heard = []
    with pauses_module.listening(lambda: heard.append("outer")):
        with pauses_module.listening(lambda: heard.append("inner")):
            pauses_module.notify_listeners()
            other = threading.Thread(target=pauses_module.notify_listeners)
            other.start()
            other.join()
        pauses_module.notify_listeners()
    pauses_module.notify_listeners()
    assert heard == ["outer", "inner", "outer"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_ctrl_c_and_failures_end_all_threads_at_their_next_pause(error):
    ended = []

    def task(number):
        try:
            while True:
                pauses_module.notify_listeners()
                if number == 0:
                    if error is KeyboardInterrupt:
                        signal.raise_signal(signal.SIGINT)
                    raise error
                time.sleep(0.001)
        finally:
            ended.append(number)

    with pytest.raises(error):
        pauses_module.run_in_threads(task, [(i,) for i in range(8)], 2)
    assert set(ended) <= {0, 1, 2} and 0 in ended


def test_threads_keep_the_order_of_their_tasks():
    found = pauses_module.run_in_threads(lambda x: 2 * x, [(i,) for i in range(9)], 3)
    assert found == [2 * i for i in range(9)]


def stuck(turn, press):
    """Runner like `walk` that hangs, in pauses, in the chunk with this draw."""

    def runner(state, rng, draws, stats):
        walk(state, rng, draws, stats)
        if state.counts[0] >= turn:
            press()
            while True:
                pauses_module.notify_listeners()

    return runner


def test_ctrl_c_in_a_draw_that_hangs_keeps_those_before(tmp_path):  # S11
    pressed = threading.Event()

    def press():
        if not pressed.is_set():
            pressed.set()
            os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "run.npz"
    options = {"chunk": 10, "checkpoint": path, "num_warmup": 15}
    stopped = run_chains(50, runner=stuck(33, press), **options)
    assert stopped.is_interrupted and stopped.draws.shape[1] == 10
    whole = run_chains(50, num_warmup=15)
    np.testing.assert_array_equal(stopped.draws, whole.draws[:, :10])
    resumed = run_chains(50, **options)
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    np.testing.assert_array_equal(resumed.stats, whole.stats)


def test_a_chain_that_fails_ends_the_others():
    def runner(state, rng, draws, stats):
        if rng.integers(0, 2**62) == first:
            raise ArithmeticError("one of them")
        while True:
            pauses_module.notify_listeners()

    first = streams(11, 3)[0].integers(0, 2**62)
    with pytest.raises(ArithmeticError, match="one of them"):
        run_chains(10, runner=runner, threads=3)


def test_warmup_draws_are_not_stored(monkeypatch):  # S10
    def runner(state, rng, draws, stats):
        walk(state, rng, draws[:1], stats[:1])
        if state.counts[0] == 20:
            os.kill(os.getpid(), signal.SIGINT)

    found = run_chains(1, runner=runner, num_chains=1, num_warmup=2**50)
    assert found.is_interrupted and found.draws.shape == (1, 0, 2)


def test_a_resumed_run_has_the_warmup_of_the_file(tmp_path):
    path = tmp_path / "run.npz"
    run_chains(20, num_warmup=5, checkpoint=path)
    with pytest.raises(ValueError, match="^num_warmup must be 5, as in run.npz, got 4"):
        run_chains(20, num_warmup=4, checkpoint=path)


def test_more_draws_than_memory_holds_are_refused():  # S6
    with pytest.raises(ValueError, match="^num_draws must be few enough for memory"):
        run_chains(2**50)


def test_a_proof_that_takes_years_is_refused():  # S10
    target = make(LOGISTIC, dps.domains.Ball(1.0))
    prepared = dps.samplers.Proximal().prepare(target, np.random.default_rng(1))
    trial = dataclasses.replace(prepared.trial, step=1e-13, step_work=1e4)
    slow = dataclasses.replace(prepared, trial=trial)
    words = r"takes \S+ steps, about \S+ years.*choose num_warmup"
    with pytest.raises(dps.samplers.errors.NoCertificate, match=words):
        _ = slow.num_warmup
    assert prepared.num_warmup < 10**6


THREADS = ("threading.py", "concurrent/futures/thread.py", "core/pauses.py")


def test_ctrl_c_at_any_moment_ends_threads():
    """In the locks of `threading` it would be a RuntimeError, or the end of nothing."""
    before, number = threading.active_count(), 0

    def work():
        pauses_module.run_in_threads(lambda i: i, [(i,) for i in range(3)], 2)

    pauses_module.call(pauses_module.new_control(), lambda: None)  # starts the timer
    for number in moments(work, *THREADS):  # noqa: B007
        assert threading.active_count() <= before + 1
    assert number > 50


def test_ctrl_c_at_any_moment_leaves_no_call_to_the_timer():
    control, number = pauses_module.new_control(), 0
    for number in moments(lambda: pauses_module.call(control, abs, -1), *THREADS):  # noqa: B007
        assert not pauses_module._timer.controls
    assert number > 0
    pauses_module.call(control, lambda: spin(control))  # the timer still ticks


def spin(control):
    """Return when the timer has asked for a pause; without it, never."""
    while not control["must_stop"]:
        time.sleep(0.001)


def test_ctrl_c_at_any_moment_gives_blas_its_threads_back(two_blas_threads):
    def block():
        with pauses_module.single_threaded_blas():
            pass

    def limits():
        return [library.num_threads for library in pauses_module._blas()]

    before, number = limits(), 0
    for number in moments(block, "core/pauses.py", "threadpoolctl.py", step=4):  # noqa: B007
        assert limits() == before
    assert number > 50


def test_a_second_ctrl_c_raises_later_and_the_first_one_waits():
    with pauses_module.hold_interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # a key that is held down
        assert len(interrupts) == 2
        interrupts[0] -= pauses_module.REPEAT_SECONDS
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    is_reached = False
    with pytest.raises(KeyboardInterrupt), pauses_module.delay_interrupts():
        signal.raise_signal(signal.SIGINT)
        is_reached = True
    assert is_reached


def test_many_short_calls_ring_a_sleeping_timer_once(monkeypatch):
    """Each further alarm would wake it for a tick when there is nothing to do."""
    timer = pauses_module._Timer()
    timer.thread, timer.is_asleep = threading.current_thread(), True
    monkeypatch.setattr(pauses_module, "_timer", timer)
    for _ in range(100):
        pauses_module.call(pauses_module.new_control(), abs, -1)
    assert timer.alarm.qsize() == 1


def test_a_program_that_embeds_python_has_another_main_thread(monkeypatch):
    """`threading` takes the one that imported it for the main thread."""
    monkeypatch.setattr(threading, "main_thread", threading.current_thread)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(in_a_block).result() == []


def in_a_block():
    with pauses_module.hold_interrupts() as interrupts:
        return interrupts


@pytest.mark.skipif(os.name == "nt", reason="loops there have no handlers")
def test_asyncio_counts_a_ctrl_c_that_waited_once():
    """Programs take a second one for the wish to leave at once."""
    seen, before = [], signal.getsignal(signal.SIGINT)

    async def wait():
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, seen.append, 1)
        with pauses_module.delay_interrupts():
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.05)

    try:
        asyncio.run(wait())
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [1]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_does_not_wait_for_a_thread_that_it_has_not():
    output, _ = run_python(
        "import os, signal, warnings\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from dpsample.core import pauses\n"
        "warnings.simplefilter('ignore')\n"
        "with ThreadPoolExecutor(1) as pool:\n"
        "    pool.submit(pauses._limit_lock.acquire).result()\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        signal.alarm(300)\n"
        "        with pauses.single_threaded_blas():\n"
        "            os._exit(0)\n"
        "    print(os.waitpid(child, 0)[1])\n"
    )
    assert output == "0\n"
