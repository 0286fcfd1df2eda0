"""The one reader of lines: of JSON lines, and of texts that are given one a line.

A line ends with \\n and keeps a \\r before it, which is white space to all that read it. A byte order mark at the
beginning is left out. Blank lines are left out too, but they count: every line has the number that an editor shows.

Whole blocks are handed on rather than single lines, so that whoever can work on many at once does. Lines have a limit,
because a file that is no JSON lines at all is often one line of its whole size.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, Union

from dibs.errors import ArgumentError, LineTooLong

BYTES_AT_ONCE = 2 << 20
LONGEST = 64 << 20  # bytes of one line
BLANK = b" \t\r"  # what a line without content may hold
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Content = Union[bytes, bytearray, memoryview]


class Lines(NamedTuple):
    """Some lines of a file, without blank ones."""

    texts: list[bytes]  # without the \n
    numbers: Sequence[int]  # the line of each, counted from 1
    read: int  # bytes read so far
    whole: bool = True  # False: the last of them is the last of all, and has no line end


def read_lines(source: BinaryIO | Content, name: str = "", longest: int | None = LONGEST) -> Iterator[Lines]:
    """The lines of an open binary file, or of bytes, some at a time; a stream is not waited for while there are lines
    to hand on. name: of the file, for messages. longest: bytes that a line may have; None: any number."""
    line, read = 1, 0
    rest: list[bytes] = []  # the parts of a line that has not ended
    size = 0  # of them
    for chunk in _chunks(source, name):
        read += len(chunk)
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            rest.append(chunk)
            size += len(chunk)
            _check_length(size, name, line, longest)
            continue
        texts = b"".join([*rest, chunk[: cut - 1]]).split(b"\n")
        if longest is not None and size + cut > longest:
            for number, text in enumerate(texts, line):
                _check_length(len(text), name, number, longest)
        rest, size = [chunk[cut:]], len(chunk) - cut
        _check_length(size, name, line + len(texts), longest)
        found = _not_blank(texts, line, read)
        line += len(texts)
        if found.texts:
            yield found
    if size:
        found = _not_blank([b"".join(rest)], line, read)
        if found.texts:
            yield found._replace(whole=False)


def number_lines(
    source: BinaryIO | Content, name: str = "", longest: int | None = LONGEST
) -> Iterator[tuple[int, bytes]]:
    """The same one by one: (number, text)."""
    for found in read_lines(source, name, longest):
        yield from zip(found.numbers, found.texts)


def has_lines(content: bytes, count: int) -> bool:
    """Whether there are so many line ends. Of long contents the beginning tells; counting all would be a fifth of
    reading them."""
    at = -1
    for _ in range(count):
        at = content.find(b"\n", at + 1)
        if at < 0:
            return False
    return True


def _not_blank(texts: list[bytes], first: int, read: int) -> Lines:
    if first == 1:
        texts[0] = texts[0].removeprefix(BYTE_ORDER_MARK)
    numbers: Sequence[int] = range(first, first + len(texts))
    if not all(text.strip(BLANK) for text in texts):
        kept = [(number, text) for number, text in zip(numbers, texts) if text.strip(BLANK)]
        numbers, texts = [number for number, _ in kept], [text for _, text in kept]
    return Lines(texts, numbers, read)


def _check_length(size: int, name: str, line: int, longest: int | None) -> None:
    if longest is not None and size > longest:
        raise LineTooLong(name, line, longest)


def _chunks(source: BinaryIO | Content, name: str) -> Iterator[bytes]:
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source).cast("B") if not isinstance(source, bytes) else memoryview(source)
        for start in range(0, len(view), BYTES_AT_ONCE):
            yield bytes(view[start : start + BYTES_AT_ONCE])
        return
    while True:
        chunk = _read_available(source)
        if not isinstance(chunk, bytes):
            raise ArgumentError(
                f"{name or 'the file'} gives {type(chunk).__name__} when it is read; expected bytes: open it in binary "
                'mode, open(path, "rb")'
            )
        if not chunk:
            return
        yield chunk


def _read_available(source: BinaryIO) -> bytes:
    """Up to BYTES_AT_ONCE, but no waiting for more once something is there: a slow stream is answered line by line."""
    read: Any = getattr(source, "read1", source.read)
    first: bytes = read(BYTES_AT_ONCE)
    if not isinstance(first, bytes) or not first or len(first) >= BYTES_AT_ONCE or not _has_more(source):
        return first
    parts, size = [first], len(first)
    while parts[-1] and size < BYTES_AT_ONCE and _has_more(source):
        parts.append(read(BYTES_AT_ONCE - size))
        size += len(parts[-1])
    return b"".join(parts)


def _has_more(source: BinaryIO) -> bool:
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError, TypeError, AttributeError):  # not a thing that can be waited for
        return False
