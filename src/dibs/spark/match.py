"""`match`: events and subscriptions to matches, as one DataFrame operation.

    subscriptions ─> sources ─> a version of index files ──────────┐ mapped by each worker
    events ─> events: the columns that matter ─> mapInArrow ───────┴─> one row per event ─> observe ─> output
                                          └─> route ─> shuffle ─┘ (sharded)

Only DataFrame operations are used, so batch and streaming frames, classic Spark and Spark Connect are all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Union, overload

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from dibs.arguments import check_number, check_on_error
from dibs.errors import ArgumentError, DibsError
from dibs.index import AUTO
from dibs.intake import check_choice
from dibs.jit.parcel import pack
from dibs.language.present import read_now
from dibs.language.types import check_types
from dibs.matcher import Matcher, OnError
from dibs.spark.compile import half_of_memory
from dibs.spark.dealing import EventColumns, Mapped
from dibs.spark.events import Events, as_frame, column_name, event_columns
from dibs.spark.found import Found
from dibs.spark.frames import cores_of, is_frame, is_local, session_of
from dibs.spark.joins.history import missing_history, read_history
from dibs.spark.joins.keys import find_keys
from dibs.spark.joins.partitioned import HistoryPlan, meet, write_documents
from dibs.spark.joins.partitioned import choose as choose_history
from dibs.spark.mistakes import Mistakes
from dibs.spark.options import MatchOptions, check_names
from dibs.spark.output import (
    Output,
    check_output,
    counts,
    gather_shards,
    kept_metadata,
    shape_result,
    worker_schema,
)
from dibs.spark.plans import Plan, choose
from dibs.spark.routing import make_router
from dibs.spark.shipping import check_workers, in_worker, send
from dibs.spark.sources import CARRIED_BYTES, Source, collect, open_source, too_large
from dibs.spark.worker import Task, run
from dibs.storage import versions

if TYPE_CHECKING:
    from typing_extensions import Unpack

STREAM_METRICS = "dibs"  # the name of the metrics in a stream's progress
MATCH, ROUTE = "dibs.spark.worker:run", "dibs.spark.routing:route"
LOOKED_AT = 1_000  # events that explain looks at

Given = Union[DataFrame, Matcher, str, "os.PathLike[str]"]


@overload
def match(events: Any, subscriptions: Given, event_id: str = ..., attributes: str | None = ..., *,
    on_error: Literal["raise"] = ..., **options: Unpack[MatchOptions]) -> DataFrame: ...  # fmt: skip


@overload
def match(events: Any, subscriptions: Given, event_id: str = ..., attributes: str | None = ..., *,
    on_error: Literal["skip"], **options: Unpack[MatchOptions]) -> tuple[DataFrame, DataFrame]: ...  # fmt: skip


def match(
    events: Any,
    subscriptions: Given,
    event_id: str = "id",
    attributes: str | None = None,
    *,
    on_error: OnError = "raise",
    **options: Unpack[MatchOptions],
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """The matches of events, a batch or a stream: DataFrame(event_id, subscription_id[, weight]).

    events         any DataFrame. Its columns are the attributes, the id column included; with `attributes`, those in
                   that MAP, STRUCT or JSON (string or binary) column. Also pandas, polars, Arrow or a list of dicts.
    subscriptions  a DataFrame (id, expression[, weight]), compiled now; the path of what dibs.spark.compile or
                   Matcher.save wrote, of a durable folder, or of a Parquet or Delta table; or a Matcher. The result has
                   weights when they have.
    event_id       the column whose values name the events in the result. They may be null, and need not be unique.
                   Like `attributes` and `keep` it is given by its name, or as F.col(name).
    index, options  how the subscriptions are indexed: a name in dibs.indexes(), and the parameters of the structure.
    on_error       "raise": a bad subscription raises SubscriptionErrors, here and now, with all bad ones listed.
                   "skip": the others are matched, and the result is (matches, rejected) with rejected a
                   DataFrame(position, id, expression, error).
    observe        counts `matches`, `malformed_events`, and (but for plan="sharded") `events` and the `microseconds`
                   that matching them took in all workers, while the result is computed: an Observation (batch), or a
                   name in the metrics of the query (by default "dibs" in a stream's progress; two matches in one
                   query need two names).
    index_dir      a folder that driver and workers share, or a URL, for compiled subscriptions. A cluster needs it when
                   they take more than 64 MiB; up to that they travel with the job.
    version        of the compiled subscriptions at the path; the newest by default. It is fixed by this call.
    plan           "replicated", "sharded", "local", or "auto": by size (`dibs.spark.explain` says which and why).
    memory         bytes of the index that a worker may hold before it is sharded; half of this machine's by default.
    how            "long": a row per match. "array": a row per event (those without matches too) with subscription_ids,
                   in no set order[, weights]: far less for Spark to move.
    top            only so many matches per event, those of the highest weight; equal ones by id.
    keep           columns of the events that stand beside each match.
    explain        a column `why`: which predicates hold. Slow: for few matches.
    count_only     a row per event with the number of its `matches` instead of them.
    partitions     into how many parts the events are dealt out first: tasks are as many as the events have partitions,
                   and a single small file is one.
    history        the documents that joins over history (EXISTS, FORALL, (SELECT ...)) speak of, the same for all
                   events: a DataFrame, or a dibs.spark.History, which says more of them.
    strict         subscriptions that do not fit the events are refused, rather than warned of: they mention attributes
                   that no event has, or compare one with constants of another kind (price = '5' where price is a
                   double), which matches nothing; or Spark reads their times in a zone that is not UTC. (CHAR
                   columns and collations are always refused.)
    now            what now() is: an instant (by default Spark's current_timestamp(): one for a query, and in a stream
                   one for a micro-batch, also when it is repeated), or the name of the column or attribute that holds
                   each event's own time.
    types          of attributes, where they are declared, as for a Matcher; what is compiled already has its own.

    An event that cannot be read entirely never fails the job: it matches what its readable attributes match (nothing,
    when it is broken JSON), is counted, and `problems` lists it.
    """
    output = _read_output(options)
    matching = _open(events, subscriptions, event_id, attributes, on_error, options, for_matches=True)
    chosen = matching.plan(options.get("plan", "auto"))
    past = matching.plan_history(chosen)
    observe = options.get("observe")
    if observe is None and matching.streaming:
        observe = STREAM_METRICS
    if matching.streaming and observe is not None and not isinstance(observe, str):
        raise DibsError("an Observation works with batches only: give a name, and read it in the stream's progress")
    known = matching.source.version
    mistakes = Mistakes(matching.given, matching.events.attributes)
    found = mistakes.find(
        {name: 0 if name in known.types else known.kinds[name] for name in known.attributes if name in known.kinds}
    )
    told = mistakes.tell(found, options.get("strict", False), 3, matching.source.count_uses)
    rows = matching.rows(output, chosen, warn=observe is None, history=past)
    if observe is not None:
        rows = rows.observe(observe, *counts(output, rows.columns, told))
    result = shape_result(rows, output, matching.events.keep)
    return result if on_error == "raise" else (result, matching.source.frame_rejected(rows.sparkSession))


def matching(
    subscriptions: Given,
    event_id: str = "id",
    attributes: str | None = None,
    *,
    on_error: OnError = "raise",
    **options: Unpack[MatchOptions],
) -> Callable[[DataFrame], DataFrame]:
    """`match` as one step of a chain: events.transform(matching(subscriptions)) is match(events, subscriptions), with
    the same options. (on_error="skip" has two results, which a chain cannot: it is for `match`.)"""
    if on_error != "raise":
        raise ArgumentError('on_error="skip" gives two frames, matches and rejected: call match(events, ...) for both')

    def transform(events: DataFrame) -> DataFrame:
        return match(events, subscriptions, event_id, attributes, **options)

    return transform


def problems(
    events: Any,
    subscriptions: Given,
    event_id: str = "id",
    attributes: str | None = None,
    *,
    on_error: OnError = "raise",
    **options: Unpack[MatchOptions],
) -> DataFrame:
    """The events that cannot be read entirely: DataFrame(event_id, problem). Takes what `match` takes.

    Only attributes that some subscription mentions are looked at, so whatever is wrong with others is no problem.
    """
    matching = _open(events, subscriptions, event_id, attributes, on_error, options)
    rows = matching.rows(_read_output({}), matching.plan("replicated"), warn=False, matches=False)
    return rows.select("event_id", "problem")


def explain(
    events: Any,
    subscriptions: Given,
    event_id: str = "id",
    attributes: str | None = None,
    *,
    on_error: OnError = "raise",
    **options: Unpack[MatchOptions],
) -> Plan:
    """Which plan `match` would take with these arguments, and why. Of a sharded index: how many shards an event visits,
    found from the first 1,000 events, which are brought here for that (not of a stream)."""
    matching = _open(events, subscriptions, event_id, attributes, on_error, options)
    chosen = replace(matching.plan(options.get("plan", "auto")), columns=tuple(matching.events.names))
    past = matching.plan_history(chosen)
    chosen = chosen if past is None else replace(chosen, history=str(past))
    if chosen.shards == 1 or matching.streaming:
        return chosen
    table = collect(matching.events.frame.limit(LOOKED_AT).select(*_last_columns(matching.events)))
    table = table.rename_columns(matching.events.names)
    found = make_router(versions.to_text(matching.source.version)).match_batch(
        table, attributes=matching.events.attributes, on_error="skip"
    )
    visits = sum(shard < chosen.shards for shard in found.pairs()["subscription"].to_pylist())
    return replace(chosen, events=len(table), visits=visits / max(len(table), 1))


def _read_output(options: MatchOptions) -> Output:
    how, top, keep = options.get("how", "long"), options.get("top"), options.get("keep", ())
    return check_output(how, top, keep, options.get("explain", False), options.get("count_only", False))


def _last_columns(events: Events) -> list[str]:
    """Those of the attributes."""
    return list(events.frame.columns[len(events.frame.columns) - len(events.names) :])


@dataclass(frozen=True)
class _Matching:
    """Events and subscriptions, looked at: what all calls here begin with."""

    source: Source
    events: Events
    given: DataFrame
    few: bool  # the events came from the driver
    now: int | str | None  # the time of the match
    options: MatchOptions

    @property
    def streaming(self) -> bool:
        return bool(self.given.isStreaming)

    def plan(self, plan: str) -> Plan:
        memory = self.options.get("memory")
        memory = half_of_memory() if memory is None else check_number("memory", memory)
        return choose(plan, self.source.version, memory, self.few, self.streaming)

    def plan_history(self, plan: Plan) -> HistoryPlan | None:
        """How the documents come to the events; None: no subscription asks for any."""
        history = self.options.get("history")
        keys = find_keys(self.source.version.joins)
        given = None if history is None else read_history(history)
        if not keys.joins:
            return None
        if given is None:
            raise missing_history(keys.describe())
        return choose_history(given, keys, self.given, here=self.streaming or plan.plan == "local")

    def rows(
        self,
        output: Output,
        plan: Plan,
        warn: bool,
        matches: bool = True,
        history: HistoryPlan | None = None,
    ) -> DataFrame:
        """The rows of the workers: the event's id and what is kept, ids[, weights, why], problem."""
        events, source, partitions = self.events, self.source, self.options.get("partitions")
        session = self.given.sparkSession
        files = None if plan.plan == "local" else carry_files(source, session)
        # Only a router needs the attributes, and there may be very many.
        version = source.version if plan.plan == "sharded" else replace(source.version, kinds={})
        mapped = Mapped(source.place.name, versions.to_text(version), files)
        own_time = self.now if isinstance(self.now, str) else None
        columns = (tuple(events.carried), tuple(events.names), events.attributes, events.timed, own_time)
        lists = ("ids", *(("weights",) if source.version.weighted else ()), *(("why",) if output.explain else ()))
        found = Found(
            source.version.ids != "int64",
            () if output.count_only else lists,
            count_only=output.count_only,
            top=output.top,
            nothing=not matches,
            every_event=output.every_event,
            counted=matches and not warn and plan.plan != "sharded",  # of shards an event visits several
        )
        task = Task(
            mapped if source.texts is None else source.texts,
            EventColumns(*columns),
            found,
            kernels=None if is_local(session) or plan.plan == "local" else _carry_kernels(session),
            warn=warn,
        )
        count = version.subscriptions if source.texts is None else len(source.texts)
        about = f"[{source.place.name.rpartition('/')[2]}, version {version.version}, {count:,} subscriptions]"
        frame = events.frame
        if history is not None and history.plan == "replicated":
            task = replace(task, documents=write_documents(history, is_local(session)))
        elif history is not None:
            frame, meeting = meet(events, history, partitions)
            task = replace(task, documents=meeting)
        elif partitions is not None:
            frame = frame.repartition(check_number("partitions", partitions))
        schema = worker_schema([events.frame.schema[name] for name in events.carried], task.found)
        if plan.plan == "sharded":
            return self._match_shards(frame, task, mapped, output, schema, about)
        if plan.plan == "local":
            rows = list(run(collect(frame).to_batches(), task))
            if not rows:
                return session.createDataFrame([], schema)
            return session.createDataFrame(pa.Table.from_batches(rows), schema)
        return frame.mapInArrow(in_worker(MATCH, task, called=f"dibs_match{about}"), schema)

    def _match_shards(
        self, frame: DataFrame, task: Task, mapped: Mapped, output: Output, schema: StructType, about: str
    ) -> DataFrame:
        if output.by_event and self.streaming:
            raise DibsError(
                "the matches of an event come from several shards, and a stream cannot wait for all of them: "
                "how='long' without top= works, and so does plan='replicated'"
            )
        # Rows of a stream are never gathered, and Spark numbers none there: it is enough that they are dealt out.
        row = F.xxhash64("event_id") if self.streaming else F.monotonically_increasing_id()
        numbered = frame.select(row.alias("row"), *frame.columns)
        task = replace(task, events=replace(task.events, carried=("row", *task.events.carried)))
        routed = StructType(
            [StructField("shard", IntegerType()), StructField("problem", StringType()), *_nullable(numbered.schema)]
        )
        visits = numbered.mapInArrow(in_worker(ROUTE, task, called=f"dibs_route{about}"), routed)
        shards = self.source.version.shards
        # A shard is one task, or several if there are more cores than shards; a task has one shard after the other.
        slices = max(1, -(-cores_of(frame.sparkSession) // shards))
        visits = visits.repartition(shards * slices, "shard", F.pmod("row", F.lit(slices)))
        visits = visits.sortWithinPartitions("shard") if not self.streaming else visits
        own = StructType([StructField("row", LongType()), *schema.fields])
        task = replace(task, subscriptions=replace(mapped, routed=True))
        rows = visits.mapInArrow(in_worker(MATCH, task, called=f"dibs_match{about}"), own)
        return gather_shards(rows, output, self.events.carried) if output.by_event else rows.drop("row")


def _nullable(schema: StructType) -> list[StructField]:
    return [StructField(field.name, field.dataType, metadata=kept_metadata(field)) for field in schema.fields]


def _open(
    events: Any,
    subscriptions: Any,
    event_id: str,
    attributes: str | None,
    on_error: OnError,
    options: MatchOptions,
    for_matches: bool = False,
) -> _Matching:
    """for_matches: and for nothing else, so that an index may not be needed."""
    check_names(options, MatchOptions)
    choice = check_choice(options.get("index", AUTO), None, None, options.get("options"))
    now, types = read_now(options.get("now")), options.get("types")
    check_on_error(on_error)
    session = session_of(events, subscriptions)
    check_workers(session)
    given = as_frame(events, session)
    event_id = column_name(given, event_id, "event_id")
    attributes = None if attributes is None else column_name(given, attributes, "attributes")
    keep = [column_name(given, name, "keep") for name in options.get("keep", ())]
    declared = None if types is None else check_types(types)
    may_be_texts = for_matches and on_error == "raise" and not options.get("explain", False)
    place, version = options.get("index_dir"), options.get("version")
    source = open_source(subscriptions, session, choice, on_error, place, version, may_be_texts, declared)
    columns = event_columns(given, source.version, event_id, attributes, keep, now)
    return _Matching(source, columns, given, not is_frame(events), now, options)


def carry_files(source: Source, session: SparkSession) -> Any:
    """The index files as bytes, for workers that may not see this machine's files. None: they do."""
    if source.shared or is_local(session):
        return None
    if source.version.bytes > CARRIED_BYTES:
        raise too_large(source.version.bytes, "take")
    folder = source.place.fetch(source.version)
    return send(session, {name: (folder / name).read_bytes() for name in source.version.files()})


def _carry_kernels(session: SparkSession) -> Any:
    """What is compiled on the driver, so that workers need not compile."""
    kernels = pack()
    return None if kernels is None else send(session, (kernels.processor, kernels.content))
