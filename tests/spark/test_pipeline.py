"""dibs pipeline: job files, their mistakes, and a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dibs.cli.commands import app
from dibs.errors import MissingFile
from dibs.matcher import Matcher
from dibs.spark.pipeline import read_job, run_job
from dibs.spark.pipeline.job import PARTS, JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop.toml"
GOOD = """
[source]
path = "events"
[subscriptions]
path = "subs"
[sink]
path = "out"
[job]
checkpoint = "checkpoint"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_paths_are_those_of_the_file_and_settings_override(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    job = read_job(path, {"sink.path": "elsewhere", "job.carry": "version,weight", "source.files_per_batch": "3"})
    assert job.source["path"] == str(tmp_path / "events") and job.sink["path"] == "elsewhere"
    assert job.job["carry"] == ["version", "weight"] and job.source["files_per_batch"] == 3
    assert (job.source.kind, job.subscriptions.kind, job.sink.kind) == ("files", "folder", "parquet")
    assert read_job(path, {"sink.kind": "delta"}).sink["name"] == "dibs"
    assert "elsewhere" in job.show()


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("[sink]", "[sunk]", "there is no part [sunk]; did you mean 'sink'?"),
        ("[sink]", "[sunk]", "the part [sink] is missing"),
        ('path = "out"', 'pth = "out"', "[sink] of the kind 'parquet' has no key 'pth'; did you mean 'path'?"),
        ('path = "out"', 'pth = "out"', "[sink] needs path: the folder; batch=N in it"),
        ('path = "out"', 'path = "out"\nfiles = "two"', "files = 'two': expected a number"),
        (
            'path = "out"',
            'path = "out"\nkind = "kafak"',
            "expected 'parquet' or 'delta' or 'kafka' or 'webhook'; did you",
        ),
        ('path = "subs"', "path = 7", "[subscriptions] of the kind 'folder' path = 7: expected a string"),
        (
            'checkpoint = "checkpoint"',
            'mode = "bath"',
            "[job] mode = 'bath': expected continuous, available-now, batch",
        ),
        ('checkpoint = "checkpoint"', 'mode = "batch"', "[job] needs checkpoint"),
        ("[source]", "source = 1\n[source2]", "source must be a part"),
        ("[source]", "[source", "is no TOML file"),
    ],
)
def test_each_bad_key_is_told(tmp_path: Path, before: str, after: str, complaint: str) -> None:
    with pytest.raises(JobError) as told:
        read_job(written(tmp_path, GOOD.replace(before, after)))
    assert complaint in str(told.value)


def test_bad_settings_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"--set sorce.path: expected PART.KEY=VALUE; did you mean 'source'"):
        read_job(written(tmp_path, GOOD), {"sorce.path": "x"})
    with pytest.raises(MissingFile):
        read_job(tmp_path / "nothing.toml")


def test_the_command_line(tmp_path: Path) -> None:
    def call(*words: str) -> Any:
        return CliRunner().invoke(app, ["pipeline", *words])

    dry = call("run", str(EXAMPLE), "--dry-run")
    assert dry.exit_code == 0 and "matches.parquet" in dry.output
    assert call("run", str(EXAMPLE), "--dry-run", "--set", "sink").exit_code == 2
    bad = call("run", str(written(tmp_path, GOOD.replace("path", "paht"))))
    assert bad.exit_code == 3 and "did you mean 'path'?" in bad.output
    keys = call("keys").output
    assert all(name in keys for kinds in PARTS.values() for names in kinds.values() for name in names)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["batch", "available-now"])
def test_a_job_gives_what_a_matcher_gives(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    events = [{"id": f"e{n}", "n": n, "s": "ab"[n % 2]} for n in range(20)]
    (tmp_path / "events").mkdir()
    for start in (0, 10):
        lines = "\n".join(map(json.dumps, events[start : start + 10]))
        (tmp_path / "events" / f"{start}.json").write_text(lines)
    texts = {"small": "n < 5", "a": "s = 'a'", "both": "n > 10 AND s = 'b'"}
    pq.write_table(pa.table({"id": list(texts), "expression": list(texts.values())}), tmp_path / "subs")
    job = read_job(written(tmp_path, GOOD), {"subscriptions.kind": "table", "job.mode": mode, "job.partitions": "2"})
    summary = run_job(job, spark=spark)
    matcher = Matcher()
    matcher.add_many(texts.items())
    expected = sorted((event["id"], id) for event in events for id in matcher.match(event))
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["event_id"], row["subscription_id"]) for row in rows) == expected
    assert (summary.events, summary.matches, summary.batches) == (20, len(expected), 1)
    assert "20 events in 1 batches" in summary.show()
