"""The daemon that Spark forks its Python workers from, in sessions that Dibs starts itself: it has everything imported,
and the kernels loaded, before it forks, so that a new worker begins with the first row instead of with a second and a
half of both."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import dibs.spark.building
import dibs.spark.worker  # noqa: F401
from dibs.jit.ready import is_ready
from dibs.matcher import Matcher
from dibs.warming.sample import EVENT, TEXTS


def load_kernels() -> None:
    """Those that a task of `compile` or `match` calls, if they are compiled. One thread: others do not live on in a
    fork."""
    if not is_ready():
        return
    with Matcher(threads=1) as matcher:
        matcher.add_table(pa.table({"id": range(len(TEXTS)), "expression": TEXTS}))
        pairs = pa.array([[("price", 15.0)], [("stock", 1.0)]], pa.map_(pa.string(), pa.float64()))
        texts = pa.array(['{"model": "a", "price": 550}', '{"brand": "A"}'] * 5)
        for column in (pairs, texts):
            matcher.match_batch(pa.table({"attributes": column}), attributes="attributes").by_event()
        matcher.match_batch(pa.Table.from_pylist([EVENT, EVENT])).by_event()


def end_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker whose socket Spark has closed, as it does after a minute without work, ends without a traceback in the
    terminal. (A TCP socket takes what a worker says last, though nobody reads it; a Unix socket does not.)"""

    def work(*given: Any) -> int:
        try:
            return worker(*given)
        except BrokenPipeError:
            return 1  # not to be used again

    return work


if __name__ == "__main__":
    from pyspark import daemon

    load_kernels()
    gc.collect()
    gc.freeze()  # after each task a worker looks for garbage: among all these objects a tenth of a second and more
    daemon.worker = end_quietly(daemon.worker)
    daemon.manager()
