"""Budgets: what is stored, and what is refused."""

import dataclasses
import math
import re

import pytest

from dpsample.privacy import Budget

GRAMMAR = re.compile(r"^\S+ must be .+, got .+\.( .+\.)?$")


def test_numbers_are_stored_as_floats_and_compare_by_value():
    budget = Budget(epsilon=1, delta=1e-6)
    assert (budget.epsilon, budget.delta) == (1.0, 1e-6)
    assert type(budget.epsilon) is float
    assert budget == Budget(epsilon=1.0, delta=1e-6, relation="replace_one")
    assert budget != Budget(epsilon=1.0, delta=1e-6, relation="zero_out")
    assert hash(budget) == hash(Budget(epsilon=1.0, delta=1e-6))


def test_a_budget_cannot_be_changed_or_read_by_position():
    budget = Budget(epsilon=1.0, delta=1e-6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.epsilon = 2.0
    with pytest.raises(TypeError):
        Budget(1.0, 1e-6)


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0, got 0."),
        ({"epsilon": -1.0}, "epsilon must be a finite number > 0, got -1."),
        ({"epsilon": math.inf}, "epsilon must be a finite number > 0, got inf."),
        ({"epsilon": math.nan}, "epsilon must be a finite number > 0, got nan."),
        ({"epsilon": "1"}, "epsilon must be a finite number > 0, got '1'."),
        ({"epsilon": True}, "epsilon must be a finite number > 0, got True."),
        ({"delta": -0.1}, "delta must be >= 0 and < 1, got -0.1. A common choice"),
        ({"delta": 1.0}, "delta must be >= 0 and < 1, got 1."),
        ({"delta": None}, "delta must be >= 0 and < 1, got None."),
        ({"delta": math.nan}, "delta must be >= 0 and < 1, got nan."),
        (
            {"relation": "add_remove"},
            "relation must be one of 'replace_one', 'zero_out', got 'add_remove'.",
        ),
        ({"relation": None}, "relation must be one of 'replace_one', 'zero_out'"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(changes, condition):
    with pytest.raises(ValueError) as caught:
        Budget(**({"epsilon": 1.0, "delta": 1e-6} | changes))
    assert str(caught.value).startswith(condition)
    assert GRAMMAR.match(str(caught.value))
