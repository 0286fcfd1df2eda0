"""From coded events to matches: structures over integer arrays. No file here knows types, strings or JSON.

`INDEXES` names every structure and where it lives (they are imported when first used: most programs use one);
`create` builds one by name, `restore` takes it from saved arrays.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.errors import UnknownIndex
from dibs.index.base import Buildable, Index, Pairs, Sink, Takes
from dibs.index.complete import Completed
from dibs.index.options import Option

AUTO = "auto"
INDEXES: dict[str, str] = {
    "auto": "auto.planner.Auto",
    "scan": "scan.Scan",
    "counting": "papers.counting.Counting",
    "kindex": "papers.kindex.KIndex",
    "propagation": "papers.propagation.propagation.Propagation",
    "gryphon": "papers.gryphon.gryphon.Gryphon",
    "opindex": "papers.opindex.opindex.OpIndex",
    "opindex-bs": "papers.opindex.opindex.OpIndexBS",
    "betree": "papers.betree.betree.BETree",
    "betree-batch": "papers.betree.batch.BETreeBatch",
    "pstree": "papers.pstree.pstree.PSTree",
    "pstbloom": "papers.pstree.pstbloom.PSTBloom",
    "psthash": "papers.pstree.psthash.PSTHash",
    "naive": "papers.tatbul.naive.Naive",
    "cluster": "papers.tatbul.cluster.Cluster",
    "interval": "papers.tatbul.interval.Interval",
    "hybrid": "papers.tatbul.hybrid.Hybrid",
    "segment-tree": "papers.tatbul.segment_tree.SegmentTree",
    "interval-tree": "papers.tatbul.interval_tree.IntervalTree",
    "pbtree": "papers.pbtree.pbtree.PBTree",
    "pbtree-memory": "papers.pbtree.pbtree.PBTreeMemory",
}

__all__ = ["AUTO", "INDEXES", "Index", "Pairs", "Sink", "create", "find", "options_of", "restore", "supports", "takes"]


def find(name: str) -> type[Buildable]:
    """The class of this name."""
    if name not in INDEXES:
        raise UnknownIndex(name, list(INDEXES))
    module, kind = INDEXES[name].rsplit(".", 1)
    found: type[Buildable] = getattr(importlib.import_module(f"dibs.index.{module}"), kind)
    return found


def takes(name: str) -> Takes | None:
    """What the index of this name takes itself, if that is not everything."""
    return getattr(find(name), "takes", None)


def options_of(name: str) -> tuple[Option, ...]:
    """The parameters of the index of this name that users may set."""
    return getattr(find(name), "options", ())


def create(name: str, clauses: Clauses, **options: Any) -> Index:
    """The index of this name over the clauses; options: what its `build` takes besides."""
    kind: Any = find(name)
    if takes(name) is None:
        return cast(Index, kind.build(clauses, **options))
    return Completed.build(kind, clauses, **options)


def restore(name: str, clauses: Clauses, arrays: dict[str, NDArray[Any]], **options: Any) -> Index:
    """The index of this name from the arrays that it once gave; options: what its `restore` takes besides."""
    kind: Any = find(name)
    if takes(name) is None:
        return cast(Index, kind.restore(clauses, arrays, **options))
    return Completed.restore(kind, clauses, arrays, **options)


def supports(name: str) -> str:
    """What the index is, and what it takes natively; everything else is completed, so that all are exact."""
    about, part = find(name).about, takes(name)
    options = "".join(f"; option {option}" for option in options_of(name))
    if part is None:
        return f"{about}; takes everything; a Matcher updates by segments"
    own = ["conjunctions"]
    if part.programs:
        own.append("OR in conjunctive or disjunctive normal form")
    own.append("arrays and ranges in events" if part.several else "single values")
    updates = "has insert and delete of its own; " if part.updates else ""
    taken = f"takes {', '.join(own)} itself, the rest is completed by masks"
    return f"{about}; {taken}; {updates}a Matcher updates by segments{options}"
