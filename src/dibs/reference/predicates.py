"""One predicate and the values of its attribute: single ones, and ranges.

A Range holds where one of its values would satisfy the predicate. Its kind is taken as dense, so that there is always
a value between two different ones: Range(3, 4) satisfies a NOT IN (3, 4), because 3.5 does. Booleans are just two
values: Range(False, True) satisfies neither a NOT IN (FALSE, TRUE) nor a > TRUE. No number is below -infinity or
above NaN and no string below '', so that a Range without an end does not satisfy a > NaN. A Range of strings is never
read as times.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dibs.coding.values import Range
from dibs.language.expression import (
    Between,
    Compare,
    In,
    IsNull,
    Kind,
    Like,
    Predicate,
    RLike,
    StringTest,
    literal,
    negate,
)
from dibs.language.regex import compile_regex
from dibs.reference.values import OfNoKind, ValuesByName, find_key, key_beside, key_of

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def truth_of(predicate: Predicate, values: ValuesByName) -> bool | None:
    """TRUE where some value of the attribute satisfies the predicate, else FALSE where one satisfies its negation."""
    return True if holds_for(predicate, values) else False if holds_for(negate(predicate), values) else None


def holds_for(predicate: Predicate, values: ValuesByName) -> bool:
    """Whether some value of the attribute satisfies the predicate."""
    of_attribute = values.get(predicate.attribute, [])
    if isinstance(predicate, IsNull):
        if predicate.negated:
            return any(not isinstance(value, OfNoKind) for value in of_attribute)
        return not of_attribute
    return next(satisfying(predicate, of_attribute), None) is not None


def satisfying(predicate: Predicate, values: Iterable[Any]) -> Iterator[Any]:
    """Those of the values that satisfy the predicate. A list of constants is read once for all of them."""
    listed = read_list(predicate) if isinstance(predicate, In) else None
    return (value for value in values if satisfies(value, predicate, listed))


class Listed(NamedTuple):
    """The constants of an IN, with their kinds, and which kinds these are."""

    keys: set[tuple[Kind, Any]]
    kinds: set[Kind]


def read_list(predicate: In) -> Listed:
    return Listed({(x.kind, key_of(x)) for x in predicate.literals}, {x.kind for x in predicate.literals})


def satisfies(value: Any, predicate: Predicate, listed: Listed | None = None) -> bool:
    """Whether a value satisfies a predicate. False as well when that is unknown. listed: what an IN lists, if it was
    read before."""
    if isinstance(value, OfNoKind):
        return False
    if isinstance(value, Range):
        return range_satisfies(value, predicate)
    match predicate:
        case Compare(_, symbol, constant):
            key = key_beside(value, constant.kind)
            return key is not None and OPERATORS[symbol](key, key_of(constant))
        case In(_, _, negated, null):
            keys, kinds = listed or read_list(predicate)
            own = {kind: key for kind in kinds if (key := key_beside(value, kind)) is not None}
            is_listed = any((kind, key) in keys for kind, key in own.items())
            return (not null and len(own) == len(kinds) == 1 and not is_listed) if negated else is_listed
        case Between():
            return any(all(satisfies(value, test) for test in tests) for tests in between_tests(predicate))
        case _:
            return isinstance(value, str) and string_satisfies(value, predicate)


def string_satisfies(value: str, predicate: Predicate) -> bool:
    match predicate:
        case StringTest(_, "STARTSWITH", text, negated):
            return value.startswith(text) != negated
        case StringTest(_, "ENDSWITH", text, negated):
            return value.endswith(text) != negated
        case StringTest(_, "CONTAINS", text, negated):
            return (text in value) != negated
        case Like(_, pattern, escape, negated):
            return is_like(value, pattern, escape) != negated
        case RLike(_, pattern, negated):
            return (compile_regex(pattern).search(value) is not None) != negated
    raise AssertionError(f"not a test of strings: {predicate}")


def between_tests(predicate: Between) -> list[list[Compare]]:
    """What BETWEEN stands for, on one value: any of the lists, all of its comparisons."""
    name, low, high, negated = predicate
    if negated:
        return [[Compare(name, "<", low)], [Compare(name, ">", high)]]
    return [[Compare(name, ">=", low), Compare(name, "<=", high)]]


# --- LIKE ----------------------------------------------------------------------------------------------------------

ANY_TEXT, ANY_CHARACTER = object(), object()


def like_tokens(pattern: str, escape: str) -> list[Any]:
    """The characters of a LIKE pattern, with ANY_TEXT for % and ANY_CHARACTER for _ where these are not escaped."""
    tokens: list[Any] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            tokens.append(next(characters, escape))
        else:
            tokens.append({"%": ANY_TEXT, "_": ANY_CHARACTER}.get(character, character))
    return tokens


@lru_cache(maxsize=16)
def like_parts(pattern: str, escape: str) -> list[list[Any]]:
    """What stands between two ANY_TEXT. Kept, because many values are tried against one pattern."""
    parts: list[list[Any]] = [[]]
    for token in like_tokens(pattern, escape):
        if token is ANY_TEXT:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def is_like(text: str, pattern: str, escape: str) -> bool:
    """What stands before the first ANY_TEXT begins the text, what stands behind the last one ends it, and each part
    between two of them is taken where it comes first."""
    parts = like_parts(pattern, escape)
    first, *between, last = parts if len(parts) > 1 else (parts[0], [])
    start, end = len(first), len(text) - len(last)
    if start > end or (len(parts) == 1 and start < end):
        return False
    if not is_part(text[:start], first) or not is_part(text[end:], last):
        return False
    for part in between:
        start = find_part(text, part, start, end)
        if start < 0:
            return False
        start += len(part)
    return True


def is_part(text: str, part: list[Any]) -> bool:
    """Whether the characters, of which there are as many, are those of the part."""
    return all(token in (ANY_CHARACTER, character) for token, character in zip(part, text))


def find_part(text: str, part: list[Any], start: int, end: int) -> int:
    """Where the part comes first in text[start:end]; -1: nowhere."""
    if ANY_CHARACTER not in part:
        return text.find("".join(part), start, end)
    # A bit for each place at which it may begin, and the same for each of its characters: very long integers.
    codes = np.frombuffer(text[start:end].encode("utf-32-le"), np.uint32)
    places = (1 << max(len(codes) - len(part) + 1, 0)) - 1
    of_character: dict[str, int] = {}
    for offset, token in enumerate(part):
        if token is not ANY_CHARACTER:
            if token not in of_character:
                bits = np.packbits(codes == ord(token), bitorder="little")
                of_character[token] = int.from_bytes(bits.tobytes(), "little")
            places &= of_character[token] >> offset
        if not places:
            return -1
    return start + (places & -places).bit_length() - 1


# --- Ranges --------------------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    low: Any
    high: Any
    above_low: bool = False  # low itself is left out
    below_high: bool = False  # high itself is left out

    def meets(self, other: Stretch) -> bool:
        low, above_low = max((self.low, self.above_low), (other.low, other.above_low))
        high, up_to_high = min((self.high, not self.below_high), (other.high, not other.below_high))
        return low < high or (low == high and not above_low and up_to_high)


def range_satisfies(value: Range, predicate: Predicate) -> bool:
    kind, low, high = range_ends(value)
    if kind == Kind.BOOLEAN:
        return any(satisfies(each, predicate) for each in (False, True) if low <= each <= high)
    return any(Stretch(low, high).meets(solution) for solution in solutions(predicate, kind))


def range_ends(value: Range) -> tuple[Kind, Any, Any]:
    """The kind of a Range and the keys of its least and its greatest value."""
    (kind, _), *rest = ends = [find_key(end) for end in (value.lo, value.hi) if end is not None]
    least, greatest = whole(kind)
    assert all(kind == other for other, _ in rest), "values_of lets no Range of two kinds pass"
    low = least if value.lo is None else ends[0][1]
    high = greatest if value.hi is None else ends[-1][1]
    return kind, low, high


def whole(kind: Kind) -> tuple[Any, Any]:
    """The keys of the least and the greatest value of a kind, or something beyond all of them."""
    if kind == Kind.NUMBER:
        return find_key(-math.inf)[1], find_key(math.nan)[1]
    return {Kind.BOOLEAN: (False, True), Kind.STRING: (b"", b"\xff"), Kind.TIME: (-math.inf, math.inf)}[kind]


def solutions(predicate: Predicate, kind: Kind) -> list[Stretch]:
    """The values of a kind that satisfy a predicate; none for a pattern that is no interval, which is unknown."""
    least, greatest = whole(kind)
    match predicate:
        case Compare(_, symbol, constant):
            if constant.kind != kind:
                return []
            key = key_of(constant)
            below, above = Stretch(least, key, below_high=True), Stretch(key, greatest, above_low=True)
            return {
                "=": [Stretch(key, key)],
                "<>": [below, above],
                "<": [below],
                "<=": [Stretch(least, key)],
                ">": [above],
                ">=": [Stretch(key, greatest)],
            }[symbol]
        case In(_, literals, False):
            return [Stretch(key_of(x), key_of(x)) for x in literals if x.kind == kind]
        case In(_, literals, True, null):
            if null or any(x.kind != kind for x in literals):
                return []
            keys = sorted(key_of(x) for x in literals)
            gaps = [Stretch(low, high, True, True) for low, high in itertools.pairwise(keys)]
            return [Stretch(least, keys[0], below_high=True), *gaps, Stretch(keys[-1], greatest, above_low=True)]
        case Between(_, low, high, False):
            if {low.kind, high.kind} != {kind}:
                return []
            return [Stretch(key_of(low), key_of(high))]
        case Between():
            return [interval for (test,) in between_tests(predicate) for interval in solutions(test, kind)]
    return string_solutions(predicate) if kind == Kind.STRING else []


def string_solutions(predicate: Predicate) -> list[Stretch]:
    least, greatest = whole(Kind.STRING)
    match predicate:
        case Like(name, pattern, escape, negated):
            tokens = like_tokens(pattern, escape)
            fixed = list(tokens)
            while fixed and fixed[-1] is ANY_TEXT:
                fixed.pop()
            if ANY_TEXT in fixed or ANY_CHARACTER in fixed:
                return []
            if fixed == tokens:
                return solutions(Compare(name, "<>" if negated else "=", literal("".join(fixed))), Kind.STRING)
            return string_solutions(StringTest(name, "STARTSWITH", "".join(fixed), negated))
        case StringTest(_, _, "", negated):  # every string starts with it, ends with it and contains it
            return [] if negated else [Stretch(least, greatest)]
        case StringTest(_, "STARTSWITH", text, negated):
            first = text.encode()
            after = first[:-1] + bytes([first[-1] + 1])  # UTF-8 has no byte 255, so the last one has a successor
            if negated:
                return [Stretch(least, first, below_high=True), Stretch(after, greatest)]
            return [Stretch(first, after, below_high=True)]
    return []
