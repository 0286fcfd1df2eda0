"""Thresholds: the sizes at which Dibs takes another way to the same answer.

A path that begins only above some size (a background plan, a full room, a merge) is never met by a test of a few
subscriptions. So every such size stands here and is read when it is needed, never copied: tests set all of them to
their smallest values, or to random ones, and every way must give the same answer.

    DIBS_THRESHOLDS=smallest    for a whole process, and for those it starts (Spark's workers among them)
    DIBS_THRESHOLDS=random:7    drawn by that seed
    with using(smallest()): ... for a block

Not here: limits that refuse input (they belong to the language) and sizes that only prefetch or show.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

VARIABLE = "DIBS_THRESHOLDS"


def _threshold(default: float, smallest: float, about: str) -> Any:
    """smallest: the value at which the path behind it is taken as often as it can be. (It may be above the default,
    where a path is taken below its threshold.)"""
    return field(default=default, metadata={"smallest": smallest, "about": about})


@dataclass
class Thresholds:
    # jit.interpreter
    few_events: int = _threshold(4, 1, "events that are matched in microseconds, if subscriptions are few too")
    # coding.computed
    few_computed: int = _threshold(8, 0, "events whose computed values are made one by one, without columns")
    residual_mentions: int = _threshold(
        16, 1_000_000_000, "predicates of a segment on a computed value from which on every event has it computed"
    )
    residual_rows: int = _threshold(1 << 18, 1, "combinations of values that are tested last at once")
    few_residuals: int = _threshold(16, 0, "pairs of a single event that are tested last one by one")
    # cold
    cold_subscriptions: int = _threshold(1_000, 0, "subscriptions that need no kernels until these are there")
    cold_pairs: int = _threshold(2_000_000, 0, "subscriptions times events of a batch, likewise")
    cold_values: int = _threshold(
        200_000, 0, "predicates times values of arrays, or pieces of 64 characters, of an event, likewise"
    )
    # index.base
    first_room: int = _threshold(1 << 12, 1, "pairs that a kernel gets room for at first")
    largest_room: int = _threshold(1 << 22, 64, "pairs in one room, unless nothing fits into it")
    sink_room: int = _threshold(1 << 19, 32, "the same with a sink; going on after a full room costs masks some work")
    # index.scan
    short_scan: int = _threshold(1_000, 0, "clauses whose scan for few events keeps the interpreter")
    # index.statistics
    remembered_events: int = _threshold(16_384, 16, "events whose attributes are remembered; older ones fade out")
    latest_events: int = _threshold(2_048, 4, "events whose values are remembered")
    # index.auto.plan: costs in nanoseconds. The smallest file some clauses of a small test as records, some as masks.
    often: float = _threshold(0.01, 0.5, "share of events with the attribute from which on it is filed by its values")
    look_cost: float = _threshold(10.0, 10.0, "what an event pays for a look at a record; of very many, twice that")
    read_cost: float = _threshold(4.0, 4.0, "what it pays for a record that is read with all others of its attribute")
    values_cost: float = _threshold(25.0, 0.0, "what it pays for each of its values if records are filed by values")
    mask_cost: float = _threshold(0.03, 0.8, "what an event of a batch pays for a clause that is a mask")
    fill_cost: float = _threshold(0.02, 0.0, "what it pays for the mask of a distinct predicate")
    masks_cost: float = _threshold(30.0, 0.0, "what it pays for each of its values if there are masks at all")
    line_cost: float = _threshold(2.5, 0.2, "what it pays for 512 clauses of a group of vectors, for each attribute")
    group_cost: float = _threshold(5.0, 1.0, "what it pays for a look at such a group, and for each of its vectors")
    verify_cost: float = _threshold(15.0, 15.0, "what it pays for a clause that its vectors do not decide")
    vectors_cost: float = _threshold(5.0, 0.0, "what it pays for each of its values if there are vectors at all")
    worth_planning: float = _threshold(1.25, 1.0, "times less that an event must cost by a new plan")
    tried_clauses: int = _threshold(
        200_000, 0, "clauses of which several plans are made and tried; of more, only the one that there is; 0: none"
    )
    plan_bytes: float = _threshold(
        128.0, 1e9, "bytes that a plan may take for each clause, predicate and span, where another one takes less"
    )
    sampled_clauses: int = _threshold(20_000, 10, "clauses by which that is judged")
    enough_events: int = _threshold(1_024, 1, "events before measured shares are believed for the first time")
    look_every: int = _threshold(4_096, 8, "events after which the plan is looked at again")
    one_by_one_events: int = _threshold(2, 64, "so few events are matched one by one")
    one_by_one_calls: int = _threshold(
        16, 0, "calls with few events before the clauses of the masks are filed for them"
    )
    one_by_one_clauses: int = _threshold(20_000, 1, "clauses of the masks that are worth it")
    single_scanned: int = _threshold(64, 4, "clauses of the masks that are tested one by one for a single event")
    single_left: int = _threshold(4_000, 1_000_000, "the same of those that cannot be filed for single events")
    single_filed: int = _threshold(20_000, 1_000_000, "clauses whose masks are filed when the first one comes")
    # index.auto.singles
    sieved: int = _threshold(1_000, 0, "clauses of the records that are worth a sieve for single events")
    sieved_at_once: int = _threshold(
        100_000, 1_000_000_000, "the same, if it is made when the first one comes, not in the background"
    )
    sieve_share: float = _threshold(0.5, 1e9, "share of clauses that may pass a sieve for it to be worth it")
    # segments.single
    single_values: int = _threshold(
        1_000, 10_000, "values of a single event; those of longer ones are sorted another way"
    )
    single_text: int = _threshold(1 << 16, 1 << 20, "bytes of a single event that are read by the kernel")
    single_looks: int = _threshold(16, 1, "one single event in so many is shown to the index")
    # segments.id_lists
    listed_ids: int = _threshold(1_000_000, 2, "string ids of a segment that are kept as Python objects, once worth it")
    # index.auto.access_sets
    tests_of_an_entry: int = _threshold(12, 1, "tests of an entry; more would hardly sort out more")
    # index.auto.records
    few_records: int = _threshold(50_000, 0, "clauses whose search for few events keeps the interpreter")
    record_spans: int = _threshold(8, 1, "a predicate of more spans is tested by its hull and verified")
    record_entries: int = _threshold(256, 1, "entries of a program that is worth as many records")
    copies_by_value: int = _threshold(
        16,
        1,
        "buckets of cells under which one clause is filed, or one for each span of a list; else under larger ones",
    )
    buckets_at_once: int = _threshold(64, 1, "buckets of events that are listed before what stands in them is read")
    guards_at_once: int = _threshold(1_024, 1, "guards that hold before the records of their clauses are read")
    coarse_bits: int = _threshold(16, 3, "cells of more bits are tested by their first bits and verified")
    # index.auto.vectors
    vector_rows: int = _threshold(128, 1, "clauses over the same attributes that may be vectors")
    vector_bytes: float = _threshold(32.0, 0.25, "bytes of vectors for a predicate; a part of it for further spans")
    # index.auto.masks
    few_survivors: float = _threshold(
        8.0, 1e9, "events of a block that may pass the entries of a program for it to be reached through them"
    )
    narrow_blocks: int = _threshold(2, 0, "so many narrow blocks are cheaper than a wider one")
    middle_blocks: int = _threshold(1, 0, "so many blocks of middle width are cheaper than a wide one")
    survivors_at_once: int = _threshold(1_024, 2, "clauses of masks that are collected before they are finished")
    mask_spans: int = _threshold(16, 1, "a predicate of more spans is tested value by value")
    run_one_by_one: int = _threshold(8, 0, "events that pass an entry's tests and are run through its program singly")
    tabulated_cells: int = _threshold(4_096, 1, "cells of a domain that is tabulated; larger ones are searched")
    # papers.structures.counting
    rows_a_posting: int = _threshold(
        16, 0, "with fewer rows for each posting read, all counters are set back instead of those touched"
    )
    # papers.structures.gryphon
    gryphon_edges: int = _threshold(256, 0, "edges of a node that are compared one by one, without a directory")
    gryphon_block: int = _threshold(32, 1, "rows of the tree that are passed over together")
    # papers.structures.opindex
    opindex_segments: int = _threshold(32, 2, "segments of a directory, at most: the paper's b")
    opindex_short_list: int = _threshold(128, 1, "entries of a list that has no extra block")
    opindex_extra: int = _threshold(16, 1, "entries of an extra block, at least")
    opindex_clauses: int = _threshold(64, 1, "clauses of a CNF that is taken: at most the bits of a word")
    opindex_entries: int = _threshold(4_096, 1, "entries of a CNF that is taken")
    # papers.structures.betree
    betree_words: int = _threshold(2_048, 300, "words for the root, the stack and a scratch block: at least 300")
    betree_expected: float = _threshold(1.5, 0.0, "words, for each word of records, that are allocated beforehand")
    betree_capacity: float = _threshold(1.0, 0.01, "rows of an l-node, as a share of the paper's max_cap")
    betree_events: int = _threshold(256, 1, "events to know the matching probability from")
    betree_many: int = _threshold(256, 1, "an l-node of more rows is partitioned by all its attributes at once")
    betree_sample: int = _threshold(16, 1, "one event in so many is watched for its losses")
    betree_window: int = _threshold(64, 1, "operations below a p-node before its rank is looked at, at least")
    betree_cut: int = _threshold(10, 4, "size class (256 words) from which on free blocks are cut up for smaller ones")
    # papers.structures.pstree
    pstree_walk: int = _threshold(
        8, 1_000_000, "a batch of fewer rows than one for so many leaves is not worth a walk along all leaves"
    )
    pstree_sorted: int = _threshold(1_000, 0, "predicates that are worth sorting")
    pstree_block: int = _threshold(1_024, 1, "candidates that are collected before they are looked at")
    # papers.structures.tatbul
    tatbul_slots: int = _threshold(512, 0, "slots of an attribute whose vectors are words")
    tatbul_block: int = _threshold(8, 1, "bits of a place that tell places which are ruled out together: 256 of them")
    tatbul_differences: float = _threshold(
        0.25, 0.05, "a slot is an anchor if the differences since the last one are more than this share of it"
    )
    tatbul_events: int = _threshold(64, 1, "events that go through the trees before they are combined")
    hybrid_cluster: int = _threshold(16, 1, "intervals of a cluster that gets an interval index")
    # segments.segment_set
    size_ratio: int = _threshold(
        16, 1, "a segment is merged with all newer ones if it is at most so many times as large"
    )
    changes_for_a_segment: int = _threshold(256, 1, "changes of one call that are worth a segment of their own")
    merged_at_once: int = _threshold(1_000, 2, "rows of segments that are merged in the foreground")
    small_segments: int = _threshold(3, 1, "so many small segments are not worth a merge")
    most_small_segments: int = _threshold(8, 1, "small segments before they are merged in the foreground")
    scanned_rows: int = _threshold(64, 2, "rows of a new segment that are scanned, in a matcher that has many more")
    waiting_rows: int = _threshold(256, 1, "subscriptions that wait and are matched as they are by single events")
    # additions
    added_one_by_one: int = _threshold(16, 1, "subscriptions of one call that are added without making columns")
    predicates_for_a_segment: int = _threshold(10_000, 1, "predicates of one call that are worth a segment")
    # language.reading
    texts_at_once: int = _threshold(1 << 14, 1, "texts that are read by one call of the kernel")
    # coding.arrange
    longest_event: int = _threshold(1_000, 0, "values of an event; those of longer ones are sorted in another way")
    # coding.lookup
    lookup_events: int = _threshold(256, 1, "events of a batch that are worth a table of constants")
    constants_searched: int = _threshold(32, 0, "constants of an attribute that are searched rather than looked up")
    # coding.patterns
    pattern_automata: int = _threshold(1 << 14, 0, "expressions of an attribute that kernels verify, and not RE2")
    automata_alone: int = _threshold(16, 0, "expressions without a text of which each is tried in every string")
    instructions_of_a_set: int = _threshold(1 << 16, 1, "instructions of the expressions that RE2 matches in one pass")
    patterns_alone: int = _threshold(16, 0, "patterns that may hold for a long string, of which each is tried alone")
    pattern_steps: int = _threshold(64, 0, "bytes compared for each byte of a string before RE2 decides instead")
    # matches
    ties_selected: int = _threshold(1_000, 1, "pairs of an event of which the first are selected rather than sorted")
    # coding.events
    json_block: int = _threshold(1 << 19, 16, "bytes of JSON text that are read at once")
    names_in_order: int = _threshold(10_000, 0, "names of attributes among which new ones are always put in order")
    rows_in_order: int = _threshold(1_000, 1, "rows of a segment for which all names are put in order")
    # history
    history_tail: int = _threshold(
        64, 2, "documents of an ordered index that are not sorted in with the older ones yet"
    )
    history_entries: int = _threshold(
        64, 1, "entries of a document in an index, for each of its values there, with more of which it has none"
    )
    few_joins: int = _threshold(
        32, 0, "joins that are always answered before the constants of subscriptions are matched"
    )
    prefilter_share: float = _threshold(
        0.1, 1e9, "share of the time of joins that may go into finding out which subscriptions cannot match"
    )
    derived_at_once: int = _threshold(1 << 20, 1, "answers to joins that are given by one call of the kernel")
    remembered_at_once: int = _threshold(256, 1, "events that become documents together while a batch is matched")
    history_ranked: int = _threshold(4_096, 1, "entries of a run whose documents are counted without a look at each")
    history_rebuilt: int = _threshold(1_000, 1, "documents of one call for which indexes are built again")
    history_compacted: int = _threshold(1_000, 1, "documents that are gone before anything of them is given up")
    documents_in_a_row: int = _threshold(1_000, 1, "documents that one row of the catalog holds")
    # storage.durable
    unsaved_changes: int = _threshold(20_000, 3, "changes that are not in saved segments before they are saved")
    unsaved_on_closing: int = _threshold(1_000, 1, "the same on closing")
    # storage.catalog
    catalog_index_rebuilt: int = _threshold(
        1_000, 2, "new subscriptions, at least as many as there are, for which the index of ids is built again"
    )
    catalog_checked_by_two: int = _threshold(10_000_000, 0, "bytes of a catalog that two threads check")
    catalog_rows_read: int = _threshold(10_000, 2, "rows of the catalog that are read at once")
    # spark.subscription_sources
    changes_since_base: int = _threshold(
        10_000, 1, "changes that a stream's snapshots hold before newer segments are taken"
    )
    steps_since_base: int = _threshold(64, 1, "steps of such a snapshot before they are joined")
    # spark
    spark_segment: int = _threshold(1_000_000, 40, "subscriptions of a segment that one task builds")
    spark_task: int = _threshold(20_000, 10, "subscriptions that are worth a task of their own")
    spark_small_segments: int = _threshold(8, 1, "small segments of a shard that are not worth a merge")
    spark_history: int = _threshold(100_000, 5, "documents of a history that every worker gets rather than some")
    spark_history_parts: int = _threshold(32, 1, "micro-batches whose documents are not yet put together into one part")
    spark_collected: int = _threshold(100_000, 5, "subscriptions that are compiled on the driver rather than by a job")
    # papers.structures.pbtree
    pbtree_page: int = _threshold(4096, 128, "bytes of a page: a larger list or tree has several")
    pbtree_most_ranges: int = _threshold(16, 1, "ranges of a predicate that are filed; one of more is verified")
    pbtree_entries_outside: int = _threshold(64, 1, "entries outside the limits that are never worth building again")
    pbtree_rows_a_row_seen: int = _threshold(
        16, 1_000_000, "when more than one in so many rows was met, all counters are set back, not only theirs"
    )


def smallest() -> dict[str, Any]:
    """Every threshold at its smallest."""
    return {f.name: f.metadata["smallest"] for f in fields(Thresholds)}


def at_random(seed: int | str) -> dict[str, Any]:
    """Each threshold somewhere between its smallest and its default value, small ones as likely as large ones."""
    draw = random.Random(f"dibs {seed}")
    return {f.name: _between(f.metadata["smallest"], f.default, draw) for f in fields(Thresholds)}


def _between(low: Any, high: Any, draw: random.Random) -> Any:
    if low > high:
        low, high = high, low
    value = math.exp(draw.uniform(math.log(max(low, 1e-6)), math.log(max(high, 1e-6))))
    return type(high)(min(max(round(value) if isinstance(high, int) else value, low), high))


@contextmanager
def using(values: Mapping[str, Any]) -> Iterator[None]:
    """These thresholds inside the block. For tests: all threads of the process see them."""
    before = {name: getattr(thresholds, name) for name in values}
    vars(thresholds).update(values)
    try:
        yield
    finally:
        vars(thresholds).update(before)


def _of_environment(words: str) -> dict[str, Any]:
    kind, _, seed = words.partition(":")
    if kind == "smallest" and not seed:
        return smallest()
    if kind == "random" and seed:
        return at_random(seed)
    raise ValueError(f"{VARIABLE} must be smallest, or random: and a seed, not {words!r}")


thresholds = Thresholds()
if os.environ.get(VARIABLE):
    vars(thresholds).update(_of_environment(os.environ[VARIABLE]))


def table() -> str:
    """All of them, as ARCHITECTURE.md shows them."""
    rows = ["| threshold | default | smallest | what it is |", "| --- | ---: | ---: | --- |"]
    for f in fields(Thresholds):
        rows.append(f"| `{f.name}` | {f.default:,} | {f.metadata['smallest']:,} | {f.metadata['about']} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
