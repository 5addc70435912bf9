"""Random streams: one independent generator per chain, replicate or purpose.

A seed gives the same streams on every machine and for every thread count. Without a
seed `streams` starts from the operating system's entropy, for draws that stay private;
what may be released takes `secret_streams`, whose bits nobody can compute or repeat.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dpsample.core import check
from dpsample.core.secret_bits import SecretBits, SecretGenerator
from dpsample.core.self_test import require_arithmetic

Seed = int | np.random.SeedSequence | None


def seed_sequence(seed: Seed) -> np.random.SeedSequence:
    """Root of all streams of one call; None means operating-system entropy."""
    if isinstance(seed, np.random.SeedSequence):
        # Spawning moves a counter inside the object: a copy keeps calls repeatable.
        return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
    if seed is not None:
        remedy = "Use a non-negative integer, or None."
        check.integer(0, most=check.SEED, seed=seed, remedy=remedy)
        seed = int(seed)
    return np.random.SeedSequence(seed)


def streams(seed: Seed, num_streams: int) -> list[np.random.Generator]:
    """Independent PCG64DXSM generators spawned from one root."""
    return [
        np.random.Generator(np.random.PCG64DXSM(child))
        for child in seed_sequence(seed).spawn(num_streams)
    ]


def secret_streams(num_streams: int) -> list[SecretGenerator]:
    """Independent generators of secret bits: ChaCha20 keyed by the operating system.

    They cannot be seeded, saved, copied or used after a fork. Call ``check`` before
    what they drew leaves the call, then ``erase``: `release_streams` does both.

    Examples
    --------
    >>> first, second = secret_streams(2)
    >>> first.random() != second.random()
    True
    >>> first.erase()
    >>> first.random()
    Traceback (most recent call last):
        ...
    RuntimeError: This generator of secret bits has been erased, or a fork has ...
    """
    return [SecretGenerator(SecretBits()) for _ in range(num_streams)]


@contextmanager
def release_streams(
    seed: Seed, num_streams: int
) -> Iterator[Sequence[np.random.Generator]]:
    """Streams of a call whose answer may be released, erased at its end.

    Without a seed they are secret; a RuntimeError at the end takes back what was drawn
    from a generator that was erased, or copied by a fork, in between. With a seed they
    are those of `streams`. `ArithmeticFault` says that the process does not compute as
    proofs assume, before anything is drawn.
    """
    if seed is not None:
        yield streams(seed, num_streams)
        return
    require_arithmetic()
    made = secret_streams(num_streams)
    try:
        yield made
        for rng in made:
            rng.check()
    finally:
        for rng in made:
            rng.erase()


def save_state(rng: np.random.Generator) -> dict[str, object]:
    """State that `restore` turns back into a generator at the same place."""
    return dict(rng.bit_generator.state)


def restore(state: dict[str, object]) -> np.random.Generator:
    """Return a generator that continues bit for bit where `save_state` was called."""
    bits = np.random.PCG64DXSM()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)
