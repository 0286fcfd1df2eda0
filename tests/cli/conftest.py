from __future__ import annotations

from pathlib import Path

import pytest

from command_line import EVENTS, SUBSCRIPTIONS, lines_of


@pytest.fixture
def subs(tmp_path: Path) -> Path:
    path = tmp_path / "subs.jsonl"
    path.write_bytes(lines_of(SUBSCRIPTIONS))
    return path


@pytest.fixture
def products(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(lines_of(EVENTS))
    return path
