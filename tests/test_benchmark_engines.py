"""The JSON engines of other languages beside Dibs (benchmarks/sections/engines.py): what is measured is the same."""

import importlib
import json
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dibs import Matcher

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

# What an engine says, by the protocol: pairs to a file, a line when it is ready, a line for each line.
PROGRAM = """
import sys
rules, events, pairs, warm = sys.argv[1:]
open(pairs, "w").write({pairs!r})
print(0.5, flush=True)
for line in sys.stdin:
    print(7.5, flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def on_path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCHMARKS))
        yield


@pytest.fixture
def rules() -> ModuleType:
    return importlib.import_module("sections.engine_rules")


@pytest.fixture
def engines() -> ModuleType:
    return importlib.import_module("sections.engines")


def holds(pattern: dict[str, list[Any]], event: dict[str, Any]) -> bool:
    """What event-ruler and quamina mean by a pattern."""
    return all(any(_allows(wanted, event[name]) for wanted in either) for name, either in pattern.items())


def _allows(wanted: Any, value: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(wanted == value)
    ((kind, what),) = wanted.items()
    if kind == "numeric":
        return not isinstance(value, str) and what[1] <= value <= what[3]
    if kind == "prefix":
        return bool(value.startswith(what))
    return fnmatchcase(value, what)  # wildcard and shellstyle, of letters and stars


@pytest.mark.parametrize("name", ["few", "ranges", "many", "wildcards"])
def test_all_languages_say_the_same(rules: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "EVENTS", 60)
    workload = getattr(rules, name)(0.002 if name == "many" else 0.1)
    matcher = Matcher()
    matcher.add_many(enumerate(workload.expressions))
    found = [sorted(ids) for ids in matcher.match_batch(b"\n".join(workload.events))]
    assert any(found) and set(workload.patterns) == set(rules.DIALECTS if name != "ranges" else rules.DIALECTS[:1])
    for patterns in workload.patterns.values():
        for event, ids in zip(map(json.loads, workload.events), found, strict=True):
            assert [k for k, pattern in enumerate(patterns) if holds(pattern, event)] == ids
    if name in ("few", "many"):
        assert min(map(len, found)) >= (1 if name == "few" else 2)


def test_an_engine_that_is_missing_is_named_with_the_reason(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(engines, "GO_PLACES", str(tmp_path))
    monkeypatch.setattr(engines, "WORKLOADS", {})
    absent: dict[str, str] = {}
    engines.measure(0.01, absent, lambda text: None)
    assert absent == {
        "event-ruler (Java)": "there is no Maven on this machine",
        "quamina (Go)": "there is no Go on this machine",
    }


def test_a_tool_that_fails_is_quoted(engines: ModuleType, tmp_path: Path) -> None:
    words = "import sys; sys.exit('downloading\\n[ERROR] no network\\nsee above')"
    with pytest.raises(engines.Unavailable, match=r"\[ERROR\] no network"):
        engines._run([sys.executable, "-c", words], tmp_path)


def measure_with(engines: ModuleType, monkeypatch: pytest.MonkeyPatch, program: str) -> Any:
    rules = importlib.import_module("sections.engine_rules")
    engine = engines.Engine("ruler", lambda: [sys.executable, "-c", program], {})
    monkeypatch.setattr(engines, "ENGINES", {"some engine": engine})
    monkeypatch.setattr(engines, "WORKLOADS", {"rules": lambda share: _make_two(rules)})
    return engines.measure(1, {}, lambda text: None)["rules"]


def _make_two(rules: ModuleType) -> Any:
    patterns = [{"a": [1]}, {"a": [2]}]
    return rules.Rules(["a = 1", "a = 2"], {"ruler": patterns}, [b'{"a": 2}', b'{"a": 3}'])


def test_an_engine_takes_turns_once_its_pairs_are_right(engines: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure_with(engines, monkeypatch, PROGRAM.format(pairs="0 1\n"))
    assert found["microseconds per event"]["some engine"] == 7.5
    assert found["agreed"] == ["dibs, match", "some engine"] and not found["left out"]


def test_wrong_pairs_are_not_timed(engines: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="some engine found 1 matches that are not the 1 expected ones"):
        measure_with(engines, monkeypatch, PROGRAM.format(pairs="0 0\n"))


def test_an_engine_that_ends_early_is_left_out_with_its_last_words(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measure_with(engines, monkeypatch, "import sys; sys.exit('too many rules')")
    assert found["left out"] == {"some engine": "too many rules"}
    assert set(found["microseconds per event"]) == {"dibs, match", "dibs, match_batch"}
