"""Public pieces of a kind, with parameters drawn by their fields.

Lists come from the package: who makes a class public has it tested.
"""

from __future__ import annotations

import math
import typing
from dataclasses import MISSING, fields
from functools import cache

import numpy as np

from dpsample import domains, losses, noise, regularizers
from tests.contracts.public_objects import EXAMPLES
from tests.support.bodies import random_polytope

TRIES = 200  # draws of parameters, of which a class refuses those out of its range
# Bases, and what a user's functions make: `tests/losses` compares these.
NOT_PIECES = {losses.Loss, losses.Custom, losses.RecordGradient, domains.Domain}
NOT_PIECES |= {regularizers.Regularizer, noise.Noise}
# No domain has a proved range of these: see tests/regularizers.
NOT_PIECES |= {regularizers.PowerNorm, regularizers.CustomRegularizer}


def public(base, module, registered):
    """Classes of a kind in the ``__all__`` of its module or in its registry."""
    named = [getattr(module, name) for name in module.__all__]
    kinds = [k for k in named if isinstance(k, type) and issubclass(k, base)]
    kinds += [k for k in registered if k.__module__.split(".")[0] == "dpsample"]
    kept = {k.__name__: k for k in kinds if k not in NOT_PIECES}
    return [kept[name] for name in sorted(kept)]


LOSSES = public(losses.Loss, losses, losses.BUILT_IN.values())
DOMAINS = public(domains.Domain, domains, domains.KINDS)
REGULARIZERS = public(regularizers.Regularizer, regularizers, regularizers.KINDS)
NOISES = public(noise.Noise, noise, noise.KINDS)


def draw_number(rng):
    """A number of any size: shares, lengths, exponents."""
    sizes = rng.random(), 10.0 ** rng.uniform(-2.0, 2.0), 1.0 + rng.exponential()
    return float(rng.choice([*sizes, 1.0, 2.0]))


def draw_exponent(rng):
    return float(rng.choice([1.0, 1.0 + rng.random(), 2.0, 3.0, 12.0, math.inf]))


def draw_shape(rng):
    return tuple(int(side) for side in rng.integers(1, 4, size=2))


def draw_center(rng):
    return rng.normal(size=3) if rng.random() < 0.5 else None


def draw_precision(rng):
    factor = rng.normal(size=(3, 3))
    return factor @ factor.T + 0.1 * np.eye(3)


def draw_intersection(rng):
    box = domains.Box(-draw_number(rng), draw_number(rng))
    return domains.Intersection(domains.Ball(draw_number(rng)), box)


# By the name of a field, or else by its type.
BY_NAME = {
    "center": draw_center,
    "p": draw_exponent,
    "precision": draw_precision,
    "shape": draw_shape,
    "lower": lambda rng: -draw_number(rng),
    "upper": draw_number,
    "variant": lambda rng: str(rng.choice(regularizers.VARIANTS)),
}
BY_TYPE = {
    float: draw_number,
    int: lambda rng: int(rng.integers(1, 7)),
    bool: lambda rng: bool(rng.integers(2)),
    tuple[int, int]: draw_shape,
    domains.Domain: lambda rng: domains.Ball(draw_number(rng)),
}
# Whose fields only fit together.
WHOLE = {
    "Intersection": draw_intersection,
    "Polytope": lambda rng: random_polytope(3, 6, seed=int(rng.integers(1 << 30))),
}


def draw(kind, rng):
    """An object whose fields are drawn, or None if they are not understood."""
    if kind.__name__ in WHOLE:
        return WHOLE[kind.__name__](rng)
    types, makers = typing.get_type_hints(kind), {}
    for field in fields(kind):
        maker = BY_NAME.get(field.name) or BY_TYPE.get(types[field.name])
        if maker is not None and field.init:
            makers[field.name] = maker
        elif field.default is MISSING and field.init:
            return None
    for _ in range(TRIES):
        try:
            return kind(**{name: make(rng) for name, make in makers.items()})
        except ValueError:  # out of its range
            continue
    return None


@cache
def examples(kind, count, seed=1):
    """Objects of a class: as users make it, and with drawn parameters.

    A class that can be made neither way fails: give it an entry in `EXAMPLES`.
    """
    needs = [f for f in fields(kind) if f.init and f.default is MISSING]
    made = (
        []
        if needs and kind.__name__ not in EXAMPLES
        else [EXAMPLES.get(kind.__name__, kind)()]
    )
    rng = np.random.default_rng(seed)
    if fields(kind):
        made += [each for _ in range(count) if (each := draw(kind, rng)) is not None]
    assert made, f"{kind.__name__} needs an entry in public_objects.EXAMPLES"
    return made


def dims(piece):
    """Numbers of coordinates that fit a domain: the first few."""
    fitting = []
    for dim in range(1, 13):
        try:
            piece.check(dim)
        except ValueError:
            continue
        fitting.append(dim)
    return [fitting[len(fitting) // 4]] if len(fitting) > 2 else fitting[-1:]
