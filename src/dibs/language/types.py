"""Declared types: what the values of an attribute are, whatever form they come in.

    Matcher(types={"at": "timestamp", "price": "number"})

A value of another kind is converted where events and documents are read, exactly, or it does not fit; a constant beside
such an attribute is converted by the same rule when a text is read, or is a problem.

    number              numbers, and strings that say one
    string              strings, and whatever else as CAST(a AS STRING) writes it
    boolean             booleans, the numbers 0 and 1, and strings as true, false, yes, no
    date                times at midnight UTC, and strings that read as one
    timestamp           times, and strings that read as one
    timestamp_seconds, timestamp_millis, timestamp_micros
                        times, numbers since 1970 (seconds with a fraction, others whole), strings that say such
                        a number, and else strings that read as a time
    integer(0, 1000)    a domain: whole numbers from 0 to 1000, and strings that say one (Matcher(domains=...)); a range
                        of values is one of these numbers
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from dibs.errors import ArgumentError, show
from dibs.jit.undisturbed import bring
from dibs.language.expression import Kind, Literal

KINDS = {
    "number": Kind.NUMBER,
    "string": Kind.STRING,
    "boolean": Kind.BOOLEAN,
    "date": Kind.TIME,
    "timestamp": Kind.TIME,
    "timestamp_seconds": Kind.TIME,
    "timestamp_millis": Kind.TIME,
    "timestamp_micros": Kind.TIME,
}
SYNONYMS = {"text": "string"}
Domain = tuple[int, int]  # the least and the greatest value, both included
LARGEST_DOMAIN = 1_000_000  # values: every segment has a number for each
_DOMAIN = re.compile(r"integer\(\s*(-?\d{1,15})\s*,\s*(-?\d{1,15})\s*\)", re.ASCII)


class Types(Mapping[str, str]):
    """The declared types of attributes. It never changes; equal ones are equal."""

    def __init__(self, types: Mapping[str, str] | None = None):
        self._types = dict(sorted((types or {}).items()))
        self.domains = {name: domain for name, type_ in self._types.items() if (domain := domain_of(type_))}

    def __getitem__(self, name: str) -> str:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def __hash__(self) -> int:
        return hash(tuple(self._types.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Types) and self._types == other._types

    def __repr__(self) -> str:
        return repr(self._types)

    def kind_of(self, name: str) -> Kind | None:
        type_ = self._types.get(name)
        return None if type_ is None else kind_of_type(type_)


@lru_cache(maxsize=4096)
def domain_of(type_: str) -> Domain | None:
    """Of a type that is a domain of integers."""
    found = _DOMAIN.fullmatch(type_)
    return None if found is None else (int(found[1]), int(found[2]))


def kind_of_type(type_: str) -> Kind:
    return Kind.NUMBER if domain_of(type_) else KINDS[type_]


NO_TYPES = Types()


def check_types(types: Any) -> Types:
    """Raises ArgumentError."""
    if types is None:
        return NO_TYPES
    if isinstance(types, Types):
        return types
    if not isinstance(types, Mapping):
        raise ArgumentError(f'types must be a dict as {{"at": "timestamp"}}, not {show(types)}')
    found = {}
    for name, type_ in types.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ArgumentError(f"types has the key {show(name)}; expected the name of an attribute")
        named = SYNONYMS.get(type_, type_) if isinstance(type_, str) else type_
        if isinstance(named, str) and (domain := domain_of(named)):
            found[name] = _name_domain(name, domain)
            continue
        if not isinstance(named, str) or named not in KINDS:
            raise ArgumentError(
                f"the type of {name!r} must be one of {', '.join(KINDS)}, or integer(0, 1000), not {show(type_)}"
            )
        found[name] = named
    return Types(found)


def with_domains(types: Any, domains: Any) -> Types:
    """The types, with {"a": (0, 1000)} as the type integer(0, 1000) of a. Raises ArgumentError."""
    declared = check_types(types)
    if domains is None:
        return declared
    if not isinstance(domains, Mapping):
        raise ArgumentError(f'domains must be a dict as {{"a": (0, 1000)}}, not {show(domains)}')
    found = dict(declared)
    for name, domain in domains.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ArgumentError(f"domains has the key {show(name)}; expected the name of an attribute")
        if name in found:
            raise ArgumentError(f"{name!r} has a type and a domain: leave one of them out")
        ends = tuple(domain) if isinstance(domain, (tuple, list)) else ()
        if len(ends) != 2 or not all(type(end) is int for end in ends):
            raise ArgumentError(
                f"the domain of {name!r} must be two integers, the least and the greatest value, not {show(domain)}"
            )
        found[name] = _name_domain(name, ends)
    return Types(found)


def _name_domain(name: str, domain: Domain) -> str:
    low, high = domain
    if not 0 <= high - low < LARGEST_DOMAIN or max(abs(low), abs(high)) >= 10**15:
        raise ArgumentError(
            f"the domain of {name!r} must have 1 to {LARGEST_DOMAIN:,} values, not those from {low:,} to {high:,}: "
            "declare it a number"
        )
    return f"integer({low}, {high})"


def fit(value: Any, type_: str) -> Any:
    """A plain value (language.functions.plain) as one of the type; None: it does not fit."""
    domain = domain_of(type_)
    return _forms().FITS[type_](value) if domain is None else _forms().to_integer(value, domain)


def fit_range(low: Any, high: Any, domain: Domain) -> Domain | None:
    """The values of a domain between two numbers, both included; None leaves an end open; None: there are none."""
    if any(isinstance(end, bool) or not isinstance(end, (int, float, type(None))) for end in (low, high)):
        return None
    least = domain[0] if low is None or low <= domain[0] else math.inf if low > domain[1] else math.ceil(low)
    most = domain[1] if high is None or not high < domain[1] else -math.inf if high < domain[0] else math.floor(high)
    return (int(least), int(most)) if least <= most else None


def typed_literal(literal: Literal, type_: str) -> Literal | None:
    """A constant as one of the type; None: it does not fit."""
    plain = bring("dibs.language.functions.plain")
    found: Literal | None = plain.literal_of(fit(plain.plain_of(literal), type_))
    return found


def _forms() -> Any:
    return bring("dibs.language.functions.fitting")  # which most programs do without
