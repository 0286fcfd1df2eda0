"""Values of declared types (language.types) in plain Python. What does not fit is of no kind."""

from __future__ import annotations

from typing import Any

from dibs.coding.values import Range
from dibs.language.expression import Kind
from dibs.language.types import Types, fit
from dibs.reference.computed import as_plain, as_value
from dibs.reference.values import OfNoKind, ValuesByName


def with_types(values: ValuesByName, types: Types) -> ValuesByName:
    """The values of an event, those of declared types as these."""
    declared = [name for name in values if name in types]
    return {**values, **{name: [_typed(value, name, types) for value in values[name]] for name in declared}}


def _typed(value: Any, name: str, types: Types) -> Any:
    if isinstance(value, OfNoKind):
        return value
    if isinstance(value, Range):
        return value if types.kind_of(name) != Kind.BOOLEAN else OfNoKind(f"no {types[name]}")
    found = fit(as_plain(value), types[name])
    return OfNoKind(f"no {types[name]}") if found is None else as_value(found)
