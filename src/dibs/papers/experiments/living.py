"""Structures that are changed row by row before they are measured, as the BE-Tree paper's Figure 13 has it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index import find
from dibs.index.base import Pairs, Sink, do_pending, renumber
from dibs.papers.experiments.experiment import Rows, Series, Steps


class Lived:
    """Built from what came first; then a row goes and another one comes, one by one, and the events are matched after
    each step, from which the structure may learn. Its rows have the numbers that they have in `list_alive`."""

    def __init__(self, one: Series, clauses: Clauses, events: CodedEvents, steps: Steps):
        kind: Any = find(one.structure)
        (_, first), *others = steps
        self._index = kind.build(clauses.take(first), **one.options)
        number = {int(row): place for place, row in enumerate(first)}  # in the structure
        ever = len(first)
        for gone, come in others:
            for old, new in zip(gone.tolist(), come.tolist(), strict=True):
                self._index.delete(np.array([number.pop(old)]))
                self._index.insert(clauses.take(np.array([new])))
                number[new] = ever
                ever += 1
            self._index.match(events, 1)
            do_pending(self._index)
        alive = list_alive(steps)
        self._rows = np.full(ever, -1, np.int32)
        self._rows[[number[row] for row in alive.tolist()]] = np.arange(len(alive))

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        return renumber(partial(self._index.match, events, threads), None, self._rows, None, sink)

    @property
    def nbytes(self) -> int:
        return int(self._index.nbytes)


def list_alive(steps: Steps) -> Rows:
    """The rows that are there after all steps, in order."""
    alive: set[int] = set()
    for gone, come in steps:
        alive = alive.difference(gone.tolist()).union(come.tolist())
    return np.array(sorted(alive), np.int64)
