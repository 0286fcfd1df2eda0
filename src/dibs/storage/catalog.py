"""The catalog: the truth of a durable matcher. Each subscription by its id, and the log of changes, in LMDB.

    subscriptions   id -> text, weight, version, time
    changes         version -> id, removed or not: what to replay on segments that are older than the catalog
    about           one record: identity, counters, sums of all checksums

A change has a version: 1, 2, 3... in the order of changes. Its time is for people only; it never goes back, even if the
clock does. What was written is durable when the call returns; a call is done wholly or not at all.

Any number of threads and processes read while one writes (catalog_environment says how). A reader sees what was
committed when it asked. There is one writer; who that is is decided by the lock of the matcher's folder, not here, but
a second one is found by its versions, before it does harm.

The folder is checked as a whole when it is opened (catalog_check).

Good for: backup by copying the folder while nobody writes. Not for: LMDB's compacting copy, whose transactions start
anew, which looks like damage; export and import instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dibs.errors import DamagedError, StorageError
from dibs.segments.ids import Id
from dibs.segments.segment import DEFAULT_WEIGHT
from dibs.storage.catalog_check import state_at
from dibs.storage.catalog_columns import Columns, Ids, Slices, in_order, log_of, read_columns, records_of
from dibs.storage.catalog_create import create_catalog
from dibs.storage.catalog_environment import ADVICE, DATA, Environment
from dibs.storage.catalog_records import (
    LONG,
    MASK,
    STATE,
    STRING,
    Change,
    Entry,
    State,
    block_count,
    blocks_of,
    changes_of,
    entry_of,
    format_of,
    key_of,
    record_of,
    state_of,
    state_record,
    sum_of,
    version_key,
)
from dibs.storage.catalog_registry import opened, release

Progress = Callable[[int, int], None]  # rows done, rows in all; must not use the catalog
PORTION = 50_000  # rows between two reports
TRIM_PORTION = 10_000  # blocks of one transaction


def _now() -> int:
    return time.time_ns() // 1000


class News(NamedTuple):
    """What has changed since some version."""

    version: int  # now
    removed: list[Id]
    entries: list[Entry]  # added or replaced


class Catalog:
    """An open catalog; `close` it, or use it in a with block."""

    def __init__(self, environment: Environment, folder: Path, read_only: bool):
        self.folder = folder
        self.read_only = read_only
        self.clock: Callable[[], int] = _now  # UTC microseconds
        self._environment: Environment | None = environment
        self._seen = (environment.whole.state.transaction, environment.whole.state)
        self.identity = environment.whole.state.identity.hex()  # random, made with the catalog

    @classmethod
    def open(cls, folder: Path, read_only: bool = False, create: bool = True) -> Catalog:
        """The catalog in the folder. It is made if it is not there, unless read_only or create says otherwise.
        Everything in it is checked; a second open of one process shares the first one's file and does without."""
        folder = Path(folder)
        if not folder.is_dir() or not any(folder.iterdir()):
            if read_only or not create:
                raise StorageError(folder, "there is no catalog; it is made by opening it for writing")
            create_catalog(folder)
        return cls(opened(folder, write=not read_only), folder, read_only)

    def close(self) -> None:
        held, self._environment = self._environment, None
        if held is not None:
            release(held)

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What it is

    @property
    def version(self) -> int:
        """Of the last change; 0 if there was none."""
        return self._state().version

    @property
    def trimmed(self) -> int:
        """Changes up to this version are no longer in the log."""
        return self._state().trimmed

    def __len__(self) -> int:
        return self._state().entries

    def counted(self) -> tuple[int, int]:
        """The version, and how many subscriptions there are at it."""
        state = self._state()
        return state.version, state.entries

    def transaction_number(self) -> int:
        """Changes with each commit of anybody."""
        return self._held.transaction_number()

    def sizes(self) -> dict[str, int]:
        """Bytes: the file, what is in use of it (the rest is reused), the map; subscriptions; changes in the log."""
        held, info = self._held, self._held.info()

        def work(txn: Any) -> int:
            stats = [txn.stat(db) for db in (held.subscriptions, held.changes, held.about)]
            return 3 + sum(s["branch_pages"] + s["leaf_pages"] + s["overflow_pages"] for s in stats)

        state = self._state()
        return {
            "file": os.path.getsize(self.folder / DATA),
            "used": held.read(work) * info["page_size"],
            "map": info["map_size"],
            "entries": state.entries,
            "log": state.version - state.trimmed,
        }

    def check(self, deep: bool = True) -> list[str]:
        """What is wrong with the files now; [] if nothing is. Not deep: the meta pages and the state only."""
        try:
            self._held.check(deep)
        except DamagedError as e:
            return [str(e)]
        return []

    # Reading

    def get(self, id: Id) -> Entry | None:
        return self.get_many([id])[0]

    def get_many(self, ids: Iterable[Id]) -> list[Entry | None]:
        """The entries of the ids, as of one moment."""
        held, keys = self._held, [key_of(id) for id in ids]

        def work(txn: Any) -> list[Entry | None]:
            return [None if r is None else self._entry(k, r) for k in keys for r in [txn.get(k, db=held.subscriptions)]]

        return held.read(work)

    def entries(self, after: Id | None = None, batch: int = 10_000) -> Iterator[list[Entry]]:
        """All entries, or those after an id, which need not be there: integers ascending, then strings by their UTF-8
        bytes (long ones that begin alike: see catalog_records). Each batch is as of one moment, the next one as of a
        later: what is there all the time comes once, what changes meanwhile comes as it was or as it is, or not."""
        held, last = self._held, None if after is None else key_of(after)

        def work(txn: Any) -> tuple[bytes | None, list[Entry]]:
            cursor, key = txn.cursor(held.subscriptions), last
            found: list[Entry] = []
            there = cursor.first() if last is None else cursor.set_range(last)
            if there and cursor.key() == last:
                there = cursor.next()
            while there and len(found) < batch:
                key = cursor.key()
                found.append(self._entry(key, cursor.value()))
                there = cursor.next()
            return key, found

        while True:
            last, found = held.read(work)
            if not found:
                return
            yield found

    def columns(self) -> tuple[int, list[Columns]]:
        """The version and all entries as of one moment: one part for each type of ids that there is, integers first."""

        def work(pages: Any, it: Any, _: Any) -> tuple[int, list[Columns]]:
            return state_at(pages, it).version, read_columns(pages, it)

        return self._held.snapshot(work)

    def changes(self, since: int) -> list[Change]:
        """The changes of versions above `since`, ascending."""

        def work(txn: Any) -> list[Change]:
            state = self._read_state(txn)
            if not state.trimmed <= since <= state.version:
                there = f"{state.trimmed + 1} to {state.version}"
                raise StorageError(self.folder, f"the log has the changes {there}, not those since {since}")
            return self._changes(txn, state, since)

        return self._held.read(work)

    def news(self, since: int) -> News | None:
        """What has become of the ids that changed after version `since`, as of one moment; None if the log does not go
        back so far."""
        held = self._held

        def work(txn: Any) -> News | None:
            state = self._read_state(txn)
            if state.trimmed > since:
                return None
            ids = {key_of(change.id): change.id for change in self._changes(txn, state, since)}
            found = {key: txn.get(key, db=held.subscriptions) for key in ids}
            entries = [self._entry(key, record) for key, record in found.items() if record is not None]
            return News(state.version, [ids[key] for key, record in found.items() if record is None], entries)

        return held.read(work)

    def _changes(self, txn: Any, state: State, since: int) -> list[Change]:
        result: list[Change] = []
        cursor = txn.cursor(self._held.changes)
        # The block with the change since + 1 begins there or before.
        there = cursor.set_range(version_key(since + 1))
        if (not there or cursor.key() != version_key(since + 1)) and state.blocks:
            there = cursor.prev() if there else cursor.last()
        while there:
            found = changes_of(cursor.key(), cursor.value())
            if found is None:
                raise DamagedError(self.folder / DATA, f"a block of the log is not as it was written; {ADVICE}")
            result += found if found[0].version > since else [c for c in found if c.version > since]
            there = cursor.next()
        return result

    # Writing

    def write(self, changes: Iterable[tuple[Id, str | None, float]], first_version: int) -> None:
        """Writes the changes: (id, text, weight); text None removes. Change i has the version first_version + i, which
        continues from `version`. Of several changes of an id the last one counts; each is in the log."""
        held, changes = self._writable, list(changes)
        if not changes:
            return
        final = {key_of(id): row for row, (id, _, _) in enumerate(changes)}
        keys = sorted(final)
        blocks = list(blocks_of(((id, text is None) for id, text, _ in changes), first_version))

        def work(txn: Any) -> State:
            state = self._next(txn, first_version)
            entries, total = state.entries, state.entries_sum
            for key in keys:
                id, text, weight = changes[final[key]]
                before = txn.pop(key, db=held.subscriptions) if text is None else txn.get(key, db=held.subscriptions)
                if before is not None:
                    entries, total = entries - 1, total - sum_of(before)
                if text is not None:
                    record = record_of(key, id, text, weight, first_version + final[key], state.time)
                    txn.put(key, record, db=held.subscriptions)
                    entries, total = entries + 1, total + sum_of(record)
            for key, block in blocks:
                txn.put(key, block, append=True, db=held.changes)
            return self._put_state(
                txn,
                state._replace(
                    version=state.version + len(changes),
                    entries=entries,
                    entries_sum=total & MASK,
                    blocks=state.blocks + len(blocks),
                    blocks_sum=state.blocks_sum + sum(sum_of(block) for _, block in blocks) & MASK,
                ),
            )

        self._saw(held.write(work))

    def write_columns(
        self,
        ids: pa.Array,
        texts: pa.Array,
        weights: NDArray[np.float64] | None,
        first_version: int,
        progress: Progress | None = None,
    ) -> None:
        """Adds, or replaces, many at once: int64 or large_string ids and large_string texts without nulls, weights
        (None: all the default). Row i has the version first_version + i. All in one transaction, as `write`."""
        held, n = self._writable, len(ids)
        if n == 0:
            return
        weights = np.full(n, DEFAULT_WEIGHT) if weights is None else np.ascontiguousarray(weights, np.float64)
        with held.writing:
            at = max(self.clock(), self._state().time)
            whole = Ids.of(ids)
            is_long = whole.sizes > LONG if whole.kind == STRING else np.zeros(n, np.bool_)
            rows = in_order(ids, np.flatnonzero(~is_long))
            records = records_of(whole, texts, weights, rows, first_version, at)
            blocks = log_of(whole, first_version)
            long = {key_of(ids[row].as_py()): row for row in np.flatnonzero(is_long).tolist()}
            # Pages are half full at worst, when keys come in between; and a page may be copied that holds others.
            held.make_room(held.file_size() + 3 * (len(records.content) + 16 * n + len(blocks.content)))

            def work(txn: Any) -> State:
                state = self._next(txn, first_version)._replace(time=at)
                entries, total = self._put_records(txn, records, n, progress)
                for key, row in long.items():
                    id, text, weight = ids[row].as_py(), texts[row].as_py(), float(weights[row])
                    record = record_of(key, id, text, weight, first_version + row, at)
                    before = txn.replace(key, record, db=held.subscriptions)
                    entries += before is None
                    total += sum_of(record) - (0 if before is None else sum_of(before))
                txn.cursor(held.changes).putmulti(blocks.pairs(0, len(blocks)), append=True)
                return self._put_state(
                    txn,
                    state._replace(
                        version=state.version + n,
                        entries=state.entries + entries,
                        entries_sum=state.entries_sum + total & MASK,
                        blocks=state.blocks + len(blocks),
                        blocks_sum=state.blocks_sum + blocks.total & MASK,
                    ),
                )

            self._saw(held.write(work))

    def _put_records(self, txn: Any, records: Slices, n: int, progress: Progress | None) -> tuple[int, int]:
        """Puts records, which are in order; returns how many entries are new, and what the sum of checksums grew."""
        held = self._held
        cursor = txn.cursor(held.subscriptions)
        behind = len(records) > 0 and (not cursor.last() or cursor.key() < records.pairs(0, 1)[0][0])
        entries, total = len(records), records.total
        for start in range(0, len(records), PORTION):
            pairs = records.pairs(start, start + PORTION)
            if behind:
                cursor.putmulti(pairs, append=True)
            elif cursor.putmulti(pairs, overwrite=False)[1] < len(pairs):
                for key, record in pairs:  # some were there and still are: a record is never equal to an older one
                    before = txn.get(key, db=held.subscriptions)
                    if before != record:
                        entries, total = entries - 1, total - sum_of(before)
                        txn.put(key, record, db=held.subscriptions)
            if progress is not None:
                progress(min(n, start + PORTION), n)
        return entries, total

    def trim(self, version: int) -> None:
        """Forgets the changes of the log up to this version, in several transactions if they are many."""
        held = self._writable
        done = False

        def work(txn: Any) -> State:
            nonlocal done
            state = self._read_state(txn)
            if version > state.version:
                raise StorageError(self.folder, f"has changes up to {state.version}, not up to {version}")
            done = True
            if version <= state.trimmed:
                return state
            cursor, gone, total, trimmed = txn.cursor(held.changes), 0, state.blocks_sum, version
            there = cursor.first()
            while there:
                first, block = int.from_bytes(cursor.key(), "big"), cursor.value()
                last = first + block_count(block) - 1
                if last > version:
                    break
                if gone == TRIM_PORTION:
                    trimmed, done = first - 1, False
                    break
                total, gone = total - sum_of(block), gone + 1
                cursor.delete()  # and is at the next one, or nowhere
                there = cursor.key() != b""
            state = state._replace(trimmed=trimmed, blocks=state.blocks - gone, blocks_sum=total & MASK)
            return self._put_state(txn, state)

        while not done:
            self._saw(held.write(work))

    # The state

    @property
    def _held(self) -> Environment:
        if self._environment is None:
            raise StorageError(self.folder, "is closed")
        return self._environment

    @property
    def _writable(self) -> Environment:
        if self.read_only:
            raise StorageError(self.folder, "was opened with read_only=True")
        return self._held

    def _state(self) -> State:
        held = self._held
        number, state = self._seen
        if held.transaction_number() != number:
            state = held.read(self._read_state)
            self._saw(state)
        return state

    def _saw(self, state: State) -> None:
        self._seen = (state.transaction, state)

    def _read_state(self, txn: Any) -> State:
        record = txn.get(STATE, db=self._held.about)
        if record is None or format_of(record) is None:
            raise DamagedError(self.folder / DATA, f"the state of the catalog is not as it was written; {ADVICE}")
        return state_of(record)

    def _next(self, txn: Any, first_version: int) -> State:
        """The state before a change, with the change's time."""
        state = self._read_state(txn)
        if first_version != state.version + 1:
            expected = f"the next change has the version {state.version + 1}, not {first_version}"
            raise StorageError(self.folder, f"{expected}; has somebody else written to it? Close it and open it again")
        return state._replace(time=max(self.clock(), state.time))

    def _put_state(self, txn: Any, state: State) -> State:
        state = state._replace(transaction=txn.id())
        txn.put(STATE, state_record(state), db=self._held.about)
        return state

    def _entry(self, key: bytes, record: bytes) -> Entry:
        entry = entry_of(key, record)
        if entry is None:
            message = f"the subscription with the key {key!r} does not fit its checksum; {ADVICE}"
            raise DamagedError(self.folder / DATA, message)
        return entry
