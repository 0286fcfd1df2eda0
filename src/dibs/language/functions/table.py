"""The table of functions: name, kinds of arguments, kind of result, what it does to plain values.

A function is declared where its plain form stands:

    @function("LENGTH", "S", "N", "how many characters the text has")
    def length(text: str) -> int: ...

Kinds are letters: B boolean, N number, S string, T time, D day (of a time), I interval, A any of these, L array as it
came. An argument of several kinds has several letters (`NI`), an optional one a `?` behind it, and the last one may
come any number of times, or never (`*`). A string is read as a time where T or D is asked for and S is not.

A form is called with values of the kinds that it declares and never with NULL: `apply` gives NULL for those, unless the
form is declared to take whatever comes (`takes_null`). A result of None is NULL; a number is made canonical.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from dibs.language.functions.plain import Array, Form, Moment, Object, Plain, plain_number
from dibs.language.functions.time_texts import read_day, read_moment
from dibs.language.scalars import Interval


class Kinds(enum.IntFlag):
    BOOLEAN = 1
    NUMBER = 2
    STRING = 4
    TIME = 8
    INTERVAL = 16
    ANY = 31
    ARRAY = 64  # as it came; else a function is applied to each element
    DAY = 32  # beside TIME: a string is read as a day, as it is written, whatever the time and zone behind it


_LETTERS = {**dict(zip("BNSTIAL", Kinds.__members__.values())), "D": Kinds.TIME | Kinds.DAY}
_WORDS = {
    Kinds.BOOLEAN: "a boolean",
    Kinds.NUMBER: "a number",
    Kinds.STRING: "a string",
    Kinds.TIME: "a time",
    Kinds.INTERVAL: "an interval",
    Kinds.ARRAY: "an array",
}
_NAMES = {kind: word.split()[1] for kind, word in _WORDS.items()}


class Function(NamedTuple):
    name: str  # in computed values, whichever of its names was written
    arguments: tuple[Kinds, ...]  # the last one stands for all that follow, if it is repeated
    least: int  # arguments
    most: int | None  # None: any number
    result: Kinds
    form: Form
    takes_null: bool
    about: str  # what it gives, in a few words
    masks: tuple[int, ...]  # the kinds of its arguments; flags take longer

    def kinds_of(self, place: int) -> Kinds:
        return self.arguments[min(place, len(self.arguments) - 1)]


FUNCTIONS: dict[str, Function] = {}


F = TypeVar("F", bound=Form)


def function(names: str, arguments: str, result: str, about: str, takes_null: bool = False) -> Callable[[F], F]:
    """Declares a function, under several names perhaps (blanks between them)."""
    words = arguments.split()
    repeats = bool(words) and words[-1].endswith("*")
    optional = sum(word.endswith("?") for word in words)
    kinds = tuple(_kinds(word.rstrip("?*")) for word in words)
    most = None if repeats else len(kinds)

    def declare(form: F) -> F:
        first, *others = names.split()
        least, masks = len(kinds) - optional - repeats, tuple(map(int, kinds))
        made = Function(first, kinds, least, most, _kinds(result), form, takes_null, about, masks)
        FUNCTIONS.update(dict.fromkeys([first, *others], made))
        return form

    return declare


def _kinds(letters: str) -> Kinds:
    found = Kinds(0)
    for letter in letters:
        found |= _LETTERS[letter]
    return found


def describe_kinds(kinds: Kinds) -> str:
    if kinds & Kinds.ANY == Kinds.ANY:
        return "any value"
    words = [word for kind, word in _WORDS.items() if kind & kinds]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def describe_call(function: Function) -> str:
    """As it is written: SUBSTRING(string, number[, number])."""
    words = [" | ".join(_NAMES[kind] for kind in _WORDS if kind & kinds) for kinds in function.arguments]
    words = ["value" if kinds & Kinds.ANY == Kinds.ANY else word for kinds, word in zip(function.arguments, words)]
    optional = words[function.least :] if function.most is not None else []
    written = ", ".join(words[: function.least]) + "".join(f"[, {word}]" for word in optional)
    return f"{function.name}({written}{', ...' if function.most is None else ''})"


_BITS: dict[type, int] = {
    **dict.fromkeys([int, float], int(Kinds.NUMBER)),
    **dict.fromkeys([Array, Object], int(Kinds.ARRAY)),
    bool: int(Kinds.BOOLEAN),
    str: int(Kinds.STRING),
    Moment: int(Kinds.TIME),
    Interval: int(Kinds.INTERVAL),
}


def kind_of(value: Plain) -> Kinds:
    """Of a value that is not NULL."""
    if isinstance(value, bool):
        return Kinds.BOOLEAN
    if isinstance(value, (int, float)):
        return Kinds.NUMBER
    if isinstance(value, str):
        return Kinds.STRING
    if isinstance(value, (Array, Object)):
        return Kinds.ARRAY
    return Kinds.TIME if isinstance(value, Moment) else Kinds.INTERVAL


def apply(function: Function, values: Sequence[Plain]) -> Plain:
    """What the function gives for values of any kinds."""
    if function.takes_null:
        result: Any = function.form(*values)
    else:
        masks, given = function.masks, list(values)
        for place, value in enumerate(given):
            if value is None:
                return None
            kind = _BITS.get(type(value)) or int(kind_of(value))
            if not kind & (masks[place] if place < len(masks) else masks[-1]):
                fit = fitting(value, function.kinds_of(place))
                if fit is None:
                    return None
                given[place] = fit
        result = function.form(*given)
    return plain_number(result) if type(result) in (int, float) else result


def fitting(value: Plain, kinds: Kinds) -> Plain:
    """The value as one of these kinds; NULL where it is none."""
    if value is None or kind_of(value) & kinds:
        return value
    if isinstance(value, str) and kinds & Kinds.TIME:
        return read_day(value) if kinds & Kinds.DAY else read_moment(value)
    return None


__all__ = ["FUNCTIONS", "Function", "Interval", "Kinds", "apply", "describe_kinds", "fitting", "function", "kind_of"]
