"""Functions of strings. Characters are those of Unicode, counted from 1, as Spark counts them.

No text may grow beyond LONGEST characters: what would is NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dibs.jit.undisturbed import bring
from dibs.language.functions.plain import Array, Number, Plain, is_integer
from dibs.language.functions.table import function
from dibs.language.regex import MAX_PROGRAM, compile_regex

LONGEST = 1_000_000  # characters of a result that is longer than its arguments
_MOST_SEARCHED = 20_000_000  # characters: each match of an expression may look at all that is left of the text


def _bounded(text: str, *arguments: str) -> str | None:
    return text if len(text) <= max(LONGEST, *map(len, arguments)) else None


@function("LOWER LCASE", "S", "S", "the text in lower case")
def lower(text: str) -> str:
    return text.lower()


@function("UPPER UCASE", "S", "S", "the text in upper case")
def upper(text: str) -> str:
    return text.upper()


@function("LENGTH CHAR_LENGTH CHARACTER_LENGTH LEN", "S", "N", "how many characters the text has")
def length(text: str) -> int:
    return len(text)


@function("TRIM", "S S?", "S", "the text without blanks at its ends; of two arguments the first has what goes")
def trim(first: str, text: str | None = None) -> str:
    return first.strip(" ") if text is None else _strip(text, first, str.strip)


@function("LTRIM", "S S?", "S", "the same at its beginning alone")
def trim_left(first: str, text: str | None = None) -> str:
    return first.lstrip(" ") if text is None else _strip(text, first, str.lstrip)


@function("RTRIM", "S S?", "S", "the same at its end alone")
def trim_right(first: str, text: str | None = None) -> str:
    return first.rstrip(" ") if text is None else _strip(text, first, str.rstrip)


@function("BTRIM", "S S?", "S", "the text without blanks, or the characters of the second, at its ends")
def trim_both(text: str, characters: str = " ") -> str:
    return _strip(text, characters, str.strip)


def _strip(text: str, characters: str, how: Callable[[str, str], str]) -> str:
    return how(text, characters) if characters else text


@function("SUBSTRING SUBSTR", "S N N?", "S", "the part from this character on, so many; below 0, from the end")
def substring(text: str, first: Number, size: Number = 2**31) -> str | None:
    if not (is_integer(first) and is_integer(size)):
        return None
    start = first - 1 if first > 0 else len(text) + first if first < 0 else 0
    end = start + size
    return text[max(int(start), 0) : max(int(end), 0)] if end > start else ""


@function("LEFT", "S N", "S", "the first so many characters")
def left(text: str, size: Number) -> str | None:
    return text[: max(int(size), 0)] if is_integer(size) else None


@function("RIGHT", "S N", "S", "the last so many characters")
def right(text: str, size: Number) -> str | None:
    if not is_integer(size):
        return None
    return text[max(len(text) - int(size), 0) :] if size > 0 else ""


@function("CONCAT ||", "S S*", "S", "the texts, one behind the other")
def concat(*texts: str) -> str | None:
    return _bounded("".join(texts), *texts) if sum(map(len, texts)) <= LONGEST + max(map(len, texts)) else None


@function("REPLACE", "S S S?", "S", "the text with the second replaced by the third wherever it stands")
def replace(text: str, old: str, new: str = "") -> str | None:
    if not old:
        return text
    if len(new) > len(old) and len(text) + text.count(old) * (len(new) - len(old)) > max(LONGEST, len(text)):
        return None
    return text.replace(old, new)


@function("SPLIT_PART", "S S N", "S", "the part of this number, where the second cuts the text; below 0, from the end")
def split_part(text: str, at: str, number: Number) -> str | None:
    if not is_integer(number) or number == 0:
        return None
    parts = text.split(at) if at else [text]
    place = int(number) - 1 if number > 0 else len(parts) + int(number)
    return parts[place] if 0 <= place < len(parts) else ""


@function("INSTR", "S S", "N", "where the second stands first in the text; 0: nowhere")
def find(text: str, part: str) -> int:
    return text.find(part) + 1


_WHERE = "where the first stands in the second, from this character on; 0: nowhere"


@function("LOCATE POSITION", "S S N?", "N", _WHERE, takes_null=True)
def locate(part: Plain, text: Plain, first: Plain = 1) -> int | None:
    if first is None:
        return 0  # as in Spark, and as in Hive
    if not (isinstance(part, str) and isinstance(text, str) and is_integer(first)):
        return None
    if not part or first < 1:  # type: ignore[operator]
        return int(first > 0)  # type: ignore[operator]
    return text.find(part, int(first) - 1) + 1  # type: ignore[arg-type]


@function("REVERSE", "S", "S", "the text from its end to its beginning")
def reverse(text: str) -> str:
    return text[::-1]


@function("REPEAT", "S N", "S", "the text so many times, one behind the other")
def repeat(text: str, times: Number) -> str | None:
    if not is_integer(times) or len(text) * max(times, 0) > max(LONGEST, len(text)):
        return None
    return text * max(int(times), 0)


@function("LPAD", "S N S?", "S", "the text with so many characters: filled on the left, or cut")
def pad_left(text: str, size: Number, by: str = " ") -> str | None:
    added = _padding(text, size, by)
    return None if added is None else (added + text)[: max(int(size), 0)] if not added else added + text


@function("RPAD", "S N S?", "S", "the text with so many characters: filled on the right, or cut")
def pad_right(text: str, size: Number, by: str = " ") -> str | None:
    added = _padding(text, size, by)
    return None if added is None else (text + added)[: max(int(size), 0)]


def _padding(text: str, size: Number, by: str) -> str | None:
    if not is_integer(size) or size > max(LONGEST, len(text)):
        return None
    missing = int(size) - len(text)
    return (by * (missing // len(by) + 1))[:missing] if missing > 0 and by else ""


@function("REGEXP_EXTRACT", "S S N?", "S", "what group 1, or this one, matches first; '' where nothing does")
def extract(text: str, pattern: str, group: Number = 1) -> str | None:
    found = _regex(pattern)
    if found is None or not is_integer(group) or not 0 <= group <= found.groups:
        return None
    match = found.search(text)
    return "" if match is None else match.group(int(group)) or ""


@function("REGEXP_REPLACE", "S S S", "S", "the text with all that matches replaced; $1 is the first group")
def replace_matches(text: str, pattern: str, by: str) -> str | None:
    found = _regex(pattern)
    if found is None:
        return None
    pieces, at, size = [], 0, 0
    for number, match in enumerate(found.finditer(text)):
        if number * len(text) > _MOST_SEARCHED:
            return None
        new = _expand(by, match)
        if new is None:
            return None
        pieces += [text[at : match.start()], new]
        at = match.end()
        size += len(new)
        if size > LONGEST:
            return None
    return "".join([*pieces, text[at:]])


@function("SPLIT", "S S N?", "L", "the parts, where the regular expression cuts the text; at most so many, if above 0")
def split(text: str, pattern: str, most: int = -1) -> Array | None:
    found = _regex(pattern)
    if found is None or not is_integer(most):
        return None
    most = int(most) if most > 0 else LONGEST + 1
    if not pattern and text:
        return Array((*text[: most - 1], text[most - 1 :]) if most < len(text) else tuple(text))
    parts: list[Plain] = []
    at = 0
    for match in found.finditer(text):
        if len(parts) == most - 1:
            break
        if match.end():  # an empty match at the beginning cuts nothing off
            parts.append(text[at : match.start()])
            at = match.end()
    return Array((*parts, text[at:]))


def _expand(by: str, match: Any) -> str | None:
    """Java's form of what is put in place: $1 is a group, a backslash takes the next character as it is."""
    if "$" not in by and "\\" not in by:
        return by
    pieces, at = [], 0
    while at < len(by):
        c = by[at]
        at += 1
        if c == "\\":
            if at == len(by):
                return None
            pieces.append(by[at])
            at += 1
        elif c == "$":
            if at == len(by) or not by[at].isdigit():
                return None
            number = int(by[at])
            at += 1
            while at < len(by) and by[at].isdigit() and 10 * number + int(by[at]) <= match.re.groups:
                number = 10 * number + int(by[at])
                at += 1
            if number > match.re.groups:
                return None
            pieces.append(match.group(number) or "")
        else:
            pieces.append(c)
    return "".join(pieces)


@function("STARTSWITH", "S S", "B", "whether the text begins with the second")
def starts_with(text: str, part: str) -> bool:
    return text.startswith(part)


@function("ENDSWITH", "S S", "B", "whether the text ends with the second")
def ends_with(text: str, part: str) -> bool:
    return text.endswith(part)


@function("CONTAINS", "S S", "B", "whether the second stands in the text")
def contains(text: str, part: str) -> bool:
    return part in text


def find_regex(pattern: str, text: str) -> bool | None:
    """Whether it matches some part of the text; None: RE2 does not take it."""
    found = _regex(pattern)
    return None if found is None else found.search(text) is not None


def _regex(pattern: str) -> Any:
    if len(pattern) > MAX_PROGRAM:
        return None
    try:
        return compile_regex(pattern)
    except bring("re2").error:  # it does not take the expression
        return None
