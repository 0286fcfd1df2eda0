"""Completed: a structure of a paper made exact on the whole model, whatever part of it the structure takes itself.

    rows      conjunctions over values go to the structure; expressions with OR, IS NOT TRUE, IS NULL and TRUE go to
              masks
    events    single-valued ones go to the structure; those with an array or a range go to masks over all rows, unless
              the structure takes them too (these masks are built when the first such event comes)

Rows may come and go if the structure can take that (`Takes.updates`): each insertion is a part with its own rows of
what is left to masks, and parts of similar size are joined, as segments are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses, concatenate_clauses
from dibs.index.auto.mask_layout import WORD
from dibs.index.auto.masks import WIDE, Masks
from dibs.index.base import DynamicStructure, Pairs, Sink, Structure, in_parts, renumber
from dibs.index.conjunctions import select
from dibs.index.options import OptionValue, as_array, from_array
from dibs.index.statistics import guess_presence, highest_cells, probabilities


class ClauseGroup:
    """Clauses that came together; `rows` are their numbers in the index, `left` those (among the clauses) that the
    structure does not take."""

    def __init__(self, clauses: Clauses, rows: NDArray[np.int32], left: NDArray[np.int32]):
        self.clauses, self.rows, self.left = clauses, rows, left
        self._masks: dict[bool, Masks] = {}

    def masks(self, everything: bool) -> Masks:
        """Masks over the rows left, or over all rows."""
        if everything not in self._masks:
            c = self.clauses
            chosen = np.arange(len(c)) if everything else self.left.astype(np.int64)
            share = probabilities(c, guess_presence(c), highest_cells(c))
            plain, programs = chosen[chosen < c.conjunctions], chosen[chosen >= c.conjunctions]
            self._masks[everything] = Masks.build(c, plain, programs, share)
        return self._masks[everything]

    def widen(self, attributes: int) -> None:
        """From now on events may have so many attributes."""
        if attributes > self.clauses.attributes:
            self.clauses = replace(self.clauses, attributes=attributes)
            self._masks = {}

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for m in self._masks.values() for a in m.arrays().values())


class Completed:
    """See above. An index of rows 0, 1, 2, ...; `_rows[i]` is the row of the structure's clause i."""

    def __init__(
        self,
        structure: Structure,
        own: Clauses | None,
        rows: NDArray[np.int32],
        part: ClauseGroup,
        options: dict[str, OptionValue],
    ):
        self._structure = structure
        self.set_options = options
        self._own = own  # the structure's clauses, if they are not the segment's
        self._rows = rows
        self._parts = [part]
        self._count = len(part.rows)
        self._deleted = np.zeros(0, np.bool_)  # by row, once something was deleted

    @property
    def name(self) -> str:
        return self._structure.name

    @property
    def about(self) -> str:
        return self._structure.about

    @classmethod
    def build(cls, kind: type[Any], clauses: Clauses, **options: Any) -> Completed:
        """kind: a Structure; options: what its `build` takes besides."""
        own, rows, left = _select(kind, clauses)
        structure = cast(Structure, kind.build(own, **options))
        part = ClauseGroup(clauses, np.arange(len(clauses), dtype=np.int32), left)
        known = [option.name for option in getattr(kind, "options", ())]
        chosen = {name: options[name] for name in known if name in options}
        return cls(structure, None if own is clauses else own, rows, part, chosen)

    @classmethod
    def restore(cls, kind: type[Any], clauses: Clauses, arrays: dict[str, NDArray[Any]], **options: Any) -> Completed:
        part = ClauseGroup(clauses, np.arange(len(clauses), dtype=np.int32), arrays["left"])
        own = clauses
        if "own.offsets" in arrays:
            columns = {n: arrays[f"own.{n}"] for n in Clauses.ARRAYS}
            own = Clauses(**columns, conjunctions=int(arrays["own.conjunctions"][0]), attributes=clauses.attributes)
        saved = {n[len("structure.") :]: a for n, a in arrays.items() if n.startswith("structure.")}
        structure = cast(Structure, kind.restore(own, saved, **options))
        chosen = from_array(arrays.get("options"))
        return cls(structure, None if own is clauses else own, arrays["rows"], part, chosen)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Only an index without updates is saved: a segment with updates is compacted first."""
        assert len(self._parts) == 1 and not len(self._deleted), "rows were inserted or deleted since the build"
        result: dict[str, NDArray[Any]] = {"left": self._parts[0].left, "rows": self._rows}
        if self._own is not None:
            result |= {f"own.{n}": getattr(self._own, n) for n in Clauses.ARRAYS}
            result["own.conjunctions"] = np.array([self._own.conjunctions])
        if self.set_options:
            result["options"] = as_array(self.set_options)
        return result | {f"structure.{n}": a for n, a in self._structure.arrays().items()}

    @property
    def nbytes(self) -> int:
        own = 0 if self._own is None else self._own.nbytes
        return self._structure.nbytes + own + self._rows.nbytes + sum(p.nbytes for p in self._parts)

    def plan(self) -> dict[str, Any]:
        left = sum(len(p.left) for p in self._parts)
        plan = {self.name: len(self._rows), "masks": left} | self._structure.plan()
        if self.set_options:
            plan["options"] = dict(self.set_options)
        if left:
            plan["completed"] = f"{left:,} rows with OR, IS NOT TRUE, IS NULL or no predicate are matched by masks"
        return plan

    @property
    def pending(self) -> Callable[[], None] | None:
        """See index.base.do_pending."""
        return getattr(self._structure, "pending", None)

    @pending.setter
    def pending(self, work: None) -> None:
        self._structure.pending = work  # type: ignore[attr-defined]

    # ---- matching ----

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        found = Pairs([], 0, 0)
        single = None if self._structure.takes.several or events.points else events.single_valued()
        if single is None or single.all():
            self._match_single(events, None, threads, sink, found)
            return found
        plain, others = np.flatnonzero(single), np.flatnonzero(~single)
        if len(plain):
            self._match_single(events.take(plain, points=True), plain, threads, sink, found)
        some = events.take(others, points=False)
        for part in self._parts:
            self._match_masks(part, True, some, others, threads, sink, found)
        return found

    def _match_single(
        self,
        events: CodedEvents,
        numbers: NDArray[np.int64] | None,
        threads: int,
        sink: Sink | None,
        found: Pairs,
    ) -> None:
        if len(self._rows):
            rows = None if len(self._rows) == self._count else self._rows
            found.add(renumber(partial(self._structure.match, events, threads), numbers, rows, None, sink))
        for part in self._parts:
            if len(part.left):
                self._match_masks(part, False, events, numbers, threads, sink, found)

    def _match_masks(
        self,
        part: ClauseGroup,
        everything: bool,
        events: CodedEvents,
        numbers: NDArray[np.int64] | None,
        threads: int,
        sink: Sink | None,
        found: Pairs,
    ) -> None:
        masks = part.masks(everything)

        def match(sink: Sink | None) -> Pairs:
            work = partial(masks.match, events)
            return in_parts(work, len(events), threads, len(WIDE) * WORD, masks.rate, sink)

        deleted = self._deleted if len(self._deleted) else None
        found.add(renumber(match, numbers, part.rows, deleted, sink))

    # ---- updates ----

    def insert(self, clauses: Clauses) -> None:
        """More rows, numbered on from all that there ever were; the cells of the old rows keep their meaning."""
        own, rows, left = _select(type(self._structure), clauses)
        cast(DynamicStructure, self._structure).insert(own)
        numbers = np.arange(self._count, self._count + len(clauses), dtype=np.int32)
        self._rows = np.concatenate([self._rows, numbers[rows]])
        self._count += len(clauses)
        for part in self._parts:
            part.widen(clauses.attributes)
        if len(self._deleted):
            self._deleted = np.append(self._deleted, np.zeros(len(clauses), np.bool_))
        self._parts.append(ClauseGroup(clauses, numbers, left))
        while len(self._parts) > 1 and len(self._parts[-2].rows) < 2 * len(self._parts[-1].rows):
            self._parts[-2:] = [_join(*self._parts[-2:])]

    def delete(self, rows: NDArray[np.int64]) -> None:
        """These rows, each of which is there, match nothing any more."""
        if not len(self._deleted):
            self._deleted = np.zeros(self._count, np.bool_)
        self._deleted[rows] = True
        own = np.searchsorted(self._rows, rows)
        known = own < len(self._rows)
        known[known] = self._rows[own[known]] == rows[known]
        cast(DynamicStructure, self._structure).delete(own[known])


def _select(kind: type[Any], clauses: Clauses) -> tuple[Clauses, NDArray[np.int32], NDArray[np.int32]]:
    programs = kind.takes_programs(clauses) if kind.takes.programs else None
    return select(clauses, kind.takes.several, programs)


def _join(first: ClauseGroup, second: ClauseGroup) -> ClauseGroup:
    clauses, place = concatenate_clauses([first.clauses, second.clauses])
    rows = np.concatenate([first.rows, second.rows])[place]
    left = np.zeros(len(place), np.bool_)
    left[first.left] = True
    left[len(first.rows) + second.left] = True
    return ClauseGroup(clauses, rows, np.flatnonzero(left[place]).astype(np.int32))
