"""Keyword subscriptions against documents: OpIndex's AOL workload (section 7.1) and PS-Tree's query log (section 7.1).

A query has 1 to 5 different words, 2.4 on average as in AOL's log; a document has `document_size` different ones on
average (5.4 is a tweet, 123 an article), each with how often it occurs. The words are those of `words.py`, with Zipf
frequencies; the most frequent ones (`stop`) stand in no query. The operators are those of the paper:

    =         kw_vldb = 1                     the document has the word
    interval  kw_vldb BETWEEN 5 AND 20        so often
    split     kw_boo = 'lea'                  PS-Tree's: the first three letters are the attribute, the next three the
                                              value; of words up to six letters, each half

A stand-in for both logs and for Twitter and Wikipedia: what is real are the words, what is made are their frequencies.
With =, a document's values are 1; with split, the first word that has an attribute gives its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dibs.papers.workloads.blocks import Blocks, make_maps, require
from dibs.papers.workloads.draws import draw_distinct, keep_heads, sum_weights
from dibs.papers.workloads.predicates import join_rows
from dibs.papers.workloads.words import make_vocabulary

QUERY_SIZES = (0.30, 0.28, 0.22, 0.12, 0.08)  # shares of queries with 1, 2, ... words: 2.4 on average
TWEET, ARTICLE = 5.4, 123.0
SPREAD = 0.3  # of document sizes, as a share of the average
MOST_OFTEN = 40  # that a word occurs in a document


@dataclass(frozen=True)
class Keywords(Blocks):
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
        sizes = 1 + np.searchsorted(np.cumsum(QUERY_SIZES), random.random(len(rows)) * sum(QUERY_SIZES), "right")
        sizes = np.minimum(sizes, len(QUERY_SIZES))
        summed = sum_weights(self.dimensions, self.skew)
        before = summed[self.stop - 1] if self.stop else 0.0
        asked = (summed[self.stop :] - before) / (1 - before)
        words = self.stop + keep_heads(draw_distinct(random, asked, len(rows), len(QUERY_SIZES)), sizes)
        names, values = _name_words(self.dimensions, self.operator == "split")
        attributes = names.take(pa.array(words))
        if self.operator == "split":
            texts = pc.binary_join_element_wise(attributes, " = '", values.take(pa.array(words)), "'", "")
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
        matrix = draw_distinct(random, sum_weights(self.dimensions, self.skew), len(rows), largest)
        words = keep_heads(matrix, sizes)
        names, values = _name_words(self.dimensions, self.operator == "split")
        if self.operator == "split":
            row = np.repeat(np.arange(len(rows)), sizes)
            codes = pc.dictionary_encode(names).indices.to_numpy()[words]
            first = np.sort(np.unique(row * len(names) + codes, return_index=True)[1])
            words, sizes = words[first], np.bincount(row[first], minlength=len(rows))
            return make_maps(sizes, names.take(pa.array(words)), values.take(pa.array(words)))
        often = np.ones(len(words), np.int64)
        if self.operator == "interval":
            often = np.minimum(random.geometric(0.2, len(words)), MOST_OFTEN)
        return make_maps(sizes, names.take(pa.array(words)), pa.array(often))

    def list_domains(self) -> dict[str, tuple[int, int]]:
        """How often a word occurs."""
        if self.operator == "split":
            return {}
        names, _ = _name_words(self.dimensions, False)
        return dict.fromkeys(names.to_pylist(), (1, 1 if self.operator == "=" else MOST_OFTEN))


@lru_cache(maxsize=4)
def _name_words(size: int, split: bool) -> tuple[pa.StringArray, pa.StringArray]:
    """The attribute of each word, and the value where the word is split."""
    words = make_vocabulary(size)
    if not split:
        return pa.array([f"kw_{word}" for word in words]), pa.array([""] * size)
    cuts = [3 if len(word) > 6 else len(word) // 2 for word in words]
    names = [f"kw_{word[:cut]}" for word, cut in zip(words, cuts, strict=True)]
    values = [word[cut : 6 if len(word) > 6 else None] for word, cut in zip(words, cuts, strict=True)]
    return pa.array(names), pa.array(values)
