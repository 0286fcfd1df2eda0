"""Titles and authors as q-grams: the BE-Tree paper's DBLP workloads (section 7.1).

The 3-grams of a text become equality predicates: "string" is st = 'r' AND tr = 'i' AND ri = 'n' AND in = 'g'
(attributes have the prefix q_, since some pairs of letters are SQL's words). Letters only, so there are 676
dimensions of 26 values (the paper counts 677). A stand-in for DBLP: the texts are made of runs of words from
`words.py`, whose letters are real; an author is two words of 4 letters or more, cut to 6, and a title is three runs
of 3 words. That comes near the paper's sizes, 8 for authors and 35 for titles. Where a pair of letters occurs again
in a text, the first one counts, so that no subscription asks for two values of one attribute.

With `match_probability` there are 1 / p texts which subscriptions and events take in turn, as in BEGen: an event has
every q-gram of its text, and a subscription keeps the first one and each other with the probability `kept`. Without it,
subscriptions and events are texts of their own, whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.papers.workloads.blocks import SHARED, Blocks, make_maps, require, start_random
from dibs.papers.workloads.predicates import join_rows
from dibs.papers.workloads.words import LONGEST, read_words

AUTHOR, TITLE = "author", "title"
LETTERS = 26
SHORTEST_NAME, LONGEST_NAME = 4, 6


@dataclass(frozen=True)
class QGrams(Blocks):
    source: str = AUTHOR
    match_probability: float | None = None
    kept: float = 0.7  # share of q-grams that a subscription keeps, with a match_probability

    def check(self) -> None:
        require(self.source in (AUTHOR, TITLE), f"the source author or title, not {self.source!r}")
        p = self.match_probability
        require(p is None or 0 < p <= 1, f"a match_probability above 0, up to 1, or None, not {p}")
        require(0 < self.kept <= 1, f"a share kept above 0, up to 1, not {self.kept}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        row, pair, letter = self._take_grams(random, rows)
        if self.match_probability is not None:
            first = np.concatenate([[True], row[1:] != row[:-1]]) if len(row) else np.empty(0, bool)
            kept = (random.random(len(row)) < self.kept) | first
            row, pair, letter = row[kept], pair[kept], letter[kept]
        names, letters = _name_pairs(), _name_letters()
        texts = pc.binary_join_element_wise(names.take(pa.array(pair)), " = '", letters.take(pa.array(letter)), "'", "")
        return join_rows(texts, np.bincount(row, minlength=len(rows)), " AND ")

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        row, pair, letter = self._take_grams(random, rows)
        names, letters = _name_pairs(), _name_letters()
        sizes = np.bincount(row, minlength=len(rows))
        return make_maps(sizes, names.take(pa.array(pair)), letters.take(pa.array(letter)))

    def _take_grams(
        self, random: np.random.Generator, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each q-gram: the row, the pair of letters, the letter."""
        if self.match_probability is None:
            return cut_grams(*draw_texts(random, self.source, len(rows)))
        bases = max(round(1 / self.match_probability), 1)
        letters, lengths = _shared_texts(self.source, self.seed, bases)
        return cut_grams(letters[rows % bases], lengths[rows % bases])


def draw_texts(random: np.random.Generator, source: str, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Letters from 0 to 25, a row for each text, and how many of them count."""
    letters, lengths = _read_letters()
    if source == AUTHOR:
        long = np.flatnonzero(lengths >= SHORTEST_NAME)
        starts = long[random.integers(0, len(long), (rows, 2))]
        most = LONGEST_NAME
    else:
        runs = random.integers(0, len(lengths) - 3, (rows, 3))
        starts = (runs[:, :, None] + np.arange(3)).reshape(rows, 9)
        most = LONGEST
    sizes = np.minimum(lengths[starts], most)
    wanted = np.arange(most) < sizes[:, :, None]
    total = sizes.sum(1)
    texts = np.zeros((rows, starts.shape[1] * most), np.int64)
    texts[np.arange(texts.shape[1]) < total[:, None]] = letters[starts][:, :, :most][wanted]
    return texts, total


def cut_grams(
    letters: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The first 3-gram of each pair of letters of a row, in the order of the text. A text has one at least."""
    pair = letters[:, :-2] * LETTERS + letters[:, 1:-1]
    there = np.arange(pair.shape[1]) < np.maximum(lengths - 2, 1)[:, None]
    row = np.repeat(np.arange(len(letters)), there.sum(1))
    found, next_letter = pair[there], letters[:, 2:][there]
    first = np.sort(np.unique(row * LETTERS * LETTERS + found, return_index=True)[1])
    return row[first], found[first], next_letter[first]


@lru_cache(maxsize=4)
def _shared_texts(source: str, seed: int, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return draw_texts(start_random(seed, SHARED), source, rows)


@lru_cache(maxsize=1)
def _read_letters() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words of the text: a row of letters for each, and its length."""
    words = read_words()
    letters = np.zeros((len(words), LONGEST), np.int64)
    for place, word in enumerate(words):
        letters[place, : len(word)] = [ord(letter) - 97 for letter in word]
    return letters, np.array([len(word) for word in words])


@lru_cache(maxsize=1)
def _name_pairs() -> pa.StringArray:
    return pa.array([f"q_{chr(97 + a)}{chr(97 + b)}" for a in range(LETTERS) for b in range(LETTERS)])


@lru_cache(maxsize=1)
def _name_letters() -> pa.StringArray:
    return pa.array([chr(97 + a) for a in range(LETTERS)])
