"""The tokenizer: where the pieces of a text begin and end.

One source, two uses. Kernels compile it and run it over UTF-8 bytes (language.shape_kernels) or over characters
(language.scanner); without kernels it runs as it stands, over characters. So it is one function without helpers, over
anything that is indexed by place and gives integers. Nothing here imports Numba, or anything else.

A piece is a word, a number (whatever begins with a digit), a string, a `quoted name` or a sign; blanks and comments are
passed over. What a piece means is decided by who reads it.
"""

from __future__ import annotations

from typing import Any

END, WORD, NUMBER, STRING, RAW_STRING, QUOTED_NAME, SIGN, OTHER, UNCLOSED, TEMPLATE = range(10)

_IN_WORDS, _BLANK, _SIGN, _DIGIT = 0, 1, 2, 3


def _classify() -> bytes:
    classes = bytearray(256)  # all others are letters, as far as this goes
    for c in b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f ":
        classes[c] = _BLANK
    for c in b"()[]{}&^:,.-=><%!|+;/\\*~?@\"`'#$":
        classes[c] = _SIGN
    for c in b"0123456789":
        classes[c] = _DIGIT
    return bytes(classes)


CLASSES = _classify()


def next_piece(data: Any, at: int, end: int, wide: bool) -> tuple[int, int, int]:
    """(kind, start, end) of the first piece from `at` on. wide: data are characters, not bytes, so that the blanks of
    Unicode are known. Two signs that are a sign of their own (<=, <>, ...) are one piece.

    UNCLOSED: a string, quoted name or comment without an end. OTHER: a string with an N before it. TEMPLATE: {#, which
    begins a comment elsewhere and means nothing here."""
    while at < end:
        c = data[at]
        if c >= 128:
            if not wide or not (
                c == 0x85
                or c == 0xA0
                or c == 0x1680
                or 0x2000 <= c <= 0x200A
                or c == 0x2028
                or c == 0x2029
                or c == 0x202F
                or c == 0x205F
                or c == 0x3000
            ):
                break
            at += 1
        elif CLASSES[c] == _BLANK:
            at += 1
        elif at + 1 == end:
            break
        elif c == 45 and data[at + 1] == 45:  # --
            at += 2
            while at < end and data[at] != 10 and data[at] != 13:
                at += 1
        elif c == 47 and data[at + 1] == 42:  # /* ... */, one within the other
            start, depth = at, 1
            at += 2
            while at + 1 < end and depth > 0:
                if data[at] == 42 and data[at + 1] == 47:
                    depth -= 1
                    at += 2
                elif data[at] == 47 and data[at + 1] == 42 and at - 2 > start:  # /*/* opens one: so does sqlglot
                    depth += 1
                    at += 2
                else:
                    at += 1
            if depth > 0:
                return UNCLOSED, start, end
        else:
            break
    if at >= end:
        return END, end, end
    start = at
    c = data[at]
    following = data[at + 1] if at + 1 < end else 0
    kind = WORD
    if following == 39 or following == 34:  # a quote
        if c == 114 or c == 82:  # r
            kind, c = RAW_STRING, following
            at += 1
        elif c == 110 or c == 78:  # n
            kind, c = OTHER, following
            at += 1
    if c == 39 or c == 34:
        at += 1
        while at < end and data[at] != c:
            at += 2 if data[at] == 92 and kind != RAW_STRING else 1
        if at >= end:
            return UNCLOSED, start, end
        return STRING if kind == WORD else kind, start, at + 1
    if c == 96:  # `
        at += 1
        while at < end and (data[at] != 96 or (at + 1 < end and data[at + 1] == 96)):
            at += 2 if data[at] == 96 else 1
        if at >= end:
            return UNCLOSED, start, end
        return QUOTED_NAME, start, at + 1
    if c < 128 and CLASSES[c] == _SIGN:
        if c == 123 and following == 35:
            return TEMPLATE, start, start + 2
        size = 1
        if following == 61:  # == != <= >=, and <=>
            if c == 61 or c == 33 or c == 60 or c == 62:
                size = 2
                if c == 60 and at + 2 < end and data[at + 2] == 62:
                    size = 3
        elif following == 62:  # <> ->
            size = 2 if c == 60 or c == 45 else 1
        elif following == c and (c == 124 or c == 38 or c == 58):  # || && ::
            size = 2
        return SIGN, start, start + size
    at += 1
    if c < 128 and CLASSES[c] == _DIGIT:
        kind = NUMBER
        if c == 48 and (following == 120 or following == 88):  # 0x...
            return NUMBER, start, at
        while at < end and data[at] < 128 and CLASSES[data[at]] == _DIGIT:
            at += 1
        if at < end and data[at] == 46:
            at += 1
            while at < end and data[at] < 128 and CLASSES[data[at]] == _DIGIT:
                at += 1
        if at < end and (data[at] == 101 or data[at] == 69):  # e
            at += 1
            if at + 1 < end and (data[at] == 43 or data[at] == 45) and 48 <= data[at + 1] <= 57:
                at += 1
            while at < end and data[at] < 128 and CLASSES[data[at]] == _DIGIT:
                at += 1
    # Whatever follows at once and is no sign belongs to it.
    while at < end:
        c = data[at]
        if c < 128:
            if CLASSES[c] == _BLANK or CLASSES[c] == _SIGN:
                break
        elif wide and (
            c == 0x85
            or c == 0xA0
            or c == 0x1680
            or 0x2000 <= c <= 0x200A
            or c == 0x2028
            or c == 0x2029
            or c == 0x202F
            or c == 0x205F
            or c == 0x3000
        ):
            break
        at += 1
    return kind, start, at
