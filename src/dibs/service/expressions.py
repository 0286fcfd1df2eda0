"""Reading expressions to say what is wrong with them: long ones by a process of their own.

Reading is Python, two microseconds a character. A thread that does it for 0.2 seconds keeps the loop from the
interpreter again and again; another process does not. It is started with the first long expression, has a lower
priority, and ends with the service.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import orjson

from dibs.errors import ExpressionError
from dibs.language.joins import attributes_of_event
from dibs.language.never import find_warnings
from dibs.language.printer import to_sql
from dibs.language.sql import parse
from dibs.language.types import NO_TYPES, Types
from dibs.service.delivering import die_with_parent
from dibs.service.problems import Refusal, problem_of

LONG = 2_000  # characters
PRIORITY = 5


def validate_text(text: str, types: Types = NO_TYPES) -> bytes:
    """What the API answers."""
    try:
        tree = parse(text, types)
    except ExpressionError as error:
        problems = [problem_of(problem) for problem in error.problems]
        return orjson.dumps({"valid": False, "problems": problems, "warnings": [], "canonical": None, "attributes": []})
    named = sorted(attributes_of_event(tree))
    told = [problem_of(problem) for problem in find_warnings(tree, text, types)]
    found = {"valid": True, "problems": [], "warnings": told, "canonical": to_sql(tree), "attributes": named}
    return orjson.dumps(found)


class ExpressionReader:
    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: ProcessPoolExecutor | None = None

    def validate(self, text: str, types: Types = NO_TYPES) -> bytes:
        """In a thread. types: of the tenant."""
        if len(text) <= LONG:
            return validate_text(text, types)
        process = self._start()
        try:
            return process.submit(validate_text, text, types).result()
        except CancelledError:
            raise Refusal("unavailable", "the service is closing", headers={"Retry-After": "1"}) from None
        except BrokenProcessPool:  # somebody has ended it: the next one gets a new one, this one is read here
            self._forget(process)
            return validate_text(text, types)

    def _start(self) -> ProcessPoolExecutor:
        with self._turn:
            if self._process is None:
                context = multiprocessing.get_context("spawn")
                self._process = ProcessPoolExecutor(1, context, _begin, (os.getpid(),))
            return self._process

    def _forget(self, process: ProcessPoolExecutor) -> None:
        with self._turn:
            if self._process is process:
                self._process = None
        process.shutdown(wait=False)

    def close(self) -> None:
        with self._turn:
            process, self._process = self._process, None
        if process is not None:
            process.shutdown(wait=True, cancel_futures=True)


def _begin(parent: int) -> None:
    die_with_parent(parent)
    os.nice(PRIORITY)
