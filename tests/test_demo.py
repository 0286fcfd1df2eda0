"""The demo, small: what Spark wrote is what a local Matcher finds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dibs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = Path(__file__).parents[1] / "examples" / "shop_demo.py"


@pytest.fixture(scope="module")
def demo() -> Any:
    specification = importlib.util.spec_from_file_location("shop_demo", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["shop_demo"] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.spark
def test_demo_agrees_with_a_local_matcher(
    demo: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "MALFORMED", 0.02)
    out = tmp_path / "out"
    demo.run(subscriptions=300, events=50, out=out)  # what stands there is replaced
    capsys.readouterr()
    result = demo.run(subscriptions=2_000, events=500, out=out, seed=5)
    matcher = dibs.Matcher()
    matcher.add_table(pq.read_table(out / "subscriptions.parquet"))
    events = pq.read_table(out / "events.parquet")
    local = matcher.match_batch(events, attributes="attributes", on_error="skip")
    assert (len(matcher), len(events)) == (result.subscriptions, result.events) == (2_000, 500)
    assert result.matches == local.count > 100
    assert result.malformed == len({problem.event for problem in local.problems}) > 0

    ids = events["id"].to_pylist()
    pairs = local.pairs()
    expected = {(ids[e], s) for e, s in zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True)}
    written = ds.dataset(out / "matches.parquet", format="parquet").to_table()
    assert written.num_rows == len(expected)
    assert set(zip(written["event_id"].to_pylist(), written["subscription_id"].to_pylist(), strict=True)) == expected

    shown = capsys.readouterr().out
    assert f"{local.count:,}" in shown
    assert shown.count("there is something for you") == shown.count("you asked for") == demo.NOTIFICATIONS
    assert shown.count("because") >= demo.NOTIFICATIONS
    assert "category is '" in shown
    assert "matches.parquet" in shown


def test_demo_refuses_nonsense(demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["shop_demo.py", "--events", "0"])
    with pytest.raises(SystemExit) as end:
        demo.main()
    assert end.value.code == 2
    assert "at least 1" in capsys.readouterr().err
