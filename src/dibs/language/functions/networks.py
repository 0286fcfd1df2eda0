"""Addresses of the internet and networks of them, in one order.

The key of an address is 8 hexadecimal digits, or ~ and 32 of them, which are ordered as addresses are; ::ffff:10.0.0.1
is 10.0.0.1. A network is a span of keys: so `ip_in(addr, '10.0.0.0/8')` is `ip_key(addr) BETWEEN '0a000000' AND
'0affffff'`, and the networks of all subscriptions are one search. (Keys with 24 zeros in front take six times as long.)
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from functools import lru_cache

from dibs.language.functions.plain import Plain
from dibs.language.functions.table import function

KEPT = 65_536  # addresses, and networks, that need not be read again
_MAPPED = 0xFFFF << 32  # the first address that stands for one of version 4
_FOUR = 1 << 32  # how many there are


class BadNetwork(Exception):
    """A text that is no network: what is wrong with it, and what to write."""

    def __init__(self, message: str, advice: str):
        super().__init__(message)
        self.message, self.advice = message, advice


@function("IP_KEY", "S", "S", "the address as a string that is ordered as addresses are; NULL where it is none")
@lru_cache(KEPT)
def ip_key(text: str) -> str | None:
    address = _address(text)
    return None if address is None else _key(address)


def _address(text: str) -> int | None:
    """As a number of 128 bits."""
    try:
        if ":" not in text:
            return _MAPPED + int(ipaddress.IPv4Address(text))
        return None if "%" in text else int(ipaddress.IPv6Address(text))
    except ValueError:
        return None


def _key(address: int) -> str:
    four = address - _MAPPED
    return f"{four:08x}" if 0 <= four < _FOUR else f"~{address:032x}"


@lru_cache(KEPT)
def span_of(network: str) -> tuple[int, int]:
    """Its first and last address. Raises BadNetwork."""
    form = "write '10.0.0.0/8', '2001:db8::/32' or a single address"
    text, slash, size = network.partition("/")
    address = _address(text)
    if address is None:
        raise BadNetwork(f"{network!r} is no network", form)
    bits = 128 if ":" in text else 32
    if not slash:
        return address, address
    if not (size.isascii() and size.isdigit()) or len(size) > 3 or int(size) > bits:
        raise BadNetwork(f"{network!r} is no network: behind the slash stand the bits of its prefix", form)
    rest = (1 << (bits - int(size))) - 1
    if address & rest:
        start = (
            ipaddress.IPv6Address(address & ~rest) if bits == 128 else ipaddress.IPv4Address(address % _FOUR & ~rest)
        )
        message = f"{network!r} is no network: the address has bits behind its prefix"
        raise BadNetwork(message, f"write '{start}/{size}'")
    return address, address | rest


@lru_cache(KEPT)
def keys_of(network: str) -> tuple[str, str] | None:
    """The keys of its first and last address; None: it is no network, or its keys are not in one piece."""
    with suppress(BadNetwork):
        spans = spans_of([network])
        return spans[0] if len(spans) == 1 else None
    return None


@function("IP_IN", "S S S*", "B", "whether the address lies in one of these networks", takes_null=True)
def ip_in(address: Plain, *networks: Plain) -> bool | None:
    own = _address(address) if isinstance(address, str) else None
    if own is None:
        return None
    result: bool | None = False
    for network in networks:
        try:
            if not isinstance(network, str):
                result = None
                continue
            first, last = span_of(network)
        except BadNetwork:
            result = None
            continue
        if first <= own <= last:
            return True
    return result


def spans_of(networks: list[str]) -> list[tuple[str, str]]:
    """The keys of the first and last address of several networks together: as few spans as there can be, in order."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(map(span_of, networks)):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    fours = [(max(first, _MAPPED), min(last, _MAPPED + _FOUR - 1)) for first, last in joined]
    # Those of version 4 have keys of their own, so that the others may reach over them.
    sixes = [(a, b) for a, b in joined if a < _MAPPED or b >= _MAPPED + _FOUR]
    spans = [(f"{a - _MAPPED:08x}", f"{b - _MAPPED:08x}") for a, b in fours if a <= b]
    return spans + [(f"~{a:032x}", f"~{b:032x}") for a, b in sixes]
