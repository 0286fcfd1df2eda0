"""A writer that is killed again and again, run by test_crash.py in a process of its own:

    python tests/storage/crash_writer.py FOLDER ROUNDS SEED moments|operations INDEX...

This process has everything imported and compiled, and never has a matcher open when it forks. Each round it forks a
child, which opens the folder, checks that it holds what it must, and changes it, subscriptions and history, until it is
killed. The child writes each change to a journal before it makes it, and again when the call has returned; so this
process knows what was acknowledged, and which one change may be there or not. The child is killed at a random moment,
or just before or after a random operation on files. A document with a key that was being added then is added again,
which must not repeat it. All that is wrong is told on the standard output, as JSON.

Also the forking that other tests of durability share (in_child).
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import random
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import dibs
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.storage.sqlite import Session
from dibs.tuning import put

Id = Any
LIVES = 10  # of a folder
Changes = list[tuple[Id, "str | None", float]]  # of one call: all of them or none; text None: removed
RETAIN = 30  # documents

EVENTS: list[dict[str, Any]] = [
    {"a": 1, "b": 2, "c": "xy"},
    {"a": 5},
    {"b": -1, "c": "yz", "d": True},
    {"a": [1, 7], "c": "x"},
    {"b": 9, "d": False},
    {},
]


# ---- forking ----


class ChildDied(AssertionError):
    """A child ended by a signal, which nothing in Dibs may bring about."""


def in_child(work: Callable[[], Any], seconds: int = 60) -> Any:
    """What `work` returns in a forked process. What it raises there is raised here as an AssertionError."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            answer = (True, work())
        except BaseException:
            answer = (False, traceback.format_exc())
        with os.fdopen(write, "wb") as out:
            pickle.dump(answer, out)
        os._exit(0)
    os.close(write)
    content, end = b"", time.monotonic() + seconds
    with os.fdopen(read, "rb", buffering=0) as received:
        while select.select([received], [], [], max(0.0, end - time.monotonic()))[0]:
            more = received.read(1 << 16)
            if not more:
                break
            content += more
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if time.monotonic() >= end:
        raise ChildDied(f"the child did not end within {seconds} seconds")
    if os.WIFSIGNALED(status) or not content:
        raise ChildDied(f"the child ended by signal {os.WTERMSIG(status)}")
    good, value = pickle.loads(content)
    assert good, f"in the child:\n{value}"
    return value


SMALL = {
    "merged_at_once": 12,
    "size_ratio": 2,
    "small_segments": 2,
    "scanned_rows": 3,
    "changes_for_a_segment": 6,
    "added_one_by_one": 2,
    "unsaved_changes": 15,
    "unsaved_on_closing": 5,
    "catalog_index_rebuilt": 10,
    "catalog_rows_read": 7,
}  # thresholds: merges and checkpoints all the time, with few subscriptions


# ---- what must be there ----


class Known(NamedTuple):
    text: str
    weight: float
    version: int


class Documents(NamedTuple):
    """A change of the history, of one call."""

    added: list[tuple[dict[str, Any], Any]]  # with their keys
    keep: int = RETAIN


class Model:
    def __init__(self) -> None:
        self.version = 0
        self.there: dict[Id, Known] = {}
        self.documents: list[tuple[dict[str, Any], Any]] = []  # with their keys

    def after(self, change: Documents) -> list[tuple[dict[str, Any], Any]]:
        """The documents after a change."""
        found = list(self.documents)
        for document, key in change.added:
            if key is None or all(key != other for _, other in found):
                found.append((document, key))
        return found[max(len(found) - change.keep, 0) :]

    @property
    def past(self) -> list[dict[str, Any]]:
        return [document for document, _ in self.documents]

    def make(self, changes: Changes | Documents) -> None:
        if isinstance(changes, Documents):
            self.documents = self.after(changes)
            return
        for id, text, weight in changes:
            self.version += 1
            self.there.pop(id, None)
            if text is not None:
                self.there[id] = Known(text, weight, self.version)


truths: dict[str, list[bool]] = {}  # of each text: which of EVENTS it matches, says the reference


def truth(text: str, model: Model) -> list[bool]:
    if "history" in text:
        tree = parse(text)
        return [matches(tree, event, model.past) for event in EVENTS]
    if text not in truths:
        tree = parse(text)
        truths[text] = [matches(tree, event) for event in EVENTS]
    return truths[text]


def wanted(model: Model) -> list[set[Id]]:
    """Of each event: which ids it must match."""
    found = {id: truth(known.text, model) for id, known in model.there.items()}
    return [{id for id, of_events in found.items() if of_events[event]} for event in range(len(EVENTS))]


def documents_of(m: dibs.Matcher) -> list[tuple[Any, Any]]:
    """The serial numbers of the documents that are there, the oldest first, and their keys."""
    assert len(m.history) >= 0  # takes what is new
    state = m.history.state
    column = state.column("serial")
    return [(int(column[row - state.base][0][1]), state.key_of(row)) for row in sorted(state.rows())]


def serials(documents: list[tuple[dict[str, Any], Any]]) -> list[tuple[Any, Any]]:
    return [(document["serial"], key) for document, key in documents]


def differences(m: dibs.Matcher, model: Model) -> list[str]:
    """How the matcher and its catalog differ from what must be there."""
    catalog = m._changes.durable.catalog
    found = catalog.check()
    if (m.version, len(m), catalog.version, len(catalog)) != (model.version, len(model.there)) * 2:
        found.append(f"version, length {m.version, len(m)}, catalog {catalog.version, len(catalog)}, expected "
                     f"{model.version, len(model.there)}")  # fmt: skip
    entries = {e.id: e for batch in catalog.entries() for e in batch}
    if entries.keys() != model.there.keys():
        found.append(f"ids of the catalog: {set(entries) ^ set(model.there)} too many or missing")
    for id, known in model.there.items():
        if id not in m or id not in entries:
            found.append(f"{id!r} is missing")
            continue
        its = m.get(id)
        for what in (its, entries[id]):
            text = what.expression if what is its else what.text
            if (text, what.weight, what.version) != known or what.time is None:
                found.append(f"{id!r} is {what}, expected {known}")
    if documents_of(m) != serials(model.documents):
        found.append(f"documents {documents_of(m)}, expected {serials(model.documents)}")
    for event, ids, expected in zip(EVENTS, m.match_batch(EVENTS), wanted(model)):
        if set(ids) != expected or len(ids) != len(expected):
            found.append(f"{event} matches {set(ids) ^ expected} too many or too few")
    return found[:10]


# ---- what the child does ----


def expression(rng: random.Random) -> str:
    x, y = rng.randint(-2, 9), rng.randint(-2, 9)
    return rng.choice(
        [
            f"a = {x}",
            f"a > {x} AND b <= {y}",
            f"b BETWEEN {min(x, y)} AND {max(x, y)}",
            f"a IN ({x}, {y}) OR c = 'x'",
            f"c LIKE '%{rng.choice('xyz')}%' AND NOT a = {x}",
            f"d IS NULL AND b <> {y}",
            f"(a = {x} OR d) AND (b = {y} OR c > 'x')",
            "EXISTS (SELECT 1 FROM history d WHERE d.a = a)",
            f"(SELECT COUNT(*) FROM history d WHERE d.a > a) >= {y} AND b <> {x}",
            "NOT EXISTS (SELECT 1 FROM history d WHERE d.b > b AND d.a = a)",
        ]
    )


def document(rng: random.Random) -> dict[str, Any]:
    return {"a": rng.randint(-2, 9), "b": rng.randint(-2, 9), "serial": rng.getrandbits(50)}


def new_ids(rng: random.Random, model: Model, count: int) -> list[Id]:
    texts = rng.random() < 0.3
    pool: list[Id] = [f"s{i}" for i in range(150)] if texts else list(range(150))
    free = [i for i in pool if i not in model.there]
    return rng.sample(free, min(count, len(free)))


def some_changes(rng: random.Random, model: Model, count: int) -> Changes:
    """Adds, removes and replaces, one after the other, on ids that may repeat."""
    there = set(model.there)
    result: Changes = []
    for _ in range(count):
        id = rng.randrange(60) if rng.random() < 0.7 else f"s{rng.randrange(30)}"
        if id in there and rng.random() < 0.5:
            result.append((id, None, 0.0))
            there.discard(id)
        else:
            result.append((id, expression(rng), float(rng.randrange(1, 4))))
            there.add(id)
    return result


def history_step(rng: random.Random, m: dibs.Matcher, model: Model, told: Callable[[Documents], Any]) -> None:
    """One call that changes the history."""
    kind = rng.choices(["add", "match", "match batch", "load", "prune"], [4, 4, 3, 2, 1])[0]
    if kind == "match":  # an event of which it is known what it matches
        number = rng.randrange(len(EVENTS))
        event = {**EVENTS[number], "serial": rng.getrandbits(50)}
        change, expected = Documents([(event, None)]), wanted(model)[number]
        told(change)
        found = m.match(event, remember=True)
        assert set(found) == expected and len(found) == len(expected), f"{event} matches {set(found) ^ expected}"
    else:
        some = [document(rng) for _ in range(1 if kind == "add" else rng.choice([2, 5, 20]))]
        change = Documents([(each, None) for each in some])
        if kind == "add":
            change = Documents([(some[0], rng.choice([None, rng.randrange(40), f"k{rng.randrange(40)}"]))])
        elif kind == "prune":
            change = Documents([], rng.randrange(RETAIN))
        told(change)
        if kind == "add":
            m.history.add(some[0], key=change.added[0][1])
        elif kind == "match batch":
            m.match_batch(some, remember=True)
        elif kind == "load":
            m.history.load(pa.Table.from_pylist(some))
        else:
            m.history.prune(keep=change.keep)
    model.make(change)


def step(rng: random.Random, m: dibs.Matcher, model: Model, told: Callable[[Any], Any]) -> None:
    """One call that changes the matcher; `told` is called with what it is going to do."""
    if rng.random() < 0.5:
        history_step(rng, m, model, told)
        return
    kind = rng.choices(["one", "batch", "aborted", "bulk", "remove many"], [10, 5, 1, 3, 2])[0]
    if kind == "bulk":
        ids = new_ids(rng, model, rng.choice([3, 20, 40]))
        changes: Changes = [(i, expression(rng), 1.0) for i in ids]
        told(changes)
        if rng.random() < 0.5:
            m.add_many([(i, t) for i, t, _ in changes])
        else:
            m.add_table(pa.table({"id": pa.array(ids), "expression": [t for _, t, _ in changes]}))
    elif kind == "remove many":
        there = list(model.there)
        ids = rng.sample(there, min(len(there), rng.choice([2, 10, 30])))
        changes = [(i, None, 0.0) for i in ids]
        told(changes)
        m.remove_many(ids)
    else:
        changes = some_changes(rng, model, 1 if kind == "one" else rng.randint(2, 12))
        told([] if kind == "aborted" else changes)
        if kind == "one":
            make_one(m, changes[0])
        else:
            try:
                with m.batch():
                    for change in changes:
                        make_one(m, change)
                    if kind == "aborted":
                        raise LookupError
            except LookupError:
                changes = []
    model.make(changes)


def make_one(m: dibs.Matcher, change: tuple[Id, str | None, float]) -> None:
    id, text, weight = change
    if text is None:
        m.remove(id)
    elif id in m:
        m.replace(id, text, weight)
    else:
        m.add(id, text, weight)


class Journal:
    def __init__(self, path: Path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC)

    def write(self, kind: str, value: Any = None) -> None:
        os.write(self._file, pickle.dumps((kind, value)))


def read_journal(path: Path) -> list[tuple[str, Any]]:
    records = []
    if path.exists():
        with open(path, "rb") as file:
            while True:
                try:
                    records.append(pickle.load(file))
                except (EOFError, pickle.UnpicklingError):
                    break
    return records


def live(folder: Path, index: str, model: Model, doubtful: Any, journal: Journal, seed: int, work: bool) -> None:
    """Opens the folder, checks it, and works on it for ever."""
    rng = random.Random(seed)
    warnings.simplefilter("error")  # what was only killed needs no recovery
    m = dibs.Matcher.open(folder, index=index, threads=1, retain=RETAIN)
    if isinstance(doubtful, Documents):
        if documents_of(m) == serials(model.after(doubtful)):
            model.make(doubtful)
        for each, key in doubtful.added:
            if key is not None:  # who did not hear of it tries once more
                m.history.add(each, key=key)
                model.make(Documents([(each, key)]))
    elif doubtful and m.version == model.version + len(doubtful):
        model.make(doubtful)
    wrong = differences(m, model)
    if wrong:
        journal.write("wrong", wrong)
        return
    journal.write("sound", model)
    while work:
        step(rng, m, model, lambda changes: journal.write("begin", changes))
        journal.write("end")
        chance = rng.random()
        if chance < 0.2:
            m.match(EVENTS[rng.randrange(len(EVENTS))])
        elif chance < 0.23:
            m.compact()
        elif chance < 0.25:
            m.close()
            m = dibs.Matcher.open(folder, threads=1)
        elif chance < 0.28:
            with dibs.Matcher.open(folder, read_only=True, threads=1) as follower:
                wrong = differences(follower, model)
            if wrong:
                journal.write("wrong", ["of a follower:", *wrong])
                return


# ---- killing ----


def run(above: Path, rounds: int, seed: int, at: str, indexes: list[str]) -> dict[str, Any]:
    """Kills a writer `rounds` times; each folder is used for LIVES of them, and checked once more at the end."""
    rng = random.Random(seed)
    warm(above / "warm", indexes)
    report: dict[str, Any] = {"kills": 0, "checked": 0, "acknowledged": 0, "doubtful": 0, "of documents": 0, "made": 0}
    report["wrong"] = []
    journal = above / "journal"
    for number in range(0, rounds, LIVES):
        folder, index = above / f"{number}", indexes[number // LIVES % len(indexes)]
        model, doubtful = Model(), list[Any]()
        for life in range(LIVES + 1):
            journal.unlink(missing_ok=True)
            end = End(None, None)  # after the last life, there is only a check
            if life < LIVES and at == "moments":
                end = End(rng.choice([0.05, 0.2, 0.4, 0.6]) * rng.random(), None)
            elif life < LIVES:
                end = End(None, rng.randrange(60))
            report["kills"] += killed(folder, index, model, doubtful, journal, rng.randrange(2**32), end)
            for kind, value in read_journal(journal):
                if kind == "wrong":
                    report["wrong"].append({"life": life, "index": index, "folder": str(folder), "what": value})
                    return report
                if kind == "sound":
                    report["checked"] += 1
                    report["made"] += (value.version, value.documents) != (model.version, model.documents)
                    model, doubtful = value, []
                elif kind == "begin":
                    doubtful = value
                else:
                    model.make(doubtful)
                    report["acknowledged"] += 1
                    doubtful = []
            report["doubtful"] += bool(doubtful)
            report["of documents"] += isinstance(doubtful, Documents)
        shutil.rmtree(folder, ignore_errors=True)
    return report


class End(NamedTuple):
    """When a child is killed."""

    seconds: float | None  # of its own processor time: on a busy machine it lives longer, and does as much
    operation: int | None


def processor_time(child: int) -> float:
    """Seconds that a child, which was not waited for yet, has worked."""
    return time.clock_gettime(~child << 3 | 2)  # as Linux numbers the clock of a process


def killed(
    folder: Path, index: str, model: Model, doubtful: Any, journal: Path, seed: int, end: End
) -> bool:  # fmt: skip
    """A child that works until it is killed. Whether it was."""
    child = os.fork()
    if child == 0:
        its = Journal(journal)
        try:
            if end.operation is not None:
                die_at(end.operation, random.Random(seed))
            live(folder, index, model, doubtful, its, seed, work=end != End(None, None))
        except BaseException:
            its.write("wrong", [traceback.format_exc()])
        os._exit(0)
    latest = time.monotonic() + 30
    while time.monotonic() < latest and (end.seconds is None or processor_time(child) < end.seconds):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.WIFSIGNALED(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def die_at(number: int, rng: random.Random) -> None:
    """This process is killed just before or after its operation of this number on files."""
    before, left = rng.random() < 0.5, number

    def deadly(operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0 and before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = operation(*args, **options)
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped

    for name in ("replace", "rename", "fsync", "unlink", "mkdir", "ftruncate", "pwrite"):
        setattr(os, name, deadly(getattr(os, name)))
    # SQLite's own operations cannot be wrapped, its transactions can.
    setattr(Session, "write", deadly(Session.write))  # noqa: B010


def warm(folder: Path, indexes: list[str]) -> None:
    """Compiles what the children need, so that they need not."""
    for index in indexes:
        model, rng = Model(), random.Random(0)
        with dibs.Matcher.open(folder / index, index=index, threads=1, retain=RETAIN) as m:
            for _ in range(30):
                step(rng, m, model, lambda _: None)
                m.match_batch(EVENTS)
            m._layers.upkeep.rest()
            m.compact()
        with dibs.Matcher.open(folder / index, threads=1) as m:
            assert not differences(m, model)
    rng = random.Random(1)
    for _ in range(2000):
        truth(expression(rng), Model())


if __name__ == "__main__":
    put(SMALL)
    faulthandler.enable()
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])))
