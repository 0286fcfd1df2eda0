"""What of a state a single event is handed: its table of addresses.

A segment's own part of the table is made once; that of a state is put together of these, with the rows that are gone,
what waits and the attributes of the wanted names: some microseconds for each change. Tables hold the arrays whose
addresses they have. An index that has planned again, or filed more for single events, makes a table no less exact, only
slower: so it is looked for now and then (segments.single.call).
"""

from __future__ import annotations

import numpy as np

from dibs.coding.batch import number_names
from dibs.coding.computed.naming import ComputedNames
from dibs.coding.domain import Domains
from dibs.coding.events import WantedNames
from dibs.coding.groups import NumberConstants, StringConstants, TimeConstants
from dibs.coding.patterns import patterns_of
from dibs.index.auto.bit_layout import Clusters, Predicates
from dibs.index.auto.planner import Auto
from dibs.index.auto.record_layout import RecordArrays
from dibs.index.auto.records import FEW_RECORDS
from dibs.index.auto.singles import ForSingles, SieveArrays
from dibs.index.auto.vector_layout import VectorArrays
from dibs.index.base import FIRST_ROOM
from dibs.index.groups import ClauseArrays
from dibs.index.kernels import Jumps
from dibs.index.scan import Scan
from dibs.jit.groups import Table, empty, entries_in
from dibs.language.printer import EVERY
from dibs.language.table import Facet
from dibs.language.types import NO_TYPES, Types
from dibs.segments.segment import Segment
from dibs.segments.single.memtable import Pending
from dibs.segments.single.memtable_kernels import Records as WaitingRecords
from dibs.segments.single.program_kernels import Programs
from dibs.segments.single.programs import programs_of
from dibs.segments.single.space import Needs
from dibs.segments.single.tables import (
    ASKS_FOR_VALUES,
    ASKS_RE2,
    HAS_BITS,
    HAS_FACETS,
    HAS_PROGRAMS,
    HAS_RECORDS,
    HAS_SIEVE,
    HAS_VECTORS,
    LAYOUT_FINGERPRINT,
    PROGRAMS_INEXACT,
    RECORDS_INEXACT,
    VECTORS_INEXACT,
    DomainArrays,
    FacetArrays,
    Head,
    LayerTable,
    SetOfPatterns,
)
from dibs.segments.state import State
from dibs.tuning import tuned

SINGLE_VALUES = tuned("single_values", 1_000, 10_000, "values", "of a single event; more are sorted another way")

FIRST_TEXT = 1 << 12  # bytes of a text that there is room for at first
_NONE, _NO_IDS, _NOT_GONE = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.uint8)
_OF_NAMES = {  # the parts of a layer that depend on the wanted names
    Facet.VALUE: "domain.own",
    Facet.REVERSED: "facets.reversed",
    Facet.PATTERN: "facets.matching",
    Facet.NO_PATTERN: "facets.others",
    Facet.TIME: "facets.times",
}
ASKED = ForSingles(None, None, _NONE)  # the call codes the event for the segment; its index is asked afterwards


class Facets:
    """What a segment's strings are coded by besides their values."""

    def __init__(self, domains: Domains):
        kinds = domains.facet
        attributes = np.flatnonzero((kinds == Facet.PATTERN) | (kinds == Facet.NO_PATTERN)).tolist()
        self._sets = [patterns_of(domains, a) for a in attributes]
        self.are_there = bool(kinds.any())
        self.patterns = max((len(s.programs.kind) for s in self._sets), default=0) or int(self.are_there)
        self.texts = max((len(s.filter.folded) for s in self._sets), default=0)
        set_of = np.full(len(kinds) if self.are_there else 0, -1, np.int32)
        asks_re2 = [bool(s.regexes) for s in self._sets]  # about every string: nothing is known of what it needs
        set_of[attributes] = np.where(asks_re2, ASKS_RE2, np.arange(len(attributes)))
        self.table = Table(*(SetOfPatterns(s.programs, s.filter) for s in self._sets))
        constants = TimeConstants.of(domains) if self.are_there else empty(TimeConstants)
        # Those of the wanted names are the plan's.
        self.arrays = empty(FacetArrays)._replace(constants=constants, set_of=set_of, sets=self.table.address)


class Part:
    """A segment's."""

    def __init__(self, segment: Segment, parts: ForSingles):
        self.parts = parts
        d, c = segment.domains, segment.clauses
        records, bits, vectors = parts.records, parts.bits, parts.vectors
        programs = None if bits is None else bits.records
        flags = ASKS_FOR_VALUES if c.ask_for_values else 0
        facets = Facets(d)
        flags |= HAS_FACETS * facets.are_there
        if records is not None:
            flags |= HAS_RECORDS | RECORDS_INEXACT * records.inexact
        if parts.sieve is not None:
            flags |= HAS_SIEVE
        if vectors is not None:
            flags |= HAS_VECTORS | VECTORS_INEXACT * vectors.inexact
        if programs is not None:
            flags |= HAS_PROGRAMS | PROGRAMS_INEXACT * programs.inexact
        if bits is not None and len(bits.rows):
            flags |= HAS_BITS
        own = LayerTable(
            domain=DomainArrays(_NONE, NumberConstants.of(d), StringConstants.of(d)),
            facets=facets.arrays,
            clauses=ClauseArrays.of(c),
            jumps=Jumps(c.on_true, c.on_false, c.conjunctions),
            records=empty(RecordArrays) if records is None else records.own,
            sieve=empty(SieveArrays) if parts.sieve is None else parts.sieve.arrays,
            vectors=empty(VectorArrays) if vectors is None else vectors.own,
            programs=empty(RecordArrays) if programs is None else programs.own,
            predicates=empty(Predicates) if bits is None else bits.bits.predicates,
            clusters=empty(Clusters) if bits is None else bits.bits.clusters,
            bit_rows=_NONE if bits is None else bits.rows,
            scanned=parts.scanned,
            repeats=_NONE if segment.repeats is None else segment.repeats.first,
            ids=_NO_IDS if segment.ids.integers is None else segment.ids.integers,
            gone=_NOT_GONE,
            flags=flags,
        )
        self.table = Table(own)  # `own` of the domain and of the facets, and `gone`, are the state's
        self._held = facets
        words, accesses = len(own.clusters.access), len(own.clusters.start)
        bit_rows = 0 if bits is None else len(bits.rows)
        rungs = max((len(r.own.rung_end) for r in (records, programs) if r is not None), default=0)
        filed = 0 if parts is ASKED else len(c)
        listed = 0 if vectors is None else vectors.sizes.listed
        self.needs = (c.attributes, rungs, filed, listed, words, accesses, bit_rows, facets.patterns, facets.texts)
        self.rows = len(segment)


class EventTable:
    """A state's. It holds no state: states hold plans."""

    def __init__(self, state: State, parts: list[Part], names: WantedNames, pending: Pending, types: Types = NO_TYPES):
        paths = names.paths
        words = pending.records  # one memory, in three views
        waiting = WaitingRecords(pending.heads, words, words.view(np.float64), words.view(np.uint8))
        self.computed = names.computed  # or all strings of an event, which are added to it in the same way
        if self.computed is None and EVERY in names.codes:
            self.computed = ComputedNames(names.names)
        self.programs = empty(Programs) if self.computed is None else programs_of(self.computed, len(names.names))
        self.has_programs = len(self.programs.name) > 0
        self.without_programs = None if self.computed is None else self.computed.without_programs
        head = Table(Head(len(parts), LAYOUT_FINGERPRINT, waiting, paths, self.programs))
        self._table = Table.joined([head, *(part.table for part in parts)])
        first = entries_in(Head)
        for layer in state.layers:
            own = number_names(names.names, layer.segment.domains)
            for facet, path in _OF_NAMES.items():
                to = own[facet]
                if to is not None:
                    self._table.put(LayerTable, path, to, first)
            if layer.gone.bits is not None:
                self._table.put(LayerTable, "gone", layer.gone.bits, first)
            first += entries_in(LayerTable)
        self.address = self._table.address
        self.parts, self.names, self.pending = parts, paths, pending
        self.declared = names.declared(types) if types else None
        self.asks_for_more = self.computed is not None or self.declared is not None  # than what the text says
        self.segments = [layer.segment for layer in state.layers]
        self.has_residuals = any(segment.residuals is not None for segment in self.segments)
        self.asked = [(i, layer) for i, layer in enumerate(state.layers) if parts[i].parts is ASKED]
        self.has_integers = not self.asked and all(segment.ids.integers is not None for segment in self.segments)
        self.few = sum(part.rows for part in parts) <= FEW_RECORDS.value  # it keeps the interpreter
        attributes, rungs, filed, listed, words, accesses, clauses, patterns, texts = (
            max(sizes) for sizes in zip(*(part.needs for part in parts))
        )
        self.needs = Needs(
            layers=len(parts),
            text=FIRST_TEXT,
            values=SINGLE_VALUES.value,
            nodes=len(paths.nodes),
            attributes=attributes,
            rungs=rungs,
            filed=filed,
            listed=listed,
            words=words,
            accesses=accesses,
            clauses=clauses,
            rows=FIRST_ROOM.value,
            patterns=patterns,
            texts=texts,
        )


def parts_of(state: State) -> list[Part] | None:
    """The parts of its segments; None: some segment is not matched this way, or there is none."""
    parts = []
    for layer in state.layers:
        part = part_of(layer.segment)
        if part is None:
            return None
        parts.append(part)
    return parts or None


def part_of(segment: Segment) -> Part | None:
    """The segment's part, as its index is now."""
    parts, known = _parts_of(segment), segment.single
    if parts is None:
        return None
    if known is None or known.parts is not parts:
        known = segment.single = Part(segment, parts)  # whole: another thread may be looking
    return known


def _parts_of(segment: Segment) -> ForSingles | None:
    if segment.joins:
        return None
    if isinstance(segment.index, Auto):
        return segment.index.for_singles() or ASKED
    if isinstance(segment.index, Scan):
        return segment.index.for_singles
    return ASKED
