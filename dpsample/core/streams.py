"""Random streams: one independent generator per chain, replicate or purpose.

A seed gives the same streams on every machine and for every thread count. Without a
seed `streams` starts from the operating system's entropy, for draws that stay private;
what may be released takes `secret_streams`, whose bits nobody can compute or repeat.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsample.core import check
from dpsample.core.arithmetic import require_arithmetic
from dpsample.core.jit import kernel
from dpsample.core.secret_bits import SecretBits, SecretGenerator

Seed = int | np.random.SeedSequence | None
Words = NDArray[np.uint64]
MULTIPLIER_HIGH = np.uint64(2549297995355413924)  # of PCG64
MULTIPLIER_LOW = np.uint64(4865540595714422341)
# Of NumPy's SeedSequence (O'Neill's seed_seq): its hashes run through the powers of the
# first pair as they take words in, and of the second as they give words out.
IN, IN_TIMES = 0x43B0D7E5, 0x931E8875
OUT, OUT_TIMES = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = 0xCA01F9DD, 0x4973F715
POOL = 4


def seed_sequence(seed: Seed) -> np.random.SeedSequence:
    """Root of all streams of one call; None means operating-system entropy."""
    if isinstance(seed, np.random.SeedSequence):
        # Spawning moves a counter inside the object: a copy keeps calls repeatable.
        return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
    if seed is not None:
        remedy = "Use a non-negative integer, or None."
        check.integer(0, maximum=check.MAX_SEED, seed=seed, remedy=remedy)
        seed = int(seed)
    return np.random.SeedSequence(seed)


def streams(seed: Seed, num_streams: int) -> list[np.random.Generator]:
    """Independent PCG64DXSM generators spawned from one root."""
    return [
        np.random.Generator(np.random.PCG64DXSM(child))
        for child in seed_sequence(seed).spawn(num_streams)
    ]


class ReusableGenerator:
    """One PCG64DXSM generator that kernels start anew, at the streams of many seeds.

    To make a generator takes longer than to draw a release.
    """

    def __init__(self) -> None:
        bits = np.random.PCG64DXSM(0)
        self.rng = np.random.Generator(bits)
        # NumPy's pcg64_state begins with the address of state and increment, of 128
        # bits each, which compilers without such numbers store upper half first.
        place = ctypes.c_void_p.from_address(bits.ctypes.state_address).value or 0
        memory = np.ctypeslib.as_array((ctypes.c_uint64 * 4).from_address(place))
        now = bits.state["state"]
        values = [now[k] >> s & 2**64 - 1 for k in ("state", "inc") for s in (0, 64)]
        self.is_known = memory.tolist() == values
        self.memory = memory


class Children(Sequence[np.random.SeedSequence]):
    """What ``root.spawn(number)`` returns, made when it is asked for."""

    def __init__(self, root: np.random.SeedSequence, numbers: range) -> None:
        self.root, self.numbers = root, numbers

    def __len__(self) -> int:
        """Return the number of seeds."""
        return len(self.numbers)

    def __getitem__(self, at: Any) -> Any:
        """Return a seed, or some of them."""
        if isinstance(at, slice):
            return Children(self.root, self.numbers[at])
        key = (*self.root.spawn_key, self.numbers[at])
        return np.random.SeedSequence(self.root.entropy, spawn_key=key)


def starts(seeds: Sequence[np.random.SeedSequence], child: int) -> Words:
    """Words from which the streams of this child of each seed start."""
    if isinstance(seeds, Children):
        keys = np.full((len(seeds), 2), child, np.uint32)
        keys[:, 0] = np.arange(len(seeds)) * seeds.numbers.step + seeds.numbers.start
        return _after(seeds.root, keys)
    made = [_after(seed, np.array([[child]], np.uint32)) for seed in seeds]
    return np.concatenate([np.empty((0, POOL), np.uint64), *made])


def _num_words(given: Any) -> int:
    """Words of 32 bits that NumPy makes of entropy: a number, its digits or many."""
    if isinstance(given, str):
        given = int(given, 16 if given.startswith("0x") else 10)
    if isinstance(given, int | np.integer):
        return max(1, -(-int(given).bit_length() // 32))
    return sum(map(_num_words, given))


def _after(seed: np.random.SeedSequence, keys: NDArray[np.uint32]) -> Words:
    """Words of the children of a seed whose keys are the rows, each below 2^32."""
    more = max(_num_words(seed.entropy) - POOL, 0) + _num_words(seed.spawn_key)
    # Hashes so far: of the pool, of each pair in it, of each word that came after.
    hashes = POOL * (POOL + more)
    made = np.empty((len(keys), POOL), np.uint64)
    state = IN * pow(IN_TIMES, hashes, 2**32) % 2**32
    with np.errstate(over="ignore"):  # interpreted, it counts modulo 2^32 too
        hash_keys(seed.pool, np.uint32(state), keys, made)
    return made


@kernel
def hashed(word: np.uint32, state: np.uint32, factor: int) -> np.uint32:
    """Hash of a word; the next one's state is ``state * factor``."""
    word = np.uint32((word ^ state) * np.uint32(state * np.uint32(factor)))
    return np.uint32(word ^ (word >> np.uint32(16)))


@kernel
def hash_keys(
    pool: NDArray[np.uint32], state: np.uint32, keys: NDArray[np.uint32], out: Words
) -> None:
    """Fill rows of out with ``generate_state(4, uint64)`` of seeds with these keys."""
    now = np.empty(POOL, np.uint32)
    for i in range(keys.shape[0]):
        now[:], power = pool, state
        for word in keys[i]:
            for j in range(POOL):
                mixed = np.uint32(np.uint32(MIX_LEFT) * now[j]) - np.uint32(
                    np.uint32(MIX_RIGHT) * hashed(word, power, IN_TIMES)
                )
                power = np.uint32(power * np.uint32(IN_TIMES))
                now[j] = np.uint32(mixed) ^ (np.uint32(mixed) >> np.uint32(16))
        power = np.uint32(OUT)
        for j in range(POOL):
            low = hashed(now[2 * j % POOL], power, OUT_TIMES)
            power = np.uint32(power * np.uint32(OUT_TIMES))
            high = hashed(now[(2 * j + 1) % POOL], power, OUT_TIMES)
            power = np.uint32(power * np.uint32(OUT_TIMES))
            out[i, j] = np.uint64(low) | (np.uint64(high) << np.uint64(32))


@kernel
def times(high: np.uint64, low: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Product with PCG's multiplier, modulo 2^128, in halves."""
    mask, half = np.uint64(2**32 - 1), np.uint64(32)
    a, b = low >> half, low & mask
    c, d = MULTIPLIER_LOW >> half, MULTIPLIER_LOW & mask
    first, second, third = b * d, a * d, b * c
    carry = (first >> half) + (second & mask) + (third & mask)
    upper = a * c + (second >> half) + (third >> half) + (carry >> half)
    upper += high * MULTIPLIER_LOW + low * MULTIPLIER_HIGH
    return upper, low * MULTIPLIER_LOW


@kernel
def set_state(memory: Words, words: Words) -> None:
    """Set the state of a generator as ``PCG64DXSM(seed)`` does (O'Neill's srandom)."""
    one, top = np.uint64(1), np.uint64(63)
    inc_low = (words[3] << one) | one
    inc_high = (words[2] << one) | (words[3] >> top)
    low = inc_low + words[1]
    high = inc_high + words[0] + np.uint64(low < inc_low)
    high, low = times(high, low)
    memory[0] = low + inc_low
    memory[1] = high + inc_high + np.uint64(memory[0] < inc_low)
    memory[2], memory[3] = inc_low, inc_high


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
    proofs assume, before anything is drawn. Meanwhile NumPy neither warns nor raises,
    whatever the caller has set: what floating point meets depends on the records.
    """
    if seed is not None:
        with np.errstate(all="ignore"):
            yield streams(seed, num_streams)
        return
    require_arithmetic()
    made = secret_streams(num_streams)
    try:
        with np.errstate(all="ignore"):
            yield made
        for rng in made:
            rng.check()
    finally:
        for rng in made:
            rng.erase()


def save_state(rng: np.random.Generator) -> dict[str, object]:
    """State that `restore_state` turns back into a generator at the same place."""
    return dict(rng.bit_generator.state)


def restore_state(state: dict[str, object]) -> np.random.Generator:
    """Return a generator that continues bit for bit where `save_state` was called."""
    bits = np.random.PCG64DXSM()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)
