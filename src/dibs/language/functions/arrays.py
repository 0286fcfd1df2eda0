"""Arrays as they came: nulls, inner arrays and objects are elements, and [] has none. NULL is a missing array, and a
single value is an array of one.

A path into an object or array (`at_path`) follows keys, which may hold dots themselves, and goes through arrays element
by element, as Spark's `items.price` does: an element without the key gives NULL.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dibs.language.functions import logic
from dibs.language.functions.plain import Array, Moment, Object, Plain, is_integer
from dibs.language.functions.table import Kinds, function, kind_of
from dibs.language.functions.time_texts import read_moment
from dibs.language.printer import BOUND, HAS_KEY, WHOLE
from dibs.language.scalars import Lambda, bound_fields_of

MOST_TRIALS = 100_000  # of conditions on elements, in all combinations of an event's values; more is NULL
_LISTED = 1_000  # lambdas whose fields need not be looked for again


def as_array(value: Plain) -> Array | None:
    return value if value is None or isinstance(value, Array) else Array((value,))


def values_in(value: Plain) -> Iterator[Plain]:
    """The values that an attribute has which is this: the elements of arrays, in whatever depth, without nulls."""
    if isinstance(value, Array):
        for element in value.elements:
            yield from values_in(element)
    elif value is not None and not isinstance(value, Object):
        yield value


_SINGLE = (int, str, float, bool)


def at_path(value: Plain, path: str) -> list[Plain]:
    """What stands at a path: nothing, or one; several, if some keys hold dots."""
    if not path:
        return [value]
    if isinstance(value, Object):
        rests = ((path[len(key) + 1 :], inner) for key, inner in value.members if f"{path}.".startswith(f"{key}."))
        return [found for rest, inner in rests for found in at_path(inner, rest)]
    if isinstance(value, Array):
        inner = [at_path(element, path) for element in value.elements]
        may_be = any(isinstance(element, (Object, Array)) for element in value.elements)
        return [Array(tuple(map(joined, inner)))] if may_be or not inner else []
    return []


def joined(found: list[Plain]) -> Plain:
    """What was found at a path as one: several are an array of all their elements."""
    if len(found) < 2:
        return found[0] if found else None
    arrays = [array for each in found if (array := as_array(each)) is not None]
    return Array(tuple(element for array in arrays for element in array.elements))


def has_path(value: Plain, path: str) -> bool:
    """Whether there is such a key, in some element where there are several."""
    if not path:
        return True
    if isinstance(value, Object):
        rests = ((path[len(key) + 1 :], inner) for key, inner in value.members if f"{path}.".startswith(f"{key}."))
        return any(has_path(inner, rest) for rest, inner in rests)
    return isinstance(value, Array) and any(has_path(element, path) for element in value.elements)


# ---- functions ----


@function("ARRAY", "A*", "L", "an array of these values", takes_null=True)
def make_array(*values: Plain) -> Array:
    return Array(values)


@function("SIZE CARDINALITY ARRAY_SIZE", "L", "N", "how many elements the array has", takes_null=True)
def size(value: Plain) -> int | None:
    array = as_array(value)
    return None if array is None else len(array.elements)


@function("GET", "L NS", "AL", "the element of this number, from 0; of an object, what has this key", takes_null=True)
def element(value: Plain, place: Plain) -> Plain:
    if isinstance(place, str):
        return joined(at_path(value, place)) if place else None
    array = as_array(value)
    if array is None or not is_integer(place) or not 0 <= place < len(array.elements):  # type: ignore[operator]
        return None
    return array.elements[place]  # type: ignore[index]


_ELEMENT_AT = "the element of this number, from 1, or below 0 from the end; of an object, what has this key"


@function("ELEMENT_AT", "L NS", "AL", _ELEMENT_AT, takes_null=True)
def element_at(value: Plain, place: Plain) -> Plain:
    if not is_integer(place):
        return element(value, place) if isinstance(place, str) else None
    array = as_array(value)
    number = int(place)  # type: ignore[arg-type]
    if array is None or not 1 <= abs(number) <= len(array.elements):
        return None
    return array.elements[number - 1 if number > 0 else number]


@function("ARRAY_CONTAINS", "L A", "B", "whether an element equals the value; UNKNOWN beside a NULL", takes_null=True)
def contains(value: Plain, sought: Plain) -> bool | None:
    array = as_array(value)
    if array is None or sought is None:
        return None
    return logic.is_in(sought, *array.elements) if array.elements else False


@function("ARRAYS_OVERLAP", "L L", "B", "whether an element of one equals one of the other", takes_null=True)
def overlap(value: Plain, other: Plain) -> bool | None:
    first, second = as_array(value), as_array(other)
    if first is None or second is None:
        return None
    if not first.elements or not second.elements:
        return False
    if _keys(first, second) & _keys(second, first):
        return True
    kinds = {kind_of(each) if _is_single(each) else None for each in (*first.elements, *second.elements)}
    if kinds == {Kinds.STRING, Kinds.TIME}:
        return None if _has_no_times(first, second) or _has_no_times(second, first) else False
    return False if len(kinds) == 1 and None not in kinds else None  # else some pair is of two kinds


def _has_no_times(array: Array, other: Array) -> bool:
    """Whether a string is no time and stands beside one."""
    if not any(isinstance(each, Moment) for each in other.elements):
        return False
    return any(isinstance(each, str) and read_moment(each) is None for each in array.elements)


def _is_single(value: Plain) -> bool:
    return value is not None and not isinstance(value, (Array, Object))


def _keys(array: Array, other: Array) -> set[tuple[Any, Any]]:
    """What equal elements have in common; beside times, strings are times too."""
    found = {(kind_of(each), _key(each)) for each in array.elements if _is_single(each)}
    if any(isinstance(each, Moment) for each in other.elements):
        moments = (read_moment(each) for each in array.elements if isinstance(each, str))
        found |= {(kind_of(moment), moment) for moment in moments if moment is not None}
    return found


def _key(value: Plain) -> Any:
    return "NaN" if value != value else value


@function("EXISTS", "L A", "B", "whether the condition is TRUE for some element", takes_null=True)
@function("FORALL", "L A", "B", "whether the condition is TRUE for all elements", takes_null=True)
def quantified(value: Plain, condition: Plain) -> bool | None:
    return None if value is None else condition is True  # a condition on elements is tried by try_elements


@function("IS_PRESENT", "A", "B", "whether the event has the attribute, be it null", takes_null=True)
def is_present(value: Plain) -> bool:
    return value is True


# ---- conditions on elements ----


class TooManyTrials(Exception):
    """It would take too long."""


class Trials:
    """How many conditions on elements may still be tried."""

    __slots__ = ("left",)

    def __init__(self, combinations: int) -> None:
        self.left = MOST_TRIALS // combinations

    def take(self, number: int) -> None:
        self.left -= number
        if self.left < 0:
            raise TooManyTrials


Evaluate = Callable[[Mapping[str, Plain]], Plain]


def try_elements(
    quantifier: str, value: Plain, condition: Lambda, truth_of: Evaluate, fields: Mapping[str, Plain], trials: Trials
) -> bool | None:
    """EXISTS or FORALL, in three-valued logic."""
    array = as_array(value)
    if array is None:
        return None
    decides = quantifier == "EXISTS"
    names = _bound_fields(condition)
    result: bool | None = not decides
    for each in array.elements:
        truth = _truth(each, names, truth_of, fields, trials)
        if truth is decides:
            return decides
        if truth is None:
            result = None
    return result


def _truth(
    value: Plain,
    names: list[tuple[str, str]],
    truth_of: Evaluate,
    fields: Mapping[str, Plain],
    trials: Trials,
) -> bool | None:
    """Of one element. What has several values in it is tried with each of them, as attributes are: TRUE if one is."""
    given = [_given(value, name, path) for name, path in names]
    result: bool | None = None
    own = {**fields}
    for combination in itertools.product(*given):
        trials.take(1)
        own.update(zip((name for name, _ in names), combination))
        truth = truth_of(own)
        if truth is True:
            return True
        if truth is False:
            result = False
    return result


def _given(value: Plain, name: str, path: str) -> list[Plain]:
    if not path and type(value) in _SINGLE and name[:2] == BOUND:
        return [value]
    if name[:2] == WHOLE:
        return [joined(at_path(value, path))]
    if name[:2] == HAS_KEY:
        return [has_path(value, path)]
    return [each for found in at_path(value, path) for each in values_in(found)] or [None]


_known: dict[int, tuple[Lambda, list[tuple[str, str]]]] = {}


def _bound_fields(condition: Lambda) -> list[tuple[str, str]]:
    found = _known.get(id(condition))
    if found is None or found[0] is not condition:
        if len(_known) >= _LISTED:
            _known.clear()
        found = _known[id(condition)] = condition, bound_fields_of(condition)
    return found[1]
