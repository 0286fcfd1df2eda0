"""Words and letters of real text: the language reference that comes with Python (`pydoc_data.topics`, PSF licence 2.0).

The papers take their words from AOL's query log, the SIGMOD 2013 contest, Twitter, Wikipedia and DBLP, which cannot be
shipped. This text is small (some 65,000 words, 3,100 of them different) but real: the most frequent words of a
vocabulary are its own, by frequency; further ones are drawn from its letters, each letter by the two before it. The
text differs between versions of Python, so the same seed means the same data with the same Python.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dibs.errors import DibsError
from dibs.papers.workloads.blocks import SHARED, start_random

SHORTEST, LONGEST = 2, 12  # letters of a word
AT_ONCE = 10_000  # words that are drawn together
LETTERS = 27  # and 0 for the end of a word


@lru_cache(maxsize=1)
def read_words() -> tuple[str, ...]:
    """The words of the text, one after the other, in lower case."""
    try:
        from pydoc_data.topics import topics
    except ImportError as e:
        raise DibsError(
            "this Python comes without pydoc_data, whose text some workloads take words from: install the whole "
            "standard library (Debian: the package libpython3-stdlib)"
        ) from e
    text = " ".join(topics[name] for name in sorted(topics))
    return tuple(word for word in re.findall(r"[a-z]+", text.lower()) if SHORTEST <= len(word) <= LONGEST)


@lru_cache(maxsize=4)
def make_vocabulary(size: int) -> tuple[str, ...]:
    """Different words, the most frequent of the text first."""
    counts = Counter(read_words())
    words = dict.fromkeys(sorted(counts, key=lambda word: (-counts[word], word)))
    random = start_random(0, SHARED)
    for _ in range(1_000):
        if len(words) >= size:
            return tuple(words)[:size]
        words |= dict.fromkeys(_draw_words(random))
    raise DibsError(f"a vocabulary needs at most {len(words):,} words, not {size:,}")


@lru_cache(maxsize=1)
def _sum_letters() -> NDArray[np.float64]:
    """By the two letters before: the distribution function of the next one."""
    counts = np.zeros((LETTERS, LETTERS, LETTERS))
    for word in read_words():
        codes = [0, 0, *(ord(letter) - 96 for letter in word), 0]
        for place in range(2, len(codes)):
            counts[codes[place - 2], codes[place - 1], codes[place]] += 1
    counts[counts.sum(2) == 0, 0] = 1
    return np.asarray(np.cumsum(counts / counts.sum(2, keepdims=True), 2))


def _draw_words(random: np.random.Generator) -> list[str]:
    summed = _sum_letters()
    codes = np.zeros((AT_ONCE, LONGEST + 2), np.int64)
    alive = np.ones(AT_ONCE, bool)
    for place in range(2, LONGEST + 2):
        chances = summed[codes[:, place - 2], codes[:, place - 1]]
        drawn = (chances < random.random((AT_ONCE, 1))).sum(1)
        alive &= drawn > 0
        codes[:, place] = np.where(alive, np.minimum(drawn, LETTERS - 1), 0)
    texts = ("".join(chr(96 + code) for code in row if code) for row in codes.tolist())
    return [text for text in texts if len(text) >= SHORTEST]
