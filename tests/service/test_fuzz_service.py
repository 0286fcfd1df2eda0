"""The short form of fuzz.py: no 500, and every answer as it is documented. DIBS_EXAMPLES=200 looks further."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from fuzz import MODES, ask_operation, ask_raw, operations_of
from serving import Running, running

EXAMPLES = int(os.environ.get("DIBS_EXAMPLES", 1))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("fuzz") / "searches", open=True) as found:
        yield found


def test_no_request_makes_it_fail(api: Running) -> None:
    operations = operations_of(api.url)
    assert len(operations) > 25
    asked: Counter[int] = Counter()
    for number, operation in enumerate(operations):
        for mode in MODES if EXAMPLES > 1 else MODES[number % 2 :][:1]:  # what is sent wrongly takes long to make up
            ask_operation(operation, mode, EXAMPLES, asked)
    assert asked[200] > 10 and asked[400] > 2, asked
    assert not any(status >= 500 for status in asked)


def test_bytes_that_are_hardly_http(api: Running) -> None:
    random = Random(3)
    asked: Counter[int] = Counter()
    assert [problem for _ in range(20) if (problem := ask_raw(api.url, random, asked))] == []
    assert asked[400] > 2, asked
