"""Random streams: one independent generator per chain, replicate or purpose.

A seed gives the same streams on every machine and for every thread count. Without a
seed `streams` starts from entropy of the operating system, for draws that stay private.
Answers that may be released are drawn with `secret_streams`, whose bits cannot be
computed or repeated.

Replicates need the streams of many seeds. Making a NumPy generator for each of them
takes longer than a draw, so kernels here compute the state that NumPy would give it:
the hash of `numpy.random.SeedSequence` (O'Neill's seed_seq), and the start of PCG64.
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
# Multiplier of PCG64, of 128 bits, in two halves.
MULTIPLIER_HIGH = np.uint64(2549297995355413924)
MULTIPLIER_LOW = np.uint64(4865540595714422341)
# Constants of NumPy's SeedSequence. The state of its hash has a first value, and is
# multiplied by a factor after each word. One pair is for entropy that is mixed into the
# pool, another one for words that are generated from it.
MIX_START = 0x43B0D7E5
MIX_FACTOR = 0x931E8875
GENERATE_START = 0x8B51F9DD
GENERATE_FACTOR = 0x58F38DED
# Two words x and y are mixed to LEFT_FACTOR x - RIGHT_FACTOR y.
LEFT_FACTOR = 0xCA01F9DD
RIGHT_FACTOR = 0x4973F715
# Number of words of 32 bits in the pool, and of words of 64 bits of a state.
POOL = 4


def seed_sequence(seed: Seed) -> np.random.SeedSequence:
    """Return the root of all streams of one call. None means system entropy."""
    if isinstance(seed, np.random.SeedSequence):
        # Spawning advances a counter in the object, so a copy keeps calls repeatable.
        return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
    if seed is not None:
        remedy = "Use a non-negative integer, or None."
        check.integer(0, maximum=check.MAX_SEED, seed=seed, remedy=remedy)
        seed = int(seed)
    return np.random.SeedSequence(seed)


def streams(seed: Seed, num_streams: int) -> list[np.random.Generator]:
    """Return independent PCG64DXSM generators spawned from one root."""
    return [
        np.random.Generator(np.random.PCG64DXSM(child))
        for child in seed_sequence(seed).spawn(num_streams)
    ]


class ReusableGenerator:
    """One PCG64DXSM generator, which kernels set to the streams of many seeds in turn.

    ``memory`` are the four words of its state, and ``is_known`` says whether they are
    laid out as expected. Otherwise it must not be used.
    """

    def __init__(self) -> None:
        bits = np.random.PCG64DXSM(0)
        self.rng = np.random.Generator(bits)
        # NumPy's pcg64_state begins with the address of state and increment, of 128
        # bits each. Compilers without integers of 128 bits store the upper half first.
        address = ctypes.c_void_p.from_address(bits.ctypes.state_address).value or 0
        memory = np.ctypeslib.as_array((ctypes.c_uint64 * 4).from_address(address))
        state = bits.state["state"]
        halves = [
            state[name] >> shift & 2**64 - 1
            for name in ("state", "inc")
            for shift in (0, 64)
        ]
        self.is_known = memory.tolist() == halves
        self.memory = memory


class Children(Sequence[np.random.SeedSequence]):
    """The seeds that ``root.spawn`` returns, each made when it is needed."""

    def __init__(self, root: np.random.SeedSequence, numbers: range) -> None:
        self.root, self.numbers = root, numbers

    def __len__(self) -> int:
        """Return the number of seeds."""
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        """Return a seed, or several of them for a slice."""
        if isinstance(index, slice):
            return Children(self.root, self.numbers[index])
        key = (*self.root.spawn_key, self.numbers[index])
        return np.random.SeedSequence(self.root.entropy, spawn_key=key)


def starts(seeds: Sequence[np.random.SeedSequence], child: int) -> Words:
    """Return the words from which the streams of this child of each seed start.

    They have the shape (num_seeds, POOL), and `set_state` reads them.
    """
    if isinstance(seeds, Children):
        keys = np.full((len(seeds), 2), child, np.uint32)
        keys[:, 0] = np.arange(len(seeds)) * seeds.numbers.step + seeds.numbers.start
        return _child_words(seeds.root, keys)
    key = np.array([[child]], np.uint32)
    words = [_child_words(seed, key) for seed in seeds]
    return np.concatenate([np.empty((0, POOL), np.uint64), *words])


def _num_words(entropy: Any) -> int:
    """Return the number of 32-bit words of an integer, its digits, or a sequence."""
    if isinstance(entropy, str):
        entropy = int(entropy, 16 if entropy.startswith("0x") else 10)
    if isinstance(entropy, int | np.integer):
        return max(1, -(-int(entropy).bit_length() // 32))
    return sum(map(_num_words, entropy))


def _child_words(seed: np.random.SeedSequence, keys: NDArray[np.uint32]) -> Words:
    """Return the words of the children of a seed whose spawn keys are the rows."""
    # The pool of the seed is known, so the hash goes on where that of the seed ended.
    # It has hashed each word of the pool, each pair of them, and each later word for
    # each word of the pool: POOL + POOL (POOL - 1) + num_later POOL times.
    num_later = max(_num_words(seed.entropy) - POOL, 0) + _num_words(seed.spawn_key)
    num_hashes = POOL * (POOL + num_later)
    words = np.empty((len(keys), POOL), np.uint64)
    state = MIX_START * pow(MIX_FACTOR, num_hashes, 2**32) % 2**32
    # Interpreted kernels warn when 32-bit products wrap around, as they have to.
    with np.errstate(over="ignore"):
        hash_keys(seed.pool, np.uint32(state), keys, words)
    return words


@kernel
def hash_word(word: np.uint32, state: np.uint32, factor: int) -> np.uint32:
    """Return the hash of a word. The state of the next hash is ``state * factor``."""
    word = np.uint32((word ^ state) * np.uint32(state * np.uint32(factor)))
    return np.uint32(word ^ (word >> np.uint32(16)))


@kernel
def hash_keys(
    pool: NDArray[np.uint32], state: np.uint32, keys: NDArray[np.uint32], out: Words
) -> None:
    """Fill rows of out with ``generate_state(4, uint64)`` of seeds with these keys."""
    mixed_pool = np.empty(POOL, np.uint32)
    for i in range(keys.shape[0]):
        mixed_pool[:], hash_state = pool, state
        for word in keys[i]:
            for j in range(POOL):
                mixed = np.uint32(np.uint32(LEFT_FACTOR) * mixed_pool[j]) - np.uint32(
                    np.uint32(RIGHT_FACTOR) * hash_word(word, hash_state, MIX_FACTOR)
                )
                hash_state = np.uint32(hash_state * np.uint32(MIX_FACTOR))
                mixed_pool[j] = np.uint32(mixed) ^ (np.uint32(mixed) >> np.uint32(16))
        hash_state = np.uint32(GENERATE_START)
        for j in range(POOL):
            low = hash_word(mixed_pool[2 * j % POOL], hash_state, GENERATE_FACTOR)
            hash_state = np.uint32(hash_state * np.uint32(GENERATE_FACTOR))
            high = hash_word(
                mixed_pool[(2 * j + 1) % POOL], hash_state, GENERATE_FACTOR
            )
            hash_state = np.uint32(hash_state * np.uint32(GENERATE_FACTOR))
            out[i, j] = np.uint64(low) | (np.uint64(high) << np.uint64(32))


@kernel
def multiply(high: np.uint64, low: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the halves of the product with PCG's multiplier, modulo 2^128."""
    # The low halves are multiplied in parts of 32 bits: (a 2^32 + b) (c 2^32 + d).
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
    # Words 0 and 1 are the seed, and 2 and 3 the increment, upper halves first. The
    # increment must be odd. The state is 0, and after two steps of the generator
    # (0 M + increment + seed) M + increment. Sums carry from the lower half.
    one, top = np.uint64(1), np.uint64(63)
    inc_low = (words[3] << one) | one
    inc_high = (words[2] << one) | (words[3] >> top)
    low = inc_low + words[1]
    high = inc_high + words[0] + np.uint64(low < inc_low)
    high, low = multiply(high, low)
    memory[0] = low + inc_low
    memory[1] = high + inc_high + np.uint64(memory[0] < inc_low)
    memory[2], memory[3] = inc_low, inc_high


def secret_streams(num_streams: int) -> list[SecretGenerator]:
    """Return independent generators of ChaCha20, keyed by the operating system.

    They cannot be seeded, saved, copied or used after a fork. Call ``check`` before a
    result of their numbers is returned, and then ``erase``, as `release_streams` does.

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
    """Yield the streams of a call whose answer may be released, and erase them.

    With a seed they are those of `streams`. Without a seed they are secret. If one was
    erased, or copied by a fork, during the block, a RuntimeError at its end prevents
    that the answer is returned. Before the block `ArithmeticFault` is raised if the
    process does not compute as the proofs assume. In the block NumPy neither warns nor
    raises, because floating-point exceptions depend on the records.
    """
    if seed is not None:
        with np.errstate(all="ignore"):
            yield streams(seed, num_streams)
        return
    require_arithmetic()
    generators = secret_streams(num_streams)
    try:
        with np.errstate(all="ignore"):
            yield generators
        for rng in generators:
            rng.check()
    finally:
        for rng in generators:
            rng.erase()


def save_state(rng: np.random.Generator) -> dict[str, object]:
    """Return the state from which `restore_state` makes an equal generator."""
    return dict(rng.bit_generator.state)


def restore_state(state: dict[str, object]) -> np.random.Generator:
    """Return a generator that continues bit for bit where `save_state` was called."""
    bits = np.random.PCG64DXSM()
    bits.state = state  # type: ignore[assignment]
    return np.random.Generator(bits)
