"""Why does an expression match little, or nothing? Which of its attributes no event has, which of its comparisons are
with another kind of values than events have, and how many events each of its conditions leaves.

One function for all who ask: `dibs.backtest` and `dibs backtest` of stored events, the service and its console of the
recent ones. What else makes an expression fail belongs here.

A conjunction is TRUE exactly where all of its conditions are, and a disjunction where one is: so the conditions are
tried each on its own, in one pass, and their sets of events are intersected (or united) one after the other. Joins over
history see each stored event after those before it.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from dibs.coding.events import WantedNames, read_events
from dibs.coding.values import EventValues
from dibs.errors import DibsError
from dibs.explain_words import KIND_NAMES, TEXT_WIDTH, escape, short_sql, shorten
from dibs.history.derive import IngestBatch, Joins
from dibs.history.history import History
from dibs.history.plan import Candidates, Costs
from dibs.history.prefilter import PreFilter
from dibs.history.retention import Retention, check_retain
from dibs.language.expression import (
    And,
    Between,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Kind,
    Not,
    Or,
    Predicate,
    StringTest,
    Truth,
    tests_of_truth,
)
from dibs.language.expression import Like as LikePredicate
from dibs.language.expression import RLike as RLikePredicate
from dibs.language.present import Instants, Present, read_clock
from dibs.language.printer import is_derived, to_sql
from dibs.language.sql import parse
from dibs.language.types import NO_TYPES, Types
from dibs.past.columns import Expressions
from dibs.past.shown import share
from dibs.past.sources import Plain, StoredBatch, StoredEvents, Wanted
from dibs.reference import values_of


class Before:
    """A history of its own: empty, or with some documents, and then the events one after the other."""

    def __init__(
        self,
        joins: tuple[str, ...],
        documents: Any = None,
        retain: Retention = None,
        now: Present | Instants = None,
        types: Types = NO_TYPES,
    ):
        """now: the time of the match, one for all events unless it is the name of an attribute."""
        self._joins = Joins(joins, Costs(), PreFilter()) if joins else None
        self._now = read_clock() if now is None else now
        self._history, self._types = History(check_retain(retain), types), types
        if documents is not None:
            self._history.load(documents)

    def read(self, events: Any, names: WantedNames, attributes: str | None) -> EventValues:
        """The values of the next events, with those of the joins; what cannot be read is in .problems."""
        joins = self._joins
        if joins is None:
            return read_events(events, names, attributes, on_error="skip", now=self._now, types=self._types)
        turn = IngestBatch(self._history, events, attributes)

        def read() -> EventValues:
            values = read_events(turn.rows, names, attributes, on_error="skip", now=self._now, types=self._types)
            turn.begin(values)
            derived = joins.derive(values, self._all_joins, (), self._history.state, turn)
            turn.remember()
            return derived

        return self._history.change(read)

    def _all_joins(self, values: EventValues, *_: Any) -> Candidates:
        """All of them are needed for all events: no index tells which are not."""
        assert self._joins is not None
        names = self._joins.names
        event = np.repeat(np.arange(values.events), len(names))
        yield names, event, np.tile(np.arange(len(names)), values.events)


LITTLE = 0.01  # of the events: what matches fewer is looked into
MOST = 100_000  # events that are looked into: the first
SAMPLE = 2_000  # of them, spread evenly, from which all names of attributes are learnt
CONDITIONS = 20  # that are told of
SIMILAR = 0.7  # of two names, from 0 to 1
ROWS = 1 << 16  # events at a time


@dataclass(frozen=True)
class Unseen:
    """An attribute that no event has; which one may have been meant, and the share of events that have that."""

    attribute: str
    suggestion: str | None = None
    share: float = 0.0

    def __str__(self) -> str:
        said = f"`{self.attribute}`: never seen"
        if self.suggestion is None:
            return said
        return f"{said}; did you mean `{self.suggestion}`, in {share(self.share)} of events?"


@dataclass(frozen=True)
class AcrossKinds:
    """A comparison with another kind of values than the attribute has: it is unknown for every event."""

    condition: str
    attribute: str
    asked: str  # "a string"
    found: str  # the kind that most events have
    share: float  # of events

    def __str__(self) -> str:
        return (
            f"`{self.condition}` asks for {self.asked}, but `{self.attribute}` is {self.found} in {share(self.share)} "
            "of events: what is of another kind is never equal, greater or less"
        )


@dataclass(frozen=True)
class Step:
    """A condition, the events that satisfy it, and those that it leaves after all conditions before it."""

    condition: str
    alone: int
    left: int


@dataclass(frozen=True)
class Diagnosis:
    events: int
    joined: Literal["AND", "OR"]  # of the steps
    unseen: tuple[Unseen, ...]
    across: tuple[AcrossKinds, ...]
    steps: tuple[Step, ...]
    more: int = 0  # conditions that are not told of

    @property
    def lines(self) -> list[str]:
        """For people."""
        found = [*map(str, self.unseen), *map(str, self.across)]
        if len(self.steps) < 2:
            return found
        if self.joined == "AND":
            numbers = [self.events, *(step.left for step in self.steps)]
            found.append(" → ".join(f"{number:,}" for number in numbers) + " events are left by its conditions:")
        else:
            found.append(f"each of its alternatives, of {self.events:,} events:")
        for number, step in enumerate(self.steps, 1):
            rate = share(_rate(step.alone, self.events))
            found.append(f"  {number}. {step.condition}  ({step.alone:,} by itself, {rate})")
        if self.more:
            found.append(f"  and {self.more:,} conditions more")
        return found

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "lines": self.lines}


class KeptBatches(Plain):
    """The first events of what passes by and cannot be read again."""

    def __init__(self) -> None:
        self._kept: list[StoredBatch] = []
        self._left = MOST

    def keep(self, batch: StoredBatch) -> None:
        if self._left > 0:
            self._kept.append(batch.between(0, min(self._left, len(batch))))
            self._left -= len(batch)

    def batches(self, wanted: Wanted, size: int) -> Iterator[StoredBatch]:
        for batch in self._kept:
            yield from batch.split(size)


def matches_little(count: int, events: int) -> bool:
    return events > 0 and count < LITTLE * events


def diagnose(
    expression: str,
    events: StoredEvents,
    attributes: str | None = None,
    history: Any = None,
    retain: Retention = None,
    now: Present = None,
    types: Types = NO_TYPES,
) -> Diagnosis:
    """events: that can be read again; the first MOST of them are looked into. attributes: the column that holds the
    attributes. history, retain: what joins see before the first event. now: the time of the match.
    Raises ExpressionError."""
    tree = parse(expression, types)
    joined, conditions = _split(tree)
    shown = conditions[:CONDITIONS]
    looking = _Looking(shown, attributes, history, retain, now, types)
    for batch in _first(events.batches(looking.wanted, ROWS), MOST):
        looking.look(batch)
    asked = [p for p in _needed(tree) if not is_derived(p.attribute)]
    return Diagnosis(
        looking.events,
        joined,
        _suggest(looking.unseen(asked), events, looking.events, attributes),
        looking.across(asked),
        looking.steps(joined),
        len(conditions) - len(shown),
    )


def _split(tree: Expression) -> tuple[Literal["AND", "OR"], list[Expression]]:
    """The conditions that an expression is made of, as they were written."""
    if isinstance(tree, Or):
        return "OR", list(tree.children)
    if isinstance(tree, And):
        nested = [part for child in tree.children for part in (child.children if isinstance(child, And) else [child])]
        return "AND", nested
    return "AND", [tree]


def _needed(tree: Expression) -> Iterator[Predicate]:
    """The predicates, as they were written, that help by being TRUE or FALSE, not by being UNKNOWN: those below
    IS NOT TRUE never make an expression match little by what events lack."""
    stack: list[tuple[Expression, bool]] = [(tree, False)]
    while stack:
        node, negated = stack.pop()
        if isinstance(node, (And, Or)):
            stack.extend((child, negated) for child in reversed(node.children))
        elif isinstance(node, Not):
            stack.append((node.child, not negated))
        elif isinstance(node, Truth):
            test = tests_of_truth(node._replace(negated=node.negated != negated))
            if not isinstance(test, Truth):  # both of its tests are about the same predicates
                test = test.children[0]  # type: ignore[assignment]
            assert isinstance(test, Truth)
            if not test.negated:
                stack.append((test.child, test.value is False))
        elif not isinstance(node, Constant):
            yield node


def _first(batches: Iterable[StoredBatch], count: int) -> Iterator[StoredBatch]:
    left = count
    for batch in batches:
        yield batch.between(0, min(left, len(batch)))
        left -= len(batch)
        if left <= 0:
            return


class _Looking:
    """One pass over the events."""

    def __init__(
        self,
        conditions: list[Expression],
        attributes: str | None,
        history: Any,
        retain: Retention,
        now: Present,
        types: Types,
    ):
        self.conditions, self.attributes = conditions, attributes
        texts = [to_sql(condition) for condition in conditions]
        self.compiled = Expressions(texts, range(1, len(conditions) + 1), types)
        self.names = WantedNames([*self.compiled.names, *([now] if isinstance(now, str) else [])])
        self.wanted = Wanted(self.names, attributes)
        self.before = Before(self.compiled.joins, history, retain, now, types)
        self.events = 0
        self.satisfied: list[list[NDArray[np.bool_]]] = [[] for _ in conditions]
        self.kinds: dict[str, Counter[Kind]] = {}  # of the attributes that are asked for: events by kind

    def look(self, batch: StoredBatch) -> None:
        values = self.before.read(batch.data, self.names, self.attributes)
        for masks, found in zip(self.satisfied, self.compiled.find(values)):
            mask = np.zeros(values.events, np.bool_)
            mask[found] = True
            masks.append(mask)
        self._count_kinds(values)
        self.events += values.events

    def _count_kinds(self, values: EventValues) -> None:
        groups = ((Kind.NUMBER, values.numbers), (Kind.STRING, values.strings))
        for kind, found in (*groups, (Kind.TIME, values.times), (Kind.BOOLEAN, values.booleans)):
            pairs = np.unique(found.name.astype(np.int64) * max(values.events, 1) + found.event)
            for name, count in zip(*np.unique(pairs // max(values.events, 1), return_counts=True)):
                self.kinds.setdefault(values.names[int(name)], Counter())[kind] += int(count)

    # ---- what was seen ----

    def steps(self, joined: str) -> tuple[Step, ...]:
        result = []
        together: NDArray[np.bool_] | None = None
        for condition, masks in zip(self.conditions, self.satisfied):
            mask = np.concatenate(masks) if masks else np.zeros(0, np.bool_)
            if together is None:
                together = mask
            else:
                together = together & mask if joined == "AND" else together | mask
            result.append(Step(_short(condition), int(mask.sum()), int(together.sum())))
        return tuple(result)

    def unseen(self, asked: Sequence[Predicate]) -> list[str]:
        """IS NULL asks for what is not there."""
        wanted = [p.attribute for p in asked if not isinstance(p, IsNull) or p.negated]
        return [name for name in dict.fromkeys(wanted) if name not in self.kinds] if self.events else []

    def across(self, asked: Sequence[Predicate]) -> tuple[AcrossKinds, ...]:
        result = {}
        for predicate in asked:
            found, kinds = self.kinds.get(predicate.attribute), _kinds_of(predicate)
            if not found or not kinds or any(found[kind] for kind in kinds):
                continue
            if Kind.TIME in kinds and found[Kind.STRING]:
                continue  # a test with a time reads strings as times
            [(most, count)] = found.most_common(1)
            text = short_sql(predicate)
            named = " or ".join(KIND_NAMES[kind] for kind in sorted(kinds))
            rate = _rate(count, self.events)
            result[text] = AcrossKinds(text, predicate.attribute, named, KIND_NAMES[most], rate)
        return tuple(result.values())


def _kinds_of(predicate: Predicate) -> set[Kind]:
    """Of the constants that an attribute is compared with."""
    if isinstance(predicate, Compare):
        return {predicate.literal.kind}
    if isinstance(predicate, In):
        return {literal.kind for literal in predicate.literals}
    if isinstance(predicate, Between):
        return {predicate.low.kind, predicate.high.kind}
    return {Kind.STRING} if isinstance(predicate, (StringTest, LikePredicate, RLikePredicate)) else set()


def _suggest(unseen: list[str], events: StoredEvents, count: int, attributes: str | None) -> tuple[Unseen, ...]:
    """With what was probably meant: all names of attributes are learnt from a sample, if some name is missing.
    count: of the events that are looked into."""
    if not unseen:
        return ()
    known: Counter[str] = Counter()
    sampled = 0
    step = -(-count // SAMPLE)
    for batch in _first(events.batches(Wanted(None, attributes), ROWS), count):
        for row in _rows(batch, attributes, step):
            sampled += 1
            known.update(_names(row))
    found = ((name, _nearest(name, known)) for name in unseen if name not in known)
    return tuple(Unseen(name, near, _rate(known[near], sampled)) if near else Unseen(name) for name, near in found)


def _rows(batch: StoredBatch, attributes: str | None, step: int) -> Iterator[Mapping[str, Any]]:
    """The attributes of each step-th event, as dicts; none of what cannot be read."""
    chosen = range(0, len(batch), step)
    if isinstance(batch.data, (pa.Table, pa.RecordBatch)):
        tables = (batch.data.slice(event, 1) for event in chosen)  # Arrow takes rows of some types only
        some = (table.select([attributes]) if attributes is not None else table for table in tables)
        rows = [row if attributes is None else row[attributes] for table in some for row in table.to_pylist()]
    else:
        rows = [batch.data[event] for event in chosen]
        if attributes is not None:
            rows = [row.get(attributes) if isinstance(row, Mapping) else None for row in rows]
    for row in rows:
        found = row
        try:
            if isinstance(row, (str, bytes)):
                found = orjson.loads(row)
            elif isinstance(row, list):  # a map
                found = dict(row)
        except (TypeError, ValueError):
            continue
        if isinstance(found, Mapping):
            yield found


def _names(row: Mapping[str, Any]) -> Iterable[str]:
    try:
        return [name for name, values in values_of(row).items() if values]
    except DibsError:
        return ()


def _nearest(name: str, known: Counter[str]) -> str | None:
    """The attribute that was probably meant: the same in another case, below another object, or nearly the same."""
    frequent = [other for other, _ in known.most_common()]
    for other in frequent:
        if other.lower() == name.lower():
            return other
    for other in frequent:
        if other.lower().endswith("." + name.lower()) or name.lower().endswith("." + other.lower()):
            return other
    found = difflib.get_close_matches(name.lower(), [other.lower() for other in frequent], 1, SIMILAR)
    return next((other for other in frequent if found and other.lower() == found[0]), None)


def _short(condition: Expression) -> str:
    if isinstance(condition, (And, Or, Not, Truth, Constant)):
        return shorten(escape(to_sql(condition)), TEXT_WIDTH)
    return short_sql(condition)


def _rate(count: int, events: int) -> float:
    return count / events if events else 0.0
