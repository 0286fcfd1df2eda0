"""Ids as columns say what lists of them say."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.arguments import Id
from dibs.matcher import Matcher
from dibs.segments import id_lists as module
from dibs.segments.id_lists import COUNT, IDS, NUMBER, Frame, IdColumns
from guards import guarded

FRAME = Frame(b'{"event":', NUMBER, b',"count":', COUNT, b',"ids":[', IDS, b'],"again":', NUMBER, b"}\n")
ids = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))


def check(found: IdColumns, wanted: list[list[Id]], first: int) -> None:
    assert list(found) == [found[n] for n in range(len(found))] == found[:] == wanted
    assert len(found) == len(wanted) and found.pairs == sum(map(len, wanted))
    assert found.times() == Counter(chain.from_iterable(wanted))
    lines = found.lines(FRAME, first)
    assert [orjson.loads(line) for line in lines.splitlines()] == [
        {"event": n, "count": len(own), "ids": own, "again": n} for n, own in enumerate(wanted, first)
    ]
    assert lines == b"".join(
        b'{"event":%d,"count":%d,"ids":%b,"again":%d}\n' % (n, len(own), orjson.dumps(own), n)
        for n, own in enumerate(wanted, first)
    )


@given(
    st.lists(st.tuples(ids, st.integers(0, 5)), max_size=80, unique_by=lambda pair: pair[0]),
    st.lists(st.integers(0, 6), max_size=60),
    st.integers(0, 3),
    st.sampled_from([0, 7, 10**9, 2**63 - 100]),
    st.sampled_from([0, 10**6]),
)
def test_as_lists(given: list[tuple[Id, int]], events: list[int], cut: int, first: int, flagged: int) -> None:
    """Of integers, texts or both, in one segment or several, with arrays of flags or without."""
    before, module.FLAGGED = module.FLAGGED, flagged
    try:
        with Matcher() as matcher, guarded():
            for some in (given[: len(given) // 3 * cut], given[len(given) // 3 * cut :]):
                matcher.add_many([(id, f"a <= {least}") for id, least in some])
                found = matcher.match_batch([{"a": value} for value in events])
            check(found.columns(), list(found), first)
    finally:
        module.FLAGGED = before


@pytest.mark.parametrize("name", ["integer", "text", "quote", "letter"])
def test_many_matches(name: str) -> None:
    """More than are sorted by insertion."""
    of = {"integer": lambda n: n, "text": lambda n: f"s{n}", "quote": lambda n: f'"{n}', "letter": lambda n: f"ä{n}"}
    with Matcher() as matcher:
        matcher.add_many([(of[name](n * 7919 % 10_007), "a = 1") for n in range(3_000)])
        found = matcher.match_batch([{"a": 1}, {"a": 2}, {"a": 1}])
        check(found.columns(), list(found), 5)


def test_a_kernel_writes_no_further_than_its_room() -> None:
    with Matcher() as matcher:
        matcher.add_many([(n, "a = 1") for n in range(50)])
        found = matcher.match_batch([{"a": 1}] * 3).columns()
    frame, texts = (FRAME.text, FRAME.ends, FRAME.fields), found._texts()
    for room in (0, 10, 100, 300):
        with guarded():
            out = module.np.empty(room, module.np.uint8)
            assert module.write_lines(out, frame, 0, found.offsets, found.places, texts) == -1
