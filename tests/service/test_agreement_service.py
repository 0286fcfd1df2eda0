"""The API gives the matches of the in-process Matcher, from eight clients at once, with changes in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from agreement import compare
from serving import running


@pytest.mark.parametrize("gather_from", [1, None])  # 1: whoever comes while others are matched is in the next batch
def test_eight_clients_at_once(tmp_path: Path, gather_from: int | None) -> None:
    with running(tmp_path / "searches", gather_from=gather_from) as served:
        tally = compare(served.url, served.token(), clients=8, rounds=15, seed=gather_from or 7)
        tenant = served.service.tenants.find("main")
    assert tally.wrong == []
    assert tally.answers > 300 and tally.matches > 60 and tally.changes > 200
    assert tenant is not None and (gather_from is None or tenant.gatherer.batches > 0)
