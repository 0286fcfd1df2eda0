"""A fuzzer: reads /openapi.json, and sends what it says, what it does not say, and bytes that are hardly HTTP.

    python tests/service/fuzz.py --minutes 30 --seed 1

No answer is a 5xx, every answer to a request that could be read is as it is documented, and the service answers
afterwards as it did before. test_fuzz_service.py runs a short form of it.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx
import orjson
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

sys.path.insert(0, str(Path(__file__).parent))

from serving import Processes

from dibs.service.routes import LINES

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
PATIENCE = 0.3  # seconds for the next part of an answer
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
IDS = st.one_of(st.sampled_from(["a", "b", 5]), st.text(max_size=5), st.integers(-(2**64), 2**64))
EXPRESSIONS = st.one_of(st.sampled_from(["a = 1", "a > 0 OR b LIKE 'x%'", "a ="]), st.text(max_size=20))
ROWS = st.one_of(
    st.dictionaries(st.sampled_from(["a", "b", "c.d"]), st.one_of(st.integers(), st.floats(), st.text(), st.none())),
    st.fixed_dictionaries(
        {"id": IDS, "expression": EXPRESSIONS}, optional={"weight": st.floats(), "remove": st.booleans()}
    ),
    st.none() | st.booleans() | st.text(),
)


def line_of(row: object) -> bytes:
    try:
        return orjson.dumps(row)
    except TypeError:  # integers of more than 64 bits, lone surrogates
        return b'{"a": 123456789012345678901234567890}'


schemathesis.openapi.media_type(LINES, st.lists(ROWS, max_size=5).map(lambda rows: b"\n".join(map(line_of, rows))))


def operations_of(url: str) -> list[Any]:
    """All but streams, which do not end."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json").exclude(path_regex="stream")
    return [found.ok() for found in schema.get_all_operations()]


def ask_operation(operation: Any, mode: Any, examples: int, asked: Counter[int], number: int | None = None) -> None:
    """So many requests; raises what a check finds, with the request."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(timeout=60)
        asked[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    with contextlib.suppress(Unsatisfiable):  # where nothing can be sent that is wrong
        (ask if number is None else seed(number)(ask))()


# ---- bytes that are hardly HTTP ----

HEADERS = (
    b"Content-Type: application/jsonl",
    b"Content-Length: 7",
    b"Content-Length: -1",
    b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: eA==",
    b"Authorization: Bearer \xff\xfe",
    b"Idempotency-Key: \xe9",
    b'If-Match: "9999999999999999999999"',
    b"Last-Event-ID: 1-1-1",
    b"X-Request-Id: " + b"x" * 5_000,
    b"Host: elsewhere",
)
PATHS = (b"/v1/match", b"/v1/publish", b"/v1/subscriptions", b"/v1/subscriptions/%00", b"/v1/stream", b"/metrics")
PATHS += (b"/v1/destinations/%ff/stream?after=-1", b"/console/../../etc/passwd", b"//", b"*", b"/v1/match?top=1e999")
BODIES = (b'{"a": 1}', b'5\r\n{"a":\r\n0\r\n\r\n', b"\xff" * 50, b"[" * 5_000, b"", b'{"a": 1}\n' * 300)


def raw_request(random: Random) -> bytes:
    method = random.choice([b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"G\x00T", b"get"])
    head = [method + b" " + random.choice(PATHS) + b" HTTP/1." + random.choice([b"1", b"0", b"9"])]
    head += [b"Host: localhost", *random.sample(HEADERS, random.randrange(5))]
    text = bytearray(b"\r\n".join(head) + b"\r\n\r\n" + random.choice(BODIES))
    for _ in range(random.choice([0, 0, 1, 3, 20])):
        place = random.randrange(len(text))
        text[place : place + random.randrange(2)] = random.randbytes(random.randrange(3))
    return bytes(text)


def ask_raw(url: str, random: Random, asked: Counter[int]) -> str | None:
    """One request and what follows it at once; the problem, if any. An end without an answer is an answer."""
    port = int(url.rsplit(":", 1)[1])
    sent = b"".join(raw_request(random) for _ in range(random.choice([1, 1, 2, 4])))
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.settimeout(PATIENCE)  # many are never ended: the service would wait for the rest
        answer = b""
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            while part := connection.recv(65_536):
                answer += part
    for found in re.finditer(rb"HTTP/1\.1 (\d\d\d) ", answer):
        asked[int(found[1])] += 1
        if found[1] >= b"500":
            return f"{sent!r}: {answer[found.start() :][:500]!r}"
    return None


def run_fuzzer(url: str, minutes: float, first: int, told: Any = print) -> tuple[Counter[int], list[str]]:
    """Round by round until the time is over: (answers by status, problems)."""
    asked: Counter[int] = Counter()
    problems: list[str] = []
    operations = operations_of(url)
    number, end, shown = first, time.monotonic() + minutes * 60, time.monotonic()
    random = Random(first)
    while time.monotonic() < end and len(problems) < 20:
        for operation in operations:
            number += 1
            try:
                ask_operation(operation, MODES[number % 2], 5, asked, number)
            except Exception as error:  # a check has failed, or the service does not answer
                problems.append(f"{operation.label}, seed {number}: {type(error).__name__}: {error}")
                told(problems[-1])
            for _ in range(3):
                if problem := ask_raw(url, random, asked):
                    problems.append(problem)
                    told(problem)
            if time.monotonic() > shown + 60:
                shown = time.monotonic()
                told(f"{sum(asked.values()):,} answers, {len(problems)} problems: {dict(sorted(asked.items()))}")
            if time.monotonic() > end:
                break
    return asked, problems


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        with Processes(Path(temporary) / "searches", "--open", workers=chosen.workers) as served:
            asked, problems = run_fuzzer(served.url, chosen.minutes, chosen.seed, lambda text: print(text, flush=True))
            assert httpx.get(f"{served.url}/ready", timeout=30).status_code == 200
        errors = [place for place, line in enumerate(served.said) if " ERROR " in line]
    print(f"{sum(asked.values()):,} answers, {len(problems)} problems, {len(errors)} errors in the log")
    print(dict(sorted(asked.items())))
    for place in errors[:5]:
        print(*served.said[place : place + 60], sep="")
    sys.exit(bool(problems or errors))


if __name__ == "__main__":
    main()
