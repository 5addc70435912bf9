"""`sample`: one set of draws for all threads, interrupts, resumes, true energies."""

import signal
from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse

import dpsample as dps
from dpsample.api import sample as sample_module
from dpsample.core import pauses
from dpsample.core.streams import streams
from dpsample.running import chains, convergence
from dpsample.running import draws as packing
from dpsample.samplers.errors import SamplingError
from dpsample.samplers.proximal.proximal import PreparedProximal
from tests.support.tiers import one_in, usual

CENTER = [0.2, -0.1, 0.3]


def make(*, seed=1, num_records=400, layout=np.array, k=80.0, mu=0.5, **options):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_records, 3))
    rows /= 1.01 * np.linalg.norm(rows, axis=1, keepdims=True)
    chosen = {"loss": dps.losses.Logistic(), "domain": dps.domains.Ball(1.0)} | options
    regularizer = chosen.pop("regularizer", None)
    problem = dps.Problem(
        layout(rows),
        np.where(rows[:, 0] > 0.2 * rng.normal(size=num_records), 1.0, -1.0),
        row_bound=1.0,
        **chosen,
    )
    return dps.Gibbs(problem, k=k, mu=mu, regularizer=regularizer)


def sample(target=None, **options):
    defaults = {"num_draws": 30, "num_chains": 3, "num_warmup": 5, "seed": 9}
    fixed = {"progress": False, "check": False, "sampler": dps.Proximal()}
    chosen = defaults | fixed | options
    return dps.sample(make() if target is None else target, **chosen)


def theta(tree):
    return tree.posterior["theta"].values


@one_in(2)
@pytest.mark.parametrize("layout", [np.array, sparse.csr_matrix])
def test_threads_change_no_draw(layout):
    target = make(layout=layout, num_records=1500)
    one = theta(sample(target, threads=1))
    for threads in (2, 4, None):
        np.testing.assert_array_equal(theta(sample(target, threads=threads)), one)
    assert len({draw.tobytes() for draw in one.reshape(-1, 3)}) == one.size / 3


def test_chunks_change_no_draw():
    prepared = dps.Proximal().prepare(make(), streams(9, 1)[0])

    def run(chunk):
        options = {"num_draws": 60, "chunk": chunk}
        return chains.run(prepared, [None] * 3, streams(4, 3), **options).draws

    first = run(1)
    for chunk in (7, 1000):
        np.testing.assert_array_equal(run(chunk), first)


def test_a_shorter_run_is_a_prefix_and_seeds_matter():
    longer = theta(sample(num_draws=20))
    np.testing.assert_array_equal(theta(sample(num_draws=10)), longer[:, :10])
    np.testing.assert_array_equal(
        theta(sample(num_draws=15, num_warmup=10)), longer[:, 5:]
    )
    assert not np.any(theta(sample(num_draws=20, seed=10)) == longer)
    fresh = theta(sample(seed=None)), theta(sample(seed=None))
    assert not np.any(fresh[0] == fresh[1])


def test_chains_start_where_they_are_told():
    starts = [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, -0.9]]
    apart = theta(sample(init=starts, num_warmup=0))
    together = theta(sample(init=starts[1], num_warmup=0))
    np.testing.assert_array_equal(apart[1], together[1])
    assert not np.any(apart[0, 0] == together[0, 0])


def test_resume_is_bit_identical(tmp_path):
    path = tmp_path / "run.npz"
    sample(num_draws=30, checkpoint=path)
    resumed, whole = sample(num_draws=100, checkpoint=path), sample(num_draws=100)
    np.testing.assert_array_equal(theta(resumed), theta(whole))
    np.testing.assert_array_equal(resumed.sample_stats["lp"], whole.sample_stats["lp"])


def shifted(amount):
    """Custom losses with one name, one declaration and different functions."""
    return dps.losses.custom(
        lambda u, y: np.sqrt(1.0 + (u - amount) ** 2),
        lambda u, y: (u - amount) / np.sqrt(1.0 + (u - amount) ** 2),
        slope_bound=1.0,
    )


BASE = {"loss": dps.losses.Hinge(), "regularizer": dps.regularizers.SquaredNorm(2.0)}
OTHERS = {
    "loss": {"loss": dps.losses.Absolute()},
    "records": {"seed": 2},
    "k": {"k": 80.5},
    "mu": {"mu": 0.51},
    "domain": {"domain": dps.domains.Ball(1.01)},
    "regularizer": {"regularizer": dps.regularizers.SquaredNorm(2.0, center=CENTER)},
}
FIXED = {"sampler": dps.Proximal(oracle="tangent", step_size=0.01), "num_warmup": 0}


@pytest.mark.slow
@pytest.mark.parametrize("change", OTHERS)
def test_a_checkpoint_of_another_target_is_refused(tmp_path, change):
    path = tmp_path / "run.npz"
    options = FIXED | {"checkpoint": path, "num_draws": 3}
    sample(make(**BASE), **options)
    sample(make(**BASE), **options)
    with pytest.raises(ValueError, match="^checkpoint must be of this target"):
        sample(make(**BASE | OTHERS[change]), **options)


@pytest.mark.slow
def test_a_checkpoint_of_another_seed_step_or_function_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    options = FIXED | {"checkpoint": path, "num_draws": 3}
    target = make(loss=shifted(0.1))
    sample(target, **options)
    other_step = {"sampler": dps.Proximal(oracle="tangent", step_size=0.02)}
    for other, changes in (
        (target, {"seed": 10}),
        (target, other_step),
        (make(loss=shifted(0.2)), {}),
    ):
        with pytest.raises(ValueError, match="^checkpoint must be of this target"):
            sample(other, **options | changes)


def interrupt_soon(monkeypatch, *, num_draws):
    """Press Ctrl-C when a chunk begins and every chain has so many draws."""
    one_chunk, pressed = chains._run_chunk, []

    def pressing(pool, runner, run, *args):
        if not pressed and run.done - run.num_warmup >= num_draws:
            pressed.append(signal.raise_signal(signal.SIGINT))
        one_chunk(pool, runner, run, *args)

    monkeypatch.setattr(chains, "_run_chunk", pressing)


def test_ctrl_c_returns_a_prefix_and_the_checkpoint_goes_on(monkeypatch, tmp_path):
    path, forever = tmp_path / "run.npz", 2_000_000
    small = make(num_records=30)
    with monkeypatch.context() as patch:
        interrupt_soon(patch, num_draws=1)
        stopped = sample(small, num_draws=forever, num_chains=2, checkpoint=path)
    length = theta(stopped).shape[1]
    assert stopped.attrs["is_interrupted"] and 0 < length < forever
    whole = sample(small, num_draws=length + 50, num_chains=2)
    np.testing.assert_array_equal(theta(stopped), theta(whole)[:, :length])
    resumed = sample(small, num_draws=length + 50, num_chains=2, checkpoint=path)
    np.testing.assert_array_equal(theta(resumed), theta(whole))
    assert not resumed.attrs["is_interrupted"]


@pytest.mark.parametrize("stage", ["fill_energies", "verdicts", "effective_size"])
def test_ctrl_c_after_the_last_draw_keeps_all_draws(monkeypatch, stage):
    whole = sample(check=True, target_ess=50.0)

    def press(*_):
        signal.raise_signal(signal.SIGINT)

    room = packing if stage == "fill_energies" else convergence
    of_trial = convergence.TrialRun.__call__

    def undisturbed(trial, draws):  # the trial run asks for sizes, too
        with monkeypatch.context() as patch:
            patch.setattr(room, stage, kept)
            return of_trial(trial, draws)

    kept = getattr(room, stage)
    monkeypatch.setattr(convergence.TrialRun, "__call__", undisturbed)
    monkeypatch.setattr(room, stage, press)
    stopped = sample(check=True, target_ess=50.0)
    np.testing.assert_array_equal(theta(stopped), theta(whole))
    assert stopped.attrs["is_interrupted"] and not whole.attrs["is_interrupted"]
    assert "ess_reached" not in stopped.attrs
    assert stopped.attrs["target_ess"] == 50.0  # what was asked for is known


@pytest.mark.parametrize("stage", ["to_datatree", "name_statistics"])
def test_ctrl_c_while_draws_are_packed_keeps_all_of_them(monkeypatch, stage):
    whole, kept = sample(), getattr(packing, stage)

    def pressed(*args, **options):
        signal.raise_signal(signal.SIGINT)
        return kept(*args, **options)

    monkeypatch.setattr(packing, stage, pressed)
    before = signal.getsignal(signal.SIGINT)
    stopped = sample()
    assert stopped.attrs["is_interrupted"] and signal.getsignal(signal.SIGINT) is before
    np.testing.assert_array_equal(theta(stopped), theta(whole))


def test_ctrl_c_after_the_last_chunk_keeps_all_draws(monkeypatch):
    whole, display = sample(), sample_module._display

    @contextmanager
    def pressed(*args):
        with display(*args) as show:
            yield show
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sample_module, "_display", pressed)
    stopped = sample(check=True)
    assert stopped.attrs["is_interrupted"] and "r_hat" not in stopped.attrs
    np.testing.assert_array_equal(theta(stopped), theta(whole))


def test_ctrl_c_after_the_trial_run_keeps_its_draws(monkeypatch):
    kept = chains.run

    def pressed(*args, **options):
        monkeypatch.setattr(chains, "run", kept)
        made = kept(*args, **options)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(chains, "run", pressed)
    stopped = sample(target_ess=50.0)
    assert stopped.attrs["is_interrupted"] and theta(stopped).shape[1] > 0


@pytest.fixture
def chunks(monkeypatch):
    """Chunks that have begun, whose number is the time of time limits."""
    one_chunk, count = chains._run_chunk, [0]

    def counting(*args):
        count[0] += 1
        one_chunk(*args)

    monkeypatch.setattr(chains, "_run_chunk", counting)
    monkeypatch.setattr(chains.TimeLimit, "clock", lambda _=None: float(count[0]))
    return count


FOREVER = {"num_draws": 2_000_000, "num_chains": 2, "num_warmup": 1}


def test_a_time_limit_keeps_the_draws_and_the_checkpoint_goes_on(tmp_path, chunks):
    path, small = tmp_path / "run.npz", make(num_records=30)
    options = FOREVER | {"max_seconds": 4.0, "check": True, "threads": 1}
    with pytest.warns(RuntimeWarning, match="ended the run .* a checkpoint") as seen:
        bare = sample(small, **options)
    assert seen[0].filename == __file__
    with pytest.warns(RuntimeWarning, match="Call again with this checkpoint"):
        stopped = sample(small, checkpoint=path, **options)
    assert stopped.attrs["is_out_of_time"] == 1 and not stopped.attrs["is_interrupted"]
    assert stopped.attrs["max_seconds"] == 4.0 and "r_hat" in stopped.attrs
    length = theta(stopped).shape[1]
    assert 0 < length < FOREVER["num_draws"]
    rest = {"num_draws": length + 50, "num_chains": 2, "num_warmup": 1}
    whole = sample(small, **rest)
    np.testing.assert_array_equal(theta(stopped), theta(whole)[:, :length])
    count = min(length, theta(bare).shape[1])
    np.testing.assert_array_equal(theta(bare)[:, :count], theta(stopped)[:, :count])
    resumed = sample(small, checkpoint=path, max_seconds=1e9, **rest)
    np.testing.assert_array_equal(theta(resumed), theta(whole))
    assert resumed.attrs["is_out_of_time"] == 0
    assert "max_seconds" not in whole.attrs


def test_a_time_limit_before_the_first_draw_is_an_error_that_keeps_the_warmup(
    tmp_path, chunks
):
    path, small = tmp_path / "run.npz", make(num_records=30)
    options = {"num_warmup": 2_000_000, "num_chains": 2, "checkpoint": path}
    text = "max_seconds must be enough for the first draw, got 3. .* of 2000000 draws"
    with pytest.raises(SamplingError, match=text) as seen:
        sample(small, max_seconds=3.0, **options)
    assert "this checkpoint" in str(seen.value)
    with np.load(path) as kept:
        made = int(kept["done"])
    assert f" {made} of" in str(seen.value)
    chunks[0] = 0
    with pytest.raises(SamplingError, match="max_seconds"):
        sample(small, max_seconds=2.0, **options)
    with np.load(path) as kept:
        assert int(kept["done"]) > made > 0


def test_a_time_limit_while_the_sampler_is_chosen_is_an_error(monkeypatch, chunks):
    prepare = dps.Proximal.prepare

    def slow(*args):
        chunks[0] += 10
        pauses.notify_listeners()
        return prepare(*args)

    monkeypatch.setattr(dps.Proximal, "prepare", slow)
    with pytest.raises(SamplingError, match="still being prepared. .*`dpsample warm`"):
        sample(max_seconds=5.0)
    assert theta(sample(max_seconds=50.0)).shape[1] == 30


@pytest.mark.parametrize("max_seconds", [6.0, 12.0])
def test_a_trial_run_leaves_half_of_the_time_to_the_draws(chunks, max_seconds):
    small = make(num_records=30)
    options = {"target_ess": 1e7, "max_seconds": max_seconds, "num_draws": 2000}
    options["num_warmup"] = 0
    with pytest.warns(RuntimeWarning, match="max_seconds") as seen:
        cut = sample(small, threads=1, **options)
    assert chunks[0] <= max_seconds + 1.0
    assert {"is_target_ess_reached", "ess_reached"} <= cut.attrs.keys()
    assert cut.attrs["is_target_ess_reached"] == 0
    assert not [w for w in seen if "mixed better" in str(w.message)]
    length = theta(cut).shape[1]
    whole = sample(small, num_draws=length, num_warmup=0)
    np.testing.assert_array_equal(theta(cut), theta(whole))


def test_replicates_have_no_time_limit():
    with pytest.raises(ValueError, match="max_seconds must be left out, got 3"):
        dps.replicate(
            dps.sample, make(), num_replicates=2, num_draws=3, max_seconds=3.0
        )


def test_many_chains_start_at_eight_points_whatever_their_length():
    options = {"num_chains": 130, "num_warmup": 0, "sampler": dps.samplers.HitAndRun()}
    short = sample(num_draws=2, **options)
    longer = sample(num_draws=3, **options)
    np.testing.assert_array_equal(theta(short), theta(longer)[:, :2])
    groups = short.posterior["superchain"].values
    np.testing.assert_array_equal(groups, np.arange(130) % 8)
    stuck = {"sampler": dps.samplers.RandomWalk(step_size=1e-9)}
    starts = theta(sample(num_draws=1, **options | stuck))[:, 0]
    for group in range(8):
        alike = starts[groups == group]
        np.testing.assert_allclose(alike, alike[:1].repeat(len(alike), 0), atol=1e-7)
    assert len(np.unique(starts.round(4), axis=0)) == 8
    assert "superchain" not in sample(num_draws=2).posterior.coords


def test_ctrl_c_before_the_first_chunk_raises(monkeypatch):
    def pressed(self, rng):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PreparedProximal, "draw_start", pressed)
    with pytest.raises(KeyboardInterrupt):
        sample()


REGULARIZED = {
    "l2 on a moved ball": (dps.domains.Ball(1.0, center=CENTER), 2.0),
    "l2 on a box": (dps.domains.Box(0.1, 1.5), 2.0),
    "l1.5 on a moved ball": (dps.domains.Ball(1.0, p=1.5, center=CENTER), 1.5),
    "l1.5 on a box": (dps.domains.Box(0.1, 1.5), 1.5),
    "l1.5 everywhere": (dps.domains.WholeSpace(), 1.5),
}


@usual("l2 on a box")
@pytest.mark.parametrize("case", REGULARIZED)
def test_stored_energies_are_the_targets_and_draws_are_inside(case):
    domain, p = REGULARIZED[case]
    target = make(domain=domain, regularizer=dps.regularizers.SquaredNorm(p))
    tree = sample(target, num_draws=5, num_chains=2)
    points = theta(tree).reshape(-1, 3)
    energies = -tree.sample_stats["lp"].values.ravel()
    expected = [target.energy(point) for point in points]
    np.testing.assert_allclose(energies, expected, rtol=1e-11)
    assert all(domain.contains(point) for point in points)


@usual("2.0")
@pytest.mark.parametrize("p", [1.5, 2.0])
def test_ctrl_c_in_the_warmup_gives_an_empty_tree(monkeypatch, p):
    interrupt_soon(monkeypatch, num_draws=-2_000_000)
    regularizer = dps.regularizers.SquaredNorm(p)
    target = make(
        num_records=30, domain=dps.domains.Box(-1.0, 1.0), regularizer=regularizer
    )
    tree = sample(target, num_warmup=2_000_000, num_draws=1, num_chains=1)
    assert theta(tree).shape == (1, 0, 3) and tree.attrs["is_interrupted"]


BAD = {
    "max_seconds": ({"max_seconds": 0.0}, "max_seconds must be a finite number > 0"),
    "target": (
        {"target": "target"},
        "target must be a Gibbs or Density, .* Build a dps.Gibbs or",
    ),
    "sampler": ({"sampler": "metropolis"}, 'sampler must be a Sampler, .*"auto"'),
    "num_draws": ({"num_draws": 0}, "num_draws must be an integer >= 1"),
    "num_chains": ({"num_chains": -1}, "num_chains must be an integer >= 1"),
    "num_warmup": ({"num_warmup": 1.5}, "num_warmup must be an integer >= 0"),
    "seed": ({"seed": "lucky"}, "seed must be an integer >= 0, got 'lucky'"),
    "threads": ({"threads": 0}, "threads must be an integer >= 1"),
    "checkpoint": ({"checkpoint": "nowhere/x"}, "must be a file in an existing folder"),
    "init outside": ({"init": [2.0, 0.0, 0.0]}, "init must be inside the domain"),
    "init of two chains": ({"init": np.zeros((2, 3))}, "init must be of shape"),
    "init of words": ({"init": "origin"}, "init must be an array of numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case):
    changes, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        sample(**changes)


def test_the_proof_of_the_warm_up_is_of_the_start_in_use():
    target = make(domain=dps.domains.WholeSpace())
    far, sampler = [1e6, 0.0, 0.0], dps.Proximal(step_size=0.01)
    given = {"num_warmup": None, "num_draws": 4, "sampler": sampler}
    near = sample(target, **given)
    tree = sample(target, init=far, **given)
    assert tree.attrs["num_warmup"] > 2 * near.attrs["num_warmup"]
    assert np.abs(theta(tree)).max() < 100.0  # planted: it was 1e4


@pytest.mark.slow
def test_the_bias_is_that_of_the_last_draw():
    target = make(domain=dps.domains.WholeSpace(), k=10.0)
    series = dps.samplers.RandomizedSeries(error=0.5)
    runs = [
        sample(target, sampler=series, num_warmup=None, num_draws=n).attrs
        for n in (1, 40)
    ]
    each = runs[0]["overshoot_bound"]
    assert runs[0]["num_certified_steps"] == runs[0]["num_warmup"]
    assert runs[1]["bias_bound"] - runs[0]["bias_bound"] == pytest.approx(39 * each)
    assert "bias_bound" not in sample(target, sampler=series, num_warmup=0).attrs
    given = {"num_warmup": None, "init": CENTER}
    assert "bias_bound" not in sample(target, sampler=series, **given).attrs


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize(
    "sampler", [dps.samplers.MALA(step_size=0.1), dps.samplers.BilliardHMC()]
)
def test_chains_leave_a_boundary_on_which_the_entropy_has_no_slope(mu, sampler):
    entropy, simplex = dps.regularizers.Entropy(), dps.domains.Simplex()
    target = make(mu=mu, domain=simplex, regularizer=entropy)
    draws = theta(sample(target, sampler=sampler, init=[1.0, 0.0, 0.0], num_warmup=0))
    assert len({draw.tobytes() for draw in draws.reshape(-1, 3)}) > 40
