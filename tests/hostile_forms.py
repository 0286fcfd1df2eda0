"""Hostile events (hostile_events.py) in every other form that is read by kernels: Arrow columns, lists, structs, maps
and JSON texts, sliced and with nulls; JSON under a key; documents of a history; and texts of subscriptions.

What is right is known without an oracle, as there. Each function is a kind of case of memory_safety.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa

from hostile_events import COUNTS, Case, flat, hostile_case

Values = dict[str, list[Any]]  # by attribute: a and t have strings, n numbers
Form = tuple[Any, str | None]  # events, and the column that has their attributes


# --- events in other forms -----------------------------------------------------------------------------------------


def forms(index: str, seed: int) -> None:
    """The same events by every form, and backtested."""
    import dibs
    from dibs.matcher import Matcher

    random = Random(seed)
    case = hostile_case(random, 1001 if index in ("auto", "scan") else 257)
    rows = [_values_of(case, event) for event in case.events]
    rows += [{name: column[-1:] for name, column in row.items()} for row in rows]
    rows += [{}] * random.choice([0, 1, 70])
    random.shuffle(rows)
    right = [case.expected(row) for row in rows]
    with Matcher(index=index) as matcher:
        for group in case.groups:
            matcher.add_table(_subscriptions(random, [rule.id for rule in group], [rule.text for rule in group]))
        for name, (events, attributes) in _forms_of(random, rows):
            found = list(matcher.match_batch(events, attributes=attributes))
            assert found == right, f"{name}: {[i for i in range(len(rows)) if found[i] != right[i]][:5]}"
    some = random.sample(case.rules, min(len(case.rules), random.choice([1, 5, 90])))
    for name, (events, attributes) in random.sample(list(_forms_of(random, rows)), 2):
        results = dibs.backtest([rule.text for rule in some], events, attributes=attributes, examples=0)
        for rule, count in zip(some, results.values()):
            assert count.count == sum(rule.id in ids for ids in right), f"backtest of {name}: {rule.text}"


def columns(index: str, seed: int) -> None:
    """One value in each row: plain columns, which one kernel reads from Arrow's buffers."""
    from dibs.matcher import Matcher

    random = Random(seed)
    case = hostile_case(random, 513)
    values = _values_of(case, case.events[0])
    size = max(map(len, values.values()), default=0)
    rows = [{name: [x for x in column[i : i + 1] if random.random() < 0.9] for name, column in values.items()}
            for i in range(size)]  # fmt: skip
    table = {name: [next(iter(row[name]), None) for row in rows] for name in values}
    kinds = {"a": random.choice(_STRINGS), "t": random.choice(_STRINGS), "n": _number_type(values)}
    made = {name: pa.array(column, kinds[name]) for name, column in table.items()}
    right = [case.expected(row) for row in rows]
    with Matcher(index=index) as matcher:
        matcher.add_many([(rule.id, rule.text) for rule in case.rules])
        for events in (pa.table(made), _sliced(random, pa.table(made))):
            assert list(matcher.match_batch(events)) == right


def _values_of(case: Case, event: dict[str, Any]) -> Values:
    """The strings and numbers of the event, which Arrow can hold: columns are of one type."""
    found: Values = {}
    for name, value in flat(event, ""):
        is_number = type(value) in (int, float) and abs(value) < 2**53
        if (name in ("a", "t") and type(value) is str) or (name == "n" and is_number):
            found.setdefault(name, []).append(value)
    return found


_STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
_LISTS: list[Callable[[pa.DataType], pa.DataType]] = [pa.list_, pa.large_list, pa.list_view]


def _number_type(*rows: Values) -> pa.DataType:
    is_whole = all(type(x) is int for row in rows for x in row.get("n", ()))
    return pa.int64() if is_whole else pa.float64()


def _forms_of(random: Random, rows: list[Values]) -> Iterator[tuple[str, Form]]:
    texts = [json.dumps(row, separators=random.choice([(",", ":"), (", ", " : ")])).encode() for row in rows]
    yield "lines", (b"\n".join(texts), None)
    under_key = [b'{"x": [1, {}], "e":' + text + b', "y": "\\u00e9"}' for text in texts]
    yield "lines under a key", (b"\r\n".join(under_key) + b"\n", "e")
    strings = [text.decode() for text in texts]
    json_type = random.choice(_STRINGS)
    yield "JSON texts", (_sliced(random, pa.table({"e": pa.array(strings, json_type)})), "e")
    string, list_of = random.choice(_STRINGS[:3]), random.choice(_LISTS)
    kinds = {"a": list_of(string), "t": list_of(random.choice(_STRINGS[:3])), "n": list_of(_number_type(*rows))}
    wide = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
    yield "columns", (_sliced(random, pa.table(wide)), None)
    struct = pa.StructArray.from_arrays(list(wide.values()), list(wide))
    yield "a struct", (_sliced(random, pa.table({"e": struct})), "e")
    as_texts = [[(k, [*map(str, v)]) for k, v in row.items() if k != "n"] for row in rows]
    if not any("n" in row for row in rows):
        maps = pa.array(as_texts, pa.map_(pa.string(), pa.list_(pa.string())))
        yield "maps", (_sliced(random, pa.table({"e": maps})), "e")


def _sliced(random: Random, table: pa.Table) -> Any:
    """The same rows: a table of a few chunks, or a record batch, that begins somewhere in its buffers."""
    before = random.choice([0, 1, 7, 8, 9, 63, 65])
    if before and len(table):
        table = pa.concat_tables([*[table.slice(0, 1)] * before, table]).combine_chunks().slice(before)
    if random.random() < 0.5 and len(table) > 1:
        cut = random.randrange(1, len(table))
        return pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    return table


def _subscriptions(random: Random, ids: list[str], texts: list[str]) -> pa.Table:
    kinds = random.choice(_STRINGS), random.choice(_STRINGS)
    return _sliced(random, pa.table({"id": pa.array(ids, kinds[0]), "expression": pa.array(texts, kinds[1])}))


# --- documents -----------------------------------------------------------------------------------------------------


def documents(index: str, seed: int) -> None:
    """Joins over documents with long arrays, which come in every way."""
    from dibs.matcher import Matcher

    random = Random(seed)
    counts = [count for count in COUNTS if count <= random.choice([3, 33, 257])]
    made = [_document(random, counts) for _ in range(random.choice([1, 63, 64, 65, 200]))]
    events = [_document(random, counts) for _ in range(5)]
    word = f"w{random.randrange(20):05d}"
    joins: dict[str, Callable[[Values, list[Values]], bool]] = {
        "EXISTS d (d.a = a)": lambda e, ds: any(_meet(e, d, "a") for d in ds),
        "EXISTS d (d.a = a AND d.n = n AND d.t = t)": lambda e, ds: any(_meet(e, d, "ant") for d in ds),
        "(SELECT COUNT(*) FROM history d WHERE d.a = a AND d.n = n) >= 2": (
            lambda e, ds: sum(_meet(e, d, "an") for d in ds) >= 2
        ),
        "n <= (SELECT MAX(d.n) FROM history d WHERE d.a = a)": (
            lambda e, ds: any(min(e["n"]) <= max(d["n"]) for d in ds if e["n"] and d["n"] and _meet(e, d, "a"))
        ),
        f"EXISTS d (d.t LIKE '%{word}%' AND d.n = n)": (
            lambda e, ds: any(_meet(e, d, "n") and any(word in text for text in d["t"]) for d in ds)
        ),
    }
    with Matcher(index=index) as matcher:
        matcher.add_many([(i, text) for i, text in enumerate(joins)])
        cut = random.randrange(len(made) + 1)
        matcher.history.load(made[:cut] if random.random() < 0.5 or not cut else pa.Table.from_pylist(made[:cut]))
        matcher.match_batch([{}])
        for document in made[cut:]:
            matcher.history.add(document)
        for remember in (False, True):
            right, known = [], list(made)
            for event in events:
                right.append([i for i, holds in enumerate(joins.values()) if holds(event, known)])
                known += [event] if remember else []
            found = list(matcher.match_batch(events, remember=remember))
            assert found == right, f"remember={remember}: {found}, not {right}"
        assert len(matcher.history) == len(made) + len(events)


def _document(random: Random, counts: list[int]) -> Values:
    def some(make: Callable[[int], Any]) -> list[Any]:
        start, count = random.randrange(20), random.choice([0, 1, 1, random.choice(counts)])
        return [make(i) for i in range(start, start + count)]

    return {"a": some(lambda i: f"v{i:05d}"), "n": some(lambda i: i), "t": some(lambda i: f"w{i:05d} é {i}")}


def _meet(event: Values, document: Values, names: str) -> bool:
    return all(not set(event[name]).isdisjoint(document[name]) for name in names)


# --- texts of subscriptions ----------------------------------------------------------------------------------------


def texts(index: str, seed: int) -> None:
    """Texts of as many predicates and literals as their bytes can be, whole and cut anywhere, by templates and by the
    grammar: language/reader_agreement.py has the rest."""
    from dibs.errors import DibsError
    from dibs.language.reading import read
    from dibs.language.rows import fill_rows, read_row
    from dibs.language.sql import parse

    random = Random(seed)
    count = random.choice([1, 2, 16, 33, 257])
    whole = [
        " AND ".join(["a=1"] * count),
        f"a IN({','.join('1' * count)})",
        "a NOT IN(" + ",".join(["''"] * count) + ")AND b<2",
        " AND ".join(["a LIKE'b%'", "a.b.c BETWEEN 1 AND 2", "a IS NULL", "b=TRUE"] * count)[: 40 * count],
        "a='" + "é" * count + "'",
        " OR ".join(["a IN(1,2)", "b<2", "a=3", "c IN('x','y')", "a NOT IN(4,5)"] * min(count, 16)),
        "NOT(" + " AND ".join(["a<>1", "a NOT IN('',r'x')", "!(b=2 OR b IN(3,4,5))"] * min(count, 16)) + ")",
    ]
    found = list(whole)
    for text in whole:
        found += (text[: random.randrange(len(text) + 1)] for _ in range(20))
        found += (text[random.randrange(len(text)) :] for _ in range(5))
    random.shuffle(found)
    array = pa.array(found, random.choice([pa.string(), pa.large_string()]))
    result = read(_sliced(random, pa.table({"t": array}))["t"].combine_chunks())
    for text, taken in zip(found, result.taken.tolist()):
        assert (read_row(text) is not None) == taken, text
        try:
            parse(text)
        except DibsError:
            assert not taken, text
    rows = {text: row for text in found if (row := read_row(text)) is not None}
    if rows:
        table, order = fill_rows(list(rows.values()), pa.array(rows, pa.large_string()))
        assert len(table) == len(rows) and sorted(order.tolist()) == list(range(len(rows)))
