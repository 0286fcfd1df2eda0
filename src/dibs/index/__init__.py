"""From coded events to matches: structures over integer arrays. No file here knows types, strings or JSON.

`INDEXES` names the structures of Dibs and where they live (they are imported when first used: most programs use one).
Other packages add theirs by entry points of the group `dibs.indexes`, each a name and "module:Class"
(examples/outside_index). `create` builds one by name, `restore` takes it from saved arrays.
"""

from __future__ import annotations

from typing import Any, cast

from numpy.typing import NDArray

from dibs.coding.clauses import Clauses
from dibs.errors import DibsError, UnknownIndex
from dibs.index.base import Buildable, Index, Pairs, Sink, Takes
from dibs.index.complete import Completed
from dibs.index.options import Option
from dibs.jit.undisturbed import bring

AUTO = "auto"
INDEXES: dict[str, str] = {
    "auto": "dibs.index.auto.planner:Auto",
    "scan": "dibs.index.scan:Scan",
    "counting": "dibs.papers.structures.counting:Counting",
    "kindex": "dibs.papers.structures.kindex:KIndex",
    "propagation": "dibs.papers.structures.propagation:Propagation",
    "gryphon": "dibs.papers.structures.gryphon:Gryphon",
    "opindex": "dibs.papers.structures.opindex.opindex:OpIndex",
    "opindex-bs": "dibs.papers.structures.opindex.opindex:OpIndexBS",
    "betree": "dibs.papers.structures.betree.betree:BETree",
    "betree-batch": "dibs.papers.structures.betree.batch:BETreeBatch",
    "pstree": "dibs.papers.structures.pstree.pstree:PSTree",
    "pstbloom": "dibs.papers.structures.pstree.pstbloom:PSTBloom",
    "psthash": "dibs.papers.structures.pstree.psthash:PSTHash",
    "naive": "dibs.papers.structures.tatbul.naive:Naive",
    "cluster": "dibs.papers.structures.tatbul.cluster:Cluster",
    "interval": "dibs.papers.structures.tatbul.interval:Interval",
    "hybrid": "dibs.papers.structures.tatbul.hybrid:Hybrid",
    "segment-tree": "dibs.papers.structures.tatbul.segment_tree:SegmentTree",
    "interval-tree": "dibs.papers.structures.tatbul.interval_tree:IntervalTree",
    "pbtree": "dibs.papers.structures.pbtree.pbtree:PBTree",
    "pbtree-memory": "dibs.papers.structures.pbtree.pbtree:PBTreeMemory",
}

GROUP = "dibs.indexes"
__all__ = [
    "AUTO",
    "INDEXES",
    "Index",
    "Pairs",
    "Sink",
    "create",
    "find",
    "is_known",
    "names",
    "options_of",
    "restore",
    "supports",
    "takes",
]


def names() -> list[str]:
    """Every index that there is: those of Dibs, then those of other packages."""
    return [*INDEXES, *sorted(_outside())]


def is_known(name: str) -> bool:
    return name in INDEXES or name in _outside()


def find(name: str) -> type[Buildable]:
    """The class of this name."""
    place = INDEXES.get(name) or _outside().get(name)
    if place is None:
        raise UnknownIndex(name, names())
    module, _, kind = place.partition(":")
    try:
        found: type[Buildable] = getattr(bring(module), kind)
    except (ImportError, AttributeError) as e:
        if name in INDEXES:
            raise
        advice = f"repair or remove the package whose entry point {name} = {place!r} it is"
        raise DibsError(f"the index {name!r} cannot be loaded ({e}): {advice}") from e
    return found


def _outside() -> dict[str, str]:
    """Of other packages. (Those of Dibs are entry points too, but the metadata of an installation may be older than its
    sources.)"""
    metadata = bring("importlib.metadata")  # which takes some milliseconds that most programs need not pay
    return {point.name: point.value for point in metadata.entry_points(group=GROUP) if point.name not in INDEXES}


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
