"""A pipeline as a program: a job file in TOML says where events and subscriptions come from and where matches go.

job.py    which keys there are; the file to a JobFile, with an error for each key that is wrong
run.py    a JobFile to a running stream, or a backfill
"""

from __future__ import annotations

from dibs.spark.pipeline.job import JobFile, read_job
from dibs.spark.pipeline.run import Summary, run_job

__all__ = ["JobFile", "Summary", "read_job", "run_job"]
