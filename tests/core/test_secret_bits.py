"""Secret bits: ChaCha20 as published, nothing kept, nothing repeated."""

from __future__ import annotations

import copy
import gc
import hashlib
import json
import os
import pickle
import weakref

import numpy as np
import pytest
from scipy.stats import norm

from dpsample.core import secret_bits as bits
from dpsample.core.jit import kernel
from dpsample.core.streams import release_streams, save_state, secret_streams, streams
from tests.support.processes import run_python
from tests.support.statistics import assert_law, rejected
from tests.support.tiers import slow

MASK = 2**32 - 1
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def block(key, counter, nonce):
    """One block of RFC 8439, section 2.3, in Python's integers."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, counter, *nonce]
    x = list(start)

    def quarter(a, b, c, d):
        for r, (i, j, k) in zip(
            (16, 12, 8, 7), ((a, b, d), (c, d, b)) * 2, strict=True
        ):
            x[i] = (x[i] + x[j]) & MASK
            turned = x[k] ^ x[i]
            x[k] = (turned << r | turned >> (32 - r)) & MASK

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return [(a + b) & MASK for a, b in zip(x, start, strict=True)]


def words_of(text):
    return [int(w) for w in np.frombuffer(bytes.fromhex(text), "<u4")]


def compiled_blocks(key, counter, nonce):
    """Sixteen blocks of the package, one in a row."""
    state = np.zeros(bits.SIZE, np.uint64).view(np.uint32)
    state[:8] = key
    with np.errstate(over="ignore"):
        bits.fill_blocks(state, counter, tuple(nonce))
    return state[2 * bits.BLOCKS :].reshape(16, bits.LANES).T


def stream(key):
    """Words of 64 bits from a key on, by fast key erasure."""
    while True:
        rows = np.array([block(key, i, (0, 0, 0)) for i in range(bits.LANES)]).T
        flat = rows.ravel().tolist()
        key = flat[:8]
        for low, high in zip(flat[8::2], flat[9::2], strict=True):
            yield low | high << 32


def test_the_block_of_the_standard():
    """RFC 8439, section 2.3.2."""
    key = words_of(bytes(range(32)).hex())
    nonce = words_of("000000090000004a00000000")
    expected = words_of(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert compiled_blocks(key, 1, nonce)[0].tolist() == expected
    assert block(key, 1, nonce) == expected
    assert compiled_blocks(key, 1, [*nonce[:2], 1])[0].tolist() != expected


def test_the_key_stream_of_the_standard():
    """RFC 8439, section 2.4.2: two blocks, counters 1 and 2."""
    key = words_of(bytes(range(32)).hex())
    blocks = compiled_blocks(key, 1, words_of("000000000000004a00000000"))
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip "
        b"for the future, sunscreen would be it."
    )
    keys = blocks[:2].astype("<u4").tobytes()
    secret = bytes(a ^ b for a, b in zip(text, keys, strict=False))
    assert secret.hex() == (
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
        "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
        "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
        "5af90bbf74a35be6b40b8eedf2785e42874d"
    )


def test_blocks_of_random_keys_are_those_of_plain_integers():
    rng = np.random.default_rng(11)
    for counter in (0, 7, 2**32 - 20):
        key, nonce = (rng.integers(0, 2**32, size).tolist() for size in (8, 3))
        got = compiled_blocks(key, counter, nonce)
        expected = [block(key, counter + i, nonce) for i in range(bits.LANES)]
        assert got.tolist() == expected


def test_words_follow_from_the_key_by_fast_key_erasure_and_are_wiped():
    made = bits.SecretBits()
    state = made._state.words
    expected = stream([int(k) for k in state[:4].view("<u4")])
    for count in (1, 2, 200, 60, 1):
        before = state[:4].copy()
        place = int(state[bits.NEXT])
        got = [made.random_raw() for _ in range(count)]
        assert got == [next(expected) for _ in range(count)]
        now = int(state[bits.NEXT])
        assert not state[bits.BLOCKS : now].any()  # the next key and what was used
        assert np.count_nonzero(state[now:]) == bits.SIZE - now
        if place + count > bits.SIZE:
            assert not np.any(before == state[:4])
    rng, direct = np.random.Generator(made), next(expected)
    assert rng.random() == (direct >> 11) * 2.0**-53
    first = next(expected)
    assert rng.integers(0, 2**32, dtype=np.uint32) == first >> 32


def test_many_words_agree_with_a_digest_of_plain_integers():
    """1000 words, and the compiled sum of C functions called from a kernel."""
    made = bits.SecretBits()
    expected = stream([int(k) for k in made._state.words[:4].view("<u4")])
    got = np.array(made.random_raw(1000), dtype="<u8").tobytes()
    wanted = np.array([next(expected) for _ in range(1000)], dtype="<u8").tobytes()
    assert hashlib.sha256(got).digest() == hashlib.sha256(wanted).digest()


@kernel
def uniforms(rng, out):
    for i in range(len(out)):
        out[i] = rng.random()


def test_numpy_and_kernels_draw_from_one_stream():
    (rng,) = secret_streams(1)
    expected = stream([int(k) for k in rng.bit_generator._state.words[:4].view("<u4")])
    out = np.empty(150)
    uniforms(rng, out)
    both = [*out, *rng.random(150)]
    assert both == [(next(expected) >> 11) * 2.0**-53 for _ in range(300)]
    assert_law(rng.standard_normal(20_000), norm.cdf)
    with rejected():
        assert_law(1.4 * rng.standard_normal(20_000), norm.cdf)


def test_a_seed_takes_the_seeded_streams():
    with release_streams(5, 2) as made:
        got = [rng.standard_normal(4) for rng in made]
    np.testing.assert_array_equal(got, [r.standard_normal(4) for r in streams(5, 2)])
    assert all(type(rng.bit_generator) is np.random.PCG64DXSM for rng in made)


def test_streams_differ_from_one_another_and_from_call_to_call():
    made = [rng.random() for _ in range(20) for rng in secret_streams(3)]
    assert len(set(made)) == 60


REFUSED = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "reduce": lambda x: x.__reduce__(),
    "getstate": lambda x: x.__getstate__(),
    "setstate": lambda x: x.__setstate__({}),
    "spawn": lambda x: x.spawn(2),
}
OF_BITS = {
    "state": lambda b: b.state,
    "set state": lambda b: setattr(b, "state", {}),
    "seed_seq": lambda b: b.seed_seq,
}


@pytest.mark.parametrize("way", [*REFUSED, *OF_BITS])
def test_the_state_is_in_no_file_copy_or_attribute(way):
    (rng,) = secret_streams(1)
    given = [rng.bit_generator] if way in OF_BITS else [rng, rng.bit_generator]
    for each in given:
        with pytest.raises(TypeError, match="secret bits is not shown"):
            (REFUSED | OF_BITS)[way](each)


def test_a_checkpoint_cannot_hold_it():
    (rng,) = secret_streams(1)
    with pytest.raises(TypeError, match="secret bits is not shown"):
        json.dumps(save_state(rng))


WAYS = {
    "random": lambda rng: rng.random(),
    "out": lambda rng: rng.random(out=np.empty(2)),
    "normal": lambda rng: rng.standard_normal(3),
    "gamma": lambda rng: rng.gamma([1.0, 2.0]),
    "integers": lambda rng: rng.integers(5),
    "bytes": lambda rng: rng.bytes(8),
    "choice": lambda rng: rng.choice(10, 3, replace=False),
    "shuffle": lambda rng: rng.shuffle([1, 2, 3]),
    "permutation": lambda rng: rng.permutation(5),
    "multinomial": lambda rng: rng.multinomial(5, [0.5, 0.5]),
    "kernel": lambda rng: uniforms(rng, np.empty(2)),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_draws_after_erase_gets_an_error(way):
    (rng,) = secret_streams(1)
    WAYS[way](rng)
    plain = np.random.Generator(rng.bit_generator)
    held = rng.bit_generator
    rng.erase()
    rng.erase()
    for each in [rng] if way == "kernel" else [rng, plain]:
        with pytest.raises(RuntimeError, match="has been erased, or a fork"):
            WAYS[way](each)
    with pytest.raises(RuntimeError, match="has been erased, or a fork"):
        held.random_raw()


def test_an_erased_generator_gives_no_bits_of_a_known_key():
    """Two erased ones once agreed: both computed ChaCha20 with the key 0."""
    zero = stream([0] * 8)
    known = {next(zero) for _ in range(1000)}
    drawn = []
    for (rng,) in (secret_streams(1), secret_streams(1)):
        table, words = rng.bit_generator.ctypes, rng.bit_generator._state.words
        before = words[:4].copy()
        rng.erase()
        assert words[:4].all() and not np.any(words[:4] == before)
        assert not words[bits.BLOCKS :].any()
        # Past all checks, to the C function.
        drawn += [table.next_double(table.state) for _ in range(300)]
    assert len(set(drawn)) == 600
    assert not set(drawn) & {(word >> 11) * 2.0**-53 for word in known}


def test_what_was_drawn_from_a_poisoned_generator_is_taken_back():
    with (
        pytest.raises(RuntimeError, match="has been erased, or a fork"),
        release_streams(None, 2) as (first, second),
    ):
        uniforms(first, np.empty(2))
        second.erase()  # as a fork in mid-call would
    with release_streams(None, 1) as (rng,):
        rng.random()
    with pytest.raises(RuntimeError, match="has been erased, or a fork"):
        rng.random()
    with pytest.raises(KeyError), release_streams(None, 1) as (rng,):
        raise KeyError
    with pytest.raises(RuntimeError, match="has been erased, or a fork"):
        rng.random()


def test_a_draw_that_a_fork_interrupts_is_lost():
    (rng,) = secret_streams(1)
    lock = rng.bit_generator.lock
    with pytest.raises(RuntimeError, match="has been erased, or a fork"), lock:
        rng.erase()


def test_memory_that_is_given_back_holds_no_key():
    (rng,) = secret_streams(1)
    rng.random()
    words, gone = rng.bit_generator._state.words, weakref.ref(rng.bit_generator._state)
    assert words.any()
    del rng
    gc.collect()
    words[bits.POISONED] -= 1
    assert gone() is None and not words.any()


FORK = """
import os, sys
import numpy as np
from dpsample.core.jit import kernel
from dpsample.core.streams import release_streams, secret_streams

@kernel(cached=False)
def uniforms(rng, out):
    for i in range(len(out)):
        out[i] = rng.random()

WAYS = {
    "random": lambda rng: rng.random(),
    "normal": lambda rng: rng.standard_normal(3),
    "integers": lambda rng: rng.integers(5),
    "shuffle": lambda rng: rng.shuffle([1, 2, 3]),
    "raw": lambda rng: rng.bit_generator.random_raw(),
    "kernel": lambda rng: uniforms(rng, np.empty(2)),
}
(rng,) = secret_streams(1)
rng.bit_generator.lock.lock.acquire()  # as another thread would hold it
plain = np.random.Generator(rng.bit_generator)
uniforms(rng, np.empty(2))
read, write = os.pipe()
child = os.fork()
drawn = np.empty(400)
if child:
    os.close(write)
    uniforms(rng, drawn)
    status = os.waitpid(child, 0)[1]
    copied = np.frombuffer(os.read(read, 8 * 400))
    assert status == 0, status
    assert len(copied) == 400 and not set(copied) & set(drawn), "repeated"
    assert rng.random() != rng.random()  # the parent goes on
    print("refused")
else:
    count = 0
    for name, draw in WAYS.items():
        for each in (rng, plain):
            if name == "kernel" and each is plain:
                continue
            try:
                draw(each)
            except RuntimeError as error:
                assert "a fork has copied it" in str(error)
                count += 1
    assert count == 2 * len(WAYS) - 1, count
    uniforms(plain, drawn)  # past all checks, to the C function
    os.write(write, drawn.tobytes())
    with release_streams(None, 1) as (fresh,):
        uniforms(fresh, drawn)  # the child makes its own
    os._exit(0)
"""


@forks
def test_a_fork_raises_and_repeats_nothing():
    assert run_python(FORK)[0] == "refused\n"


@forks
def test_without_the_hook_the_child_repeats_its_parent():
    """Planted bug: nothing hears of the fork."""
    silent = FORK.replace(
        "(rng,) = secret_streams(1)",
        "from dpsample.core import secret_bits\n"
        "secret_bits._live.clear()\n"
        "(rng,) = secret_streams(1)\n"
        "secret_bits._live.clear()\n",
    ).replace("for name, draw in WAYS.items():", "for name, draw in ():")
    silent = silent.replace("assert count == 2 * len(WAYS) - 1, count", "")
    with pytest.raises(AssertionError, match="AssertionError: repeated"):
        run_python(silent)


POOL = """
import multiprocessing
import numpy as np
from dpsample.noise import gaussian_mechanism
from dpsample.privacy import Budget

mech = gaussian_mechanism(Budget(epsilon=1.0, delta=1e-6), sensitivity=1.0)
mech.release([0.0])

def answers(_number):
    return [mech.release(np.zeros(6)).value for _ in range({each})]

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool({workers}) as pool:
        found = np.array(pool.map(answers, range({workers}), chunksize=1))
    print(len(np.unique(found.reshape(-1, 6), axis=0)))  # cells repeat, vectors not
"""


@forks
@pytest.mark.parametrize(("workers", "each"), [slow(3, 20), slow(8, 1000)])
def test_releases_of_a_pool_of_processes_are_all_distinct(workers, each):
    code = POOL.replace("{each}", str(each)).replace("{workers}", str(workers))
    assert run_python(code)[0] == f"{workers * each}\n"


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_the_lock_of_numpy_is_no_way_to_a_copy(way):
    (rng,) = secret_streams(1)
    with pytest.raises(TypeError, match="neither copied nor written"):
        way(rng.bit_generator.lock)
    assert rng.bit_generator._state.words[:4].any()


def test_a_state_that_ends_is_poisoned_before_its_key_is_zero():
    (rng,) = secret_streams(1)
    rng.bit_generator._state.__del__()
    with pytest.raises(RuntimeError):
        rng.random()
