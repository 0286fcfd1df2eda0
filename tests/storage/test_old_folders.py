"""Folders that older versions wrote (tests/old_folders.py) are opened, matched and changed by this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.language.sql import parse
from dibs.reference import matches
from dibs.storage import store
from dibs.storage.older import OlderLanguage
from old_folders import FOLDERS, event_of

VERSIONS = sorted(path.name for path in FOLDERS.iterdir())
FORMS = ("durable", "saved", "saved-betree")


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of the folder, and what must be found in it."""
    shutil.copytree(FOLDERS / request.param, tmp_path / "old")
    expected = json.loads((tmp_path / "old" / "expected.json").read_text())
    expected["events"] = [event_of(event) for event in expected["events"]]
    return tmp_path / "old", expected


def open_any(folder: Path, form: str) -> dibs.Matcher:
    return dibs.Matcher.open(folder / form) if form == "durable" else dibs.Matcher.load(folder / form)


def by_text(ids: Any) -> list[Any]:
    return sorted(ids, key=str)


def check(m: dibs.Matcher, expected: dict[str, Any]) -> None:
    weights = {id: weight for id, _, weight in expected["subscriptions"]}
    assert len(m) == len(weights) and all(id in m for id in weights)
    assert len(m.history) == len(expected["documents"])
    assert [by_text(m.match(event)) for event in expected["events"]] == expected["matches"]
    assert [by_text(ids) for ids in m.match_batch(expected["events"])] == expected["matches"]
    for event, found in zip(expected["events"], expected["matches"]):
        heaviest = sorted((weights[id] for id in found), reverse=True)[:5]
        assert [weights[id] for id in m.match(event, top=5)] == heaviest


def test_there_is_a_folder_of_the_first_version() -> None:
    assert "0.1" in VERSIONS
    durable = {path.name.split("-")[0] for path in (FOLDERS / "0.1" / "durable").iterdir()}
    assert {"catalog", "index.dibs", "segment", "removed"} <= durable, "segments and tombstones are among its files"


@pytest.mark.parametrize("form", FORMS)
def test_it_is_opened_and_matched(old: tuple[Path, dict[str, Any]], form: str) -> None:
    folder, expected = old
    with open_any(folder, form) as m:
        check(m, expected)
        id = expected["matches"][0][0]
        assert m.explain(id, expected["events"][0]).matched


def test_the_reference_still_says_the_same(old: tuple[Path, dict[str, Any]]) -> None:
    _, expected = old
    trees = {id: parse(text) for id, text, _ in expected["subscriptions"]}
    for event, found in zip(expected["events"], expected["matches"]):
        assert by_text(id for id, tree in trees.items() if matches(tree, event, expected["documents"])) == found


def test_it_is_changed_saved_and_opened_again(old: tuple[Path, dict[str, Any]]) -> None:
    folder, expected = old
    with dibs.Matcher.open(folder / "durable") as m:
        m.add("new", "a = 1", 3.0)
        m.remove("late")
        m.compact()
    expected["subscriptions"] = [s for s in expected["subscriptions"] if s[0] != "late"] + [["new", "a = 1", 3.0]]
    for event, found in zip(expected["events"], expected["matches"]):
        if "late" in found:
            found.remove("late")
        if event.get("a") in (1, [1, 7]):
            found.append("new")
        found.sort(key=str)
    with dibs.Matcher.open(folder / "durable") as m:
        check(m, expected)


@pytest.mark.parametrize("form", FORMS)
def test_strings_are_read_as_times_today(old: tuple[Path, dict[str, Any]], form: str) -> None:
    folder, expected = old
    event = {"at": "2024-05-01T06:00:00+02:00"}
    trees = {id: parse(text) for id, text, _ in expected["subscriptions"]}
    found = by_text(id for id, tree in trees.items() if matches(tree, event, expected["documents"]))
    assert any("TIMESTAMP" in text for id, text, _ in expected["subscriptions"] if id in found)
    for _ in range(2):  # a durable one is saved in between
        with open_any(folder, form) as m:
            assert by_text(m.match(event)) == found == by_text(next(iter(m.match_batch([event]))))
            assert len(m) == len(trees)
            if form == "durable":
                m.compact()


def test_what_only_texts_tell_is_compiled_again(
    old: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = old

    def refuse(path: Path, *_: Any) -> Any:
        raise OlderLanguage(f"{path} is older")

    monkeypatch.setattr(store, "move_times", refuse)
    with pytest.warns(dibs.RecoveryWarning, match="is older"), open_any(folder, "durable") as m:
        check(m, expected)
    with pytest.raises(dibs.FormatError, match="is older"):
        open_any(folder, "saved")
