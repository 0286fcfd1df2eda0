"""A short form of tests/spark/cluster_kills.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster_kills import run


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.kills
def test_a_cluster_that_loses_an_executor_and_a_worker_is_exact(tmp_path: Path) -> None:
    """Workers that do not see the driver's folders, where this process may hide one from them."""
    can_hide = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    assert "an executor and a worker killed" in run(tmp_path, apart=can_hide)
