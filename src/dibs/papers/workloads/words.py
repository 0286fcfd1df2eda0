"""Words of real text, and the workloads of the papers that are made of words: keywords, q-grams, prefixes.

The text is the language reference that comes with Python (`pydoc_data.topics`, PSF licence 2.0). The papers take their
words from AOL's query log, the SIGMOD 2013 contest, Twitter, Wikipedia and DBLP, which cannot be shipped. This text is
small (some 65,000 words, 3,100 of them different) but real: the most frequent words of a vocabulary are its own, by
frequency; further ones are drawn from its letters, each letter by the two before it. The text differs between versions
of Python, so the same seed means the same data with the same Python.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from string import ascii_lowercase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.errors import DibsError
from dibs.papers.workloads.blocks import SHARED, Blocks, make_maps, name_attributes, require, start_random
from dibs.papers.workloads.draws import draw_distinct, draw_uniform_sizes, join_rows, keep_heads, sum_weights

SHORTEST, LONGEST = 2, 12  # letters of a word
AT_ONCE = 10_000  # words that are drawn together
ALPHABET = 26
LETTERS = ALPHABET + 1  # and 0 for the end of a word


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


QUERY_SIZES = (0.30, 0.28, 0.22, 0.12, 0.08)  # shares of queries with 1, 2, ... words: 2.4 on average
SPLIT_SIZES = (0.19, 0.265, 0.25, 0.165, 0.13)  # the same of those that are split: 2.78
TAILS = 20  # second halves that a first half has
TWEET, ARTICLE = 5.4, 123.0
SPREAD = 0.3  # of document sizes, as a share of the average
MOST_OFTEN = 40  # that a word occurs in a document


@dataclass(frozen=True)
class Keywords(Blocks):
    """Keyword subscriptions against documents: OpIndex's AOL workload (section 7.1) and PS-Tree's query log (section
    7.1).

    A query has 1 to 5 different words, 2.4 on average as in AOL's log; a document has `document_size` different
    ones on average (5.4 is a tweet, 123 an article), each with how often it occurs. The words are those of the
    vocabulary, with Zipf frequencies; the most frequent ones (`stop`) stand in no query. The operators are those of
    the paper:

        =         kw_vldb = 1                     the document has the word
        interval  kw_vldb BETWEEN 5 AND 20        so often
        split     kw_boo = 'lea'                  PS-Tree's: the first three letters are the attribute, the next
                                                  three the value; 2.78 of them in a query

    Split, `dimensions` counts attributes, of which PS-Tree's log has all that three letters make: those of the text
    first, by frequency, then the others. Each has some of the text's second halves as values. A stand-in for both logs
    and for Twitter and Wikipedia: what is real are the words, what is made are their frequencies. With =, a document's
    values are 1.
    """

    dimensions: int = 50_000  # words
    operator: str = "="
    document_size: float = TWEET
    skew: float = 1.0
    stop: int = 50

    def check(self) -> None:
        require(self.operator in ("=", "interval", "split"), f"the operator =, interval or split, not {self.operator}")
        require(1 <= self.document_size <= self.dimensions / 2, f"shorter documents than {self.document_size}")
        require(0 <= self.stop < self.dimensions - len(QUERY_SIZES), f"fewer stop words than {self.stop}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        shares = SPLIT_SIZES if self.operator == "split" else QUERY_SIZES
        sizes = 1 + np.searchsorted(np.cumsum(shares), random.random(len(rows)) * sum(shares), "right")
        sizes = np.minimum(sizes, len(shares))
        summed = sum_weights(self.space, self.skew)
        before = summed[self.stop - 1] if self.stop else 0.0
        asked = (summed[self.stop :] - before) / (1 - before)
        words = self.stop + keep_heads(draw_distinct(random, asked, len(rows), len(QUERY_SIZES)), sizes)
        attributes = self._name(words)
        if self.operator == "split":
            texts = pc.binary_join_element_wise(attributes, " = '", draw_tails(random, words, self.skew), "'", "")
        elif self.operator == "=":
            texts = pc.binary_join_element_wise(attributes, " = 1", "")
        else:
            low = random.integers(1, 6, len(words))
            high = low + random.integers(1, 4 * low + 1)
            numbers = (pa.array(bound).cast(pa.string()) for bound in (low, high))
            between = pc.binary_join_element_wise(*numbers, " AND ")
            texts = pc.binary_join_element_wise(attributes, " BETWEEN ", between, "")
        return join_rows(texts, sizes, " AND ")

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.MapArray:
        largest = int(2 * self.document_size) + 1
        sizes = np.rint(random.normal(self.document_size, SPREAD * self.document_size, len(rows)))
        sizes = np.clip(sizes, 1, largest).astype(np.int64)
        matrix = draw_distinct(random, sum_weights(self.space, self.skew), len(rows), largest)
        words = keep_heads(matrix, sizes)
        if self.operator == "split":
            return make_maps(sizes, self._name(words), draw_tails(random, words, self.skew))
        often = np.ones(len(words), np.int64)
        if self.operator == "interval":
            often = np.minimum(random.geometric(0.2, len(words)), MOST_OFTEN)
        return make_maps(sizes, self._name(words), pa.array(often))

    @property
    def space(self) -> int:
        """How many attributes there are."""
        return min(self.dimensions, ALPHABET**3) if self.operator == "split" else self.dimensions

    def list_domains(self) -> dict[str, tuple[int, int]]:
        """How often a word occurs."""
        if self.operator == "split":
            return {}
        names = self._name(np.arange(self.dimensions))
        return dict.fromkeys(names.to_pylist(), (1, 1 if self.operator == "=" else MOST_OFTEN))

    def _name(self, words: NDArray[np.int64]) -> pa.StringArray:
        """The attribute of each word."""
        parts = split_words()[0][: self.space] if self.operator == "split" else make_vocabulary(self.dimensions)
        return _name_words(parts).take(pa.array(words))


@lru_cache(maxsize=4)
def _name_words(words: tuple[str, ...]) -> pa.StringArray:
    return pa.array([f"kw_{word}" for word in words])


@lru_cache(maxsize=1)
def split_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The first three letters and the next three of words: of the text's longer ones, the most frequent first; then all
    other first halves that there are."""
    long = [word for word, _ in Counter(read_words()).most_common() if len(word) > 5]
    heads = dict.fromkeys(word[:3] for word in long)
    others = ["".join(each) for each in product(ascii_lowercase, repeat=3)]
    start_random(0, SHARED).shuffle(others)
    return tuple(heads | dict.fromkeys(others)), tuple(dict.fromkeys(word[3:6] for word in long))


def draw_tails(random: np.random.Generator, heads: NDArray[np.int64], skew: float) -> pa.StringArray:
    """A second half for each first one: of TAILS, in turn of all, some more often than others."""
    _, tails = split_words()
    which = np.searchsorted(sum_weights(TAILS, skew), random.random(len(heads)), "right")
    return pa.array(tails).take(pa.array((heads * TAILS + np.minimum(which, TAILS - 1)) % len(tails)))


AUTHOR, TITLE = "author", "title"
SHORTEST_NAME, LONGEST_NAME = 4, 6


@dataclass(frozen=True)
class QGrams(Blocks):
    """Titles and authors as q-grams: the BE-Tree paper's DBLP workloads (section 7.1).

    The 3-grams of a text become equality predicates: "string" is st = 'r' AND tr = 'i' AND ri = 'n' AND in = 'g'
    (attributes have the prefix q_, since some pairs of letters are SQL's words). Letters only, so there are 676
    dimensions of 26 values (the paper counts 677). A stand-in for DBLP: the texts are made of runs of words of the
    text, whose letters are real; an author is two words of 4 letters or more, cut to 6, and a title is three runs
    of 3 words. That comes near the paper's sizes, 8 for authors and 35 for titles. Where a pair of letters occurs
    again in a text, the first one counts, so that no subscription asks for two values of one attribute.

    With `match_probability` there are 1 / p texts which subscriptions and events take in turn, as in BEGen: an
    event has every q-gram of its text, and a subscription keeps the first one and each other with the probability
    `kept`. Without it, subscriptions and events are texts of their own, whole.
    """

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
    pair = letters[:, :-2] * ALPHABET + letters[:, 1:-1]
    there = np.arange(pair.shape[1]) < np.maximum(lengths - 2, 1)[:, None]
    row = np.repeat(np.arange(len(letters)), there.sum(1))
    found, next_letter = pair[there], letters[:, 2:][there]
    first = np.sort(np.unique(row * ALPHABET * ALPHABET + found, return_index=True)[1])
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
    return pa.array([f"q_{chr(97 + a)}{chr(97 + b)}" for a in range(ALPHABET) for b in range(ALPHABET)])


@lru_cache(maxsize=1)
def _name_letters() -> pa.StringArray:
    return pa.array([chr(97 + a) for a in range(ALPHABET)])


NUMBERS, TEXTS, WORDS = 10_000, 100, 20_000


@dataclass(frozen=True)
class Prefixes(Blocks):
    """Prefix predicates: the workload of OpIndex's section 7.7.

    10,000 numeric attributes and 100 of text; predicates are = on numeric ones and, for a share `prefixes`,
    STARTSWITH on texts, with the first `length` letters of a word. 1 to `largest` predicates, as in
    `independent.py`. Words are those of the vocabulary, where the paper takes Wikipedia's. Half of an event's
    values are texts, which the paper leaves open.
    """

    prefixes: float = 0.5
    length: int = 3
    largest: int = 4
    event_size: int = 20
    cardinality: int = 50

    def check(self) -> None:
        require(0 <= self.prefixes <= 1, f"a share of prefixes from 0 to 1, not {self.prefixes}")
        require(self.length >= 1, f"prefixes of at least one letter, not {self.length}")
        require(1 <= self.largest <= TEXTS, f"1 to {TEXTS} predicates, not {self.largest}")
        require(1 <= self.event_size <= TEXTS, f"1 to {TEXTS} values, not {self.event_size}")

    def write_expressions(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        sizes = draw_uniform_sizes(random, self.largest, len(rows))
        n = int(sizes.sum())
        texts = random.random(n) < self.prefixes
        named = [
            name_attributes(keep_heads(draw_distinct(random, sum_weights(k, 0.0), len(rows), self.largest), sizes), c)
            for k, c in ((TEXTS, "s"), (NUMBERS, "n"))
        ]
        starts = pc.utf8_slice_codeunits(_draw_texts(random, n), 0, self.length)
        prefixes = pc.binary_join_element_wise("STARTSWITH(", named[0], ", '", starts, "')", "")
        numbers = pa.array(random.integers(0, self.cardinality, n)).cast(pa.string())
        equal = pc.binary_join_element_wise(named[1], " = ", numbers, "")
        return join_rows(pc.if_else(pa.array(texts), prefixes, equal), sizes, " AND ")

    def make_attributes(self, random: np.random.Generator, rows: NDArray[np.int64]) -> pa.StringArray:
        """JSON texts: values of two kinds."""
        halves = [self.event_size // 2, self.event_size - self.event_size // 2]
        names = [
            name_attributes(draw_distinct(random, sum_weights(k, 0.0), len(rows), half).ravel(), c)
            for k, half, c in zip((TEXTS, NUMBERS), halves, "sn", strict=True)
        ]
        words = pc.binary_join_element_wise('"', _draw_texts(random, len(names[0])), '"', "")
        numbers = pa.array(random.integers(0, self.cardinality, len(names[1]))).cast(pa.string())
        parts = [
            join_rows(pc.binary_join_element_wise('"', own, '":', values, ""), np.full(len(rows), half), ",")
            for own, values, half in zip(names, (words, numbers), halves, strict=True)
        ]
        between = "," if halves[0] else ""
        return pc.binary_join_element_wise("{", parts[0], between, parts[1], "}", "")


def _draw_texts(random: np.random.Generator, size: int) -> pa.StringArray:
    return pa.array(make_vocabulary(WORDS)).take(pa.array(random.integers(0, WORDS, size)))
