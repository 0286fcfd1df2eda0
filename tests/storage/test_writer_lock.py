"""The lock of a folder's writer: nothing that is cut off keeps it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import WriterActive
from dibs.storage.writer_lock import NAME, WriterLock


class Interrupted(KeyboardInterrupt):
    pass


def interrupt_at(point: int, folder: Path) -> bool:
    """Takes the lock; whether it was cut off at that point: where a function begins, where one that is not written in
    Python has returned, or at a line."""
    left = point

    def watch(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if event in ("call", "c_return", "line"):
            left -= 1
            if left == 0:
                raise Interrupted
        return watch

    sys.settrace(watch)
    sys.setprofile(watch)
    try:
        WriterLock(folder).release()
        return False
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
        sys.setprofile(None)


def test_a_lock_whose_taking_was_interrupted_is_free(tmp_path: Path) -> None:
    point = 1
    while interrupt_at(point, tmp_path):
        WriterLock(tmp_path).release()
        point += 1
    assert point > 20


def test_it_tells_who_holds_it(tmp_path: Path) -> None:
    first = WriterLock(tmp_path)
    with pytest.raises(WriterActive, match="process"):
        WriterLock(tmp_path)
    first.release()
    second = WriterLock(tmp_path)
    assert (tmp_path / NAME).read_text().count("process") == 1
    second.release()
