"""Windows in time over HTTP, whose times are texts, against DuckDB. (More of it: tests/windows.py.)"""

from __future__ import annotations

from pathlib import Path

from serving import running

from windows import RULES, by_duckdb, by_http, logins


def test_logins(tmp_path: Path) -> None:
    events = logins(1_500, 7)
    right = by_duckdb(events)
    assert {name for _, name in right} == set(RULES)
    with running(tmp_path / "searches") as served:
        assert by_http(served.client(), events, 400) ^ right == set()
