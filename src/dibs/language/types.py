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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class Types(Mapping[str, str]):
    """The declared types of attributes. It never changes; equal ones are equal."""

    def __init__(self, types: Mapping[str, str] | None = None):
        self._types = dict(sorted((types or {}).items()))

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
        return None if type_ is None else KINDS[type_]


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
        if not isinstance(named, str) or named not in KINDS:
            raise ArgumentError(f"the type of {name!r} must be one of {', '.join(KINDS)}, not {show(type_)}")
        found[name] = named
    return Types(found)


def fit(value: Any, type_: str) -> Any:
    """A plain value (language.functions.plain) as one of the type; None: it does not fit."""
    return _forms().FITS[type_](value)


def typed_literal(literal: Literal, type_: str) -> Literal | None:
    """A constant as one of the type; None: it does not fit."""
    plain = bring("dibs.language.functions.plain")
    found: Literal | None = plain.literal_of(fit(plain.plain_of(literal), type_))
    return found


def _forms() -> Any:
    return bring("dibs.language.functions.fitting")  # which most programs do without
