"""Which of several changes of one subscription came last: in a stream of changes, and in a frame that is compiled.

    given    order=, a column or several of the changes
    topic    the columns partition and offset, as Kafka's source has them: the order within a partition
    files    of Spark's file sources: the time of the file, its name, the place in it

Nothing else is an order: rows of a frame come as Spark's tasks read them, the largest file first. So each change gets a
rank among those of its id, null where nobody knows. Changes of an id that differ, and whose ranks do not say which is
later, clash: none of them is made, and all are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dibs.errors import ArgumentError, DibsError, Rejected, show
from dibs.segments.ids import Id
from dibs.spark.places import first_line

TOPIC = ("partition", "offset")
FILES = ("file_modification_time", "file_path", "file_block_start")
# Nodes of a plan that leave each row where it is, and those that leave it what it is.
IN_PLACE = frozenset(("Project", "Filter", "Generate", "EventTimeWatermark", "SubqueryAlias"))
AS_IT_IS = IN_PLACE | {"Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort"}
CLASH = "there are several changes of this id at once that differ, and "


@dataclass(frozen=True)
class Ordering:
    """What orders the changes of `frame`: its last columns, called `columns`."""

    frame: DataFrame
    columns: tuple[str, ...] = ()
    in_partitions: bool = False  # the first column is a partition: nothing orders changes of two
    in_place: bool = False  # rows of a task come as they stand in their file
    why: str = "nothing says which is the last: give order=, the column or columns of the changes that say it"

    def rank(self, position: str, *by: str) -> Column:
        """Of each change among those of its id; equal for those that the order does not tell apart, null where it says
        nothing. by: the columns whose rows are of one id. position: a column with the place of a row in its task."""
        if not self.columns:
            return F.lit(None).cast("int")
        own = Window.partitionBy(*by)
        columns = [*self.columns, *([position] if self.in_place else [])]
        known = F.lit(True)
        for name in self.columns:
            known &= F.col(name).isNotNull()
        if self.in_partitions:
            first = self.columns[0]
            known &= F.min(first).over(own) == F.max(first).over(own)
        return F.when(known, F.dense_rank().over(own.orderBy(*columns)))


def find_order(changes: DataFrame, order: str | Sequence[str] | None) -> Ordering:
    """The order that is given, or that the source of the changes has. Raises ArgumentError when the given is none."""
    if order is not None:
        return _given(changes, order)
    if set(changes.columns) >= set(TOPIC):
        why = "they stand in several partitions of the topic, which nothing orders: send them with the id as their key"
        return _with_columns(changes, [F.col(name) for name in TOPIC], why, in_partitions=True)
    return _of_files(changes) or Ordering(changes)


def _given(changes: DataFrame, order: Any) -> Ordering:
    names = [order] if isinstance(order, str) else list(order) if isinstance(order, (list, tuple)) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"order is the name of a column of the changes, or a list of names, not {show(order)}")
    for name in names:
        if changes.columns.count(name) != 1:
            raise ArgumentError(
                f"order={name!r} names no single column of the changes; they have {', '.join(changes.columns)}"
            )
    why = f"{', '.join(names)} does not say which is the last: it is equal, or null"
    try:
        result = _with_columns(changes, [F.col(_quote(name)) for name in names], why)
        result.frame.select(*(F.max(name) for name in result.columns)).schema  # noqa: B018 - whether there is an order
    except AnalysisException as e:
        raise ArgumentError(f"order={names}: Spark orders no column of this type ({first_line(e)})") from None
    return result


def _of_files(changes: DataFrame) -> Ordering | None:
    nodes = _chain(changes)
    if nodes is None or "_metadata" in changes.columns:
        return None
    why = "they stand in one file, whose lines were shuffled: give order=, the column or columns that say which is last"
    try:
        wanted = [F.col(f"_metadata.{name}") for name in FILES]
        return _with_columns(changes, wanted, why, in_place=IN_PLACE.issuperset(nodes))
    except AnalysisException:  # a view, say, hides it
        return None


def _chain(frame: DataFrame) -> list[str] | None:
    """The nodes between the frame and the files that it is read from; None: it comes from elsewhere, or rows are
    mixed on the way. (Spark Connect does not say.)"""
    plan = getattr(frame, "_jdf", None)
    plan = None if plan is None else plan.queryExecution().analyzed()
    nodes: list[str] = []
    while plan is not None:
        name = plan.nodeName()
        if name == "StreamingRelation":
            return nodes if plan.sourceName().startswith("FileSource[") else None
        if plan.getClass().getSimpleName() == "LogicalRelation":
            return nodes if _is_of_files(plan.relation()) else None
        if name not in AS_IT_IS:
            return None
        nodes.append(name)
        plan = plan.children().head()
    return None


def _is_of_files(relation: Any) -> bool:
    """Whether it reads files as they lie. A lake's table rewrites its files, so that their times say nothing."""
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return False
    return bool(relation.location().getClass().getName().startswith("org.apache.spark.sql.execution."))


def _with_columns(
    changes: DataFrame, wanted: list[Column], why: str, in_partitions: bool = False, in_place: bool = False
) -> Ordering:
    names = tuple(f"dibs_order_{i}" for i in range(len(wanted)))
    frame = changes.select("*", *(column.alias(name) for column, name in zip(wanted, names)))
    return Ordering(frame, names, in_partitions, in_place, why)


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


# ---- on the driver ----


class Ranked(NamedTuple):
    """A change: expression None: it goes; weight None: as it was."""

    id: Id
    expression: str | None
    weight: float | None
    rank: int | None


def settle(changes: Iterable[Ranked], why: str) -> tuple[list[Ranked], list[Rejected]]:
    """The changes, those of one id in their order; and those that clash, which are left out."""
    of_id: dict[Id, list[Ranked]] = {}
    for change in changes:
        of_id.setdefault(change.id, []).append(change)
    settled: list[Ranked] = []
    rejected: list[Rejected] = []
    for own in of_id.values():
        distinct = list(dict.fromkeys(own))
        if len({change[:3] for change in own}) == 1:
            settled.append(own[0])
        elif any(change.rank is None for change in own) or len({change.rank for change in own}) < len(distinct):
            error = clash(why)
            rejected += [Rejected(len(rejected) + i, c.id, c.expression, error) for i, c in enumerate(own)]
        else:
            settled += sorted(distinct, key=_rank_of)
    return settled, rejected


def _rank_of(change: Ranked) -> int:
    assert change.rank is not None
    return change.rank


def clash(why: str) -> DibsError:
    return DibsError(CLASH + why)
