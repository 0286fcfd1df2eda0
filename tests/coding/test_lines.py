"""The reader of lines, against splitting the whole."""

from __future__ import annotations

import io
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.coding import lines
from dibs.coding.lines import BLANK, BYTE_ORDER_MARK, number_lines, read_lines
from dibs.errors import ArgumentError, LineTooLong

CONTENT = st.lists(st.sampled_from([b"a", b"{}", b"\n", b"\n\n", b" \t", b"\r\n", BYTE_ORDER_MARK, b"x" * 30])).map(
    b"".join
)


def twin(content: bytes) -> list[tuple[int, bytes]]:
    texts = content.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    return [(number, text) for number, text in enumerate(texts, 1) if text.strip(BLANK)]


@given(CONTENT, st.integers(1, 50))
def test_lines_in_blocks_are_those_of_the_whole(content: bytes, at_once: int) -> None:
    before, lines.BYTES_AT_ONCE = lines.BYTES_AT_ONCE, at_once
    try:
        for source in (content, bytearray(content), memoryview(content), io.BytesIO(content)):
            assert list(number_lines(source)) == twin(content)
        blocks = list(read_lines(content))
        assert [block.whole for block in blocks[:-1]] == [True] * len(blocks[:-1])
        if blocks:
            assert blocks[-1].read <= len(content)
            last = content.rsplit(b"\n", 1)[-1].removeprefix(BYTE_ORDER_MARK if b"\n" not in content else b"")
            assert blocks[-1].whole == (not last.strip(BLANK))
    finally:
        lines.BYTES_AT_ONCE = before


@given(st.lists(st.integers(0, 40), min_size=1), st.integers(1, 60), st.booleans())
def test_a_line_that_is_too_long_is_named(sizes: list[int], at_once: int, ended: bool) -> None:
    content = b"\n".join(b"x" * size for size in sizes) + b"\n" * ended
    before, lines.BYTES_AT_ONCE = lines.BYTES_AT_ONCE, at_once
    try:
        too_long = [number for number, size in enumerate(sizes, 1) if size > 20]
        if not too_long:
            assert [len(text) for _, text in number_lines(content, "a.jsonl", 20)] == [size for size in sizes if size]
            return
        with pytest.raises(LineTooLong, match=rf"a\.jsonl, line {too_long[0]}: longer than 20 bytes") as caught:
            list(number_lines(content, "a.jsonl", 20))
        assert (caught.value.line, caught.value.limit) == (too_long[0], 20)
        assert [len(text) for _, text in number_lines(content, longest=None)] == [size for size in sizes if size]
    finally:
        lines.BYTES_AT_ONCE = before


def test_a_line_that_never_ends_is_not_kept() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            self.given += size
            return b"x" * size

    source = Endless()
    with pytest.raises(LineTooLong, match="longer than 64 MB"):
        list(read_lines(source))  # type: ignore[arg-type]
    assert source.given <= lines.LONGEST + 2 * lines.BYTES_AT_ONCE


def test_a_slow_stream_is_handed_on_line_by_line() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", 0) as sink:
        found = read_lines(source)
        sink.write(b"a\nb\nc")
        assert next(found).texts == [b"a", b"b"]
        threading.Timer(0.05, lambda: sink.write(b"d\n")).start()
        assert next(found)[:2] == ([b"cd"], range(3, 4))


def test_a_file_of_text_is_refused() -> None:
    for source in (io.StringIO("{}\n"), open(__file__)):  # noqa: SIM115
        with source, pytest.raises(ArgumentError, match=r"gives str when it is read.*binary mode"):
            list(read_lines(source))  # type: ignore[arg-type]
