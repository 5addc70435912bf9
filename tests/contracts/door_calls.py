"""Calls of doors with one argument replaced, and what comes out."""

import faulthandler
import functools
import inspect
import re
import signal
import sys
from collections import Counter
from contextlib import contextmanager

import dpsample as dps
from tests.contracts import door_objects as O
from tests.contracts.door_examples import ARGUMENTS
from tests.contracts.door_methods import METHODS, instance

GRAMMAR = re.compile(r"\S.* must be .+, got .+\.( .+\.)?", re.DOTALL)
SECONDS = 120  # of work: a call that takes longer hangs
# No cheap call of them succeeds: one needs a downloaded file, the other a minute.
REFUSING = {
    *("datasets.load", "papers.claims"),
    *("domains.Intersection.max_norm", "domains.Intersection.support"),
    "regularizers.PowerNorm.range_on",
}
OUTCOMES: Counter[str] = Counter()
_warm = set()


def valid(door):
    """Arguments of the door's example; None if it has none."""
    if door.owner is None:
        return ARGUMENTS.get(door.name)
    return METHODS.get(door.name, METHODS.get(door.name.rpartition(".")[2]))


def made(value):
    """The value, or what its builder makes: a lambda, or a cached function."""
    is_builder = isinstance(value, functools._lru_cache_wrapper)
    is_lambda = inspect.isfunction(value) and value.__name__ == "<lambda>"
    return value() if is_builder or is_lambda else value


def call(door, **changes):
    """Call the door; what a constructor made is used where checks come late."""
    given = {k: made(v) for k, v in valid(door).items() if k not in changes} | changes
    if door.name == "replicate":
        verb, arguments = given.pop("verb"), given.pop("arguments")
        return dps.replicate(verb, *arguments, **given.pop("options", {}), **given)
    if door.owner is not None:
        return getattr(instance(door), door.name.rpartition(".")[2])(**given)
    result = door.function(*starred(door, given), **given)
    if door.name in BODIES:
        result.body(BODIES[door.name])
    if door.name.startswith("optimizers."):
        method = door.name.removeprefix("optimizers.")
        result.recipe(O.facts_for(method), O.budget_for(method))
    return result


def starred(door, given):
    """Take out the values of a parameter like ``*parts``, one if it is no tuple."""
    for name, parameter in inspect.signature(door.function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL and name in given:
            value = given.pop(name)
            return value if isinstance(value, tuple) else (value,)
    return ()


BODIES = {
    "domains.Ball": 2,
    "domains.Box": 2,
    "domains.Ellipsoid": 2,
    "domains.Intersection": 2,
    "domains.Polytope": 1,
    "domains.SchattenBall": 4,
}


class Late(BaseException):
    """A call took too long. No Exception: nothing on the way may catch it."""


@contextmanager
def in_time():
    """Stop Python code after so much work; what does none ends the whole run later."""

    def ring(*_):
        raise Late

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def attempt(door, parameter, value, kind):
    """What is wrong with the outcome, in words; empty if it is as documented."""
    if door.name not in _warm | REFUSING:
        call(door)  # compiles, which may take longer
        _warm.add(door.name)
    is_forbidden = kind.forbids(value)
    # The true stream: what captures output may have no descriptor.
    faulthandler.dump_traceback_later(10 * SECONDS, exit=True, file=sys.__stderr__)
    try:
        with in_time():
            call(door, **{parameter: value})
    except (ValueError, TypeError) as error:
        if not GRAMMAR.fullmatch(str(error)):
            return f"not in the grammar: {type(error).__name__}: {error}"
        is_value = isinstance(error, ValueError)
        OUTCOMES["refused by ValueError" if is_value else "refused by TypeError"] += 1
        return ""
    except Late:
        return f"no answer within {SECONDS} seconds of work"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        faulthandler.cancel_dump_traceback_later()
    if is_forbidden:
        return "accepted against its documentation"
    OUTCOMES["accepted as documented"] += 1
    return ""
