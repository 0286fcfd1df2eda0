"""Every way to the same answer: how a matcher comes to its subscriptions, and how it is asked.

    MAKINGS    name -> a context with a matcher of an index that has exactly the given subscriptions
    ASKINGS    name -> the ids that each event of a batch matches, as that entry tells it

Both are used by the properties of test_agreement.py and by exactness.py, which judge the answers.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

import dibs
from batches import Batch
from dibs.index import find
from dibs.matcher import Matcher
from dibs.matches import id_order
from dibs.tuning import at_random, numbers, smallest, using
from plain_matchers import is_plain, plain_matcher


class Subscription(NamedTuple):
    id: Any
    text: str
    weight: float


Answer = list[list[Any]]  # the ids of each event


def settle(matcher: Matcher) -> None:
    """Until nothing is under way in the background: what was planned, merged or saved there is used from now on."""
    if not is_plain(matcher):
        matcher._layers.upkeep.rest()


@contextmanager
def nothing_fails_unseen() -> Iterator[None]:
    """Fails at its end for every error that Dibs has only logged, and for every thread that has ended by one: what
    fails in the background is made good in another way, which may hide a defect."""
    unseen: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            unseen.append(self.format(record))

    def thread_failed(failed: threading.ExceptHookArgs) -> None:
        lines = traceback.format_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
        unseen.append(f"thread {failed.thread}: {''.join(lines)}")

    listener, hook = Listener(logging.ERROR), threading.excepthook
    logging.getLogger("dibs").addHandler(listener)
    threading.excepthook = thread_failed
    try:
        yield
    finally:
        threading.excepthook = hook
        logging.getLogger("dibs").removeHandler(listener)
    assert not unseen, "\n".join(unseen)


def pieces(random: Random, items: list[Any]) -> Iterator[list[Any]]:
    """The items in order, some at a time."""
    begin = 0
    while begin < len(items):
        size = random.choice([1, 1, 2, 5, 20, 60])
        yield items[begin : begin + size]
        begin += size


# --- how a matcher comes to its subscriptions ----------------------------------------------------------------------


class Making(NamedTuple):
    """What a matcher is made of."""

    index: str
    subscriptions: list[Subscription]
    folder: Path  # that does not exist yet
    random: Random
    some_event: dict[str, Any]  # to match in between

    def other_thresholds(self) -> AbstractContextManager[None]:
        """For a process that reads what another one has written: how files are laid out is what the writer has decided,
        and files say it."""
        usual = {name: number.default for name, number in numbers.items()}
        return using(self.random.choice([usual, smallest(), at_random(self.random.randint(0, 999))]))

    def fill(self, matcher: Matcher) -> None:
        matcher.add_many(self.subscriptions)

    def change_one_by_one(self, matcher: Any) -> None:
        """The same in the end, by calls that a matcher without kernels takes."""
        for number, (id, text, weight) in enumerate(self.subscriptions):
            matcher.add_many([(id, "price < 1", weight), (f"extra {number}", text)])
            matcher.replace(id, text)
            if self.random.random() < 0.1:
                matcher.match_batch([self.some_event], on_error="skip")
        matcher.remove_many([f"extra {number}" for number in range(len(self.subscriptions))])

    def churn(self, matcher: Matcher) -> None:
        """The same in the end, by adds of all sizes, replaces and removes, with matches in between."""
        random, some_event = self.random, self.some_event
        extra = [Subscription(f"extra {i}", s.text, 1.0) for i, s in enumerate(self.subscriptions[:40])]
        late = set(random.sample(range(len(self.subscriptions)), len(self.subscriptions) // 3))
        first = [
            s._replace(text=random.choice(self.subscriptions).text) if i in late else s
            for i, s in enumerate(self.subscriptions)
        ]
        for some in pieces(random, [*first, *extra]):
            if len(some) == 1 and random.random() < 0.7:
                matcher.add(*some[0])
            else:
                matcher.add_many(some)
            if random.random() < 0.3:
                matcher.match_batch([some_event], on_error="skip")
        for some in pieces(random, [*sorted(late), *(s.id for s in extra)]):
            with matcher.batch():
                for what in some:
                    if isinstance(what, str):
                        matcher.remove(what)
                    else:
                        matcher.replace(*self.subscriptions[what])
            if random.random() < 0.3:
                matcher.match_batch([some_event], on_error="skip")


@contextmanager
def added(making: Making) -> Iterator[Matcher]:
    least = getattr(find(making.index), "least_memory", None)  # of an index that lies in files
    memory = making.random.choice([None, least])
    with Matcher(index=making.index, threads=making.random.choice([1, 2]), memory=memory) as matcher:
        making.fill(matcher)
        yield matcher


@contextmanager
def from_table(making: Making) -> Iterator[Matcher]:
    ids, texts, weights = zip(*making.subscriptions)
    with Matcher(index=making.index) as matcher:
        matcher.add_table(pa.table({"id": ids, "expression": texts, "weight": weights}))
        yield matcher


@contextmanager
def repeated(making: Making) -> Iterator[Matcher]:
    """Each expression stands there several times, spelled in two ways, and once in the end."""
    random, echoes = making.random, []
    for number, own in enumerate(making.subscriptions):
        echoes += [own._replace(id=f"echo {number}.{i}", text=own.text + " " * (i % 2)) for i in range(3)]
    with Matcher(index=making.index, threads=random.choice([1, 2])) as matcher:
        matcher.add_many(random.sample([*making.subscriptions, *echoes], 4 * len(making.subscriptions)))
        if random.random() < 0.5:
            matcher.match_batch([making.some_event], on_error="skip")
        matcher.remove_many([echo.id for echo in echoes])
        if random.random() < 0.3:
            matcher.compact()
        yield matcher


@contextmanager
def changed(making: Making) -> Iterator[Matcher]:
    with Matcher(index=making.index, threads=making.random.choice([1, 2])) as matcher:
        making.churn(matcher)
        yield matcher


@contextmanager
def saved(making: Making) -> Iterator[Matcher]:
    with Matcher(index=making.index) as matcher:
        making.churn(matcher)
        matcher.save(making.folder)
    with making.other_thresholds(), Matcher.load(making.folder) as loaded:
        yield loaded


@contextmanager
def reopened(making: Making) -> Iterator[Matcher]:
    with Matcher.open(making.folder, index=making.index) as matcher:
        making.churn(matcher)
    with making.other_thresholds(), Matcher.open(making.folder) as matcher:
        yield matcher


@contextmanager
def followed(making: Making) -> Iterator[Matcher]:
    """Another matcher writes; this one has read before all of it was there."""
    with Matcher.open(making.folder, index=making.index) as writer:
        middle = len(making.subscriptions) // 2
        writer.add_many(making.subscriptions[:middle])
        with Matcher.open(making.folder, read_only=True) as follower:
            follower.match_batch([making.some_event], on_error="skip")
            making._replace(subscriptions=making.subscriptions[middle:]).churn(writer)
            yield follower


@contextmanager
def cold(making: Making) -> Iterator[Any]:
    """In plain Python (dibs.plain), for as long as it is asked for nothing else."""
    with using({"cold_subscriptions": 10_000, "cold_pairs": 2_000_000}), plain_matcher() as matcher:
        making.change_one_by_one(matcher)
        yield matcher


@contextmanager
def moved(making: Making) -> Iterator[Any]:
    """First without kernels, then with them, and changed before and after."""
    with plain_matcher() as matcher:
        middle = len(making.subscriptions) // 2
        making._replace(subscriptions=making.subscriptions[:middle]).change_one_by_one(matcher)
        making._replace(subscriptions=making.subscriptions[middle:]).churn(matcher)
        yield matcher


MAKINGS: dict[str, Callable[[Making], AbstractContextManager[Matcher]]] = {
    "added": added,
    "table": from_table,
    "repeated": repeated,
    "changed": changed,
    "saved": saved,
    "reopened": reopened,
    "followed": followed,
    "cold": cold,
    "moved": moved,
}
WITHOUT_INDEX = ("cold", "moved")  # they are the same whatever the index


# --- how it is asked -----------------------------------------------------------------------------------------------


def one_by_one(matcher: Matcher, batch: Batch) -> Answer:
    if batch.on_error == "raise":
        return [matcher.match(event) for event in batch.events]
    return [found for event in batch.events for found in matcher.match_batch([event], on_error="skip")]


def one_by_one_when_settled(matcher: Matcher, batch: Batch) -> Answer:
    settle(matcher)
    return one_by_one(matcher, batch)


def two_at_a_time(matcher: Matcher, batch: Batch) -> Answer:
    pairs = [batch.events[i : i + 2] for i in range(0, len(batch.events), 2)]
    return [found for pair in pairs for found in matcher.match_batch(pair, on_error=batch.on_error)]


def texts_one_by_one(matcher: Matcher, batch: Batch) -> Answer:
    """match(bytes) and match(str), in turns."""
    lines = batch.forms["json lines"][0].split(b"\n")
    return [matcher.match(line if i % 2 else line.decode()) for i, line in enumerate(lines)]


def in_form(form: str) -> Callable[[Matcher, Batch], Answer]:
    def ask(matcher: Matcher, batch: Batch) -> Answer:
        events, attributes = batch.forms[form]
        return list(matcher.match_batch(events, attributes=attributes, on_error=batch.on_error))

    return ask


def pairs(matcher: Matcher, batch: Batch) -> Answer:
    found: Answer = [[] for _ in batch.events]
    table = matcher.match_batch(batch.events, on_error=batch.on_error).pairs()
    for event, id in zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True):
        found[event].append(id)
    return [sorted(ids, key=id_order) for ids in found]


ASKINGS: dict[str, Callable[[Matcher, Batch], Answer]] = {
    "match": one_by_one,
    "match, settled": one_by_one_when_settled,
    "match_batch of two": two_at_a_time,
    "pairs": pairs,
}


def askings(batch: Batch) -> dict[str, Callable[[Matcher, Batch], Answer]]:
    """All entries that can take the batch."""
    texts = {"match of texts": texts_one_by_one} if "json lines" in batch.forms else {}
    return ASKINGS | texts | {f"match_batch, {form}": in_form(form) for form in batch.forms}


# --- what tells less than the ids ----------------------------------------------------------------------------------


def check_counts(matcher: Matcher, batch: Batch, answer: Answer) -> str:
    """What is wrong with the counts, or nothing."""
    for form, (events, attributes) in batch.forms.items():
        found = matcher.count(events, attributes=attributes, on_error=batch.on_error).tolist()
        if found != [len(ids) for ids in answer]:
            return f"count of {form}: {found}, not {[len(ids) for ids in answer]}"
    return ""


def check_top(matcher: Matcher, batch: Batch, answer: Answer, weights: dict[Any, float], k: int) -> str:
    best = [sorted(ids, key=lambda id: (-weights[id], id_order(id)))[:k] for ids in answer]
    for form, (events, attributes) in batch.forms.items():
        found = matcher.match_batch(events, attributes=attributes, on_error=batch.on_error, top=k).top(k)
        for event, right, wrong in zip(batch.events, best, found, strict=True):
            if right != wrong:
                return f"top={k} of {form}: {wrong}, not {right}, on {event}"
    if batch.on_error == "raise":
        for event, right in list(zip(batch.events, best))[:20]:
            if (wrong := matcher.match(event, top=k)) != right:
                return f"match(top={k}): {wrong}, not {right}, on {event}"
    return ""


def backtested(texts: Iterable[str], batch: Batch, form: str) -> Answer:
    """Without any matcher: the places of the expressions that each event satisfies."""
    events, attributes = batch.forms[form]
    results = dibs.backtest(
        list(texts), events, attributes=attributes, examples=len(batch.events), on_error=batch.on_error
    )
    found: Answer = [[] for _ in batch.events]
    for place, result in results.items():
        assert result.count == len(result.examples)
        for example in result.examples:
            found[example.event].append(place)
    return found


def replayed(matcher: Matcher, batch: Batch, form: str) -> Answer:
    events, attributes = batch.forms[form]
    found: Answer = [[] for _ in batch.events]

    def take(first: int, matches: Any) -> None:
        for event, ids in enumerate(matches, first):
            found[event] = ids

    matcher.replay(events, attributes=attributes, on_error=batch.on_error, on_matches=take)
    return found
