"""Long expressions are read by a process of their own, with the same words."""

from __future__ import annotations

import os
import signal

import orjson

from dibs.service.expressions import LONG, ExpressionReader, validate_text

LONG_TEXT = " OR ".join(f"a{n} = {n}" for n in range(LONG // 10 + 100))


def test_a_process_says_what_is_said_here_and_is_replaced_when_it_was_ended() -> None:
    assert len(LONG_TEXT) > LONG
    reader = ExpressionReader()
    try:
        assert reader.validate("a = ") == validate_text("a = ") and reader._process is None
        for text in (LONG_TEXT, LONG_TEXT + " OR b <"):
            assert reader.validate(text) == validate_text(text)
        process = reader._process
        assert process is not None
        [pid] = process._processes
        os.kill(pid, signal.SIGKILL)
        assert orjson.loads(reader.validate(LONG_TEXT))["valid"]  # read here, or by the next one
        assert orjson.loads(reader.validate(LONG_TEXT))["valid"]
        assert reader._process is not process
    finally:
        reader.close()
    assert reader._process is None
