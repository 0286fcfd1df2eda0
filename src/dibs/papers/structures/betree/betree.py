"""betree: the BE-Tree of Sadoghi and Jacobsen 2011, fully dynamic (their BE): a tree that cuts space in two phases.

The idea: a c-node has an l-node with rows (subscriptions). When it overflows, one attribute is chosen and the rows that
have a predicate on it move to a new p-node (space partitioning); the p-node has a directory of buckets, the halves of
halves of the attribute's domain, and each row goes to the smallest bucket that encloses its predicate, where a c-node
of its own awaits it (space clustering). Three rules keep buckets independent of the order of insertion:

    insertion     a row goes into the smallest bucket that encloses its predicate
    forced split  the c-node of a bucket is partitioned again only if the bucket is split or a single cell (atomic)
    merge         an underflowing leaf bucket is merged with its parent only if that is open (not partitioned)

So an attribute is used at most once on a path, and the height is at most (predicates of a row) x log2(cells),
whatever the number of rows. An event visits the p-nodes of attributes that it has and the buckets that its values
meet, and tests the rows of all l-nodes on the way. An event may be an expression itself, with any operator: the
values that satisfy a predicate are values and ranges, and those of an attribute decide together whether a node is
visited, so every node is visited once, and every row is in one l-node.

Ranks: the gain of a p-node is the number of predicates of its rows that the way to them has already evaluated (covered
or subsumed), its loss the average number of evaluations that an event makes there in vain. A row goes to the p-node of
the highest rank among its attributes. At the end of a window (a tenth of its rows in insertions, deletions and
matches) a p-node whose rank is negative is recycled: its rows are taken out and inserted again. L-nodes and c-nodes
have ranks and are recycled, too (betree.ranks). A new p-node goes to the attribute that most rows of the l-node have
(the paper's optimistic rank: no loss is known yet) or, with the option loss="histogram", of which most are left when
the average bucket of a histogram is taken away. Events count losses: the evaluations of rows that do not match, and
those that led to a c-node where and below which nothing does. Matching recycles as well: after so many events all
windows are looked at (`pending`, see index.base.do_pending), on a copy of the tree which then takes its place, as
other threads match on it meanwhile.

Arrays:
    words    int32             all nodes and records, see betree.layout
    place    int32 (rows, 2)   c-node (-1: deleted) and place in its l-node of each row
    about    int32 (attributes, 4)  the ceiling of the attribute's domain, and columns to count in
    span_lo, span_hi  int32    the spans of predicates that have several
    state    int64             betree.layout.WORDS and what follows

Node (of the counter `nodes`): a c-node visited, with its l-node and p-directory.

Useful for: subscriptions that come and go, ranges and equality mixed, many attributes, few matches.
Not useful for: rows whose attributes all events have and whose ranges are wide: everything stays near the root.

Where it differs from the paper:
    - Halvings that would leave all rows on one side are skipped and made later if a row needs them: over a domain of
      2**31 labels a popular constant would else hang below 30 empty buckets. Buckets know the least interval that
      covers their rows (the paper's minimal interval boundary), and their parents know it too, so that a bucket is not
      touched in vain.
    - An l-node of more than 256 rows is partitioned by all its attributes at once, and if it cannot be split it takes
      1/16 more rows before the next attempt (the paper: max_cap more): an l-node of n rows would else cost n**2. The
      tree is about the same; partition="one" does as the paper does.
    - Deletion goes to the row's l-node by a table instead of by a search.
    - One event in 16 counts losses. A window is at least 64 operations long: a p-node of 3 rows would else be judged by
      a third of an event. L-nodes and c-nodes are judged by events only, in the windows of their p-node, and of what is
      in them only rows that would not come back to the same place are taken out (betree.ranks).
    - Queue instead of recursion, with prefetching: less than half the time on a million rows.
    - Published (option `profile`): one attribute at a time whatever the size of an l-node, every event counts losses,
      windows are a tenth of the rows however few these are, ranks are looked at after every batch of events, and of a
      node whose rank is below 0 all rows are inserted again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dibs.coding.batch import CodedEvents
from dibs.coding.clauses import Clauses
from dibs.index.base import MOST_PLACES, Pairs, Rate, Sink, Takes, in_parts, refuse_too_many
from dibs.index.groups import NEXT_EVENT
from dibs.index.options import Option
from dibs.index.statistics import LOOK_EVERY, guess_presence, highest_cells, probabilities
from dibs.jit.pools import Pool, Space
from dibs.jit.undisturbed import bring
from dibs.papers.structures.betree.layout import (
    ADJUST,
    ALIVE,
    C_NODE,
    C_NODES,
    CLASSES,
    DELETE,
    ENTRY_WORDS,
    FIXED,
    HISTOGRAM,
    INSERT,
    LARGE,
    LISTS,
    MANY,
    MAX_CAP,
    MIN_SIZE,
    MOST,
    MOVE,
    NEXT,
    ON_PATH,
    P_NODES,
    RANKED,
    RECORD_WORDS,
    RECYCLED,
    ROOT,
    ROWS_A_CHANGE,
    SAMPLE,
    STATE,
    WANTED,
    WINDOW,
    WORDS,
    TreeArrays,
    offset_of,
)
from dibs.papers.structures.growing import grow_array
from dibs.papers.structures.profiles import OURS, PROFILE, PUBLISHED, is_published, save_profile
from dibs.tuning import tuned

if TYPE_CHECKING:
    from typing_extensions import Self

BETREE_WORDS = tuned("betree_words", 2_048, 300, "words", "for the root, the stack and a scratch block: at least 300")
BETREE_EXPECTED = tuned("betree_expected", 1.5, 0.0, "words", "for each word of records, allocated beforehand")
BETREE_CAPACITY = tuned("betree_capacity", 1.0, 0.01, "share", "of the paper's max_cap that an l-node holds")
BETREE_EVENTS = tuned("betree_events", 256, 1, "events", "to know the matching probability from")
# 100,000 rows over 20,000 attributes: built in 0.15 s instead of 2.4
BETREE_MANY = tuned("betree_many", 256, 1, "rows", "of an l-node; a larger one is cut by all attributes at once")
# with windows of 64 operations: candidates and nodes to the last digit those of every event
BETREE_SAMPLE = tuned("betree_sample", 16, 1, "events", "of which one is watched for its losses")
BETREE_WINDOW = tuned("betree_window", 64, 1, "operations", "below a p-node before its rank is looked at, at least")
BETREE_CUT = tuned("betree_cut", 10, 4, "size class", "of 256 words, from which on free blocks are cut up")

NO_ROWS = np.zeros(0, np.int64)
NOTHING = np.zeros(0, np.int32)
NO_CLAUSES = Clauses(np.zeros(1, np.int64), NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, 0, 0)


def guide_capacity(probability: float) -> int:
    """max_cap by the probability that an event matches a row (table 4 of the paper)."""
    most = 5 if probability < 0.01 else 20 if probability < 0.1 else 160
    return max(int(BETREE_CAPACITY.value * most), 1)


class BETree:
    name: ClassVar[str] = "betree"
    about: ClassVar[str] = (
        "BE-Tree, grown row by row (Sadoghi and Jacobsen 2011): a tree over attributes and halves of their domains, "
        "for many attributes, ranges and frequent updates"
    )
    takes: ClassVar[Takes] = Takes(several=True, updates=True)
    options: ClassVar[tuple[Option, ...]] = (
        Option("max_cap", "rows of an l-node", None, 1, none="5, 20 or 160 by the matching probability"),
        Option("min_size", "rows that an attribute must have to be partitioned by", 3),
        Option("loss", "of an attribute that has no p-node yet", "none", words=("none", "histogram")),
        Option("window", "of a rank: rows below a p-node for each operation", 10),
        Option("partition", "an l-node of many rows by all attributes or by one", "all", words=("all", "one")),
        PROFILE,
    )

    # Kernels are imported where they are called: that compiles them, and `dibs.indexes()` imports this file.

    def __init__(self, max_cap: int | None, min_size: int, loss: str, window: int, partition: str, published: bool):
        """max_cap: None to follow the matching probability."""
        prepare = bring("dibs.papers.structures.betree.update").prepare

        words, state = np.zeros(BETREE_WORDS.value, np.int32), np.zeros(STATE, np.int64)
        self._tree = TreeArrays(words, state, np.zeros((0, 2), np.int32), np.zeros((0, 4), np.int32))
        self._span_lo, self._span_hi = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._state[LISTS : LISTS + CLASSES] = -1
        self._state[MAX_CAP], self._state[MIN_SIZE] = max_cap or guide_capacity(0), min_size
        self._published = published
        self._state[MANY] = BETREE_MANY.value if partition == "all" and not published else MOST
        self._state[SAMPLE] = 1 if published else BETREE_SAMPLE.value
        self._state[WINDOW] = 1 if published else BETREE_WINDOW.value
        self._state[LARGE] = BETREE_CUT.value
        self._state[FIXED], self._state[HISTOGRAM] = max_cap is not None, loss == "histogram"
        self._state[ROWS_A_CHANGE] = window
        prepare(self._arrays(), 0)
        self._rows = 0  # that there ever were
        self._spans = 0
        self._begin()

    def _begin(self) -> None:
        """What is not saved."""
        self._rate = Rate()
        self._pool = Pool()
        self._watching = [True]  # taken by the match that counts losses: one at a time
        self._until_adjusting = self._look_every  # events
        self.pending: Callable[[], None] | None = None  # see index.base.do_pending
        self._events, self._chances, self._matches = 0, 0.0, 0.0  # since the last update

    @property
    def _look_every(self) -> int:
        """Events after which ranks are looked at."""
        return 1 if self._published else LOOK_EVERY.value

    @classmethod
    def build(
        cls,
        clauses: Clauses,
        max_cap: int | None = None,
        min_size: int = 3,
        loss: str = "none",
        window: int = 10,
        partition: str = "all",
        profile: str = OURS,
    ) -> Self:
        index = cls(max_cap, min_size, loss, window, partition, profile == PUBLISHED)
        if max_cap is None and len(clauses):
            share = probabilities(clauses, guess_presence(clauses), highest_cells(clauses))
            expected = float(np.multiply.reduceat(share, clauses.offsets[:-1]).mean())
            index._state[MAX_CAP] = guide_capacity(expected)
        index._add(clauses, index._first)
        return index

    @classmethod
    def restore(cls, clauses: Clauses, arrays: dict[str, NDArray[Any]]) -> Self:
        index = cls.__new__(cls)
        index._published = is_published(arrays)
        index._tree = TreeArrays(*(arrays[name] for name in TreeArrays._fields))
        index._span_lo, index._span_hi = arrays["span_lo"], arrays["span_hi"]
        if not index._state[ROWS_A_CHANGE]:  # of an earlier version
            index._tree = index._tree._replace(state=index._state.copy())
            index._state[ROWS_A_CHANGE] = 10
        index._rows, index._spans = len(index._tree.place), len(index._span_lo)
        index._begin()
        return index

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "words": self._words[: self._state[WORDS]].copy(),  # matching counts losses in the nodes
            "place": self._tree.place[: self._rows],
            "about": self._tree.about,
            "span_lo": self._span_lo[: self._spans],
            "span_hi": self._span_hi[: self._spans],
            "state": self._state.copy(),
            **save_profile(self._published),
        }

    @property
    def nbytes(self) -> int:
        """With the spare room of the arrays that grow."""
        return sum(a.nbytes for a in (*self._tree, self._span_lo, self._span_hi))

    def plan(self) -> dict[str, Any]:
        shapes = bring("dibs.papers.structures.betree.shape")
        s = self._state
        shape = shapes.TreeShape(*shapes.survey(self._arrays(), np.empty(s[C_NODES], ON_PATH)))
        return {
            "c-nodes": int(s[C_NODES]),
            "p-nodes": int(s[P_NODES]),
            "partitioned c-nodes": shape.partitioned,
            "height": shape.height,
            "attributes on a path": shape.attributes,
            "largest l-node": shape.largest,
            "rows at the root": int(self._words[ROOT + offset_of(C_NODE, "rows")]),
            "max_cap": int(s[MAX_CAP]),
            "rows recycled": int(s[RECYCLED]),
            "share of words free": shape.free / max(int(s[WORDS]), 1),
            "grounds": f"{int(s[ALIVE]):,} rows in l-nodes of about {int(s[MAX_CAP])}; an event visits those whose "
            "attributes it has and whose buckets its values meet",
        }

    @property
    def _words(self) -> NDArray[np.int32]:
        return self._tree.words

    @property
    def _state(self) -> NDArray[np.int64]:
        return self._tree.state

    # ---- updates ----

    def insert(self, clauses: Clauses) -> None:
        self._follow_matches()
        self._add(clauses, self._grow_by)

    def delete(self, rows: NDArray[np.int64]) -> None:
        self._follow_matches()
        self._update(DELETE, rows.astype(np.int64), NO_ROWS, NO_CLAUSES)

    def _add(self, clauses: Clauses, add: Callable[[Clauses], None]) -> None:
        """Makes the arrays ready for more rows and adds them."""
        prepare = bring("dibs.papers.structures.betree.update").prepare

        c = clauses
        about = self._tree.about
        if c.attributes > len(about):
            more = np.zeros((c.attributes - len(about), 4), np.int32)
            about = np.concatenate([about, more])
            self._tree = self._tree._replace(about=about)
            self._pool.forget()
        if not len(c):
            return
        ceiling = about[: c.attributes, 0]
        ceiling[:] = np.where(ceiling == 0, highest_cells(c), ceiling)
        spans = self._spans + len(c.span_lo)
        self._span_lo, self._span_hi = grow_array(self._span_lo, spans), grow_array(self._span_hi, spans)
        self._span_lo[self._spans : spans], self._span_hi[self._spans : spans] = c.span_lo, c.span_hi
        self._tree = self._tree._replace(place=grow_array(self._tree.place, self._rows + len(c)))
        longest = RECORD_WORDS + 2 * ENTRY_WORDS * int(np.diff(c.offsets).max())
        used = int(self._state[WORDS])
        self._reserve(used + 2 * longest + BETREE_WORDS.value)
        records = RECORD_WORDS * len(c) + ENTRY_WORDS * len(c.attribute)
        self._reserve(used + int(BETREE_EXPECTED.value * records))
        prepare(self._arrays(), longest)
        add(c)
        self._rows += len(c)
        self._spans = spans

    def _first(self, clauses: Clauses) -> None:
        """The first rows of a new tree."""
        self._grow_by(clauses)

    def _grow_by(self, clauses: Clauses) -> None:
        self._update(INSERT, NO_ROWS, NO_ROWS, clauses)

    def _update(self, mode: int, rows: NDArray[np.int64], chosen: NDArray[np.int64], clauses: Clauses) -> None:
        update = bring("dibs.papers.structures.betree.update").update

        c = clauses
        change = mode, rows, chosen
        new = c.offsets, c.attribute, c.lo, c.hi, self._span_lo, self._span_hi, self._rows, self._spans
        self._state[NEXT] = 0
        while not update(self._arrays(), change, new):
            self._reserve(int(self._state[WANTED]))

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        """What betree.layout.TreeArrays names, as kernels take it."""
        return tuple(self._tree)

    def _reserve(self, words: int) -> None:
        self._tree = self._tree._replace(words=self._larger(self._words, words))

    def _larger(self, words: NDArray[np.int32], size: int) -> NDArray[np.int32]:
        """Words with room for so many; never for more than links can lead to (about 60 million subscriptions)."""
        refuse_too_many(self.name, size, "words")
        return grow_array(words, size)[:MOST_PLACES]

    def _adjust(self) -> None:
        """What the events since the last time say of all nodes: those whose rank is below 0 are recycled."""
        ranks = bring("dibs.papers.structures.betree.ranks")
        prepare = bring("dibs.papers.structures.betree.update").prepare
        words, state, place, about = self._tree
        failing = np.empty(int(state[P_NODES]), np.int64)
        count = ranks.find_failing(self._arrays(), np.empty(int(state[C_NODES]), np.int32), failing)
        misplaced = np.empty(int(state[ALIVE]), np.int64)
        nodes = np.empty(int(state[C_NODES]), RANKED)
        rows, longest = ranks.find_misplaced(self._arrays(), nodes, misplaced, self._published)
        if not count and not rows:
            return
        room = self._larger(words.copy(), int(state[WORDS]) + 2 * longest + BETREE_WORDS.value)
        tree = TreeArrays(room, state.copy(), place.copy(), about.copy())
        prepare(tuple(tree), longest)
        tree = self._change(tree, (ADJUST, failing[:count], NO_ROWS))
        self._tree = self._change(tree, (MOVE, misplaced[:rows], NO_ROWS))

    def _change(self, tree: TreeArrays, change: tuple[int, NDArray[np.int64], NDArray[np.int64]]) -> TreeArrays:
        """Without new rows; the tree, which may have moved to larger arrays."""
        update = bring("dibs.papers.structures.betree.update").update

        c = NO_CLAUSES
        new = c.offsets, c.attribute, c.lo, c.hi, self._span_lo, self._span_hi, 0, 0
        tree.state[NEXT] = 0
        while not update(tuple(tree), change, new):
            tree = tree._replace(words=self._larger(tree.words, int(tree.state[WANTED])))
        return tree

    def _follow_matches(self) -> None:
        """max_cap for the l-nodes to come, by the share of rows that events matched since the last update."""
        if not self._state[FIXED] and self._events >= BETREE_EVENTS.value:
            self._state[MAX_CAP] = guide_capacity(self._matches / max(self._chances, 1.0))
            self._events, self._chances, self._matches = 0, 0.0, 0.0

    # ---- matching ----

    def match(self, events: CodedEvents, threads: int, sink: Sink | None = None) -> Pairs:
        match = bring("dibs.papers.structures.betree.match").match
        try:
            watching = self._watching.pop()
        except IndexError:
            watching = False
        seen = self._events
        first_run: list[int] = []  # where the run of events that starts at 0 ends: only this one counts losses
        now = self._tree  # it may be adjusted meanwhile
        tree = now.words, self._span_lo, self._span_hi
        given = events.offsets, events.attribute, events.lo, events.hi

        def work(last: int, room: tuple[Any, Any], progress: NDArray[np.int64]) -> None:
            if progress[NEXT_EVENT] == 0:
                first_run.append(last)
            taken = self._pool.take(_slots, len(now.about))
            space = np.empty(2 * now.state[C_NODES], np.int32), *taken.space
            watch = seen, int(now.state[SAMPLE]) if watching and last in first_run else 0
            match(tree, given, last, watch, space, room, progress)
            self._pool.give(taken)

        try:
            found = in_parts(work, len(events), threads, rate=self._rate, sink=sink)
        finally:
            if watching:
                self._watching.append(True)
        self._events += len(events)
        self._chances += float(self._state[ALIVE]) * len(events)
        self._matches += found.count
        self._until_adjusting -= len(events)
        if self._until_adjusting <= 0 and self.pending is None:
            self._until_adjusting = self._look_every
            self.pending = self._adjust
        return found


def _slots(attributes: int) -> Space:
    """Those of betree.layout.MatchSpace."""
    return np.zeros(attributes, np.int32), np.zeros(attributes, np.int32), np.zeros((attributes, 2), np.int64)
