"""Records in memory, in files and on a cluster: the same bits, the same errors."""

import os
import pickle

import numpy as np
import pytest

import dpsample as dps
from dpsample.problem import sources
from dpsample.problem.sources import chunk_size
from dpsample.problem.storage import MemoryStorage, TableStorage, fold_in_tree
from tests.support.ctrl_c import moments
from tests.support.tiers import one_in, usual

L, D = dps.losses, dps.domains
BUDGET = dps.Budget(epsilon=1.0, delta=1e-6)
DIM = 3
NUM = 1000


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of one block, so that a thousand records are eight of them."""
    monkeypatch.setattr(sources, "CHUNK_NUMBERS", 1)
    monkeypatch.setattr(sources, "block_size", lambda dim: 128)


def records(dtype=np.float32, num=NUM):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((num, DIM))
    rows *= 0.99 / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    labels = np.where(rows[:, 0] + 0.3 * rng.standard_normal(num) > 0.0, 1.0, -1.0)
    return rows.astype(dtype), labels


def problem(features, response, **changes):
    facts = {"loss": L.Logistic(), "domain": D.Ball(3.0), "row_bound": 1.0}
    return dps.Problem(features, response, **facts | changes)


def mapped(path, array):
    """The array as a memory map that begins in the middle of its file."""
    extra = np.concatenate([array[:7], array])
    kept = np.memmap(path, array.dtype, "w+", shape=extra.shape)
    kept[:] = extra
    kept.flush()
    return np.memmap(path, array.dtype, "r", shape=extra.shape)[7:]


def parquet(path, rows, labels, group=300):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"x{j}": rows[:, j] for j in range(rows.shape[1])} | {"y": labels}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def makers(tmp_path, rows, labels, **changes):
    """The same records in all kinds of storage of this process, each made on demand."""

    def in_map():
        return mapped(tmp_path / "rows", rows), mapped(tmp_path / "labels", labels)

    def in_parquet():
        return parquet(tmp_path / "file.parquet", rows, labels), "y"

    return {
        "memory": lambda: problem(rows.astype(np.float64), labels, **changes),
        "float32": lambda: problem(rows, labels, **changes),
        "memmap": lambda: problem(*in_map(), **changes),
        "parquet": lambda: problem(*in_parquet(), **changes),
    }


def every_storage(*records, **changes):
    for name, make in makers(*records, **changes).items():
        yield name, make()


def test_every_storage_gives_the_same_bits(tmp_path):
    found = {}
    for name, made in every_storage(tmp_path, *records(), intercept=True):
        assert isinstance(
            made.storage, MemoryStorage if name == "memory" else TableStorage
        )
        answer = dps.release(made, BUDGET, seed=3)
        notes = dict(answer.nonprivate_diagnostics)
        point = np.full(DIM + 1, 0.1)
        found[name] = [
            *(answer.theta, notes["non_private_theta"], notes["risk"]),
            *(notes["counts"]["records"], made.risk(point), made.margins(point)),
        ]
    for name, numbers in found.items():
        for mine, memory in zip(numbers, found["memory"], strict=True):
            np.testing.assert_array_equal(mine, memory, err_msg=name)


def test_chunks_change_no_more_than_rounding(monkeypatch):
    rows, labels = records(np.float64)
    thetas = []
    for numbers in (1, 400, 10**6):
        monkeypatch.setattr(sources, "CHUNK_NUMBERS", numbers)
        answer = dps.release(problem(rows, labels), BUDGET, seed=3)
        thetas.append(answer.nonprivate_diagnostics["non_private_theta"])
    assert chunk_size(NUM, DIM) == NUM
    np.testing.assert_allclose(thetas[:2], [thetas[2]] * 2, rtol=1e-12)


def test_the_tree_depends_on_the_number_of_chunks_alone():
    def pair(left, right):
        return f"({left}{right})"

    assert fold_in_tree("abcdefg", pair) == "(((ab)(cd))((ef)g))"
    groups = [fold_in_tree("abcd", pair), fold_in_tree("efg", pair)]
    assert fold_in_tree(groups, pair) == fold_in_tree("abcdefg", pair)
    assert fold_in_tree([0] * 100, lambda a, b: 1 + max(a, b)) <= 2 * np.log2(100)


def test_clipping_is_the_same_everywhere(tmp_path):
    rows, labels = records()
    options = {"row_bound": 0.5, "clip_rows": True, "loss": L.Huber(0.5)}
    options |= {"response_bound": 0.7}
    risks = {
        name: made.risk(np.full(DIM, 0.4))
        for name, made in every_storage(tmp_path, rows, labels, **options)
    }
    # float32 keeps what was given: rows are scaled as they are read, in doubles.
    assert len(set(risks.values())) == 1, risks


def long(rows, labels):
    del labels
    rows[[700, 900]] *= 20.0


def missing(rows, labels):
    del labels
    rows[650, 1] = np.nan


def odd(rows, labels):
    del rows
    labels[800] = 0.0


WRONG = {
    long: "in record 700 (2 records are above)",
    missing: "nan at index [650, 1]",
    odd: "0 at record 800",
}


@pytest.mark.parametrize("storage", ["memory", "float32", "memmap", "parquet"])
@pytest.mark.parametrize("change", WRONG)
def test_a_record_is_named_by_its_number(tmp_path, change, storage):
    rows, labels = records()
    change(rows, labels)
    with pytest.raises(ValueError, match="must be") as caught:
        makers(tmp_path, rows, labels)[storage]()
    assert WRONG[change] in str(caught.value)


def test_a_file_that_has_changed_is_refused(tmp_path):
    rows, labels = records()
    made = problem(mapped(tmp_path / "rows", rows), labels)
    made.risk(np.zeros(DIM))
    mapped(tmp_path / "rows", 2.0 * rows)
    with pytest.raises(RuntimeError, match="has changed since"):
        dps.release(made, BUDGET)


def test_ctrl_c_at_any_moment_ends_a_pass_over_a_file(tmp_path):
    """In the locks of `threading` the reader would wait for ever."""
    rows, labels = records()
    made, number = problem(mapped(tmp_path / "rows", rows), labels), 0
    risk = made.risk(np.zeros(DIM))
    files = (
        "threading.py",
        "futures/thread.py",
        "futures/_base.py",
        "problem/storage.py",
    )
    for number in moments(lambda: made.risk(np.zeros(DIM)), *files, step=17):  # noqa: B007
        pass
    assert number > 200 and made.risk(np.zeros(DIM)) == risk


@pytest.mark.parametrize("change", ["row", "label", "NaN"])
@pytest.mark.parametrize("clip_rows", [False, True])
def test_records_that_another_map_has_written_are_looked_at(
    tmp_path, change, clip_rows
):
    """Pages that wait for the disk are written without a trace in the file's times."""
    rows, labels = records()
    kept = np.memmap(tmp_path / "rows", rows.dtype, "w+", shape=rows.shape)
    kept[:] = rows
    other = np.memmap(tmp_path / "labels", labels.dtype, "w+", shape=labels.shape)
    other[:] = labels
    given = (
        np.memmap(each.filename, each.dtype, "r", shape=each.shape)
        for each in (kept, other)
    )
    made = problem(*given, clip_rows=clip_rows)
    before = made.risk(np.ones(DIM))
    if change == "label":
        other[500] = 7.0
    else:
        kept[500] = 1000.0 if change == "row" else np.nan
    if clip_rows and change == "row":
        assert abs(made.risk(np.ones(DIM)) - before) < 2.0 / NUM
    else:
        with pytest.raises(RuntimeError, match="has changed since"):
            dps.release(made, BUDGET)


def shorter(path):
    os.truncate(path, os.path.getsize(path) // 4)


@pytest.mark.parametrize("change", [shorter, os.unlink])
@pytest.mark.parametrize("name", ["rows", "labels", "file.parquet"])
def test_a_file_that_changes_in_a_pass_is_refused(tmp_path, name, change):
    storage = "parquet" if "." in name else "memmap"
    made = makers(tmp_path, *records())[storage]()
    with pytest.raises(RuntimeError, match="has changed since"):
        for number, _ in enumerate(made.storage.map(len)):
            if number == 0:
                change(tmp_path / name)
    with pytest.raises(RuntimeError, match="has changed since"):
        made.risk(np.zeros(DIM))


@pytest.mark.parametrize("name", ["rows", "labels"])
def test_a_file_shorter_than_its_map_is_refused(tmp_path, name):
    rows, labels = records()
    given = mapped(tmp_path / "rows", rows), mapped(tmp_path / "labels", labels)
    shorter(tmp_path / name)
    with pytest.raises(OSError, match="shorter than the array"):
        problem(*given)


SAMPLERS = {
    "few": dps.samplers.FactorizedMetropolis(step_size=0.7),
    "thinned": dps.samplers.Proximal(oracle="thinned"),
    "all": dps.samplers.MALA(),
}


@usual("few")
@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_that_read_single_records_have_the_bits_of_memory(tmp_path, name):
    options = {"intercept": True, "row_bound": 0.5, "clip_rows": True}
    draws = {}
    for storage, made in every_storage(tmp_path, *records(), **options):
        target = dps.Gibbs(made, k=300.0, mu=0.1)
        draws[storage] = dps.sample(
            target, sampler=SAMPLERS[name], num_draws=20, num_warmup=5, check=False
        ).posterior["theta"]
    for storage, found in draws.items():
        np.testing.assert_array_equal(found, draws["memory"], err_msg=storage)


def test_the_mapped_copy_stays_behind_and_nobody_changes_it(tmp_path):
    rows, labels = records()
    made = problem(mapped(tmp_path / "rows", rows), labels)
    kept = made.data.dense
    mapped(tmp_path / "rows", 2.0 * rows)
    np.testing.assert_array_equal(kept, rows)
    copied = pickle.loads(pickle.dumps(problem(mapped(tmp_path / "b", rows), labels)))
    assert "data" not in vars(copied.storage)
    np.testing.assert_array_equal(copied.data.dense, rows)
    assert len(pickle.dumps(copied)) < rows.nbytes


def test_a_loss_with_kinks_in_a_file_has_no_certificate(tmp_path):
    rows, labels = records()
    hinge = problem(mapped(tmp_path / "rows", rows), labels, loss=L.Hinge())
    with pytest.raises(dps.NoCertificate, match="in memory"):
        dps.release(hinge, BUDGET)


def test_a_path_of_numpy_is_refused_with_what_to_pass(tmp_path):
    for name, remedy in (("a.npy", "mmap_mode"), ("a.npz", "load_npz")):
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=remedy):
            problem(tmp_path / name, "y")


def test_odd_parquet_files_are_refused_in_the_grammar(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, ones = tmp_path / "file.parquet", np.ones(2)
    (tmp_path / "table.csv").write_text("a,y\n1,1\n")
    with pytest.raises(ValueError, match="features must be the path of a Parquet"):
        problem(tmp_path / "table.csv", "y")
    for names, taken, wrong in (
        ("abb", "a", "columns of features must be distinct, got two named 'b'"),
        ("a", "a", "features must be non-empty, got shape (2, 0)"),
        ("ab", "y", "response must be one of 'a', 'b', got 'y'"),
    ):
        pq.write_table(pa.table([ones] * len(names), names=list(names)), path)
        with pytest.raises(ValueError, match="must be") as caught:
            problem(path, taken)
        assert wrong in str(caught.value)
    pq.write_table(pa.table({"a": ones, "y": ones}).slice(0, 0), path)
    with pytest.raises(ValueError, match=r"non-empty, got shape \(0, 1\)"):
        problem(path, "y")


def test_the_index_of_a_frame_in_parquet_is_no_feature(tmp_path):
    pandas, path = pytest.importorskip("pandas"), tmp_path / "file.parquet"
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows, labels = records(np.float64)
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"]).assign(y=labels)
    frame[frame.a > -0.3].to_parquet(path)
    assert problem(path, "y").feature_names == ("a", "b", "c")
    given = frame.drop(columns="y")
    given.to_parquet(path)
    made = problem(path, labels, offset=np.zeros(NUM), offset_bound=1.0)
    assert made.feature_names == ("a", "b", "c")
    named = frame.set_index("y")
    named.to_parquet(path)
    assert problem(path, "y").feature_names == ("a", "b", "c")
    for notes in (b"{", b"[]", b'{"index_columns": 1}', b"\xff"):
        table = pa.Table.from_pandas(frame).replace_schema_metadata({b"pandas": notes})
        pq.write_table(table, path)
        assert problem(path, "y").feature_names == ("a", "b", "c")


def test_the_path_of_a_file_is_kept_when_the_folder_changes(tmp_path, monkeypatch):
    rows, labels = records()
    parquet(tmp_path / "file.parquet", rows, labels)
    monkeypatch.chdir(tmp_path)
    made = problem("file.parquet", "y")
    monkeypatch.chdir(tmp_path.parent)
    assert made.risk(np.zeros(DIM)) == pytest.approx(np.log(2.0))


def test_other_records_have_the_same_columns_in_the_same_order(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows, labels = records(np.float64)
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    made = problem(frame, labels, intercept=True)
    assert made.with_records(rows, labels).facts == made.facts
    assert made.with_records(frame, labels).facts == made.facts
    with pytest.raises(ValueError, match="must be in the order 'a', 'b', 'c', got 'c'"):
        made.with_records(frame[["c", "b", "a"]], labels)
    with pytest.raises(ValueError, match="complete, got none named 'b'"):
        made.with_records(frame.rename(columns={"b": "d"}), labels)


def test_far_responses_and_offsets_stay_near(tmp_path):
    rows, labels = records()
    response, offset = 1e6 + labels, np.linspace(0.0, 1.0, NUM)
    options = {"loss": L.Huber(0.5), "response_bound": 2e6}
    options |= {"offset": offset, "offset_bound": 1.0}
    thetas = [
        dps.release(problem(given, response, **options), BUDGET, seed=1).theta
        for given in (rows.astype(np.float64), mapped(tmp_path / "rows", rows))
    ]
    np.testing.assert_array_equal(*thetas)


METHODS = {
    "steps": dps.optimizers.NoisyGD(num_steps=4),
    "scaled": dps.optimizers.NoisyGD(num_steps=9, output="scaled"),
    "walled": dps.optimizers.NoisyGD(
        num_steps=9, step_size=9.0, output="scaled", boundary_loss=L.CappedLogistic(0.5)
    ),
    "a tilt": dps.optimizers.ObjectivePerturbation(),
    "clipped": dps.optimizers.ClippedGD(num_steps=3, clip=0.3, noise="steps"),
}


@one_in(6)
@pytest.mark.parametrize("name", METHODS)
def test_full_steps_have_the_bits_of_memory(tmp_path, monkeypatch, name):
    rows, labels = records(num=5000)  # five blocks, windows of two or one
    fits = []
    for numbers in (1, 3 * 2500):
        monkeypatch.setattr(sources, "CHUNK_NUMBERS", numbers)
        # So small a ball that it holds a scaled descent back.
        for _, made in every_storage(tmp_path, rows, labels, domain=D.Ball(1.0)):
            fits.append(dps.minimize(made, METHODS[name], BUDGET, seed=4))
    for fit in fits:
        np.testing.assert_array_equal(fit.theta, fits[0].theta)
        assert fit.num_gradients == fits[0].num_gradients


def test_random_batches_have_the_bits_of_memory(tmp_path):
    method = dps.optimizers.DPSGD(sampling_rate=0.1, num_steps=3)
    fits = {
        name: dps.minimize(made, method, BUDGET, seed=1).theta
        for name, made in every_storage(tmp_path, *records())
    }
    for name, theta in fits.items():
        np.testing.assert_array_equal(theta, fits["memory"], err_msg=name)


def on_cluster(rows, labels, **changes):
    array = pytest.importorskip("dask.array")
    given = array.from_array(rows, (170, 2)), array.from_array(labels, 333)
    return problem(*given, **changes)


def test_partitions_give_the_bits_of_memory():
    dask = pytest.importorskip("dask")
    rows, labels = records(num=3000)  # three partitions of eight chunks
    point = np.full(DIM + 1, 0.1)
    found = []
    for made in (
        problem(rows, labels, intercept=True),
        on_cluster(rows, labels, intercept=True),
    ):
        with dask.config.set(scheduler="synchronous"):
            answer = dps.release(made, BUDGET, seed=3)
            method = dps.optimizers.NoisyGD(num_steps=2)
            fit = dps.minimize(made, method, BUDGET, seed=4)
            best = answer.nonprivate_diagnostics["non_private_theta"]
            found.append([answer.theta, best, fit.theta, made.margins(point)])
    for mine, memory in zip(found[1], found[0], strict=True):
        np.testing.assert_array_equal(mine, memory)


def test_a_collection_whose_source_has_changed_is_refused():
    array, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    rows, labels = records(num=3000)
    read = dask.delayed(lambda: rows.copy(), pure=False)  # anew in every pass
    given = array.from_delayed(read(), rows.shape, rows.dtype)
    with dask.config.set(scheduler="synchronous"):
        made = problem(given, labels)
        made.margins(np.zeros(DIM))
        rows[1234] *= 20.0
        with pytest.raises(ValueError, match=r"at most row_bound = 1, .* record 1234"):
            dps.minimize(made, dps.optimizers.NoisyGD(num_steps=2), BUDGET)
        scaled = problem(given, labels, clip_rows=True)
        rows = rows[:, :2]  # Dask believes the shape that was declared
        with pytest.raises(ValueError, match=r"features must be of shape .* got"):
            made.margins(np.zeros(DIM))
        rows = records(num=3000)[0]
        assert np.abs(scaled.margins(np.full(DIM, 0.5))).max() <= 0.87


def odd_arrays():
    """Arrays of Dask that are no rows or no column of numbers."""
    array = pytest.importorskip("dask.array")
    rows, labels = records(np.float64)
    given, column = array.from_array(rows, (170, 2)), array.from_array(labels, 333)
    hidden = array.ma.masked_array
    return {
        "one axis": (given[:, 0], column, "features must be of shape (any, any)"),
        "masked rows": (hidden(given, rows > 0.5), column, "features must be free of"),
        "masked": (given, hidden(column, labels > 0.0), "response must be free of"),
        "complex": (given + 1j, column, "features must be"),
        "text": (given.astype(str), column, "features must be an array of numbers"),
        "two columns": (given, given[:, :2], "response must be of shape (1000,)"),
    }


@pytest.mark.parametrize("numbers", [1, 10**6])  # partitions, or memory
# By name: to collect the tests does not take Dask.
@pytest.mark.parametrize(
    "name", ["one axis", "masked rows", "masked", "complex", "text", "two columns"]
)
def test_odd_arrays_of_dask_are_refused_as_those_of_numpy(monkeypatch, name, numbers):
    monkeypatch.setattr(sources, "CHUNK_NUMBERS", numbers)
    *given, wrong = odd_arrays()[name]
    with pytest.raises(ValueError, match="must be") as caught:
        problem(*given)
    assert wrong in str(caught.value)


@pytest.mark.slow
def test_a_frame_of_dask_keeps_its_own_names():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    rows, labels = records(np.float64)
    frame = pandas.DataFrame(np.c_[rows, labels])
    given = frames.from_pandas(frame, npartitions=5)
    assert problem(given, "3").feature_names == ("0", "1", "2")
    assert list(given.columns) == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_frame_of_dask_may_have_every_kind_of_numbers():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    rows, labels = records(np.float64)
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"]).assign(y=labels)
    frame = frame.assign(a=frame.a > 0.0, b=frame.b.astype("Float64"))
    frame[["b", "c"]] *= 0.3
    given = problem(frames.from_pandas(frame, npartitions=5), "y", row_bound=2.0)
    kept = problem(frame[["a", "b", "c"]], labels, row_bound=2.0)
    assert given.risk(np.ones(DIM)) == kept.risk(np.ones(DIM))
    text = frames.from_pandas(frame.assign(a="x"), npartitions=5)
    with pytest.raises(ValueError, match="Encode categories"):
        problem(text, "y")


@pytest.mark.slow
def test_records_of_a_frame_are_named_by_their_numbers():
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    rows, labels = records(np.float64)
    rows[700] *= 20.0
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"]).assign(y=labels)
    given = frames.from_pandas(frame, npartitions=5)
    with pytest.raises(ValueError, match=r"in record 700 \(1 records are above\)"):
        problem(given, "y")
    made = problem(given, "y", clip_rows=True)
    assert made.feature_names == ("a", "b", "c")
    kept = problem(rows, labels, clip_rows=True)
    assert made.risk(np.ones(DIM)) == kept.risk(np.ones(DIM))
    with pytest.raises(ValueError, match="records on a cluster. Pass a numpy.memmap"):
        dps.sample(dps.Gibbs(made, k=10.0, mu=0.1), num_draws=3)


@pytest.mark.parametrize("bound", [1e-60, 1.0, 1e60])
def test_squares_decide_as_norms_do(bound):
    """A row within the slack, and one a little outside of it."""
    rows = np.zeros((5, DIM))
    rows[3] = bound * np.ones(DIM) / DIM**0.5
    for factor, is_long in ((1.0 + 1e-13, False), (1.0 + 3e-12, True)):
        if is_long:
            with pytest.raises(ValueError, match="in record 3"):
                problem(factor * rows, np.ones(5), row_bound=bound)
        else:
            problem(factor * rows, np.ones(5), row_bound=bound)
