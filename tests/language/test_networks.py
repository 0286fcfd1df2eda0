"""Networks and values as strings: ip_in, ip_key, same_text."""

from __future__ import annotations

import ipaddress
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.coding.computed.running import evaluate
from dibs.coding.computed.vectors import of_plain, to_plain
from dibs.language.expression import predicates
from dibs.language.functions.networks import ip_in, ip_key, spans_of
from dibs.language.scalars import Call, Field
from dibs.language.sql import parse, validate
from dibs.matcher import Matcher
from guards import guarded
from lanes import check_lanes, check_without_kernels, negated

EVENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "null": {"ip": None, "code": None},
    "ten": {"ip": "10.1.2.3", "code": 4625},
    "edge": {"ip": "10.255.255.255", "code": "4625"},
    "outside": {"ip": "11.0.0.0", "code": 4625.0},
    "mapped": {"ip": "::ffff:10.1.2.3", "code": 4625.5},
    "mapped_hex": {"ip": "::FFFF:0a01:0203", "code": " 4625"},
    "six": {"ip": "2001:db8::1", "code": True},
    "other_six": {"ip": "2001:db9::", "code": "true"},
    "zeros": {"ip": "::", "code": "TRUE"},
    "bad": {"ip": "10.1.2", "code": ""},
    "leading": {"ip": "010.1.2.3"},
    "zone": {"ip": "fe80::1%eth0"},
    "number": {"ip": 167838211},
    "local": {"ip": "127.0.0.1", "net": "127.0.0.0/8", "code": -7},
    "bad_net": {"ip": "127.0.0.1", "net": "127.0.0.1/8", "code": "-7"},
}
SCHEMA = pa.schema({"ip": pa.string(), "net": pa.string()})
FOUR = "ten edge outside mapped mapped_hex local bad_net"
HOLDS = {
    "ip_in(ip, '10.0.0.0/8')": ("ten edge mapped mapped_hex", "outside six other_six zeros local bad_net"),
    "ip_in(ip, '10.0.0.0/8', '2001:db8::/32')": (
        "ten edge mapped mapped_hex six",
        "outside other_six zeros local bad_net",
    ),
    "ip_in(ip, '2001:db8::/32')": ("six", f"{FOUR} other_six zeros"),
    "ip_in(ip, '0.0.0.0/0')": (FOUR, "six other_six zeros"),
    "ip_in(ip, '::ffff:0:0/96')": (FOUR, "six other_six zeros"),
    "ip_in(ip, '::/0')": (f"{FOUR} six other_six zeros", ""),
    "ip_in(ip, '::/64')": (f"{FOUR} zeros", "six other_six"),
    "ip_in(ip, '10.1.2.3')": ("ten mapped mapped_hex", "edge outside six other_six zeros local bad_net"),
    "ip_in(ip, '10.0.0.0/8', '11.0.0.0/8')": (
        "ten edge outside mapped mapped_hex",
        "six other_six zeros local bad_net",
    ),
    "ip_in(ip, net)": ("local", ""),
    "CASE WHEN ip_in(ip, '127.0.0.0/8') THEN 'local' ELSE 'far' END = 'local'": (
        "local bad_net",
        " ".join(name for name in EVENTS if name not in ("local", "bad_net")),
    ),
    "ip_key(ip) = ip_key('10.1.2.3')": ("ten mapped mapped_hex", "edge outside six other_six zeros local bad_net"),
    "same_text(code, 4625)": ("ten edge outside", "mapped mapped_hex six other_six zeros bad local bad_net"),
    "same_text(code, 4625, -7)": ("ten edge outside local bad_net", "mapped mapped_hex six other_six zeros bad"),
    "same_text(code, 'true')": ("six other_six", "ten edge outside mapped mapped_hex zeros bad local bad_net"),
    "same_text(code, 4625.5)": ("mapped", "ten edge outside mapped_hex six other_six zeros bad local bad_net"),
    "same_text(code, 1 - 8)": ("local bad_net", "ten edge outside mapped mapped_hex six other_six zeros bad"),
    "same_text(code, code)": ("ten edge outside mapped mapped_hex six other_six zeros bad local bad_net", ""),
    "if(same_text(code, 4625), 'yes', 'no') = 'yes'": (
        "ten edge outside",
        " ".join(name for name in EVENTS if name not in ("ten", "edge", "outside")),
    ),
}


@pytest.mark.parametrize("text", HOLDS)
def test_without_kernels(text: str) -> None:
    check_without_kernels(text, HOLDS, EVENTS)


def test_every_lane() -> None:
    check_lanes(HOLDS | negated(HOLDS), EVENTS, SCHEMA)


def test_arrays_of_addresses() -> None:
    with Matcher() as matcher:
        matcher.add("in", "ip_in(ips, '10.0.0.0/8')")
        matcher.add("not", "NOT ip_in(ips, '10.0.0.0/8')")
        matcher.add("none", "ip_in(ips, '10.0.0.0/8') IS NOT TRUE")
        matcher.add("all", "forall(ips, x -> ip_in(x, '10.0.0.0/8'))")
        assert matcher.match({"ips": ["10.0.0.1", "::1"]}) == ["in", "not"]
        assert matcher.match({"ips": ["10.0.0.1"]}) == ["all", "in"]
        assert matcher.match({"ips": ["::1", "nowhere"]}) == ["none", "not"]


def test_all_networks_are_spans_of_one_attribute() -> None:
    texts = ["ip_in(a, '10.0.0.0/8')", "ip_in(a, '10.0.0.7')", "NOT ip_in(a, '2001:db8::/32')", "ip_in(a, '::/0')"]
    assert len({name for text in texts for name in _attributes(text)}) == 1
    codes = ["same_text(a, 4625)", "same_text(a, '4625')", "same_text(a, 1, 2)"]
    assert len({name for text in codes for name in _attributes(text)}) == 1
    assert parse("same_text(a, 4625)") == parse("same_text(a, '4625')")


def _attributes(text: str) -> set[str]:
    return {predicate.attribute for predicate in predicates(parse(text))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ip_in(a, '10.0.0/8')", "'10.0.0/8' is no network"),
        ("ip_in(a, '10.0.0.1/8')", "'10.0.0.1/8' is no network: the address has bits behind its prefix"),
        ("ip_in(a, '10.0.0.0/33')", "'10.0.0.0/33' is no network: behind the slash stand the bits of its prefix"),
        ("ip_in(a, '10.0.0.0/255.0.0.0')", "'10.0.0.0/255.0.0.0' is no network: behind the slash"),
        ("ip_in(a, '2001::1/32')", "'2001::1/32' is no network: the address has bits behind its prefix"),
        ("x = 1 OR (ip_in(a, '1.1.1.1', 'here')) IS NOT TRUE", "'here' is no network"),
        ("ip_in(a)", "ip_in takes at least 2 arguments, not 1"),
        ("ip_in(a, 5)", "ip_in takes a string here, not a number"),
    ],
)
def test_problems(text: str, message: str) -> None:
    [problem] = validate(text)
    assert problem.message.startswith(message) and problem.advice
    assert "ip_in" in text[problem.start : problem.end]


_PARTS = st.sampled_from([*"01gé: .%", "00", "ff", "FFFF", "", "::", "255", "256", "10.0.0.1"])
_NEARLY = st.lists(_PARTS, max_size=9).map(":".join) | st.lists(_PARTS, max_size=12).map("".join)
_ADDRESSES = st.ip_addresses().map(str) | st.ip_addresses(v=6).map(lambda address: address.exploded.upper())


def keys_of(values: list[Any]) -> list[Any]:
    return to_plain(evaluate(Call("IP_KEY", (Field("a"),)), {"a": of_plain(values)}, len(values)))


@given(st.lists(_NEARLY | _ADDRESSES | st.text(max_size=5) | st.none() | st.integers(-5, 5), min_size=1, max_size=20))
def test_columns_are_as_single_values(values: list[Any]) -> None:
    assert keys_of(values) == [ip_key(value) if isinstance(value, str) else None for value in values]


def test_the_kernel_stays_within_its_arrays() -> None:
    random = Random(5)
    texts = [str(ipaddress.ip_address(random.getrandbits(32 if random.random() < 0.5 else 128))) for _ in range(300)]
    texts += ["", ":", "::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::1.2.3.4", "1.2.3.4.5", "f" * 40, "1:" * 20, "1."]
    texts += [text[:size] for text in texts[:20] for size in range(len(text))]
    with guarded() as guards:
        found = keys_of(texts)
    assert guards.called and found == [ip_key(text) for text in texts]


@given(st.lists(st.ip_addresses(), min_size=1, max_size=4), st.ip_addresses(), st.randoms(use_true_random=False))
def test_spans_hold_what_networks_do(addresses: list[Any], other: Any, random: Random) -> None:
    networks = [
        str(ipaddress.ip_network((address, random.randint(0, address.max_prefixlen)), strict=False))
        for address in addresses
    ]
    spans = spans_of(networks)
    assert spans == sorted(spans)
    for address in [other, *addresses]:
        key = ip_key(str(address))
        assert key is not None
        assert any(first <= key <= last for first, last in spans) == ip_in(str(address), *networks)
