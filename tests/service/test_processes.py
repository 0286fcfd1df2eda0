"""A writer and two processes that follow it, as `dibs serve --workers 2` starts them: once, for all tests here."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agreement import compare
from serving import Processes
from test_websocket import publish, read, socket_url, stream_with
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from dibs.service.database import Database
from dibs.service.settings import DATABASE
from dibs.service.tokens import FRESH, create_token


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with Processes(tmp_path_factory.mktemp("processes") / "searches", workers=2) as found:
        yield found


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.parametrize("gone_before", [True, False])
def test_a_child_whose_parent_is_killed_stops(gone_before: bool) -> None:
    """Also if the parent was gone before the child could ask to be told."""
    wait = "time.sleep(0.5)" if gone_before else "pass"
    child = f"""
import sys, time
from dibs.service.delivering import die_with_parent
{wait}
die_with_parent(int(sys.argv[1]))
print("waits", flush=True)
time.sleep(60)
"""
    parent = f"""
import os, subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", {child!r}, str(os.getpid())]).pid, flush=True)
time.sleep(60)
"""
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    child_id = int(started.stdout.readline())
    if not gone_before:
        assert started.stdout.readline() == "waits\n"
    started.kill()
    started.wait()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child_id}/cmdline").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child_id}/cmdline").exists()


def test_all_of_them_know_what_was_acknowledged(processes: Processes) -> None:
    tally = compare(processes.url, processes.token, clients=4, rounds=20, seed=3)
    assert tally.wrong == []
    assert tally.answers > 150 and tally.changes > 100


def test_declared_types_hold_in_all_processes(processes: Processes) -> None:
    """From the answer on, whichever process is asked."""
    database = Database(processes.folder / DATABASE)
    headers = {"Authorization": f"Bearer {create_token(database, 'typed', ['admin'])[1]}"}
    database.close()

    def ask(method: str, path: str, **more: Any) -> httpx.Response:
        return httpx.request(method, processes.url + path, headers=headers, timeout=60, **more)

    while ask("GET", "/v1/whoami").status_code == 401:  # tokens are looked at each second
        time.sleep(FRESH / 10)
    for types, found in (({}, []), ({"price": "number"}, ["a"]), ({}, []), ({"price": "number"}, ["a"])):
        assert ask("PUT", "/v1/types", json={"types": types}).json() == {"types": types}
        assert ask("PUT", "/v1/subscriptions/a", json={"expression": "price > 5"}).status_code == 201
        for _ in range(8):
            answer = ask("POST", "/v1/match", json={"price": "6"})
            while answer.status_code == 401:  # of a process that has not looked yet
                answer = ask("POST", "/v1/match", json={"price": "6"})
            assert answer.json()["subscriptions"] == found
        assert ask("DELETE", "/v1/subscriptions/a").status_code == 200


def test_a_stream_is_handed_on_and_a_stop_ends_it(processes: Processes) -> None:
    """The last one here: it stops them."""
    headers = {"Authorization": f"Bearer {processes.token}"}
    url = socket_url(processes.url) + "/v1/destinations/far/stream?after=0"
    with httpx.Client(base_url=processes.url, headers=headers, timeout=30) as client:
        stream_with(client, "far")
        with pytest.raises(InvalidStatus) as refused, connect(url, proxy=None):
            pass
        assert refused.value.response.status_code == 401
        protocols = [Subprotocol("dibs"), Subprotocol(processes.token)]
        with connect(url, subprotocols=protocols, proxy=None) as wire:
            publish(client, "far", 3)
            assert [read(wire)["data"]["event"]["n"] for _ in range(3)] == [0, 1, 2]
            begun = time.monotonic()
            processes.process.terminate()
            with pytest.raises(ConnectionClosed):
                wire.recv(timeout=30)
    processes.process.wait(30)
    assert time.monotonic() - begun < 8  # it does not wait for streams, which have no end
    assert processes.process.returncode == 0, processes.said
