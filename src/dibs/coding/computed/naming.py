"""Which names of a batch are computed, and from which others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import orjson

from dibs.language.printer import EVERY, WHOLE
from dibs.language.scalars import PRESENT, at_time_of, inputs_of, is_computed, scalar_of, sees_structure

MOST_COMBINATIONS = 10_000  # of the values of an event's arrays; a computed value of more is unknown


class ComputedNames:
    """The computed attributes among the names of a batch, and what they are computed from."""

    def __init__(self, names: Sequence[str], own_time: str | None = None, only: Collection[str] | None = None):
        """own_time: the attribute that is the time of the match. only: those of the names that are meant."""
        codes = {name: code for code, name in enumerate(names)}
        own = [name for name in names if is_computed(name) and (only is None or name in only)]
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
        by_events = {name for name, scalar in zip(own, self.scalars) if sees_structure(scalar)}
        # What has no form over columns, and the rest.
        self.by_events: ComputedNames | None = None
        if by_events:
            self.by_events = self if len(by_events) == len(own) else ComputedNames(names, own_time, by_events)
        self.by_columns = self if not by_events else ComputedNames(names, own_time, {*own} - by_events)


def with_fields(names: Iterable[str]) -> set[str]:
    """The names, and the attributes that the computed ones among them are computed from."""
    found = set(names)
    for name in [name for name in found if name[:1] == "\0" and is_computed(name)]:
        found.update(inputs_of(scalar_of(name)))
    return found
