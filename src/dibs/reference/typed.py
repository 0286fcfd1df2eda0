"""Values of declared types (language.types) in plain Python. What does not fit is of no kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dibs.coding.values import Range
from dibs.language.expression import Kind
from dibs.language.types import Types, fit, fit_range
from dibs.reference.computed import as_plain, as_value
from dibs.reference.values import OfNoKind, ValuesByName


def with_types(values: ValuesByName, types: Types) -> ValuesByName:
    """The values of an event, those of declared types as these."""
    declared = [name for name in values if name in types]
    return {
        **values,
        **{name: [typed for value in values[name] for typed in _typed(value, name, types)] for name in declared},
    }


def _typed(value: Any, name: str, types: Types) -> Iterable[Any]:
    """A range over a domain of integers is all of them that it holds."""
    if isinstance(value, OfNoKind):
        return [value]
    if isinstance(value, Range):
        domain = types.domains.get(name)
        ends = (value.lo, value.hi) if domain is None else fit_range(value.lo, value.hi, domain)
        if types.kind_of(name) == Kind.BOOLEAN or ends is None:
            return [OfNoKind(f"no {types[name]}")]
        return [value] if domain is None else range(ends[0], ends[1] + 1)
    found = fit(as_plain(value), types[name])
    return [OfNoKind(f"no {types[name]}") if found is None else as_value(found)]
