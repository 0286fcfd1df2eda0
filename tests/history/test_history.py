"""The history of a matcher: what is in it, what goes, what a match does to it, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import dibs
from dibs.history.answering import Answerer
from dibs.tuning import using

NOON = dt.datetime(2024, 1, 1, 12)
MINUTE = dt.timedelta(minutes=1)
COUNT = "(SELECT COUNT(*) FROM history d)"


def matcher(*texts: str, **settings: Any) -> dibs.Matcher:
    """Subscriptions with their texts' numbers as ids."""
    m = dibs.Matcher(**settings)
    m.add_many(list(enumerate(texts)))
    return m


def left(m: dibs.Matcher, name: str = "n") -> list[Any]:
    """Which documents are there, as joins see them: by their numbers, from 0 to 29."""
    with dibs.Matcher() as other:
        other.history = m.history
        other.add_many([(n, f"EXISTS d (d.{name} = {n})") for n in range(30)])
        found = other.match({})
        other.history = dibs.Matcher().history  # or it would be closed
    return found


# ---- the paper ----

BOOKS = [{"price": 10, "year": 2000, "author": "Smith"}, {"price": 25, "year": 1999}]


def test_examples_1_to_3() -> None:
    smith, papers = "author = 'Smith'", "area = 'Databases' AND year > 2000 AND doc_type = 'CFP'"
    new_ones = "author = 'Smith' AND 10 <= price AND price <= 30 AND FORALL d (isbn <> d.isbn)"
    m = matcher(smith, papers, new_ones)
    book = {"author": "Smith", "price": 20, "isbn": 1}
    assert m.match(book, remember=True) == [0, 2]
    assert m.match(book, remember=True) == [0]
    assert m.match({"area": "Databases", "year": 2001, "doc_type": "CFP"}, remember=True) == [1]
    assert m.match(book | {"isbn": 2}) == [0, 2]
    assert m.match(book | {"isbn": 2, "price": 31}) == [0]


def test_example_4() -> None:
    """Its figure did not come with the text; the cluster of its profiles is tested with the indexes of the paper."""
    m = matcher("x > 10 AND y < 5", "x <= 20 AND y >= 5")
    assert m.match({"x": 20, "y": 4}) == [0] and m.match({"x": 20, "y": 5}) == [1]


def test_example_5() -> None:
    """The join table: P2 and P3 match, each join being one attribute of the event."""
    m = matcher("EXISTS d (price < d.price)", "FORALL d (year > d.year)", "EXISTS d (author = d.author)")
    m.history.load(BOOKS)
    assert m.match({"price": 30, "year": 2001, "author": "Smith"}) == [1, 2]
    assert m.joins == [
        "EXISTS (SELECT 1 FROM history d WHERE d.author = author)",
        "EXISTS (SELECT 1 FROM history d WHERE d.price > price)",
        "EXISTS (SELECT 1 FROM history d WHERE d.year >= year)",
    ]


def test_example_5_the_join_table() -> None:
    """The document bit vectors of its three entries: 00, 11 and 10."""
    pairs = ["price < d.price", "year > d.year", "author = d.author"]
    new = {"price": 30, "year": 2001, "author": "Smith"}
    vectors = []
    for pair in pairs:
        m = matcher(*(f"EXISTS d ({pair} AND d.n = {n})" for n in range(len(BOOKS))))
        m.history.load([book | {"n": n} for n, book in enumerate(BOOKS)])
        vectors.append("".join("01"[n in m.match(new)] for n in range(len(BOOKS))))
    assert vectors == ["00", "11", "10"]


def test_examples_6_and_7() -> None:
    m = matcher("price = 10 AND EXISTS d (d.price = price)", "price < 10 AND EXISTS d (d.price = price)")
    m.history.load(BOOKS)
    assert m.match({"price": 10}) == [0] and m.match({"price": 25}) == [] and m.match({"price": 9}) == []
    m.history.add({"price": 9})
    assert m.match({"price": 9}) == [1]


def test_joins_are_shared() -> None:
    m = matcher(
        "EXISTS d (d.a = a AND d.b > b)",
        "NOT EXISTS (SELECT 1 FROM history x WHERE b < x.b AND x.a = a)",
        "FORALL y (NOT (y.b > b AND a = y.a)) OR c = 1",
        *(f"(SELECT COUNT(*) FROM history d WHERE d.a = a) >= {n}" for n in range(9)),
    )
    assert len(m.joins) == 2


def test_what_a_matcher_says_of_itself() -> None:
    m = matcher("EXISTS d (d.a = b)", "NOT EXISTS d (d.a = b) AND c = 1")
    m.history.add({"a": 1})
    assert m.attributes == {"b", "c"} and m.stats()["attributes"] == 2
    assert m.stats()["history"] == {"documents": 1, "joins": 1}
    assert repr(m.history) == "<History: 1 documents>"
    m.remove(0)
    m.remove(1)
    assert m.joins == []


# ---- documents come and go ----


def test_a_match_changes_nothing() -> None:
    m = matcher(f"{COUNT} >= 1")
    event: dict[str, Any] = {"n": 1, "tags": ["a"]}
    assert m.match(event) == [] and m.match_batch([event, event]).count == 0 and len(m.history) == 0
    assert m.match(event, remember=True) == [] and m.match(event) == [0] and len(m.history) == 1
    event["tags"].append("b")  # the history has its own copy
    m.add("later", "EXISTS d (d.tags = 'b')")
    assert m.match({}) == [0]


def test_a_subscription_added_later_asks_for_any_attribute() -> None:
    m = matcher("EXISTS d (d.a = a)")
    m.history.add({"a": 1, "b": {"c": 2}})
    m.history.load(pa.table({"a": [5], "b": [{"c": 6}]}))
    assert m.match({"a": 1}) == [0]
    m.add(1, "EXISTS d (d.b.c = b)")
    assert m.match({"b": 2}) == [1] and m.match({"b": 6, "a": 5}) == [0, 1]
    m.history.add({"b.c": 7})
    assert m.match({"b": 7}) == [1]


@pytest.mark.parametrize("form", ["dicts", "table", "batch", "lines", "parquet", "feather", "jsonl", "generator"])
def test_load_and_remember_in_any_form(form: str, tmp_path: Path) -> None:
    rows = [{"n": n, "key": f"k{n}"} for n in range(5)]
    table = pa.Table.from_pylist(rows)
    lines = b"\n".join(json.dumps(row).encode() for row in rows)
    pq.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.feather")
    (tmp_path / "a.jsonl").write_bytes(lines)
    forms: dict[str, Any] = {
        "dicts": rows,
        "table": table,
        "batch": table.to_batches()[0],
        "lines": lines,
        "parquet": tmp_path / "a.parquet",
        "feather": str(tmp_path / "a.feather"),
        "jsonl": tmp_path / "a.jsonl",
        "generator": (row for row in rows),
    }
    m = matcher("EXISTS d (d.n < n)", "EXISTS d (d.key = 'k4')")
    assert m.history.load(forms[form], key="key") == 5
    assert m.history.load(rows, key="key") == 0 and len(m.history) == 5 and "k3" in m.history
    assert m.match({"n": 1}) == [0, 1] and m.match({"n": 0}) == [1]
    if form in ("dicts", "table", "batch", "lines"):
        other = matcher("EXISTS d (d.n < n)")
        assert [list(ids) for ids in other.match_batch(forms[form], remember=True)] == [[], [0], [0], [0], [0]]
        assert len(other.history) == 5 and left(other) == [0, 1, 2, 3, 4]


def test_attributes_in_a_column() -> None:
    m = matcher("EXISTS d (d.n < n)")
    events = pa.table({"id": [1, 2], "body": ['{"n": 1}', '{"n": 2}']})
    assert [list(ids) for ids in m.match_batch(events, attributes="body", remember=True)] == [[], [0]]
    m.add(1, "EXISTS d (d.n + INTERVAL 0 DAYS = n) OR EXISTS d (d.n = 2)")
    assert m.match({"n": 0}) == [1]
    assert m.history.load(events, attributes="body") == 2 and len(m.history) == 4


def test_keys() -> None:
    m = matcher(COUNT + " = 2")
    assert m.history.add({"n": 1}, key=7) and not m.history.add({"n": 2}, key=7) and m.history.add({"n": 3}, key="7")
    assert 7 in m.history and "7" in m.history and 8 not in m.history and True not in m.history
    assert left(m) == [1, 3] and m.match({}) == [0]
    assert m.history.prune(keys=[7, 99]) == 1
    assert m.history.add({"n": 4}, key=7) and left(m) == [3, 4]
    with pytest.raises(dibs.ArgumentError, match="string or an integer"):
        m.history.add({}, key=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("compacted", [1, 1000])
def test_retention_by_count(compacted: int) -> None:
    with using({"history_compacted": compacted, "history_tail": 2}):
        m = matcher(f"{COUNT} = 3", "EXISTS d (d.n < n)", "n = (SELECT MIN(d.n) FROM history d)", retain=3)
        for n in range(20):
            m.match({"n": n}, remember=True)
            assert left(m) == list(range(max(0, n - 2), n + 1))
        assert m.match({"n": 17}) == [0, 2] and m.match({"n": 18}) == [0, 1]
        m.history.load([{"n": n} for n in range(20, 30)])
        assert left(m) == [27, 28, 29]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("compacted", [1, 1000])
def test_retention_by_time_is_exact_at_its_edge(at_once: bool, compacted: int) -> None:
    with using({"history_compacted": compacted, "history_tail": 2}):
        m = matcher(COUNT + " >= 0", retain=10 * MINUTE)
        times = [0, 5, 10, 3, 10 + 1e-6, 2, 20, 12, 9, None, 30 + 1e-6]  # minutes; not all in order
        documents = [{"n": n} | ({} if t is None else {"time": NOON + t * MINUTE}) for n, t in enumerate(times)]
        latest = 0.0
        expected: list[int] = []
        for n, document in enumerate(documents):
            latest = max(latest, times[n] or 0)
            stays = [k for k in range(n + 1) if times[k] is None or times[k] >= latest - 10]  # type: ignore[operator]
            expected = [k for k in stays if k in (*expected, n)]
            if not at_once:
                m.history.add(document)
                assert left(m) == expected
        if at_once:
            m.history.load(documents)
        assert left(m) == expected == [9, 10]


def test_retention_by_both_and_another_attribute() -> None:
    m = dibs.Matcher(retain=dibs.Retain(count=2, age=MINUTE, by="seen.at"))
    for n in range(3):
        m.history.add({"n": n, "seen": {"at": NOON + n * MINUTE / 2}})
    assert left(m) == [1, 2]
    m.history.add({"n": 3, "seen": {"at": NOON + 5 * MINUTE}})
    assert left(m) == [3]
    m.history.add({"n": 4, "seen": {"at": NOON}})  # too old when it comes
    assert left(m) == [3]


def test_prune() -> None:
    m = matcher("price < (SELECT MIN(d.price) FROM history d)", "EXISTS d (d.price > price)")
    m.history.load([{"n": n, "price": n, "time": NOON + n * MINUTE} for n in range(10)])
    assert m.history.prune(keep=8) == 2 and left(m) == list(range(2, 10))
    assert m.history.prune(before=NOON + 4 * MINUTE) == 2 and left(m) == list(range(4, 10))
    assert m.match({"price": 3}) == [0, 1] and m.match({"price": 4}) == [1]
    assert m.history.prune(keep=0) == 6 and m.match({"price": 3}) == [] and len(m.history) == 0
    m.history.add({"n": 1})
    m.history.clear()
    assert len(m.history) == 0 and left(m) == []
    for wrong in ({}, {"keep": 1, "keys": [1]}, {"keep": -1}, {"before": 5}):
        with pytest.raises(dibs.ArgumentError):
            m.history.prune(**wrong)  # type: ignore[arg-type]


def test_windows_are_exact_at_their_edges() -> None:
    m = matcher(
        "EXISTS d (d.time > time - INTERVAL 10 MINUTES)",
        "EXISTS d (d.time >= time - INTERVAL 10 MINUTES)",
        "EXISTS d (d.time = time - INTERVAL '600' SECONDS)",
        "EXISTS d (d.time + INTERVAL 10 MINUTES < time)",
    )
    m.history.add({"time": NOON})
    tick = dt.timedelta(microseconds=1)
    assert m.match({"time": NOON + 10 * MINUTE - tick}) == [0, 1]
    assert m.match({"time": NOON + 10 * MINUTE}) == [1, 2]
    assert m.match({"time": NOON + 10 * MINUTE + tick}) == [3]
    assert m.match({"time": (NOON + 10 * MINUTE).isoformat() + "Z"}) == [1, 2]  # a string, read as a time
    assert m.match({"time": "12:00"}) == [] and m.match({"time": 5}) == []


def test_the_last_value() -> None:
    m = matcher(
        "price < (SELECT MAX_BY(d.price, d.time) FROM history d WHERE d.sku = sku)",
        "(SELECT MAX_BY(d.price, d.time) FROM history d WHERE d.sku = sku AND d.time <= time) = 5",
        "(SELECT MAX_BY(d.price, d.time) FROM history d) IS NULL",
    )
    assert m.match({"sku": "a", "price": 5}) == [2]
    for minute, price in [(0, 10), (5, 5), (3, 20)]:
        m.history.add({"sku": "a", "price": price, "time": NOON + minute * MINUTE})
    m.history.add({"sku": "a", "time": NOON + 9 * MINUTE})  # without a price it does not count
    assert m.match({"sku": "a", "price": 7, "time": NOON + 4 * MINUTE}) == []
    assert m.match({"sku": "a", "price": 4, "time": NOON + 5 * MINUTE}) == [0, 1]
    m.history.add({"sku": "a", "price": 6, "time": NOON + 5 * MINUTE})  # of the same time, it came last
    assert m.match({"sku": "a", "price": 5}) == [0]
    told = m.explain(0, {"sku": "a", "price": 5}).headline
    assert told == "0 matches: price is 5, the last price by time of 5 documents is 6 (document 4)"


# ---- what cannot be read ----


def test_bad_documents() -> None:
    m = matcher("EXISTS d (d.a = a)")
    for bad in ([1], "x", None):
        with pytest.raises(dibs.EventError, match=r"a document is a dict|expected one JSON object"):
            m.history.add(bad)  # type: ignore[arg-type]
    with pytest.raises(dibs.EventError, match="found one document"):
        m.history.load({"a": 1})
    assert m.match({"a": 1}) == []
    with pytest.raises(dibs.EventError, match="'a'"):
        m.history.add({"a": b"bytes"})
    with pytest.raises(dibs.EventError, match="no Range"):
        m.history.add({"a": dibs.Range(1, 2)})
    with pytest.raises(dibs.EventError):
        m.history.load(b'{"a": 1}\n{"a": ')
    with pytest.raises(dibs.EventError):
        m.match_batch([{"a": 1}, {"a": b"bytes"}], remember=True)
    assert len(m.history) == 0


def test_events_that_are_skipped() -> None:
    """A bad value is unknown; an event that cannot be read at all is not remembered."""
    m = matcher("EXISTS d (d.a = a)", COUNT + " = 2", "EXISTS d (d.a IS NULL)", "EXISTS d (d.a IS NOT NULL)")
    lines = b'{"a": 1}\n{broken\n{"a": 1}\n{"a": 2}'
    assert [list(ids) for ids in m.match_batch(lines, on_error="skip", remember=True)] == [[], [], [0, 3], [1, 3]]
    assert len(m.history) == 3
    m.history.clear()
    m.match_batch([{"a": b"bytes"}], on_error="skip", remember=True)
    assert len(m.history) == 1 and m.match({"a": 1}) == []


def test_an_event_cannot_pass_for_a_join() -> None:
    m = matcher("EXISTS d (d.a = a)")
    m.history.add({"a": 1})
    name = "\0" + m.joins[0]
    for value in (True, 1, "x", NOON, dibs.Range(1, 2), [True, None], {"x": True}):
        assert m.match({name: value, "a": 2}) == []
    assert m.match_batch(pa.table({name: [True], "a": [2]})).count == 0
    assert m.match({name: False, "a": 1}) == [0]


def test_bad_arguments() -> None:
    for wrong in ("7 days", -1, 1.5, True):
        with pytest.raises(dibs.ArgumentError):
            dibs.Matcher(retain=wrong)  # type: ignore[arg-type]
    for settings in ({"count": -1}, {"age": 5}, {"age": -MINUTE}, {"by": ""}):
        with pytest.raises(dibs.ArgumentError):
            dibs.Retain(**settings)  # type: ignore[arg-type]
    m = dibs.Matcher()
    with pytest.raises(dibs.ArgumentError, match="remember must be True or False"):
        m.match({}, remember="yes")  # type: ignore[arg-type]
    with pytest.raises(dibs.ArgumentError, match=r"\.parquet"):
        m.history.load("documents.txt")
    with pytest.raises(dibs.StorageError, match="No such file"):
        m.history.load("no such file.parquet")
    with pytest.raises(dibs.ArgumentError, match="no column"):
        m.history.load(pa.table({"a": [1]}), key="b")
    m.close()
    with pytest.raises(dibs.DibsError, match="closed"):
        m.history.add({})


# ---- files ----

JOIN = "EXISTS d (d.a = a)"


def test_export_and_import(tmp_path: Path) -> None:
    m = matcher(JOIN, "FORALL x (x.b < b) AND c = 1")
    m.export(tmp_path / "a.jsonl")
    other = dibs.Matcher()
    other.import_from(tmp_path / "a.jsonl")
    assert other.joins == m.joins and other.expression(1) == "FORALL x (x.b < b) AND c = 1"


def test_joins_that_kernels_leave_see_the_events_before_in_their_batch() -> None:
    text = (
        "EXISTS d ((d.a <> 1 OR d.b > b OR d.c < c) AND (d.a <= a OR d.s < s) AND (d.e <> e OR d.f <> f OR d.a > 3) "
        "AND (d.a > 0 OR d.g > g OR d.h > h OR d.i > i))"
    )
    event = {"a": 5, "b": 1, "c": 1, "s": "a", "e": 1, "f": 1}
    with matcher(text) as m, matcher(text, retain=2) as short:
        assert "answered without kernels" in str(m.explain_plan())
        for each, of_the_first in ((m, [0]), (short, [])):
            assert list(each.match_batch([event, event, event], remember=True)) == [[], [0], [0]]
            assert list(each.match_batch([event, {}, {}, event, event], remember=True)) == [
                [0],
                [],
                [],
                of_the_first,
                [0],
            ]


# ---- threads ----


def test_readers_see_whole_states() -> None:
    """While documents come in pairs by load, no match sees one without the other."""
    m = matcher("(SELECT COUNT(*) FROM history d WHERE d.n = 1) IN (1, 3, 5, 7, 9, 11, 13, 15)", retain=8)
    stop = threading.Event()
    wrong: list[Any] = []

    def read() -> None:
        while not stop.is_set():
            if found := m.match({}):
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(150):
        m.history.load([{"n": 1}, {"n": 1}])
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(m.history) == 8


@pytest.mark.parametrize("form", [str, lambda n: [n, -n]], ids=["texts", "arrays"])
def test_an_attribute_that_is_first_asked_for_while_events_are_remembered(
    monkeypatch: pytest.MonkeyPatch, form: Callable[[int], Any]
) -> None:
    """Two threads, here one in the middle of the other: neither gets texts or arrays of the other."""
    m, other = matcher("EXISTS d (d.a = a)"), matcher("EXISTS d (d.b = b)", "EXISTS d (d.b = c)")
    other.history.close()
    other.history = m.history
    for count, name in ((400, "unused"), (4, "b")):  # when arrays grow, there comes to be room for more
        m.history.load([{"a": form(10 + n % 4), name: form(20 + n)} for n in range(count)])
        assert m.match({"a": form(11)}) == [0]  # a is known, b is not
    answered, turns = Answerer.answer, iter([True])

    def after_the_other(self: Answerer, *arguments: Any) -> Any:
        for _ in turns:
            assert other.match({"b": form(22), "c": form(31)}) == [0]
        return answered(self, *arguments)

    monkeypatch.setattr(Answerer, "answer", after_the_other)
    news = [{"a": form(30 + n)} for n in range(4)] * 2
    assert list(m.match_batch(news, remember=True)) == [[]] * 4 + [[0]] * 4
    for n in range(4):
        assert m.match({"a": form(10 + n)}) == m.match({"a": form(30 + n)}) == [0] != m.match({"a": form(20 + n)})
        assert other.match({"b": form(20 + n)}) == [0] != other.match({"b": form(30 + n)})


@pytest.mark.parametrize("durable", [False, True])
def test_an_event_that_comes_again_is_remembered_once(durable: bool, tmp_path: Path) -> None:
    """It is matched again, on the history as it is by then."""
    with dibs.Matcher.open(tmp_path / "m") if durable else dibs.Matcher() as m:
        m.add("new", "FORALL d (isbn <> d.isbn)")
        assert m.match({"isbn": 1}, remember=True, key="a") == ["new"]
        assert m.match({"isbn": 1}, remember=True, key="a") == [] and len(m.history) == 1
        assert m.match({"isbn": 2}, top=1, remember=True, key=7) == ["new"] and "a" in m.history and 7 in m.history
        m.history.prune(keys=["a"])
        assert m.match({"isbn": 1}, remember=True, key="a") == ["new"] and len(m.history) == 2
        with pytest.raises(dibs.DibsError, match="a string or an integer"):
            m.match({"isbn": 3}, remember=True, key=1.5)  # type: ignore[arg-type]
        with pytest.raises(dibs.DibsError, match="key is for remember=True"):
            m.match({"isbn": 3}, key="a")
    if durable:
        with dibs.Matcher.open(tmp_path / "m") as m:
            assert m.match({"isbn": 1}, remember=True, key="a") == [] and len(m.history) == 2


@pytest.mark.parametrize("ranked", [1, 1_000_000])
def test_counts_of_what_is_left(ranked: int) -> None:
    """By a bound alone, after documents have gone from the beginning: by ranks, and one by one."""
    random, kept = Random(3), 300
    texts = [f"(SELECT COUNT(*) FROM history d WHERE d.a < a AND d.a >= {low}) = n" for low in (0, 5, 400)]
    values = [random.randint(0, 1_000) for _ in range(900)]
    with using({"history_ranked": ranked, "history_tail": 32}), matcher(*texts, retain=kept) as m:
        for first in range(0, 900, 90):
            m.history.load([{"a": value} for value in values[first : first + 90]])
            there = values[max(first + 90 - kept, 0) : first + 90]
            for bound in (0, 3, 500, 1_000, 2_000):
                for number, low in enumerate((0, 5, 400)):
                    count = sum(low <= value < bound for value in there)
                    assert number in m.match({"a": bound, "n": count}), (first, bound, low, count)
                    assert number not in m.match({"a": bound, "n": count + 1})
        runs = [sorted for index in m.history.state.coded.snapshot.indexes.values() for sorted in index.runs]
        assert any(len(sorted.ranks.before) for sorted in runs) == (ranked == 1)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("at_once", [1, 256])
def test_a_batch_that_comes_again_is_remembered_once(durable: bool, at_once: int, tmp_path: Path) -> None:
    """By key: an event that is known, or came before in the batch, is matched and leaves no document."""
    events = [{"isbn": n, "id": id} for n, id in [(1, "a"), (1, "a"), (2, "b"), (2, None), (3, "a"), (3, "c")]]
    expected = [[0], [], [0], [], [0], [0]]  # the first 3 has the key of another and leaves nothing
    with (
        using({"remembered_at_once": at_once}),
        dibs.Matcher.open(tmp_path / "m") if durable else dibs.Matcher() as m,
    ):
        m.add(0, "FORALL d (isbn <> d.isbn)")
        assert list(m.match_batch(events, remember=True, key="id")) == expected
        assert (
            len(m.history) == 4
            and left(m, "isbn") == [1, 2, 3]
            and {"a", "b", "c"} <= set(filter(m.history.__contains__, "abc"))
        )
        assert m.match_batch(pa.Table.from_pylist(events), remember=True, key="id").count == 0
        assert len(m.history) == 5  # the one without a key comes again
        assert m.match_batch(events[:3], remember=True, key="id").count == 0 and len(m.history) == 5
        m.history.prune(keys=["a"])
        assert list(m.match_batch(events, remember=True, key="id")) == [[0], [], [], [], [], []]
        for wrong in ({"key": "id"}, {"key": 5, "remember": True}):
            with pytest.raises(dibs.ArgumentError):
                m.match_batch(events, **wrong)  # type: ignore[arg-type]
        with pytest.raises(dibs.ArgumentError, match="no column"):
            m.match_batch(pa.table({"isbn": [9]}), remember=True, key="id")
        kept = len(m.history)
    if durable:
        with dibs.Matcher.open(tmp_path / "m") as m:
            assert len(m.history) == kept and "a" in m.history
            assert m.match_batch(events[:3], remember=True, key="id").count == 0 and len(m.history) == kept


def test_a_json_text_is_a_document() -> None:
    m = matcher("EXISTS d (d.n = n)")
    assert m.history.add(b'{"n": 1}', key="a") and m.history.add('{"n": [2, 3]}') and not m.history.add("{}", key="a")
    assert m.match({"n": 1}) == m.match({"n": 3}) == [0] and m.explain(0, b'{"n": 1}').matched
    for broken in (b"[1]", "{", 5, [{"n": 1}]):
        with pytest.raises(dibs.EventError, match=r"expected one JSON object|(an event|a document) is a dict"):
            m.history.add(broken)  # type: ignore[arg-type]
        with pytest.raises(dibs.EventError, match=r"expected one JSON object|(an event|a document) is a dict"):
            m.explain(0, broken)  # type: ignore[arg-type]


def test_prune_takes_a_list_of_keys() -> None:
    m = matcher(COUNT + " = 2")
    for key in "ab":
        m.history.add({}, key=key)
    for wrong in ("ab", 3, [1.5]):
        with pytest.raises(dibs.ArgumentError):
            m.history.prune(keys=wrong)  # type: ignore[arg-type]
    assert len(m.history) == 2
