"""What all tests share: the Hypothesis profile and the Spark session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from brokers import run_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests, and the processes that they start, compile what they need when they need it, and nothing in the background. The
# compiled matcher is here from the beginning: tests that want the small one without kernels ask for it (test_cold.py).
os.environ.setdefault("DIBS_WARM", "never")
import dibs.matcher  # noqa: F401

# Deterministic: the same examples in every run, so a red test is red for everybody. Not many, as most properties are
# tested at three settings of the thresholds; DIBS_EXAMPLES=1000 looks further, with new examples in each run.
EXAMPLES = os.environ.get("DIBS_EXAMPLES")
settings.register_profile(
    "dibs",
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,  # the first call of a kernel compiles it
    max_examples=int(EXAMPLES or 60),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dibs")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One classic local session for all Spark tests of a process. (Spark Connect does not mix with it:
    test_spark_connect.py starts a process of its own.)"""
    from dibs.spark import session

    running = session(cores=2, app="dibs-tests", spark_sql_shuffle_partitions=2)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Any]:
    """A Kafka broker on this machine."""
    with run_broker() as running:
        yield running


# The groups that take longest, the longest first. They begin first, so that at the end no process is left alone with
# one of them. All others come in the order in which they are collected.
LONGEST = (
    "spark",
    "spark streams",
    "test_benchmarks",
    "test_crash",
    "test_outside_rivals",
    "test_lives",
    "test_indexes",
    "test_exactness",
    "test_spark_connect",
    "test_warming",
    "test_processes",
    "test_delivery_kills",
    "test_history_lives",
    "test_faults",
    "test_catalog",
    "test_durable",
    "test_cold",
    "test_console",
    "test_interrupts",
    "test_joins",
    "test_agreement",
)


# Of the tests with the Spark session below, the files that have another process, with a session of its own.
STREAMS = ("test_living_stream", "test_spark_stream", "test_pipeline", "test_joins_spark")


def group_of(item: pytest.Item) -> str:
    """The tests of a file are a group; those with a Spark session are two."""
    if "spark" not in getattr(item, "fixturenames", ()):
        return item.path.stem
    return "spark streams" if item.path.stem in STREAMS else "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `--dist loadgroup --no-loadscope-reorder`: one process runs a group, and groups begin in this order."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    places = {group: place for place, group in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(group_of(item), len(places)))
