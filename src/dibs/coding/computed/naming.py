"""Which names of a batch are computed, and from which others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from dibs.coding.computed.elements import over_elements
from dibs.coding.computed.program import Program, program_of
from dibs.language.functions import FUNCTIONS
from dibs.language.printer import EVERY, HAS_KEY, WHOLE
from dibs.language.scalars import (
    COMPARISONS,
    PRESENT,
    Call,
    Field,
    Lambda,
    Scalar,
    at_time_of,
    inputs_of,
    is_computed,
    scalar_of,
    sees_structure,
    split_mark,
)
from dibs.lazy import lazy


class ComputedNames:
    """The computed attributes among the names of a batch, and what they are computed from."""

    def __init__(self, names: Sequence[str], own_time: str | None = None, only: Collection[str] | None = None):
        """own_time: the attribute that is the time of the match. only: those of the names that are meant."""
        codes = {name: code for code, name in enumerate(names)}
        self._names, self._own_time = names, own_time
        self.in_call: Any = None  # what segments.single.programs makes of them
        own = self._own = [name for name in names if is_computed(name) and (only is None or name in only)]
        self.scalars = [scalar_of(name) for name in own]
        if own_time is not None:
            self.scalars = [at_time_of(scalar, own_time) for scalar in self.scalars]
        self.present = codes.get(PRESENT)  # if something asks for the time of the match
        self.codes = [codes[name] for name in own]
        self.fields = [inputs_of(scalar) for scalar in self.scalars]
        self.field_codes = [[codes[field] for field in fields] for fields in self.fields]
        self.keys = [orjson.dumps(name) + b":" for name in own]  # as members of a JSON text
        self.every_key = orjson.dumps(EVERY) + b":" if EVERY in codes else None  # of all strings of an event
        self.is_computed = np.zeros(len(names), np.bool_)
        self.is_computed[self.codes] = True
        if self.present is not None:
            self.is_computed[self.present] = True
        self.is_field = np.zeros(len(names), np.bool_)
        self.is_field[[code for some in self.field_codes for code in some]] = True
        self.is_whole = np.fromiter((name[:2] == WHOLE for name in names), np.bool_, len(names))
        by_events = {name for name, scalar in zip(own, self.scalars) if over_elements(scalar) is None}
        # What has no form over columns, and the rest.
        self.by_events: ComputedNames | None = None
        if by_events:
            self.by_events = self if len(by_events) == len(own) else ComputedNames(names, own_time, by_events)
        self.by_columns = self if not by_events else ComputedNames(names, own_time, {*own} - by_events)

    @lazy
    def programs(self) -> list[Program | None]:
        """Of each, if it has one."""
        return [_program(scalar, tuple(fields)) for scalar, fields in zip(self.scalars, self.fields)]

    @lazy
    def without_programs(self) -> ComputedNames | None:
        """Those that have none; and what else is added to an event."""
        left = [name for name, program in zip(self._own, self.programs) if program is None]
        if len(left) == len(self._own) or (not left and self.every_key is None):
            return self if left or self.every_key is not None else None
        return ComputedNames(self._names, self._own_time, left)

    def may_be_in(self, text: bytes) -> bool:
        """Whether some of them may be other than NULL for the event that a JSON text says: mostly not, if what they are
        computed from is not there."""
        if self._keys is None or b"\\" in text:  # a key may be written in several ways then
            return True
        return any(all(key in text for key in keys) for keys in self._keys)

    @lazy
    def _keys(self) -> list[list[bytes]] | None:
        """Of each, the ends of the keys without which it is NULL; None: there is one that is never NULL."""
        found = [[orjson.dumps(name.rpartition(".")[2])[1:-1] for name in _needed(scalar)] for scalar in self.scalars]
        return None if self.every_key is not None or not all(found) else found


def _needed(scalar: Scalar) -> set[str]:
    """The attributes without which a value is NULL."""
    if isinstance(scalar, Field):
        mark, name = split_mark(scalar.name)
        return {name} if name[:1] != "\0" and mark != HAS_KEY else set()
    if not isinstance(scalar, Call):
        return set()
    if isinstance(scalar.arguments[-1], Lambda):
        return _needed(scalar.arguments[0])
    if FUNCTIONS[scalar.function].takes_null and scalar.function not in COMPARISONS - {"<=>"}:
        return set()
    return set().union(*map(_needed, scalar.arguments))


@lru_cache(65_536)
def _program(scalar: Scalar, fields: tuple[str, ...]) -> Program | None:
    return None if sees_structure(scalar) else program_of(scalar, fields)


def with_fields(names: Iterable[str]) -> set[str]:
    """The names, and the attributes that the computed ones among them are computed from."""
    found = set(names)
    for name in [name for name in found if name[:1] == "\0" and is_computed(name)]:
        found.update(inputs_of(scalar_of(name)))
    return found
