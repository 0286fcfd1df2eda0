"""The Matcher's contract: adding, removing, matching, and what happens when something is wrong."""

from __future__ import annotations

import datetime as dt
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import dibs
from dibs.language.printer import to_sql
from dibs.reference import matches
from dibs.segments.segment import Choice
from dibs.tuning import numbers, using
from strategies import events, expressions


def test_first_screen():
    m = dibs.Matcher()
    m.add("alice", "model = 'iphone5s' AND color = 'silver' AND price <= 580")
    m.add_many([("bob", "brand LIKE 'App%' OR price BETWEEN 10 AND 20"), ("carol", "price > 600", 2.5)])
    assert m.match({"model": "iphone5s", "color": "silver", "price": 550}) == ["alice"]
    assert m.match({"brand": "Apple", "price": 700}) == ["bob", "carol"]
    assert m.match({"brand": "Apple", "price": 700}, top=1) == ["carol"]
    assert len(m) == 3
    assert "bob" in m and "dave" not in m and 5 not in m
    m.remove("alice")
    m.replace("bob", "price = 1")
    assert m.match({"price": 1}) == ["bob"]
    assert m.expression("bob") == "price = 1"


def test_matches_of_a_batch():
    m = dibs.Matcher()
    m.add_many([("b", "x > 1"), ("a", "x > 2"), (7, "TRUE")])
    found = m.match_batch([{"x": 3}, {}, {"x": 2}])
    assert list(found) == [[7, "a", "b"], [7], [7, "b"]]
    assert (len(found), found.count) == (3, 6)
    pairs = found.pairs()
    assert pairs.column_names == ["event", "subscription"]
    assert {(r["event"], r["subscription"]) for r in pairs.to_pylist()} == {
        (0, 7), (0, "a"), (0, "b"), (1, 7), (2, 7), (2, "b")
    }  # fmt: skip
    assert "3 events, 6 pairs" in repr(found)


def test_pairs_by_event():
    matcher = dibs.Matcher()
    for first in (0, 500):  # two segments
        matcher.add_many([(i, f"a BETWEEN {i % 7} AND {i % 11}") for i in range(first, first + 400)])
        matcher.match_batch([{"a": 1}])
    events = [{"a": i % 13} if i % 5 else {} for i in range(300)]
    found = matcher.match_batch(events)
    order, offsets = found.by_event()
    ids = found.pairs()["subscription"].to_numpy()[order]
    assert [sorted(ids[a:b].tolist()) for a, b in zip(offsets, offsets[1:])] == list(found)
    assert len(offsets) == 301 and not matcher.match_batch([]).by_event()[1].any()


@pytest.mark.parametrize(("ids", "type_"), [(["a", "b"], pa.string()), ([1, 2], pa.int64())])
def test_pairs_have_the_type_of_the_ids(ids, type_):
    m = dibs.Matcher()
    m.add_many([(i, "x = 1") for i in ids])
    pairs = m.match_batch([{"x": 1}]).pairs(weights=True)
    assert pairs.schema.field("event").type == pa.int64()
    assert pairs.schema.field("subscription").type == type_
    assert pairs["weight"].to_pylist() == [1.0, 1.0]
    assert m.match_batch([{"x": 2}]).pairs().schema.field("subscription").type == type_


def test_an_empty_matcher_matches_nothing():
    m = dibs.Matcher()
    assert m.match({"a": 1}) == []
    assert m.match_batch([]).count == 0
    assert len(m.match_batch([{}, {}])) == 2
    assert m.match_batch([{}]).pairs().num_rows == 0
    assert m.stats()["subscriptions"] == 0


def test_constants():
    m = dibs.Matcher()
    m.add_many([("always", "TRUE"), ("never", "FALSE"), ("unknown", "NULL"), ("absent", "a IS NULL")])
    assert m.match({}) == ["absent", "always"]
    assert m.match({"a": 1}) == ["always"]


def test_forty_factors_add_in_milliseconds():
    text = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(40))
    m = dibs.Matcher()
    m.add("warm", "(a = 1 OR b = 1) AND (c = 1 OR d = 1)")
    start = time.process_time()
    m.add("x", text)
    assert time.process_time() - start < 0.5  # generous: the benchmark says how fast, this says it does not explode
    event = {f"{'ab'[i % 2]}{i}": 1 for i in range(40)}
    assert m.match(event) == ["x"]
    assert m.match(event | {"b39": 2}) == []


def test_ids_of_numpy_are_integers():
    m = dibs.Matcher()
    m.add(np.int32(5), "x = 1")
    m.add_many([(np.int64(6), "x = 1")])
    assert m.match({"x": 1}) == [5, 6]


def test_duplicates():
    m = dibs.Matcher()
    m.add("a", "x = 1")
    with pytest.raises(dibs.DuplicateId, match="id 'a' is taken already: use replace"):
        m.add("a", "x = 2")
    m.match({})
    with pytest.raises(dibs.DuplicateId):
        m.add("a", "x = 2")
    with pytest.raises(dibs.SubscriptionErrors) as caught:
        m.add_many([("b", "x = 1"), ("b", "x = 2"), ("a", "x = 3")])
    assert [(r.position, r.id) for r in caught.value.rejected] == [(1, "b"), (2, "a")]
    assert len(m) == 1
    m.remove("a")
    m.add("a", "x = 5")
    assert m.match({"x": 5}) == ["a"]


def test_all_or_none_and_skip():
    items = [
        ("a", "x = 1"),
        ("b", "x ="),
        (None, "x = 1"),
        ("c", 5),
        ("d", "x = 1", "heavy"),
        "oops",
        ("e", "f(x)", 1.0),
    ]
    m = dibs.Matcher()
    with pytest.raises(dibs.SubscriptionErrors) as caught:
        m.add_many(items)
    assert [r.position for r in caught.value.rejected] == [1, 2, 3, 4, 5, 6]
    assert "6 subscriptions cannot be added; none was" in str(caught.value)
    assert len(m) == 0
    skipped = m.add_many(items, on_error="skip")
    assert [r.position for r in skipped] == [1, 2, 3, 4, 5, 6]
    assert m.match({"x": 1}) == ["a"]


def test_table():
    table = pa.table(
        {"id": [3, 1, 2, 3, None, 9], "expression": ["x = 1", "x >", "x = 1 OR y = 1", "x = 2", "x = 1", None]}
    )
    m = dibs.Matcher()
    with pytest.raises(dibs.SubscriptionErrors) as caught:
        m.add_table(table)
    assert [(r.position, r.id) for r in caught.value.rejected] == [(1, 1), (3, 3), (4, None), (5, 9)]
    assert [r.position for r in m.add_table(table, on_error="skip")] == [1, 3, 4, 5]
    assert m.match({"x": 1}) == [2, 3]
    m.add_table(pa.table({"id": ["s"], "expression": ["y = 1"], "weight": [5]}))
    assert m.match({"y": 1}, top=5) == ["s", 2]
    for bad, message in (
        (pa.table({"id": [1]}), "no column 'expression'"),
        (pa.table({"id": [1.5], "expression": ["x = 1"]}), "an id must be a string or an integer, not double"),
        (pa.table({"id": [4], "expression": [5]}), "an expression must be a string, not int64"),
        (pa.table({"id": [4], "expression": ["x = 1"], "weight": [float("nan")]}), "the weight is NaN"),
    ):
        with pytest.raises(dibs.SubscriptionErrors, match=message):
            m.add_table(bad)


def test_table_with_texts_that_are_not_utf8():
    raw = pa.array([b"x = 1", b"x = '\xff'", b"x = '\xc3\xa9'", None], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    ids = pa.Array.from_buffers(pa.string(), 4, pa.array([b"a", b"b", b"\xfe", b"d"], pa.binary()).buffers())
    m = dibs.Matcher()
    with pytest.raises(dibs.SubscriptionErrors, match="not valid UTF-8"):
        m.add_table(pa.table({"id": ids, "expression": texts}))
    skipped = m.add_table(pa.table({"id": ids, "expression": texts}), on_error="skip")
    assert [(r.position, r.id) for r in skipped] == [(1, "b"), (2, "\ufffd"), (3, "d")]
    assert m.match({"x": 1}) == ["a"]


def test_unknown_ids_and_wrong_arguments():
    m = dibs.Matcher()
    for call in (lambda: m.remove("x"), lambda: m.replace("x", "a = 1"), lambda: m.expression("x")):
        with pytest.raises(dibs.UnknownId, match="no subscription has the id 'x'"):
            call()
    for bad in (True, 1.5, None, b"x", 2**63):
        with pytest.raises(dibs.DibsError, match="id"):
            m.add(bad, "a = 1")
    with pytest.raises(dibs.ExpressionError):
        m.add("x", "a =")
    with pytest.raises(ValueError, match="threads"):
        dibs.Matcher(threads=0)
    with pytest.raises(ValueError, match="top"):
        m.match({}, top=0)
    with pytest.raises(dibs.EventError, match="an event is a dict"):
        m.match([{"a": 1}])
    with pytest.raises(ValueError, match="on_error"):
        m.match_batch([], on_error="ignore")
    m.add("x", "a = 1")
    with pytest.raises(dibs.ExpressionError):
        m.replace("x", "a = ")
    assert m.match({"a": 1}) == ["x"]


def test_unreadable_values_beside_subscriptions_without_attributes():
    m = dibs.Matcher()
    m.add("all", "TRUE")
    m.match({})  # a segment of its own
    m.add_many([(n, f"price = {n}") for n in range(300)])
    with using({"merged_at_once": 0}):
        assert [list(ids) for ids in m.match_batch([{"price": object()}], on_error="skip")] == [["all"]]


def test_unreadable_values_are_unknown():
    m = dibs.Matcher()
    m.add_many([("null", "a IS NULL"), ("not null", "a IS NOT NULL"), ("b", "b = 1"), ("always", "TRUE")])
    with pytest.raises(dibs.EventError, match="event 1, attribute 'a'"):
        m.match_batch([{"b": 1}, {"a": b"raw", "b": 1}])
    found = m.match_batch([{"b": 1}, {"a": b"raw", "b": 1}], on_error="skip")
    assert list(found) == [["always", "b", "null"], ["always", "b"]]
    assert [(p.event, p.attribute) for p in found.problems] == [(1, "a")]
    found = m.match_batch(b'{"b": 1}\n{"b": \n{"a": 2}\n', on_error="skip")
    assert list(found) == [["always", "b", "null"], [], ["always", "not null"]]
    assert found.problems[0].event == 1


def test_weights_and_top():
    m = dibs.Matcher()
    m.add_many([("a", "x = 1", 1), ("b", "x = 1", 3), ("c", "x = 1", 3), (1, "x = 1", 2)])
    assert m.match({"x": 1}, top=3) == ["b", "c", 1]
    assert m.match({"x": 1}, top=99) == ["b", "c", 1, "a"]
    m.replace("a", "x = 1", weight=9)
    m.replace("b", "x = 1")
    assert m.match({"x": 1}, top=2) == ["a", "b"]
    assert m.weight("b") == 3


def test_top_and_count_of_batches(monkeypatch):
    """Both see every pair, in rooms of any size, and keep what they need only."""
    monkeypatch.setattr(numbers["first_room"], "value", 50)
    rng = np.random.default_rng(2)
    m = dibs.Matcher(threads=2)
    weights = rng.integers(0, 40, 300).tolist()
    m.add_many([(i, f"x <= {rng.integers(60)}", w) for i, w in enumerate(weights)])
    m.add_many([(f"s{i}", f"x > {i}", 20) for i in range(30)])
    m.remove(3)
    batch = [{"x": int(x)} for x in rng.integers(0, 70, 200)] + [{}]
    m.match_batch(batch)  # what waited is a segment
    m.add_many([(f"t{i}", f"x <= {2 * i}", 2 * i) for i in range(20)])
    everything = m.match_batch(batch)
    assert m.count(batch).tolist() == [len(ids) for ids in everything]
    for k in (1, 3, 1000):
        kept = m.match_batch(batch, top=k)
        assert kept.top(k) == everything.top(k)
        for ids, best, every in zip(kept, everything.top(k), everything):
            least = m.weight(best[-1]) if len(best) == k else 0
            assert ids == [id for id in every if m.weight(id) >= least]
    assert m.match_batch(batch, top=1).count < everything.count / 2
    with pytest.raises(ValueError, match="top must be a positive number"):
        m.match_batch(batch, top=0)


def test_plan_is_explained():
    m = dibs.Matcher()
    assert m.explain_plan() == "no subscriptions"
    m.add_many([(i, f"a{i} = 1") for i in range(1000)] + [("or", "a = 1 OR b = 2")])
    plan = m.explain_plan()
    assert "segment 1 of 2: 1,000 subscriptions, index auto" in plan
    assert "records: 1,000" in plan and "Shares are guessed from the subscriptions" in plan
    assert m.stats()["plans"][1]["masks"] == 1
    scan = dibs.Matcher(index="scan")
    scan.add("a", "x = 1")
    assert "every clause is tested against every event" in scan.explain_plan()


def test_many_single_adds_keep_few_segments():
    m = dibs.Matcher()
    for i in range(200):
        m.add(i, f"x = {i % 50} AND y > {i}")
        assert m.match({"x": i % 50, "y": i + 1})[-1] == i
    assert m.stats()["segments"] <= 6
    for i in range(0, 200, 2):
        m.remove(i)
    m.compact()
    assert m.stats()["segments"] == 1
    assert m.stats()["removed"] == 0
    assert m.match({"x": 1, "y": 1000}) == [1, 51, 101, 151]


def test_threads_give_the_same(tmp_path):
    rng = np.random.default_rng(1)
    items = [
        (i, f"a{rng.integers(5)} <= {rng.integers(20)} AND a{rng.integers(5)} > {rng.integers(20)}") for i in range(500)
    ]
    batch = [{f"a{k}": int(rng.integers(20)) for k in range(5)} for _ in range(100)]
    found = []
    for threads in (1, 2, 5):
        m = dibs.Matcher(threads=threads)
        m.add_many(items)
        found.append(m.match_batch(batch).pairs())
    assert found[0].equals(found[1]) and found[0].equals(found[2])


def test_matching_while_others_change():
    """Readers see a subscription whole or not at all, and never an error."""
    m = dibs.Matcher()
    m.add_many([(i, "x = 1") for i in range(100)])
    failures = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            try:
                found = m.match({"x": 1})
                assert set(range(100)) <= set(found)
            except Exception as e:
                failures.append(e)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for r in readers:
        r.start()
    for i in range(100, 200):
        m.add(i, "x = 1")
        m.replace(i % 100, "x = 1 AND TRUE")
        if i > 105:
            m.remove(i)
    stop.set()
    for r in readers:
        r.join()
    assert failures == []


def test_save_and_load(tmp_path):
    m = dibs.Matcher()
    m.add_many(
        [
            ("a", "x = 1"),
            (5, "name LIKE '%é_%' OR NOT CONTAINS(name, 'q')", 2.0),
            ("c", "d >= DATE '2024-01-01'"),
            ("n", "x IS NULL"),
        ]
    )
    batch = [{"x": 1, "name": "xéy"}, {"name": "q"}, {"d": dt.date(2024, 5, 1), "x": 0}, {}]
    wanted = list(m.match_batch(batch))
    m.save(tmp_path / "index")
    loaded = dibs.Matcher.load(tmp_path / "index")
    assert list(loaded.match_batch(batch)) == wanted
    assert len(loaded) == 4 and loaded.expression(5).startswith("name LIKE") and loaded.weight(5) == 2.0
    with pytest.raises(dibs.DibsError, match="read-only"):
        loaded.add("z", "x = 1")
    m.remove("a")
    m.save(tmp_path / "index")
    assert list(dibs.Matcher.load(tmp_path / "index").match_batch(batch))[0] == [5]
    dibs.Matcher().save(tmp_path / "empty")
    assert dibs.Matcher.load(tmp_path / "empty").match({"x": 1}) == []


def test_saving_while_others_remove(tmp_path, monkeypatch):
    """What goes between compacting and writing is not in the files."""
    m = dibs.Matcher()
    m.add_many([(i, "x = 1") for i in range(50)])
    compact, gone = m.compact, iter([3, 7])

    def compact_and_then_somebody_removes() -> None:
        compact()
        for id in gone:
            m.remove(id)
            break

    monkeypatch.setattr(m, "compact", compact_and_then_somebody_removes)
    m.save(tmp_path / "index")
    assert dibs.Matcher.load(tmp_path / "index").match({"x": 1}) == m.match({"x": 1})
    assert len(m) == 48


def test_damaged_files(tmp_path):
    m = dibs.Matcher()
    m.add("a", "x = 1")
    m.save(tmp_path / "index")
    for name in ("segment-000000.dibs", "index.dibs"):
        file = tmp_path / "index" / name
        good = file.read_bytes()
        changed = good[:-2] + bytes([good[-2] ^ 1]) + good[-1:]
        for bad in (b"", good[: len(good) // 2], good + b"\0", changed):
            file.write_bytes(bad)
            with pytest.raises(dibs.DamagedError, match=name):
                dibs.Matcher.load(tmp_path / "index")
        file.unlink()
        with pytest.raises(dibs.FormatError):
            dibs.Matcher.load(tmp_path / "index")
        file.write_bytes(good)
    assert dibs.Matcher.load(tmp_path / "index").match({"x": 1}) == ["a"]
    for text in ("99 1 auto\n", "dibs 99 manifest\n"):
        (tmp_path / "index" / "index.dibs").write_text(text)
        with pytest.raises(dibs.FormatError, match="format 99"):
            dibs.Matcher.load(tmp_path / "index")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("keep")
    with pytest.raises(dibs.FormatError, match="exists and holds no saved index"):
        m.save(tmp_path / "other")
    with pytest.raises(dibs.FormatError, match="holds no saved index"):
        dibs.Matcher.load(tmp_path / "nowhere")


def test_close():
    with dibs.Matcher() as m:
        m.add("a", "x = 1")
        assert m.match({"x": 1}) == ["a"]
    assert len(m) == 0
    for call in (lambda: m.add("b", "x = 1"), lambda: m.match({"x": 1}), lambda: m.stats()):
        with pytest.raises(dibs.DibsError, match="this matcher is closed"):
            call()


class Life(RuleBasedStateMachine):
    """add, remove, replace, compact in any order: the matcher always equals the reference over what is in it."""

    def __init__(self):
        super().__init__()
        self.matcher = dibs.Matcher()
        self.model = {}

    ids = st.one_of(st.integers(0, 5), st.sampled_from(["a", "b", "c"]))

    @rule(id=ids, tree=expressions(max_leaves=4))
    def add(self, id, tree):
        if id in self.model:
            with pytest.raises(dibs.DuplicateId):
                self.matcher.add(id, to_sql(tree))
        else:
            self.matcher.add(id, to_sql(tree))
            self.model[id] = tree

    @rule(items=st.lists(st.tuples(ids, expressions(max_leaves=3)), max_size=4))
    def add_many(self, items):
        skipped = self.matcher.add_many([(i, to_sql(t)) for i, t in items], on_error="skip")
        for position, (id, tree) in enumerate(items):
            if position not in {r.position for r in skipped}:
                assert id not in self.model
                self.model[id] = tree

    @rule(id=ids)
    def remove(self, id):
        if id in self.model:
            self.matcher.remove(id)
            del self.model[id]
        else:
            with pytest.raises(dibs.UnknownId):
                self.matcher.remove(id)

    @rule(id=ids, tree=expressions(max_leaves=4))
    def replace(self, id, tree):
        if id in self.model:
            self.matcher.replace(id, to_sql(tree))
            self.model[id] = tree

    @rule()
    def compact(self):
        self.matcher.compact()

    @rule(batch=st.lists(events(), min_size=1, max_size=3))
    def match(self, batch):
        for event, found in zip(batch, self.matcher.match_batch(batch)):
            assert set(found) == {i for i, t in self.model.items() if matches(t, event)}

    @invariant()
    def size(self):
        assert len(self.matcher) == len(self.model)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=20)


def test_matches_and_changes_go_on_while_everything_is_merged(monkeypatch):
    m = dibs.Matcher()
    m.add_many((i, f"x = {i % 10}") for i in range(3_000))
    m.remove(1)
    m.match({"x": 1})
    seen = []
    built = Choice.build

    def build(*arguments):
        """In the middle of the merge: another thread must not have to wait for it."""

        def use():
            seen.append(len(m.match({"x": 1})))
            m.add("new", "x = 1")
            m.remove(11)
            seen.append(len(m.match({"x": 1})))

        if not seen:
            thread = threading.Thread(target=use)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
        return built(*arguments)

    monkeypatch.setattr(Choice, "build", build)
    m.compact()
    assert seen == [299, 299]
    found = m.match({"x": 1})
    assert "new" in found and 11 not in found and len(found) == 299
    m.compact()
    assert m.match({"x": 1}) == found and len(m) == 2_999
    assert all(x.gone.count == 0 for x in m._layers.state.layers)


def test_a_batch_knows_which_ids_are_new():
    """What was there, goes and comes again in one batch is there once; what comes and goes in it never was."""
    m = dibs.Matcher()
    m.add_many((i, "x = 1") for i in range(5))
    m.match({"x": 1})
    with m.batch():
        m.remove(0)
        m.add(0, "x = 2")
        m.add("there", "x = 2")
        m.add("gone", "x = 2")
        m.remove("gone")
        m.replace(1, "x = 2")
        m.remove(2)
    assert m.match({"x": 1}) == [3, 4] and m.match({"x": 2}) == [0, 1, "there"]
    assert len(m) == 5 and "gone" not in m and 2 not in m and m.version == 12


@pytest.mark.parametrize("index", ["scan", "auto", "counting"])
def test_the_heaviest_of_more_pairs_than_a_room_holds(index):
    """The room is used again for the next pairs: what is kept of the first ones must not change with it."""
    m = dibs.Matcher(index=index, threads=1)
    m.add_many([(i, "x = 1", 1.0 + i % 3) for i in range(500)])
    best = sorted(range(500), key=lambda i: (-(i % 3), i))[:7]
    with using({"first_room": 8, "largest_room": 16, "sink_room": 16}):
        assert m.match({"x": 1}, top=7) == best
        assert m.match_batch([{"x": 1}] * 3, top=7).top(7) == [best] * 3


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ((2**63, "x = 1"), "64 bits"),
        (("\ud800", "x = 1"), "not valid Unicode"),
        ((True, "x = 1"), "a string or an integer"),
        ((7, "x = '\ud800'"), "surrogate"),
        ((7, b"x = 1"), "an expression is a string"),
        ((7, "x = 1", float("nan")), "not NaN"),
        ((7, "x = 1", "2"), "a weight is"),
        ((7,), "expected (id, expression)"),
        ("ab", "expected (id, expression)"),
    ],
)
@pytest.mark.parametrize("weights", [(), (2.0,)])
def test_one_odd_item_among_many_plain_ones(odd, why, weights):
    items = [(i, f"x = {i % 5}", *weights) for i in range(40)]
    items[7] = odd
    m = dibs.Matcher()
    (refused,) = m.add_many(items, on_error="skip")
    assert refused.position == 7 and why in str(refused.error)
    assert len(m) == 39 and m.match({"x": 2}) == [2, 12, 17, 22, 27, 32, 37]
    assert m.weight(3) == (weights[0] if weights else 1.0)


def test_items_of_several_types_among_many_plain_ones():
    m = dibs.Matcher()
    m.add_many([(i, "x = 1") for i in range(40)] + [[np.int64(40), "x = 1"], ("a", "x = 1", 3)])
    assert m.match({"x": 1}) == [*range(41), "a"] and m.weight("a") == 3.0
