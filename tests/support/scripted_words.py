"""A generator whose next words are chosen by the test."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpsample.core import secret_bits as bits
from dpsample.core.streams import secret_streams


def scripted(words):
    """Generator of these words, then of random ones, and a count of those used."""
    (rng,) = secret_streams(1)
    state = rng.bit_generator._state.words
    rng.bit_generator.random_raw()
    start = bits.SIZE - len(words)
    state[start:] = np.array(words, np.uint64)
    state[bits.NEXT] = start
    return rng, lambda: int(state[bits.NEXT]) - start


class Script:
    """Words of a list, for references in Python."""

    def __init__(self, words):
        self.words, self.used = [int(w) for w in words], 0

    def __call__(self):
        self.used += 1
        return self.words[self.used - 1]


def fraction(first, second):
    """Real number of 97 bits: all of the first word, 33 of the second."""
    return Fraction(first << 33 | second >> 31, 2**97)


def exponential(word):
    """Von Neumann's exponential with exact comparisons of 128 bits."""
    whole = 0
    while True:
        first, second = word(), word()
        last, length = first, 1
        while True:
            other = word()
            if other == last:
                low = second if length == 1 else word()
                if not word() < low:
                    break
            elif other > last:
                break
            last, length = other, length + 1
        if length % 2 == 1:
            return whole + fraction(first, second)
        whole += 1


def normal(word, limits, low_limits, aliases):
    """Forsythe's normal with exact comparisons of rational numbers."""
    while True:
        pick = word()
        j = pick >> 55
        if pick > limits[j] or (pick == limits[j] and word() >= low_limits[j]):
            j = aliases[j]
        first, second = word(), word()
        sign = -1 if second & 1 else 1
        if j == 256:
            while True:
                excess = exponential(word) / 8
                if exponential(word) > excess**2 / 2:
                    return sign * (8 + excess)
        u = fraction(first, second)
        t = u * (2 * j + u) / 2048
        beginning = (second >> 1 & 2**30 - 1) << 34
        if Fraction(beginning, 2**64) >= Fraction(2 * j + 1, 2048):
            return sign * (j + u) / 32
        v = fraction(beginning | word() >> 30, word())
        n = 1
        while n * v < t:
            n, v = n + 1, fraction(word(), word())
        if n % 2 == 1:
            return sign * (j + u) / 32
