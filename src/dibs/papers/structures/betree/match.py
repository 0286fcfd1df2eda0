"""Matching over a BE-Tree, algorithms 1 and 2 of the paper.

The c-nodes to visit stand in a queue, instead of recursion, so that each is fetched while those before it are worked
on. Each comes at most once, whatever the event: one decision for each half and p-node, by all entries that the event
has for its attribute.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dibs.index.groups import CANDIDATES, NEXT_EVENT, NODES, PAIRS, PREDICATES, EventArrays, Room
from dibs.index.kernels import Slots, clear, holds_several, lay_out, meets_entries
from dibs.jit.kernel import kernel
from dibs.jit.lanes import prefetch
from dibs.jit.pointers import pointer_to, pointer_to_write, rows_from
from dibs.papers.structures.betree.directories import home
from dibs.papers.structures.betree.layout import ENTRY_WORDS, ROOT, MatchSpace, Searched
from dibs.papers.structures.betree.nodes import (
    c_node_at,
    entry_at,
    nth_entry,
    nth_place,
    p_node_above,
    p_node_at,
    place_at,
    record_at,
)

LINES = 12  # cache lines of the next l-node that are prefetched
LINE_WORDS = 16
LARGEST_LOSS = 1 << 29  # it is halved before it leaves its 32 bits


class TreeSearch(NamedTuple):
    """What the phases of a match are handed: all arrays as pointers (see jit.pointers)."""

    words: Any
    span_lo: Any
    span_hi: Any
    event_attribute: Any
    event_lo: Any
    event_hi: Any
    visit: Any
    slot_lo: Any
    slot_hi: Any
    slot_more: Any
    out_event: Any
    out_row: Any
    room: int  # how many pairs there is room for
    attributes: int
    nodes: int  # c-nodes that the queue has room for


class EventCells(NamedTuple):
    """Of all entries of the batch."""

    lo: Any
    hi: Any


class EventEntries(NamedTuple):
    """The event that is matched: entries first to last of the batch."""

    number: int
    first: int
    last: int
    several: bool  # whether it has several entries for some attribute
    watched: bool  # whether it leaves its losses with the p-nodes


class Counts(NamedTuple):
    found: int  # pairs, -1 if there is no room for them
    candidates: int
    tests: int  # predicates evaluated
    visited: int  # c-nodes


class Tested(NamedTuple):
    """What became of the rows of an l-node."""

    found: int  # pairs in the room so far
    tests: int  # predicates evaluated
    lost: int  # those of rows that do not match


@kernel
def match(tree, events, last_event, watch, work, room, progress):
    """Events up to `last_event` from where the progress says. watch: (phase, one event in so many is watched, none if
    0). An event whose pairs find no room is done again.

    tree, events, work and room are plain tuples of what Searched, EventArrays, MatchSpace and Room name: in a call from
    Python, a NamedTuple costs a third of a microsecond for each of its arrays, a tuple next to nothing."""
    given, own = EventArrays(*events), MatchSpace(*work)
    search = search_of(Searched(*tree), given, own, Room(*room))
    slots = own.slot_lo, own.slot_hi, own.slot_more
    found = np.int64(0)
    for e in range(progress[NEXT_EVENT], last_event):
        first, last = given.offsets[e], given.offsets[e + 1]
        lay_out(first, last, given.attribute, given.lo, given.hi, *slots)
        counts = match_be_tree(search, event_of(search, e, first, last, watch), found)
        clear(first, last, given.attribute, *slots)
        if counts.found < 0:
            progress[NEXT_EVENT], progress[PAIRS] = e, found
            return
        found = counts.found
        progress[CANDIDATES] += counts.candidates
        progress[PREDICATES] += counts.tests
        progress[NODES] += counts.visited
    progress[NEXT_EVENT], progress[PAIRS] = last_event, found


@kernel(inline="always")
def search_of(tree, events, work, room):
    return TreeSearch(
        pointer_to_write(tree.words),
        pointer_to(tree.span_lo),
        pointer_to(tree.span_hi),
        pointer_to(events.attribute),
        pointer_to(events.lo),
        pointer_to(events.hi),
        pointer_to_write(work.visit),
        pointer_to(work.slot_lo),
        pointer_to(work.slot_hi),
        pointer_to(work.slot_more),
        pointer_to_write(room.event),
        pointer_to_write(room.row),
        len(room.event),
        len(work.slot_lo),
        len(work.visit) // 2,
    )


@kernel
def event_of(search, e, first, last, watch):
    phase, one_in = watch
    several = False
    for i in range(first + 1, last):
        several |= search.event_attribute[i] == search.event_attribute[i - 1]
    return EventEntries(e, first, last, several, one_in > 0 and (e + phase) % one_in == 0)


@kernel(forceinline=True)
def match_be_tree(search, event, found):
    """Algorithm 1, for all c-nodes that the event comes to."""
    words, visit = search.words, search.visit
    candidates, tests = np.int64(0), np.int64(0)
    visit[0] = ROOT
    visit[search.nodes] = 0
    next_one, end = 0, 1
    while next_one < end:
        c = visit[next_one]
        here, before = search.nodes + next_one, end
        next_one += 1
        if next_one < end:
            fetch_node(words, visit[next_one])
        node = c_node_at(words, c)
        if node.rows > 0:
            if found + node.rows > search.room:
                return Counts(np.int64(-1), candidates, tests, end)
            checked, was = check_subs(search, event, c, found), found
            found = checked.found
            candidates += node.rows
            tests += checked.tests
            if event.watched:
                add_loss(words, c, checked.lost)
                add_own_loss(words, c, checked.lost, 0)
                if checked.found > was:
                    visit[here] = ~visit[here]
        if node.places > 2 * (event.last - event.first):
            end = search_p_directory(search, event, c, end)
        elif node.places > 0:
            end = search_small_p_directory(search, event, c, end)
        if node.left >= 0 or node.right >= 0:
            end = search_c_directory(search, event, c, end)
        if event.watched:
            for i in range(search.nodes + before, search.nodes + end):
                visit[i] = next_one - 1
    if event.watched:
        add_losses_of_paths(search, end)
    return Counts(found, candidates, tests, end)


# ---- l-nodes ----


@kernel(forceinline=True)
def fetch_node(words, c):
    """Asks for the l-node and the p-directory of a c-node."""
    node = c_node_at(words, c)
    start = np.int64(node.l_node)
    for line in range(start, start + min(node.used, LINE_WORDS * LINES), LINE_WORDS):
        prefetch(words, line)
    prefetch(words, np.int64(node.p_directory))


@kernel(forceinline=True)
def check_subs(search, event, c, found):
    """CheckSub of the paper: tests the rows of an l-node. There is room for all of them."""
    words, node = search.words, c_node_at(search.words, c)
    tests, lost = np.int64(0), np.int64(0)
    record = np.int64(node.l_node)
    end = record + node.used
    while record < end:
        head = record_at(words, record)
        first, after = nth_entry(record, 0), nth_entry(record, head.entries)
        at, last = first, nth_entry(record, head.tested)
        ok = True
        while ok and at < last:
            entry = entry_at(words, at)
            ok = meets(search, event, entry.attribute, entry.lo, entry.hi)
            at += ENTRY_WORDS
        made = (at - first) // ENTRY_WORDS
        tests += made
        if ok and holds_exactly(search, at, after):
            search.out_event[found] = event.number
            search.out_row[found] = head.row
            found += 1
        else:
            lost += made
        record = after
    return Tested(found, tests, lost)


@kernel(forceinline=True)
def meets(search, event, attribute, lo, hi):
    """Whether the cells lo to hi meet an entry that the event has for an attribute."""
    if lo <= search.slot_hi[attribute] and search.slot_lo[attribute] <= hi:
        return True
    return event.several and meets_more(search, attribute, lo, hi)


@kernel
def meets_more(search, attribute, lo, hi):
    """The same of its entries after the first."""
    more = slot_more(search)
    return meets_entries(lo, hi, more[attribute, 0], more[attribute, 1], EventCells(search.event_lo, search.event_hi))


@kernel(forceinline=True)
def holds_exactly(search, first, after):
    """The exact test of predicates of several spans: the last entries of a record, between its hulls and `after`."""
    at = after - ENTRY_WORDS
    while at >= first and entry_at(search.words, at).hi < 0:
        if not holds_entry(search, at):
            return False
        at -= ENTRY_WORDS
    return True


@kernel
def holds_entry(search, at):
    entry = entry_at(search.words, at)
    slots = Slots(search.slot_lo, search.slot_hi, slot_more(search))
    values = EventCells(search.event_lo, search.event_hi)
    return holds_several(entry.attribute, entry.lo, entry.hi, search, slots, values)


@kernel
def slot_more(search):
    return rows_from(search.slot_more, search.attributes, 2)


@kernel
def add_loss(words, c, lost):
    """Evaluations in vain in an l-node, for all p-nodes above it."""
    p = np.int64(c_node_at(words, c).p_node)
    while p >= 0:
        p_node = p_node_at(words, p)
        p_node.loss += lost
        if p_node.loss > LARGEST_LOSS:  # keeps the average
            p_node.loss >>= 1
            p_node.seen >>= 1
        p = p_node_above(words, p)


@kernel
def add_own_loss(words, c, lost, ways):
    """The same for the c-node: see betree.ranks."""
    node = c_node_at(words, c)
    node.loss = min(node.loss + lost, LARGEST_LOSS)
    node.way_loss = min(node.way_loss + ways, LARGEST_LOSS)


@kernel
def add_losses_of_paths(search, end):
    """The evaluation that led to a c-node was in vain if nothing matched there or below."""
    visit, nodes = search.visit, search.nodes
    for i in range(end - 1, 0, -1):
        above = visit[nodes + i]
        if above >= 0:
            add_loss(search.words, np.int64(visit[i]), 1)
            add_own_loss(search.words, np.int64(visit[i]), 0, 1)
        elif visit[nodes + ~above] >= 0:
            visit[nodes + ~above] = ~visit[nodes + ~above]


# ---- directories: what is to be visited goes to the end of the queue ----


@kernel(forceinline=True)
def search_small_p_directory(search, event, c, end):
    """Every p-node: is its attribute in the event?"""
    node = c_node_at(search.words, c)
    for i in range(node.places):
        at = nth_place(node.p_directory, i)
        if place_at(search.words, at).attribute >= 0:
            end = enter_c_directory(search, event, at, end)
    return end


@kernel(forceinline=True)
def search_p_directory(search, event, c, end):
    """Every attribute of the event: has it a p-node?"""
    words, node = search.words, c_node_at(search.words, c)
    for j in range(event.first, event.last):
        attribute = search.event_attribute[j]
        if j > event.first and search.event_attribute[j - 1] == attribute:
            continue
        i = home(attribute, node.places)
        at = nth_place(node.p_directory, i)
        while place_at(words, at).attribute >= 0:
            if place_at(words, at).attribute == attribute:
                end = enter_c_directory(search, event, at, end)
                break
            i = (i + 1) & (node.places - 1)
            at = nth_place(node.p_directory, i)
    return end


@kernel(forceinline=True)
def enter_c_directory(search, event, at, end):
    """The top bucket of the p-node at a place, if the event meets its rows."""
    place = place_at(search.words, at)
    if meets(search, event, place.attribute, place.lo, place.hi):
        end = add_visit(search, place.top, end)
        if event.watched:
            p_node = p_node_at(search.words, place.p_node)
            p_node.seen += 1
            p_node.entered += 1
    return end


@kernel(forceinline=True)
def search_c_directory(search, event, c, end):
    """SearchCDir, algorithm 2: the halves of a bucket whose rows the event meets."""
    node = c_node_at(search.words, c)
    if meets(search, event, node.attribute, node.left_lo, node.left_hi):
        end = add_visit(search, node.left, end)
    if meets(search, event, node.attribute, node.right_lo, node.right_hi):
        end = add_visit(search, node.right, end)
    return end


@kernel(forceinline=True)
def add_visit(search, c, end):
    """Puts a c-node at the end of the queue and asks for it."""
    search.visit[end] = c
    prefetch(search.words, np.int64(c))
    return end + 1
