"""In a worker: which shards an event visits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dibs.language.expression import Kind
from dibs.language.types import Types, check_types
from dibs.matcher import Matcher
from dibs.spark.dealing import NO_SHARD, Mapped, read_version
from dibs.spark.found import problem_texts
from dibs.spark.worker import Task, unpack_kernels

MENTIONED_TOGETHER = 500  # attributes in one subscription of a router
_CONSTANTS = {Kind.BOOLEAN: "TRUE", Kind.NUMBER: "0", Kind.STRING: "''", Kind.TIME: "DATE '1970-01-01'"}


def route(batches: Iterable[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """Events with the shards that they visit: the columns shard, problem and all others, a row for each shard; and a
    row with NO_SHARD for each event, if every event counts, or if something is wrong with it."""
    assert isinstance(task.subscriptions, Mapped)
    unpack_kernels(task.kernels)
    router = make_router(task.subscriptions.text)
    shards = task.subscriptions.version.shards
    carried = len(task.events.carried)
    for batch in batches:
        found = router.match_batch(
            task.events.select(batch),
            attributes=task.events.attributes,
            on_error="skip",
            now=task.events.find_now(batch),
        )
        pairs = found.pairs()
        event, shard = pairs["event"].to_numpy(), pairs["subscription"].to_numpy()
        event, shard = event[shard < shards], shard[shard < shards]
        problems = problem_texts(found.problems)
        alone = np.arange(len(batch)) if task.found.every_event else np.array(sorted(problems), np.int64)
        texts = pa.array([None] * len(event) + [problems.get(e) for e in alone.tolist()], pa.string())
        event, shard = np.concatenate([event, alone]), np.concatenate([shard, np.full(len(alone), NO_SHARD)])
        order = pa.array(np.argsort(shard, kind="stable"))
        taken = pa.array(event).take(order)
        # A row that only tells of an event is not matched: it travels without the attributes.
        matched = pa.array(event, mask=shard == NO_SHARD).take(order)
        own = [c.take(taken if place < carried else matched) for place, c in enumerate(batch.columns)]
        columns = [pa.array(shard.astype(np.int32)).take(order), texts.take(order), *own]
        yield pa.RecordBatch.from_arrays(columns, names=["shard", "problem", *batch.schema.names])


def _constant(name: str, types: Types) -> str:
    return str(types.domains[name][0]) if name in types.domains else _CONSTANTS[types.kind_of(name) or Kind.BOOLEAN]


@lru_cache(maxsize=4)
def make_router(text: str) -> Matcher:
    """Whom an event visits: a matcher whose subscriptions are the routes, by the number of their shard. Those behind
    them mention all attributes, so that whatever is wrong with one of them is found here: conjunctions of very many, as
    an event looks at each through one of its predicates only."""
    version = read_version(text)
    router = Matcher(threads=1, types=version.types)
    types = check_types(version.types)
    names = [f"`{name.replace('`', '``')}` IN ({_constant(name, types)})" for name in sorted(version.attributes)]
    mentions = (" AND ".join(names[i : i + MENTIONED_TOGETHER]) for i in range(0, len(names), MENTIONED_TOGETHER))
    router.add_many(enumerate([*version.routes, *mentions]))
    return router
