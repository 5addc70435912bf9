"""Error grammar: ``<name> must be <condition>, got <value>.`` and fresh arrays."""

import math
import re

import numpy as np
import pytest

from dpsample.core import check

GRAMMAR = re.compile(r"^\S+( and \S+)* must be .+, got .+\.( .+\.)?$")
CHECKS = {
    "positive": (check.positive, {"x": 0.0}, "a finite number > 0"),
    "non_negative": (check.non_negative, {"x": -1.0}, "a finite number >= 0"),
    "open_interval": (
        lambda **k: check.open_interval(0.0, 1.0, **k),
        {"x": 1.0},
        "> 0 and < 1",
    ),
    "at_least": (lambda **k: check.at_least(1.0, **k), {"x": 0.5}, ">= 1"),
    "integer": (lambda **k: check.integer(1, **k), {"x": 0}, "an integer >= 1"),
    "one_of": (
        lambda **k: check.one_of(("a", "b"), **k),
        {"x": "c"},
        "one of 'a', 'b'",
    ),
    "instance": (lambda **k: check.instance(float, **k), {"x": 1}, "a float"),
}
NOT_NUMBERS = [True, np.True_, "1", None, [1.0], 1j, np.array([1.0, 2.0]), math.nan]


def message(call, **arguments):
    with pytest.raises(ValueError) as caught:
        call(**arguments)
    return str(caught.value)


@pytest.mark.parametrize("name", CHECKS)
def test_errors_name_the_argument_the_condition_and_the_value(name):
    call, arguments, condition = CHECKS[name]
    text = message(call, **arguments)
    assert GRAMMAR.match(text)
    assert text == f"x must be {condition}, got {check.describe(arguments['x'])}."


@pytest.mark.parametrize("name", CHECKS)
def test_the_remedy_ends_the_message(name):
    call, arguments, _ = CHECKS[name]
    text = message(call, **arguments, remedy="Do this.")
    assert text.endswith(". Do this.") and GRAMMAR.match(text)


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "name", ["positive", "non_negative", "open_interval", "at_least", "integer"]
)
def test_what_is_no_number_is_refused(name, value):
    assert GRAMMAR.match(message(CHECKS[name][0], x=value))


@pytest.mark.parametrize("kind", [int, float, np.float32, np.float64, np.int64])
def test_every_kind_of_number_passes(kind):
    check.positive(x=kind(1))
    check.non_negative(x=kind(0), y=kind(1))
    check.at_least(1.0, x=kind(1))
    check.open_interval(0.0, 2.0, x=kind(1))


def test_infinity_passes_only_where_it_is_allowed():
    check.at_least(1.0, x=math.inf)
    for call in (check.positive, check.non_negative):
        assert "got inf" in message(call, x=math.inf)


def test_every_value_of_one_call_is_checked():
    assert message(check.positive, a=1.0, b=2.0, c=-3.0).startswith("c must be")


def test_a_choice_of_another_type_is_not_a_choice():
    for value in (1, True):
        assert "got" in message(lambda x: check.one_of((1.0, 2.0), x=x), x=value)
    check.one_of((None, "a"), x=None)


def test_shown_values_are_short_and_on_one_line():
    long = {"key": "word " * 100}
    assert len(check.describe(long)) == 80 and check.describe(long).endswith("...")
    assert "\n" not in check.describe("two\nlines")
    assert (
        check.describe(np.ones((2, 3))) == "an array of shape (2, 3) and dtype float64"
    )
    assert check.describe(np.float64(0.1)) == "0.1"


@pytest.mark.parametrize("value", [0.1 + 0.2, np.nextafter(1.0, 2.0), 1e300 / 3.0])
def test_a_shown_number_is_told_from_every_other(value):  # F8
    assert float(check.describe(value)) == value
    with pytest.raises(ValueError, match=r"^x must be > 0 and < 0\.3, got") as caught:
        check.open_interval(0.0, 0.3, x=value)
    assert "got 0.3." not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("text", "an array of numbers, got 'text'"),
        ([[1.0], [1.0, 2.0]], "an array of numbers"),
        ([None, object()], "an array of numbers"),
        ([1.0], "of shape (2, any), got shape (1,)"),
        (np.ones((3, 2)), "of shape (2, any), got shape (3, 2)"),
        ([[1.0, 2.0], [np.nan, 1.0]], "finite, got nan at index [1, 0]"),
        ([[1.0, -np.inf], [0.0, 1.0]], "finite, got -inf at index [0, 1]"),
    ],
)
def test_array_says_what_is_wrong_and_where(value, words):
    text = message(lambda: check.array("x", value, shape=(2, None)))
    assert text.startswith("x must be ") and words in text


@pytest.mark.parametrize(
    "given",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6).reshape(2, 3),
        np.arange(24.0).reshape(4, 6)[::2, ::2],
        [[0, 1, 2], [3, 4, 5]],
        np.broadcast_to(np.arange(3.0), (2, 3)),
    ],
)
def test_array_is_fresh_writable_float64_in_c_order(given):
    result = check.array("x", given, shape=(2, 3))
    assert result.dtype == np.float64 and result.flags.c_contiguous
    assert result.flags.writeable and result.flags.owndata and result.flags.aligned
    assert not np.shares_memory(result, np.asarray(given))
    np.testing.assert_array_equal(result, np.asarray(given, dtype=np.float64))


@pytest.mark.parametrize(
    ("value", "dim", "words"),
    [
        ("ab", None, "x must be an array of numbers, got 'ab'."),
        ([[1.0], [1.0, 2.0]], None, "x must be an array of numbers, got [[1.0]"),
        (1.0, None, "x must be of shape (..., d), got shape ()."),
        ([], None, "x must be of shape (..., d), got shape (0,)."),
        ([[1.0, 2.0]], 3, "x must be of shape (..., 3), got shape (1, 2)."),
        ([[0.0, 1.0], [math.nan, 0.0]], 2, "x must be finite, got nan at index [1, 0]"),
    ],
)
def test_vectors_says_what_is_wrong_and_where(value, dim, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        check.vectors("x", value, dim=dim)
    assert GRAMMAR.match(str(error.value))


def test_vectors_takes_any_number_of_leading_axes():
    for shape in ((3,), (2, 3), (2, 0, 3)):
        given = np.ones(shape)
        result = check.vectors("x", given, dim=3)
        assert result.shape == shape
        assert not np.shares_memory(result, given)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_limits_are_compared_in_double_precision(kind):
    with pytest.raises(ValueError, match=r"x must be finite and >= 2\.225e-308"):
        check.normal(x=kind(0.0))
    check.scale(x=kind(0.5))  # its upper limit is no number of the kind
