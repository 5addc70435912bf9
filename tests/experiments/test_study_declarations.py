"""What a study may declare, its cells and seeds."""

import json
import math

import numpy as np
import pytest

from dpsample.experiments import Figure, Inapplicable, Metric, Slope, Study
from dpsample.experiments.run import missing
from dpsample.experiments.study import expand, key_of, seeds_of


def nothing(params, seed):
    return {"x": float(np.random.default_rng(seed).random())}


def study(**options):
    given = {"name": "s", "title": "T", "question": "Q?", "grid": {"n": (1, 2)}}
    given |= {"metrics": (Metric("x"),), "replicates": 3, "cell": nothing}
    return Study(**given | options)


def params(grid):
    return [cell.params for cell in expand(grid)]


def test_a_grid_is_all_combinations_in_the_order_written():
    assert params({"b": (2, 1), "a": "u"}) == [{"b": 2, "a": "u"}, {"b": 1, "a": "u"}]
    assert len(params({"a": (1, 2), "b": [3, 4, 5]})) == 6 and params({}) == [{}]
    union = params(({"a": 1}, {"a": (2, 3), "c": True}))
    assert union == [{"a": 1}, {"a": 2, "c": True}, {"a": 3, "c": True}]


def test_numbers_of_numpy_are_plain_numbers():
    (cell, *_) = expand({"n": np.array([4, 5]), "r": np.float64(0.5)})
    assert cell.params == {"n": 4, "r": 0.5} and type(cell.params["n"]) is int
    assert cell.key == '{"n": 4, "r": 0.5}'


def test_a_cell_is_known_by_its_parameters_whatever_their_order():
    assert key_of({"b": math.inf, "a": None}) == key_of({"a": None, "b": math.inf})
    assert json.loads(key_of({"b": math.inf})) == {"b": math.inf}


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ((), "a mapping with at least one cell"),
        ({"a": ()}, "a mapping with at least one cell"),
        (({"a": (1, 2)}, {"a": 2}), "without repeated cells"),
        ({"a": (math.nan,)}, "parameter a must be"),
        ({"a": ((1, 2), (3, 4))}, "parameter a must be"),
        ({"a": object()}, "parameter a must be"),
        ((1,), "grid must be a tuple of Mapping"),
    ],
)
def test_a_grid_that_means_nothing_is_an_error(grid, words):
    with pytest.raises(ValueError, match=words):
        expand(grid)


def states(study, own, replicates, **options):
    seeds = seeds_of(study, own, replicates, **options)
    return [tuple(seed.generate_state(4)) for seed in seeds]


def test_a_seed_is_decided_by_study_cell_and_replicate():
    first = states("s", {"n": 1, "p": 2.0}, range(4))
    assert states("s", {"p": 2.0, "n": 1}, [3, 1]) == [first[3], first[1]]
    others = [
        states("t", {"n": 1, "p": 2.0}, range(4)),
        states("s", {"n": 2, "p": 2.0}, range(4)),
        states("s", {"n": 1, "p": 2.0}, range(4), root=1),
        states("s", {"n": 1, "p": 2.0}, range(4), paired=["p"]),
    ]
    assert len({s for part in [first, *others] for s in part}) == 20


def test_seeds_are_those_that_the_cells_sequence_spawns():
    (first, second) = seeds_of("s", {"n": 1}, [0, 1])
    root = np.random.SeedSequence(0, spawn_key=first.spawn_key[:-1])
    for own, child in zip((first, second), root.spawn(2), strict=True):
        assert np.array_equal(own.generate_state(4), child.generate_state(4))


def test_seeds_stay_what_they_are():
    assert states("noise", {"d": 10}, [7]) == [
        tuple(np.random.SeedSequence(0, spawn_key=WORDS).generate_state(4))
    ]


# The first 16 bytes of the SHA-256 of 'noise\n{"d": 10}', and the replicate.
WORDS = (2599116974, 4175869510, 1216657223, 3745088963, 7)


def test_paired_cells_share_their_seeds():
    one, two = ({"n": 1, "epsilon": e} for e in (0.5, 1.0))
    shared = [states("s", p, [0], paired=["epsilon"]) for p in (one, two)]
    assert shared[0] == shared[1]


def test_all_cells_grow_together():
    declared = study(grid={"n": (1, 2)}, replicates=lambda p: 2 * p["n"], block=2)
    done = {expand({"n": 2})[0].key: {1}}
    tasks = [
        (t.params["n"], t.replicates) for t in missing(declared, done, quick=False)
    ]
    assert tasks == [(1, (0, 1)), (2, (0, 2)), (2, (3,))]
    whole = study(cell=None, batch=nothing)
    assert [t.replicates for t in missing(whole, {}, quick=False)] == [(0, 1, 2)] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cell": None}, "cell must be given, or batch"),
        ({"batch": nothing}, "cell must be given, or batch"),
        ({"replicates": 0}, "replicates must be an integer >= 1"),
        ({"replicates": lambda p: p["n"] - 1}, "replicates must be an integer >= 1"),
        ({"quick_replicates": 1.5}, "replicates must be an integer >= 1"),
        ({"block": 0}, "block must be an integer >= 1"),
        ({"seed": -1}, "seed must be an integer >= 0"),
        ({"confidence": 1.0}, "confidence must be > 0 and < 1"),
        ({"title": None}, "name must be a str"),
        ({"metrics": ()}, "metrics must be a tuple"),
        ({"metrics": (Metric("x"), Metric("x"))}, "distinct names"),
        ({"metrics": (Metric("x", bound="y"),)}, "metric must be one of 'x'"),
        ({"paired": ("p",)}, "parameter must be one of 'n'"),
        ({"figures": (Figure(x="p", y="x"),)}, "parameter must be one of 'n'"),
        ({"figures": (Figure(x="n", y=("x", "y")),)}, "metric must be one of 'x'"),
        ({"figures": (Figure(x="n", y="x", lines="q"),)}, "parameter must be"),
        ({"figures": (Figure(x="n", y="x", where={"q": 1}),)}, "parameter must be"),
        ({"slopes": (Slope(x="n", y="y", expected=1, theorem=""),)}, "metric must be"),
        ({"slopes": (Slope(x="m", y="x", expected=1, theorem=""),)}, "parameter must"),
        (
            {"inapplicable": (Inapplicable(when=bool, reason="", metrics=("z",)),)},
            "metric must be one of 'x'",
        ),
        ({"quick": {"n": (1, 1)}}, "without repeated cells"),
    ],
)
def test_names_and_numbers_of_a_study_are_checked(options, words):
    with pytest.raises(ValueError, match=words):
        study(**options)


def test_a_figure_needs_one_value_of_every_other_parameter():
    grid = {"n": (1, 2), "p": (1, 2), "q": 3}
    words = r"^figure of x must be of one cell .* several p"
    with pytest.raises(ValueError, match=words):
        study(grid=grid, figures=(Figure(x="n", y="x"),))
    study(grid=grid, figures=(Figure(x="n", y="x", lines="p"),))
    study(grid=grid, figures=(Figure(x="n", y="x", where={"p": 1}),))


@pytest.mark.parametrize("options", [{"kind": "median"}, {"tolerance": -1.0}])
def test_words_and_numbers_of_a_metric_are_checked(options):
    with pytest.raises(ValueError, match="must be"):
        Metric("x", **options)
