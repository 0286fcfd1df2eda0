"""From coded events to matches: structures over integer arrays. No file here knows types, strings or JSON.

`INDEXES` names every structure; `create` builds one by name.
"""

from __future__ import annotations

from dibs.coding.clauses import Clauses
from dibs.errors import UnknownIndex
from dibs.index.auto import Auto
from dibs.index.base import Index, Pairs, Sink
from dibs.index.scan import Scan

AUTO = Auto.name
INDEXES: dict[str, type[Index]] = {Auto.name: Auto, Scan.name: Scan}

__all__ = ["AUTO", "INDEXES", "Index", "Pairs", "Sink", "create"]


def create(name: str, clauses: Clauses) -> Index:
    """The index of this name over the clauses."""
    if name not in INDEXES:
        raise UnknownIndex(name, list(INDEXES))
    return INDEXES[name].build(clauses)
