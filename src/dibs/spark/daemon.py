"""The daemon that Spark forks its Python workers from, in sessions that Dibs starts itself: it has everything imported
before it forks, so that a new worker begins with the first row instead of with half a second of imports."""

from __future__ import annotations

import dibs.matcher
import dibs.spark.building
import dibs.spark.worker  # noqa: F401

if __name__ == "__main__":
    from pyspark.daemon import manager

    manager()
