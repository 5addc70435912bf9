# mypy: allow-untyped-defs
"""Secret random bits: ChaCha20 with fast key erasure, keyed by the operating system.

A refill computes 16 blocks of ChaCha20 [1]_ under the current key, with counters 0 to
15 and the nonce 0. Their first 32 bytes replace the key at once. Each other word is
returned once, and then overwritten with zeros [2]_. So the memory does not contain
anything from which earlier numbers could be computed.

Two copies of a state would give the same bits, so copies are prevented. `state`,
pickle, copy and spawn raise an error. A fork poisons the child's copy, as `erase`
poisons the original. A poisoned generator gives no more words, in any of three ways:

* NumPy's functions take the generator's lock, which raises before and after the draw.
* Compiled functions read `Generator.bit_generator`, which raises before the call. (An
  exception in a later attribute would be lost, and the call would use random memory.)
  `SecretGenerator.check` raises after it.
* C functions cannot raise. Therefore a poisoned generator gets a fresh key, after it is
  marked and before anything is set to zero. The words that C functions still return, to
  calls that have begun, belong to a key that nothing else uses, and end each loop. The
  checks raise before they are used, because the mark is never removed.

References
----------
.. [1] Y. Nir and A. Langley, ChaCha20 and Poly1305 for IETF Protocols, RFC 8439, 2018.
.. [2] D. J. Bernstein, Fast-key-erasure random-number generators, 2017,
   https://blog.cr.yp.to/20170723-random.html.
"""

import ctypes
import os
import secrets
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn
from weakref import WeakSet

import numba
import numpy as np
from numba import carray, types

from dpsample.core.arrays import UNIT_ROUNDOFF
from dpsample.core.jit import kernel, pointer

# Number of blocks of a refill. They are computed side by side, because a vector
# register holds 4, 8 or 16 numbers.
LANES = 16
# Positions in the state, which consists of words of 64 bits. The key is in the first
# four, and the last ones are the blocks.
NEXT = 4  # position of the next word that is handed out
POISONED = 5  # 1 if the generator must not be used
BLOCKS = 8  # row i of the blocks holds number i of every block
SIZE = BLOCKS + 8 * LANES
# Position of the first word that is handed out. The new key is in front of it.
FIRST = BLOCKS + 4
# Position of the blocks in the state as words of 32 bits.
_ROWS = 2 * BLOCKS
# The text "expand 32-byte k" as four words.
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)

POISON = (
    "This generator of secret bits has been erased, or a fork has copied it: make a "
    "new one, in the process that draws."
)
SECRET = "The state of secret bits is not shown, written, copied or set."


@kernel
def _rotate(x, count):
    """Rotate a word of 32 bits to the left."""
    return np.uint32((x << np.uint32(count)) | (x >> np.uint32(32 - count)))


@kernel
def _quarter_round(state, a, b, c, d):
    """Apply the quarter round of RFC 8439, section 2.1, to four rows of all blocks."""
    a, b, c, d = (
        _ROWS + a * LANES,
        _ROWS + b * LANES,
        _ROWS + c * LANES,
        _ROWS + d * LANES,
    )
    for lane in range(LANES):
        w, x = state[a + lane], state[b + lane]
        y, z = state[c + lane], state[d + lane]
        w = np.uint32(w + x)
        z = _rotate(z ^ w, 16)
        y = np.uint32(y + z)
        x = _rotate(x ^ y, 12)
        w = np.uint32(w + x)
        z = _rotate(z ^ w, 8)
        y = np.uint32(y + z)
        x = _rotate(x ^ y, 7)
        state[a + lane], state[b + lane] = w, x
        state[c + lane], state[d + lane] = y, z


@kernel
def _add_start(state, counter, nonce):
    """Add the input of the rounds to the rows: constants, key, counter and nonce.

    Before the rounds the rows are 0, and this fills them. It is called again after the
    rounds, as the RFC has it, so that they cannot be inverted.
    """
    for lane in range(LANES):
        first = _ROWS + lane
        for i in range(4):
            at = first + i * LANES
            state[at] = np.uint32(state[at] + np.uint32(_CONSTANTS[i]))
        for i in range(8):
            at = first + (4 + i) * LANES
            state[at] = np.uint32(state[at] + state[i])
        at = first + 12 * LANES
        state[at] = np.uint32(state[at] + np.uint32(counter + lane))
        for i in range(3):
            at = first + (13 + i) * LANES
            state[at] = np.uint32(state[at] + np.uint32(nonce[i]))


# These kernels allocate nothing, so Numba need not count references to their arrays.
@kernel(counts_references=False)
def fill_blocks(state, counter, nonce):
    """Write 16 blocks of RFC 8439, section 2.3, from ``counter`` on.

    ``state`` are words of 32 bits. Row i of the blocks holds number i of each.
    """
    for i in range(_ROWS, 2 * SIZE):
        state[i] = np.uint32(0)
    _add_start(state, counter, nonce)
    # Twenty rounds, a column round and a diagonal round at a time.
    for _ in range(10):
        _quarter_round(state, 0, 4, 8, 12)
        _quarter_round(state, 1, 5, 9, 13)
        _quarter_round(state, 2, 6, 10, 14)
        _quarter_round(state, 3, 7, 11, 15)
        _quarter_round(state, 0, 5, 10, 15)
        _quarter_round(state, 1, 6, 11, 12)
        _quarter_round(state, 2, 7, 8, 13)
        _quarter_round(state, 3, 4, 9, 14)
    _add_start(state, counter, nonce)


@kernel(counts_references=False)
def refill(state, words):
    """Fill the blocks, and replace the key by their first 32 bytes."""
    # The key is new, so the nonce may always be 0.
    fill_blocks(state, 0, (0, 0, 0))
    for i in range(4):
        words[i] = words[BLOCKS + i]
        words[BLOCKS + i] = np.uint64(0)
    words[NEXT] = np.uint64(FIRST)


@kernel(counts_references=False)
def next_word(state, words):
    """Return 64 bits and erase them. ``state`` and ``words`` are the same memory."""
    if words[NEXT] >= np.uint64(SIZE):
        refill(state, words)
    position = np.int64(words[NEXT])
    word = words[position]
    words[position] = np.uint64(0)
    words[NEXT] = np.uint64(position + 1)
    return word


@kernel
def word_of(address):
    """Return the next 64 bits of the state at an address."""
    state = carray(address, (2 * SIZE,), np.uint32)
    return next_word(state, carray(address, (SIZE,), np.uint64))


@kernel
def half_of(address):
    """Return the next 32 bits, the upper half of a word."""
    return np.uint32(word_of(address) >> np.uint64(32))


@kernel
def uniform_of(address):
    """Return the next double in [0, 1), a multiple of 2^-53."""
    return np.float64(word_of(address) >> np.uint64(11)) * UNIT_ROUNDOFF


class _BitGen(ctypes.Structure):
    """NumPy's ``bitgen_t``: a state and four C functions of its address."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("state", "uint64", "uint32", "double", "raw")
    )


# A capsule of Python wraps the address of NumPy's structure.
_capsule_pointer = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))
_KINDS: tuple[tuple[Callable[..., Any], Any, Any], ...] = (
    (word_of, types.uint64, ctypes.c_uint64),
    (half_of, types.uint32, ctypes.c_uint32),
    (uniform_of, types.float64, ctypes.c_double),
)


@cache
def _c_functions() -> tuple[list[int], object]:
    """Return the addresses of the three C functions, and objects that own them."""
    if not numba.config.DISABLE_JIT:
        functions: Any = [pointer(f, kind(types.voidptr)) for f, kind, _ in _KINDS]
        return [function.address for function in functions], functions

    # Without the compiler (NUMBA_DISABLE_JIT) C calls back into Python.
    def interpret(
        function: Callable[..., np.unsignedinteger | np.float64],
    ) -> Callable[[int], float]:
        def call(address: int) -> float:
            with np.errstate(over="ignore"):  # the sums are modulo 2^32
                return function(ctypes.c_void_p(address)).item()

        return call

    functions = [
        ctypes.CFUNCTYPE(c_type, ctypes.c_void_p)(interpret(function))
        for function, _, c_type in _KINDS
    ]
    addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]
    return addresses, functions


_live: "WeakSet[SecretState]" = WeakSet()


class SecretState:
    """Key and blocks of one generator, and the lock that NumPy's calls take."""

    def __init__(self) -> None:
        memory = np.zeros(SIZE + 8, np.uint64)
        # The state starts at a multiple of 64 bytes, so that each row of the blocks is
        # one line of the processor's cache.
        start = -memory.ctypes.data % 64 // 8
        self.words = memory[start : start + SIZE]
        self.process, self.lock = os.getpid(), threading.RLock()
        self._take_key()
        _live.add(self)

    def _take_key(self) -> None:
        """Take a fresh key, forget the words that are left, refill at the next call."""
        key = secrets.token_bytes(32)
        key_words = np.frombuffer(key, np.uint64)
        self.words[:NEXT] = key_words
        # The bytes are immutable in Python, but no other object refers to them.
        ctypes.memset(key_words.ctypes.data, 0, key_words.nbytes)
        self.words[NEXT] = SIZE
        self.words[BLOCKS:] = 0

    def poison(self) -> None:
        """Make every later use raise, of an erased generator or a fork's copy."""
        self.words[POISONED] = 1
        self._take_key()

    def check(self) -> None:
        """Raise if the bits may not be used."""
        if self.process != os.getpid() and not self.words[POISONED]:
            # A library has forked the process without calling Python's hooks.
            self.poison()
        if self.words[POISONED]:
            raise RuntimeError(POISON)

    def __enter__(self) -> None:
        """Begin a function of NumPy. Check first: a fork may copy a closed lock."""
        self.check()
        self.lock.acquire()

    def __exit__(self, *_error: object) -> None:
        """End a function of NumPy. Its numbers are lost if they must not be used."""
        self.lock.release()
        self.check()

    def __del__(self) -> None:
        """Overwrite the key before the memory is freed."""
        if hasattr(self, "words"):
            # The mark is set first, because everybody knows a key of zeros.
            self.words[POISONED] = 1
            self.words[:POISONED] = self.words[POISONED + 1 :] = 0

    def __reduce__(self) -> NoReturn:
        """Prevent copies, which would share the words and overwrite them."""
        raise TypeError("a secret state is neither copied nor written")

    __copy__ = __deepcopy__ = __reduce_ex__ = lambda self, *_: self.__reduce__()


def _poison_copies() -> None:
    """Poison every generator of the process, which has just been forked."""
    copies = list(_live)
    # All are marked first, because the operating system may fail to provide a key.
    for state in copies:
        state.words[POISONED] = 1
    for state in copies:
        state.poison()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_poison_copies)


def _reject(*_arguments: object) -> NoReturn:
    raise TypeError(SECRET)


class SecretBits(np.random.BitGenerator):
    """Bit generator without seed, state, copy or pickle; see the module.

    NumPy's Generator and compiled functions take it as any other.
    """

    def __init__(self) -> None:
        super().__init__(0)  # a seed, so that NumPy does not ask for entropy
        self._state = SecretState()
        addresses = _c_functions()[0]
        # NumPy and Numba read the functions from this structure of the object.
        table = _BitGen.from_address(_capsule_pointer(self.capsule, b"BitGenerator"))
        table.state = self._state.words.ctypes.data
        table.uint64, table.uint32, table.double = addresses
        table.raw = addresses[0]

    @property
    def lock(self) -> Any:  # type: ignore[override]
        """Lock of NumPy's functions, which raises if the generator is poisoned."""
        return self._state

    def check(self) -> None:
        """Raise RuntimeError if the generator is poisoned."""
        self._state.check()

    def erase(self) -> None:
        """Overwrite key and words. Later draws raise a RuntimeError."""
        self._state.poison()

    def random_raw(self, size: Any = None, output: Any = True) -> Any:
        """Return words of 64 bits, as NumPy's bit generators do."""
        with self._state:
            return super().random_raw(size, output)

    state: Any = property(_reject, _reject)
    seed_seq: Any = property(_reject)
    spawn: Any = _reject
    __reduce__: Any = _reject
    __getstate__: Any = _reject
    __setstate__: Any = _reject


class SecretGenerator(np.random.Generator):
    """Generator of secret bits: a poisoned one raises before compiled calls too."""

    @property
    def bit_generator(self) -> Any:
        """The bits, which Numba asks for at every call of a compiled function."""
        bits: Any = super().bit_generator
        bits.check()
        return bits

    def check(self) -> None:
        """Raise RuntimeError if what was drawn may not be used."""
        self.bit_generator  # noqa: B018 - a property that raises

    def erase(self) -> None:
        """Overwrite key and words. Later draws raise a RuntimeError."""
        bits: Any = super().bit_generator
        bits.erase()

    spawn: Any = _reject
    __reduce__: Any = _reject
    __getstate__: Any = _reject
    __setstate__: Any = _reject
