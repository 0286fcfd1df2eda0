"""A history in the form in which it is stored, in the catalog (documents.py) or in a file (store.py). What `content`,
`keys` and `retain` mean is the history's business (history.encoding, history.stored)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class DocumentRow(NamedTuple):
    """Documents that came together."""

    number: int  # of the first
    size: int
    form: str
    attributes: str | None  # the column that holds the attributes
    content: bytes | str
    keys: str | None  # None: they have none


class HistoryHead(NamedTuple):
    """What the history says of itself."""

    change: int = 0  # the number of the last one
    first: int = 0  # documents before it are gone
    end: int = 0  # the number that the next document gets
    newest: int | None = None  # the greatest time by which documents were retained
    retain: str | None = None  # how much is kept, in the history's words
    rows: int = 0  # of documents
    rows_sum: int = 0  # of their checksums
    gone: int = 0  # rows of that table
    gone_sum: int = 0


class HistoryChange(NamedTuple):
    """The history after a change, with what came and what went by it."""

    head: HistoryHead  # rows, gone and their sums are worked out when it is written
    rows: list[DocumentRow]
    gone: Iterable[int]  # that were there before, or have just come; those below head.first need not be named


class HistoryNews(NamedTuple):
    """What has changed since some change."""

    head: HistoryHead
    rows: list[DocumentRow]  # of documents that came since
    gone: frozenset[int]
