"""Forms of computed values: what they are but for their numbers. `abs(price - 17)` and `abs(price - 5)` have one."""

from __future__ import annotations

import re
from typing import NamedTuple

from dibs.language.expression import Kind
from dibs.language.functions import FUNCTIONS
from dibs.language.functions.plain import plain_value
from dibs.language.scalars import COMPARISONS, Call, Field, Lambda, Scalar, Value, inputs_of, is_computed, scalar_of

# A number of a canonical text; strings, names in backticks and words are passed over.
_PIECES = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|[^\W\d]\w*(?:\.\w+)*|(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_HOLE = "\0\x1f{}"  # the field that stands for a number of a form


class ResidualForm(NamedTuple):
    """What a computed value is, but for its numbers."""

    scalar: Scalar  # with fields in their place
    holes: tuple[str, ...]
    fields: tuple[str, ...]


def cut(name: str) -> tuple[str, list[int | float]]:
    """The text of a computed attribute without its numbers, and these."""
    numbers: list[int | float] = []

    def take(found: re.Match[str]) -> str:
        text = found[1]
        if text is None:
            return found[0]
        numbers.append(plain_value(int(text)) if text.lstrip("-").isdigit() else plain_value(float(text)))
        return "\x1f"

    return _PIECES.sub(take, name), numbers


def form_of(shape: str, name: str) -> ResidualForm | None:
    """The form of the computed attributes that `cut` gives this shape, of which the name is one. None: they are not
    tested last."""
    if shape not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[shape] = _make_form(name)
    return _known[shape]


_KEPT = 4096
_known: dict[str, ResidualForm | None] = {}  # by shape


def _make_form(name: str) -> ResidualForm | None:
    scalar = scalar_of(name)
    if not _gives_null_for_null(scalar):
        return None
    values: list[int | float] = []
    made = _with_holes(scalar, values)
    fields = inputs_of(scalar)
    if not values or values != cut(name)[1] or any(field[:1] == "\0" for field in fields):
        return None
    return ResidualForm(made, tuple(map(_HOLE.format, range(len(values)))), tuple(fields))


def may_be_last(name: str) -> bool:
    """Whether a computed attribute is of a form that may be tested last."""
    return is_computed(name) and form_of(cut(name)[0], name) is not None


_COMPARISONS = COMPARISONS - {"<=>"}  # which are handed NULL too, but make no more of it


def _gives_null_for_null(scalar: Scalar) -> bool:
    if isinstance(scalar, Call):
        known = FUNCTIONS.get(scalar.function)
        is_strict = known is not None and (not known.takes_null or known.name in _COMPARISONS)
        return is_strict and all(map(_gives_null_for_null, scalar.arguments))
    return not isinstance(scalar, Lambda) and scalar != Value(None)


def _with_holes(scalar: Scalar, values: list[int | float]) -> Scalar:
    if isinstance(scalar, Call):
        return Call(scalar.function, tuple(_with_holes(argument, values) for argument in scalar.arguments))
    if isinstance(scalar, Value) and scalar.literal is not None and scalar.literal.kind == Kind.NUMBER:
        values.append(plain_value(scalar.literal.value))
        return Field(_HOLE.format(len(values) - 1))
    return scalar
