"""Which names of a batch are computed, and from which others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import orjson

from dibs.language.scalars import PRESENT, at_time_of, inputs_of, is_computed, scalar_of

MOST_COMBINATIONS = 10_000  # of the values of an event's arrays; a computed value of more is unknown


class ComputedNames:
    """The computed attributes among the names of a batch, and what they are computed from."""

    def __init__(self, names: Sequence[str], own_time: str | None = None):
        """own_time: the attribute that is the time of the match."""
        codes = {name: code for code, name in enumerate(names)}
        own = [name for name in names if is_computed(name)]
        self.scalars = [scalar_of(name) for name in own]
        if own_time is not None:
            self.scalars = [at_time_of(scalar, own_time) for scalar in self.scalars]
        self.present = codes.get(PRESENT)  # if something asks for the time of the match
        self.codes = [codes[name] for name in own]
        self.fields = [inputs_of(scalar) for scalar in self.scalars]
        self.field_codes = [[codes[field] for field in fields] for fields in self.fields]
        self.keys = [orjson.dumps(name) + b":" for name in own]  # as members of a JSON text
        self.is_computed = np.zeros(len(names), np.bool_)
        self.is_computed[self.codes] = True
        if self.present is not None:
            self.is_computed[self.present] = True
        self.is_field = np.zeros(len(names), np.bool_)
        self.is_field[[code for some in self.field_codes for code in some]] = True


def with_fields(names: Iterable[str]) -> set[str]:
    """The names, and the attributes that the computed ones among them are computed from."""
    found = set(names)
    for name in [name for name in found if name[:1] == "\0" and is_computed(name)]:
        found.update(inputs_of(scalar_of(name)))
    return found
