"""Nothing is above its budget (budgets.toml; budgets.py says how to change one)."""

from __future__ import annotations

from pathlib import Path

import pytest

import budgets
from walks import matcher_walks, service_walks


def test_lines_and_files() -> None:
    assert budgets.exceeded(budgets.measure_folders(), budgets.read()) == []


def test_walks_of_a_matcher() -> None:
    assert budgets.exceeded(budgets.measure_walks(matcher_walks()), budgets.read()) == []


def test_walks_of_the_service() -> None:
    assert budgets.exceeded(budgets.measure_walks(service_walks()), budgets.read()) == []


def test_what_parts_of_auto_look_at() -> None:
    assert budgets.exceeded(budgets.measure_candidates(), budgets.read()) == []


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ({"src/dibs/a": 26, "src/dibs": 1}, "'src/dibs/a' is 50, and may be 25"),
        ({"src/dibs/a": 25, "src/dibs/b": 1, "src/dibs": 1}, "'src/dibs/b' has no budget"),
        ({"src/dibs": 1}, "'src/dibs/a' is gone"),
        ({"src/dibs/a": 25, "src/dibs": 1}, None),
    ],
)
def test_the_check_finds(tmp_path: Path, lines: dict[str, int], complaint: str | None) -> None:
    for folder, count in lines.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "x.py").write_text("\n" * count)
    allowed = {"lines": {"src/dibs/a": 25, "src/dibs": 25}, "files": {"src/dibs/a": 1, "src/dibs/b": 1, "src/dibs": 1}}
    found = [text for text in budgets.exceeded(budgets.measure_folders(tmp_path), allowed) if text.startswith("lines")]
    assert (complaint is None and found == []) or (len(found) == 1 and str(complaint) in found[0])


def test_the_table_is_written_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = budgets.read()
    monkeypatch.setattr(budgets, "TABLE", tmp_path / "budgets.toml")
    budgets.write(before)
    assert budgets.read() == before and before["walk_files"]["add"] > 0
