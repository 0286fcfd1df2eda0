"""What all tests share: the Hypothesis profile and the Spark session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from brokers import run_broker
from groups import SLOW, SPARK, GroupScheduling, group_of, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests, and the processes that they start, compile what they need when they need it, and nothing in the background. The
# engine is here from the beginning: tests that want a matcher that has none yet ask for it (plain_matcher).
os.environ.setdefault("DIBS_WARM", "never")
# JVMs of tests live for some minutes at most: Java's second compiler, and collectors of garbage with threads of their
# own, would take a third more of the processor than they give back.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
from dibs import engine
from dibs.tuning import put

engine.load()
put({"tried_clauses": 0})  # plans are those of the unit costs, whatever the machine; test_trials.py tries them

# Deterministic: the same examples in every run, so a red test is red for everybody. Not many, as most properties are
# tested at three settings of the thresholds; DIBS_EXAMPLES=1000 looks further, with new examples in each run.
EXAMPLES = os.environ.get("DIBS_EXAMPLES")
settings.register_profile(
    "dibs",
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,  # the first call of a kernel compiles it
    max_examples=int(EXAMPLES or 40),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dibs")

# What a shell starts in the background ignores interrupts, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and group_of(item.nodeid) not in SPARK:
            raise pytest.UsageError(f"{item.nodeid} has a Spark session: name it in SPARK of tests/groups.py")
        if group_of(item.nodeid) in SLOW:
            item.add_marker("slow")
    items.sort(key=lambda item: place_of(group_of(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """With `--no-loadscope-reorder` groups begin in the order of the tests."""
    return GroupScheduling(config, log)
