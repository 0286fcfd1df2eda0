"""Is a catalog whole? Its pages as LMDB's (lmdb_check), then what they say: every record's checksum, the sum of all,
the log without a gap, and that the state was written by the very transaction whose meta page leads to it. The last one
is because LMDB believes the higher transaction number: one flipped bit there, and the state before would look current.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dibs.errors import FormatError
from dibs.index.papers.pbtree.lmdb_pages import NO_PAGE, NODE, SUBDATA, TREE, Meta, Tree, key_size
from dibs.storage.catalog_records import (
    ABOUT,
    CHANGES,
    FORMAT,
    INTEGER,
    LONG,
    LONG_KEY,
    STATE,
    STATE_RECORD,
    STRING,
    SUBSCRIPTIONS,
    State,
    format_of,
    load64,
    sealed,
    state_of,
)
from dibs.storage.lmdb_check import Damage, Pages, check_free, data_place, data_size, walked


class Whole(NamedTuple):
    """A catalog that was found whole."""

    state: State
    used_pages: int
    free_pages: int


def verified(pages: Pages, it: Meta, before: Meta | None, deep: bool = True) -> Whole:
    """Checks the catalog that this meta page leads to, and that the other meta page, if it is that of the transaction
    before, is what it says it is. Raises Damage, or FormatError for a later format."""
    if before is not None:
        _check_before(pages, before)
    state = state_at(pages, it)
    if not deep:
        return Whole(state, 0, 0)
    marks = np.zeros(it.last_page + 1, np.uint8)
    marks[:2] = 1
    trees = _databases(pages, it, marks)
    records = walked(pages, trees[SUBSCRIPTIONS], marks, "subscriptions")
    _check_records(pages, records, state)
    blocks = walked(pages, trees[CHANGES], marks, "changes")
    _check_blocks(pages, blocks, state)
    walked(pages, trees[ABOUT], marks, "about")
    lists = walked(pages, it.free, marks, "free pages")
    free = check_free(pages, it, marks, lists)
    return Whole(state, it.last_page + 1 - free, free)


def state_at(pages: Pages, it: Meta) -> State:
    """The state that this meta page leads to."""
    marks = np.zeros(it.last_page + 1, np.uint8)
    places = walked(pages, _databases(pages, it, marks)[ABOUT], marks, "about")
    for place in places.tolist():
        key, record = _entry(pages, place)
        if key == STATE:
            break
    else:
        raise Damage("the state of the catalog is missing")
    version = format_of(record)
    if version is None:
        raise Damage("the state of the catalog does not fit its checksum")
    if version != FORMAT:
        raise FormatError(
            f"the catalog has the format {version}, this version of Dibs reads {FORMAT}: use the version that wrote it"
        )
    if len(record) != STATE_RECORD.size:
        raise Damage("the state of the catalog has another length than it should have")
    state = state_of(record)
    if state.transaction != it.transaction:
        raise Damage(f"transaction {it.transaction} leads to what transaction {state.transaction} wrote")
    return state


def subscriptions_tree(pages: Pages, it: Meta) -> Tree:
    return _databases(pages, it, np.zeros(it.last_page + 1, np.uint8))[SUBSCRIPTIONS]


def _check_before(pages: Pages, before: Meta) -> None:
    if before.transaction == 0:
        if (before.main.root, before.free.root, before.last_page) != (NO_PAGE, NO_PAGE, 1):
            raise Damage("the meta page of the first transaction is not empty")
    else:
        state_at(pages, before)


def _databases(pages: Pages, it: Meta, marks: NDArray[np.uint8]) -> dict[bytes, Tree]:
    result = {}
    for place in walked(pages, it.main, marks, "databases").tolist():
        key, data = _entry(pages, place)
        if int(pages.u2[(place + 4) >> 1]) != SUBDATA or len(data) != TREE.size:
            raise Damage(f"{key!r} is no database")
        result[key] = Tree(*TREE.unpack(data))
    if result.keys() != {SUBSCRIPTIONS, CHANGES, ABOUT} or any(t.flags or t.pad for t in result.values()):
        raise Damage("the databases are not those of a catalog")
    return result


def _entry(pages: Pages, place: int) -> tuple[bytes, bytes]:
    key = place + NODE
    data, size = data_place(pages.u1, pages.u2, place, pages.size), data_size(pages.u2, place)
    return pages.u1[key : key + key_size(pages.u2, place)].tobytes(), pages.u1[data : data + size].tobytes()


def _check_records(pages: Pages, places: NDArray[np.int64], state: State) -> None:
    total, wrong = sum_records(pages.u1, pages.u2, pages.size, places)
    if wrong >= 0:
        raise Damage(f"the subscription with the key {_entry(pages, places[wrong])[0]!r} does not fit its checksum")
    if len(places) != state.entries or total != state.entries_sum:
        raise Damage(f"not the {state.entries:,} subscriptions that were written are there; one is missing or too many")


def _check_blocks(pages: Pages, places: NDArray[np.int64], state: State) -> None:
    total, wrong, first, end = _sum_blocks(pages.u1, pages.u2, pages.size, places)
    if wrong >= 0:
        raise Damage(f"block {wrong} of the change log does not fit its checksum, or does not follow the one before")
    if len(places) != state.blocks or total != state.blocks_sum:
        raise Damage("not the blocks of the change log that were written are there")
    if state.trimmed > state.version or (not len(places) and state.trimmed != state.version):
        raise Damage("the change log does not reach the last version")
    if len(places) and not (first <= state.trimmed + 1 <= end == state.version + 1):
        raise Damage(f"the change log has versions {first} to {end - 1}, not {state.trimmed + 1} to {state.version}")


@njit(cache=True, nogil=True)
def sum_records(u1, u2, size, places):  # type: ignore[no-untyped-def]
    """(sum of the checksums of the records, the first that is wrong or -1)."""
    total = np.uint64(0)
    for i in range(len(places)):
        at = places[i]
        key, length = at + NODE, key_size(u2, at)
        data, n = data_place(u1, u2, at, size), data_size(u2, at)
        kind = u1[key]
        fits = (kind == INTEGER and length == 9) or (kind == STRING and (length <= LONG + 1 or length == LONG_KEY))
        if length == LONG_KEY:
            fits = fits and n >= 40 and n >= 36 + (load64(u1, data + 32) & np.uint64(0xFFFFFFFF))
        if not fits or n < 32 or load64(u1, data) != sealed(u1, key, length, data + 8, n - 8):
            return total, i
        total += load64(u1, data)
    return total, -1


@njit(cache=True, nogil=True)
def _sum_blocks(u1, u2, size, places):  # type: ignore[no-untyped-def]
    """(sum of the checksums of the blocks, the first that is wrong or -1, first version, one past the last)."""
    total = np.uint64(0)
    first = version = np.int64(0)
    for i in range(len(places)):
        at = places[i]
        key, length = at + NODE, key_size(u2, at)
        data, n = data_place(u1, u2, at, size), data_size(u2, at)
        own = np.int64(-1)
        if length == 8:
            own = np.int64(0)
            for k in range(8):
                own = own << 8 | np.int64(u1[key + k])
        if i == 0:
            first = version = own
        if own < 0 or n < 12 or own != version or load64(u1, data) != sealed(u1, key, length, data + 8, n - 8):
            return total, i, first, version
        total += load64(u1, data)
        version += np.int64(load64(u1, data + 4) >> np.uint64(32))
    return total, -1, first, version
