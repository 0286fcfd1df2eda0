"""Documents that cannot be kept, and those that nearly cannot: refused when they come, everywhere alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

import dibs
from plain_matchers import plain_matcher

JOIN = "EXISTS d (d.a = a)"
NULL = "EXISTS d (d.a IS NULL)"
DEEP = "found more than 200 objects and arrays inside each other"


def nested(levels: int, array: bool = True) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if array else {"x": value}
    return value


def holding_itself() -> dict[str, Any]:
    document: dict[str, Any] = {"a": 1}
    document["b"] = [document]
    return document


def lines_of(document: Any) -> bytes:
    return orjson.dumps(document)


# Each takes a matcher and a document, after which it is kept, or nothing has changed.
WAYS: dict[str, Callable[[dibs.Matcher, Any], Any]] = {
    "add": lambda m, document: m.history.add(document),
    "load": lambda m, document: m.history.load([{"a": 7}, document]),
    "match": lambda m, document: m.match(document, remember=True),
    "match with key": lambda m, document: m.match(document, remember=True, key="k"),
    "match_batch": lambda m, document: m.match_batch([{"a": 7}, document], remember=True),
}
OF_JSON: dict[str, Callable[[dibs.Matcher, Any], Any]] = {
    "add text": lambda m, document: m.history.add(lines_of(document)),
    "load lines": lambda m, document: m.history.load(b'{"a":7}\n' + lines_of(document)),
    "match text": lambda m, document: m.match(lines_of(document), remember=True),
    "match lines": lambda m, document: m.match_batch(lines_of(document) + b'\n{"a":7}', remember=True),
    "load under a key": lambda m, document: m.history.load([{"d": lines_of(document)}], attributes="d"),
    "load a column": lambda m, document: m.history.load(
        pa.table({"d": ["{}", lines_of(document).decode()]}), attributes="d"
    ),
    "match a column": lambda m, document: m.match_batch(
        pa.table({"d": [lines_of(document).decode()]}), attributes="d", remember=True
    ),
}


@pytest.fixture(params=["memory", "durable"])
def matcher(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    m = dibs.Matcher() if request.param == "memory" else dibs.Matcher.open(tmp_path / "m")
    m.add("null", NULL)
    yield m
    m.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"a": 1, "b": {1: 2}}, "found the key 1 of type int below 'b'; expected keys that are strings"),
        ({"a": 1, "b": [{"c": {None: 2}}]}, "found the key None of type NoneType below 'b'"),
        ({"a": 1, 2: 3}, "found the key 2 of type int; expected keys that are strings"),
        ({"a": 1, "b": nested(201)}, DEEP),
        ({"a": 1, "b": nested(340, array=False)}, DEEP),
        ({"a": 1, "b": np.array([nested(200)], object)}, DEEP),
        (holding_itself(), DEEP),
        ({"a": 1, "b": [[dibs.Range(1, 2)]]}, "no Range"),
    ],
    ids=["key", "deeper key", "own key", "deep", "objects", "array", "itself", "range"],
)
def test_what_cannot_be_kept_is_refused(matcher: dibs.Matcher, way: str, document: Any, message: str) -> None:
    with pytest.raises(dibs.EventError, match=message.replace("?", r"\?")):
        WAYS[way](matcher, document)
    assert len(matcher.history) == 0 and matcher.match({"a": 1}) == []


@pytest.mark.parametrize("way", [*WAYS, *OF_JSON])
@pytest.mark.parametrize("array", [True, False])
def test_as_deep_as_may_be(matcher: dibs.Matcher, way: str, array: bool, tmp_path: Path) -> None:
    bring = (WAYS | OF_JSON)[way]
    with pytest.raises(dibs.EventError, match=DEEP):
        bring(matcher, {"a": 1, "b": nested(201, array)})
    assert len(matcher.history) == 0
    bring(matcher, {"a": 1, "b": nested(200, array)})
    path = "b" if array else "b" + ".x" * 200
    matcher.add("deep", f"EXISTS d (d.`{path}` = one)" if array else f"EXISTS d (d.{path} = one)")
    matcher.add("a", JOIN)
    found = ["a", "deep", "null"] if "column" in way and "load" in way else ["a", "deep"]
    assert matcher.match({"a": 1, "one": 1}) == found
    matcher.save(tmp_path / "s")
    with dibs.Matcher.load(tmp_path / "s") as saved:
        assert saved.match({"a": 1, "one": 1}) == found


def test_what_is_refused_does_not_depend_on_what_is_asked() -> None:
    """The key that is no string made a document unreadable once something below it was asked for."""
    m = dibs.Matcher()
    with pytest.raises(dibs.EventError, match="found the key 1"):
        m.history.load([{"a": 1, "b": {1: 2}}])
    m.add("below", "EXISTS d (d.b.c = 1)")
    m.add("null", NULL)
    assert m.match({}) == [] and not m.explain("null", {}).matched
    found = m.match_batch([{"a": 1, "b": {1: 2}}, {"a": 2}], on_error="skip", remember=True)
    assert [problem.event for problem in found.problems] == [0] and len(m.history) == 1


def test_events_have_the_same_limit(tmp_path: Path) -> None:
    """In what is asked for, whichever way the event comes; the rest of an event is not looked at."""
    good, bad = {"a": nested(200)}, {"a": nested(201)}
    for m in (dibs.Matcher(), plain_matcher(), dibs.Matcher("scan")):
        m.add("it", "a = 1")
        ask: list[Callable[[Any], Any]] = [
            m.match,
            lambda event, m=m: m.match(lines_of(event)),
            lambda event, m=m: list(m.match_batch([event]))[0],
            lambda event, m=m: list(m.match_batch(b"\n".join([lines_of(event)] * 9)))[0],
            lambda event, m=m: m.count([event]),
            lambda event, m=m: m.explain("it", event).matched,
            lambda event, m=m: m.explain("it", lines_of(event)).matched,
            lambda event, m=m: m.replay([event]).pairs,
            lambda event: dibs.backtest("a = 1", [event]).count,
            lambda event: dibs.backtest("a = 1", lines_of(event)).count,
            lambda event: dibs.backtest(f"a = 1 AND NOT {JOIN}", [event]).count,
        ]
        for each in ask:
            assert each(good)
            with pytest.raises(dibs.EventError, match=DEEP):
                each(bad)
        unasked = {"a": 1, "b": nested(5_000), "c": {1: 2}, "d": holding_itself()}
        for each in ask[:1] + ask[2:3] + ask[4:6]:
            assert each(unasked)
        assert dibs.backtest("a = 1", [unasked]).count == 1
        assert "event 0" in str(dibs.backtest("a = 1", [unasked]))


def test_a_caller_that_has_come_far() -> None:
    """What is left of Python's stack decides about nothing but whether it is enough."""
    m = dibs.Matcher()
    m.add("it", "a.x = 1")

    def call(frames: int) -> Any:
        return m.match({"a": {"x": 1}, "b": nested(150)}) if frames == 0 else call(frames - 1)

    assert call(600) == ["it"]


def test_values_that_cannot_be_copied_or_pickled(tmp_path: Path) -> None:
    odd = [threading.Lock(), (n for n in range(3)), open, type("Local", (), {})(), memoryview(b"x")]
    for m in (dibs.Matcher(), dibs.Matcher.open(tmp_path / "m")):
        with m:
            m.add("it", JOIN)
            m.history.add({"a": 1, "odd": odd[0]})
            m.history.load([{"a": 2, "odd": each, "in": {"list": [each]}} for each in odd])
            m.match({"a": 3, "odd": odd[1]}, remember=True)
            assert len(m.history) == 7 and [m.match({"a": a}) for a in (1, 2, 3, 4)] == [["it"]] * 3 + [[]]
            m.add("odd", "EXISTS d (d.odd = 1) OR EXISTS d (d.odd IS NULL AND d.a < 3)")  # nothing is known of it
            assert m.match({"a": 1}) == ["it"]
            with pytest.raises(dibs.EventError, match=r"attribute 'odd': found a value of type lock"):
                m.history.add({"odd": odd[0]})


def test_documents_do_not_change_with_the_callers() -> None:
    m = dibs.Matcher()
    inner: list[Any] = [1]
    array = np.array([5])
    document = {"a": inner, "b": {"c": inner}, "n": array, "o": np.array([inner, None], object)}
    m.history.load([document])
    inner[0], array[0] = 2, 6
    for path, value in (("a", 1), ("b.c", 1), ("n", 5), ("o", 1)):
        m.add(path, f"EXISTS d (d.{path} = {value})")
    assert m.match({}) == ["a", "b.c", "n", "o"]
