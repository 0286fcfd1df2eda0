"""dibs.Client with odd values in each argument: a result, or a DibsError, as of the Matcher (test_odd_values.py)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from serving import Running

import dibs
from odd_values import Call, raw_exceptions

CALLS: dict[str, Call] = {
    "add id": Call(lambda c, v: c.add(v, "a = 1")),
    "add": Call(lambda c, v: c.add("new", v)),
    "add weight": Call(lambda c, v: c.add("new", "a = 1", v)),
    "add owner": Call(lambda c, v: c.add("new", "a = 1", owner=v)),
    "add labels": Call(lambda c, v: c.add("new", "a = 1", labels=v)),
    "put id": Call(lambda c, v: c.put(v, "a = 1")),
    "put": Call(lambda c, v: c.put("new", v)),
    "put_destination": Call(lambda c, v: c.put_destination(v, "stream")),
    "put_destination kind": Call(lambda c, v: c.put_destination("d", v)),
    "put_destination target": Call(lambda c, v: c.put_destination("d", "webhook", target=v)),
    "add_many": Call(lambda c, v: c.add_many(v)),
    "add_many of one": Call(lambda c, v: c.add_many([v])),
    "add_many id": Call(lambda c, v: c.add_many([(v, "a = 1")], on_error="skip")),
    "add_many on_error": Call(lambda c, v: c.add_many([("z", "a = 1")], on_error=v)),
    "add_table": Call(lambda c, v: c.add_table(v)),
    "replace id": Call(lambda c, v: c.replace(v, "a = 1")),
    "replace": Call(lambda c, v: c.replace("x", v)),
    "replace weight": Call(lambda c, v: c.replace("x", "a = 1", v)),
    "remove": Call(lambda c, v: c.remove(v)),
    "remove_many": Call(lambda c, v: c.remove_many(v)),
    "remove_many of one": Call(lambda c, v: c.remove_many([v])),
    "pause": Call(lambda c, v: c.pause(v)),
    "resume": Call(lambda c, v: c.resume(v)),
    "get": Call(lambda c, v: c.get(v)),
    "pages": Call(lambda c, v: next(c.pages(v))),
    "pages paused": Call(lambda c, v: next(c.pages(10, v))),
    "in": Call(lambda c, v: v in c),
    "match": Call(lambda c, v: c.match(v)),
    "match a value": Call(lambda c, v: c.match({"a": v})),
    "match top": Call(lambda c, v: c.match({"a": 1}, top=v)),
    "match_batch": Call(lambda c, v: c.match_batch(v)),
    "match_batch of one": Call(lambda c, v: c.match_batch([v], on_error="skip")),
    "match_batch on_error": Call(lambda c, v: c.match_batch([{"a": 1}], on_error=v)),
    "match_batch top": Call(lambda c, v: c.match_batch([{"a": 1}], top=v)),
    "matches top": Call(lambda c, v: c.match_batch([{"a": 1}]).top(v)),
    "publish": Call(lambda c, v: c.publish(v)),
    "publish key": Call(lambda c, v: c.publish({"a": 1}, key=v)),
    "explain id": Call(lambda c, v: c.explain(v, {"a": 1})),
    "explain": Call(lambda c, v: c.explain("x", v)),
    "explain a value": Call(lambda c, v: c.explain("x", {"a": v})),
    "validate": Call(lambda c, v: c.validate(v)),
    "backtest": Call(lambda c, v: c.backtest(v)),
    "backtest examples": Call(lambda c, v: c.backtest("a = 1", v)),
}
MAKING: dict[str, Call] = {
    "url": Call(lambda c, v: dibs.Client(v).close()),
    "token": Call(lambda c, v: dibs.Client("http://127.0.0.1:9", v).close()),
    "tenant": Call(lambda c, v: dibs.Client("http://127.0.0.1:9", tenant=v).close()),
    "timeout": Call(lambda c, v: dibs.Client("http://127.0.0.1:9", timeout=v).close()),
    "verify": Call(lambda c, v: dibs.Client("https://127.0.0.1:9", verify=v).close()),
}


@pytest.fixture
def client(served: Running) -> Iterator[dibs.Client]:
    with dibs.Client(served.url, served.token()) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.put("x", "a = 1")
        yield client


@pytest.mark.parametrize("name", CALLS)
def test_a_service_is_asked(name: str, client: dibs.Client) -> None:
    assert list(raw_exceptions(CALLS[name], client, name, share=4)) == []


@pytest.mark.parametrize("name", MAKING)
def test_making(name: str) -> None:
    assert list(raw_exceptions(MAKING[name], None)) == []
