"""A local Spark session for what Dibs starts itself: the demo, the CLI and the tests. Jobs bring their own. And what
Spark's pages say of jobs that Dibs runs."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dibs.java import ensure_java

_LOGGING = Path(__file__).with_name("log4j2.properties")


def session(cores: int | None = None, app: str = "dibs", **config: str | int) -> SparkSession:
    """A session on this machine (all cores, or so many), quiet and in UTC, that needs no exported variable.

    Further settings go by name with `_` for `.`: session(spark_driver_memory="4g"). A session that runs already in
    this process is returned as it is.
    """
    ensure_java()
    # Spark starts its workers with `python3` from PATH unless told otherwise; Dibs may not be installed in that one.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings: dict[str, str | int] = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 4,
        "spark.python.daemon.module": "dibs.spark.daemon",
        # Over TCP each end waits for the other's delayed acknowledgement: 40 ms of every small task.
        "spark.python.unix.domain.socket.enabled": "true" if hasattr(socket, "AF_UNIX") else "false",
    }
    settings |= {name.replace("_", "."): value for name, value in config.items()}
    builder = SparkSession.builder.appName(app).master(f"local[{cores or '*'}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


DESCRIPTION = "spark.job.description"


@contextmanager
def describe_jobs(session: Any, text: str) -> Iterator[None]:
    """The jobs within have this description, as far as the session has any (Spark Connect has not)."""
    try:
        context = session.sparkContext
        before = context.getLocalProperty(DESCRIPTION)
    except Exception:  # whatever Connect raises, by its version
        yield
        return
    context.setLocalProperty(DESCRIPTION, f"dibs: {text}")
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)
