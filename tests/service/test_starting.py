"""How a service starts, or does not: one line and an exit code; and what its processes say while they run."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import wait_until
from serving import Processes
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dibs.matcher import Matcher
from dibs.service.delivering import AGAIN, LIVES, LONGEST, Restarts
from dibs.service.delivery import deliverer
from dibs.service.logs import JsonLines, TextLines, is_told, request_id
from dibs.storage.writer_lock import WriterLock

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (WARNING|ERROR) dibs\.service[a-z.]*: ")


def start(folder: Path, workers: int) -> tuple[int, list[str]]:
    command = [
        sys.executable,
        "-m",
        "dibs.cli",
        "serve",
        str(folder),
        "--port",
        "0",
        "--open",
        "--workers",
        str(workers),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_a_second_service_says_so_and_ends(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with Processes(folder, "--open") as first:
        for workers in (1, 2):
            code, said = start(folder, workers)
            assert code == 3
            holder = f"process {first.process.pid} on {socket.gethostname()}"
            assert said == [f"dibs: {folder}: is served already, by {holder}: stop that one, or ask it"]
        assert httpx.get(f"{first.url}/ready").status_code == 200
    assert [line for line in first.said if "Traceback" in line or "ended" in line] == []


def test_a_folder_that_another_program_writes_is_not_served(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with Matcher.open(folder):
        folder.chmod(0o700)
        code, said = start(folder, 1)
    assert code == 3
    [line] = [line for line in said if not LINE.match(line)]
    assert line.startswith(f"dibs: {folder}: is being written by process"), said


def test_a_writer_that_cannot_start_ends_all_and_says_why_once(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    Matcher.open(folder).close()
    database = folder / "catalog" / "catalog.db"
    database.write_bytes(b"no database" + database.read_bytes()[11:])
    code, said = start(folder, 2)
    assert code == 3
    lines = [line for line in said if line.startswith("dibs: ") and "serving" not in line and "everybody" not in line]
    assert len(lines) == 1 and "catalog.db" in lines[0], said
    assert not any("Traceback" in line for line in said)


def test_one_that_ends_at_once_is_started_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("dibs.service.delivering.time.monotonic", lambda: now)
    restarts = Restarts()
    pauses = []
    for _ in range(10):
        restarts.started()
        pauses.append(restarts.pause())
    assert pauses[0] == AGAIN and pauses[1] == 2 * AGAIN and pauses[-1] == pauses[-2] == LONGEST
    restarts.started()
    now += LIVES + 1
    assert restarts.pause() == AGAIN


def test_lines_have_time_and_level(tmp_path: Path) -> None:
    """A deliverer that cannot start, as somebody else delivers for the folder."""
    folder = tmp_path / "s"
    Matcher.open(folder).close()
    lock = WriterLock(folder, deliverer.LOCK)
    try:
        with Processes(folder, "--open") as service:
            wait_until(lambda: any("started again" in line for line in service.said), 30)
            said = [line for line in service.said if not line.startswith("dibs: ")]
    finally:
        lock.release()
    assert said and all(LINE.match(line) for line in said), said
    assert any("ERROR dibs.service.delivery: nothing is delivered: " in line for line in said)
    assert not any("Traceback" in line for line in said)


def test_lines_of_json_with_the_ids_of_requests(tmp_path: Path) -> None:
    with Processes(tmp_path / "s", "--log", "json", "--log-level", "info") as service:
        headers = {"Authorization": f"Bearer {service.token}"}
        with httpx.Client(base_url=service.url, headers=headers) as client:
            given = client.post("/v1/match?top=1", json={"secret": 1}, headers={"X-Request-Id": "order-7"})
            assert given.headers["x-request-id"] == "order-7"
            forwarded = client.get("/v1/stats", headers={"X-Request-Id": "order-8"})
            assert forwarded.headers["x-request-id"] == "order-8"
            strange = client.get("/v1/whoami", headers={"X-Request-Id": "a b\tc"}).headers["x-request-id"]
            assert re.fullmatch("[0-9a-f]{16}", strange)
            with pytest.raises(InvalidStatus):  # no token: refused as a request would be, and no error of the service
                connect(f"ws{service.url.removeprefix('http')}/v1/stream", proxy=None)
            wait_until(lambda: sum("order-" in line for line in service.said) >= 2)
    lines = [json.loads(line) for line in service.said]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    assert not [line for line in lines if line["level"] == "ERROR"]
    requests: dict[str, dict[str, Any]] = {line["request"]: line for line in lines if "request" in line}
    about = requests["order-7"]
    assert (about["route"], about["status"], about["tenant"]) == ("POST /v1/match", 200, "main")
    assert 0 < about["seconds"] < 30 and about["level"] == "INFO"
    assert requests["order-8"]["route"] == "GET /v1/stats"
    [token] = [line for line in lines if service.token in line["message"]]
    assert "shown this once" in token["message"] and not any(
        "secret" in str(line.values()) for line in requests.values()
    )


def test_an_error_keeps_its_traceback_and_its_request() -> None:
    scope: dict[str, Any] = {"headers": [(b"x-request-id", b"order-9")]}
    try:
        raise OSError("the disk is away")
    except OSError:
        about = {"about": {"request": request_id(scope)}}
        logger = logging.getLogger("dibs.test")
        record = logger.makeRecord(
            "dibs.test", logging.ERROR, "", 0, "%s failed", ("GET /x",), sys.exc_info(), None, about
        )
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["request"], line["level"]) == ("GET /x failed", "order-9", "ERROR")
    assert "OSError: the disk is away" in line["exception"]
    text = TextLines().format(record)
    assert " ERROR dibs.test: GET /x failed [order-9]\nTraceback" in text


@pytest.mark.parametrize(("error", "told"), [(asyncio.CancelledError(), False), (ValueError(), True)])
def test_a_request_that_a_stop_has_broken_off_has_no_traceback(error: BaseException, told: bool) -> None:
    about = (type(error), error, None)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "Exception in ASGI application\n", (), about)
    assert is_told(record) is told
