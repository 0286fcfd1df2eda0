"""How far is the way of one call: the Python frames that it enters in Dibs, and the files that they stand in.

    PYTHONPATH=src python tests/walks.py [add ...]      each way, file by file

Whoever looks for a defect reads that way, so it is held by budgets (budgets.toml). Each call is made several times and
the shortest way counts: work in the background would be a part of the others.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pyarrow as pa

import dibs
from dibs.matcher import Matcher
from dibs.tuning import numbers, using

PACKAGE = str(Path(dibs.__file__).parent) + "/"
TIMES = 5
EVENT = {"price": 5, "color": "c1"}


class Walk(NamedTuple):
    frames: list[tuple[str, str]]  # file, function

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _ in self.frames))


class Recorder:
    """Notes frames of all threads that begin while it is there, and of this one, between `begin` and `end`."""

    def __init__(self) -> None:
        self._frames: list[tuple[str, str]] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self._frames is not None:
            file = frame.f_code.co_filename
            if file.startswith(PACKAGE):
                self._frames.append((file[len(PACKAGE) :], frame.f_code.co_name))

    def begin(self) -> None:
        self._frames = []
        sys.setprofile(self)

    def end(self) -> Walk:
        sys.setprofile(None)
        frames, self._frames = self._frames, None
        return Walk(frames or [])


def shortest(walks: list[Walk]) -> Walk:
    return min(walks, key=lambda walk: len(walk.frames))


def walk(call: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> Walk:
    """The shortest of several; before: what is done first, each time, and not counted."""
    recorder, walks = Recorder(), []
    for _ in range(TIMES):
        before()
        recorder.begin()
        try:
            call()
        finally:
            walks.append(recorder.end())
    return shortest(walks)


NEVER = {"enough_events": 10**9, "look_every": 10**9, "one_by_one_calls": 10**9}  # no planning in the background


def defaults() -> dict[str, Any]:
    """Thresholds as users have them, whatever DIBS_TUNING says."""
    return {name: number.default for name, number in numbers.items()}


def matcher_walks() -> dict[str, Walk]:
    with using(defaults() | NEVER):
        return _matcher_walks()


def _matcher_walks() -> dict[str, Walk]:
    m = Matcher(threads=1)
    m.add_many([(f"s{i}", f"price <= {i} AND color = 'c{i % 7}'") for i in range(3000)])
    events = [EVENT] * 100
    table = pa.table({"price": [5.0] * 100, "color": ["c1"] * 100})
    for _ in range(3):  # so that everything is there
        m.match(EVENT), m.match(b'{"price": 5}'), m.match_batch(events), m.match_batch(table)
    number = iter(range(1000))

    def add() -> None:
        m.add(f"x{next(number)}", "price <= 4 AND color = 'c2'")

    found = {
        "match": walk(lambda: m.match(EVENT)),
        "match of bytes": walk(lambda: m.match(b'{"price": 5, "color": "c1"}')),
        "match_batch of dicts": walk(lambda: m.match_batch(events)),
        "match_batch of Arrow": walk(lambda: m.match_batch(table)),
        "explain": walk(lambda: m.explain("s9", EVENT)),
        "add": walk(add),
        "match after an add": walk(lambda: m.match(EVENT), before=add),
    }
    m.close()
    return found


@contextmanager
def of_new_threads(recorder: Recorder) -> Iterator[None]:
    threading.setprofile(recorder)
    try:
        yield
    finally:
        threading.setprofile(None)


def service_walks() -> dict[str, Walk]:
    """From the ASGI call to its answer, with what threads of the service do for it."""
    from dibs.service.app import Service, prepare_folder
    from dibs.service.settings import Settings

    async def find(folder: Path) -> dict[str, Walk]:
        settings = Settings(folder / "served", open=True, deliver=False, threads=1)
        prepare_folder(settings)
        recorder = Recorder()
        with of_new_threads(recorder):
            service = Service(settings)
            await service.start()

            async def put(name: str, expression: str = "price <= 10") -> None:
                body = f'{{"expression": "{expression}", "destination": "ops"}}'.encode()
                await request(service, "PUT", f"/v1/subscriptions/{name}", body)

            await request(service, "PUT", "/v1/destinations/ops", b'{"kind": "stream"}')
            for i in range(40):
                await put(f"s{i}", f"price <= {10 * i}")
            number = iter(range(1000))

            async def shortest_of(call: Callable[[], Awaitable[None]]) -> Walk:
                await call()
                walks = []
                for _ in range(TIMES):
                    recorder.begin()
                    try:
                        await call()
                    finally:
                        walks.append(recorder.end())
                return shortest(walks)

            found = {
                "publish": await shortest_of(lambda: request(service, "POST", "/v1/publish", b'{"price": 55}')),
                "PUT subscription": await shortest_of(lambda: put(f"x{next(number)}")),
            }
            await service.stop()
        return found

    with using(defaults() | NEVER), tempfile.TemporaryDirectory() as folder:
        return asyncio.run(find(Path(folder)))


async def request(service: Any, method: str, path: str, body: bytes) -> None:
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }  # fmt: skip
    await service(scope, receive, send)
    assert status and status[0] < 300, f"{method} {path}: {status}"


def spark_walks(spark: Any, folder: Path) -> dict[str, Walk]:
    """The driver's part of a job."""
    from dibs.spark import match

    with Matcher.open(folder / "subscriptions") as m:
        m.add_many([(f"s{i}", f"price <= {i}") for i in range(300)])
    events = spark.createDataFrame([(i, float(i)) for i in range(50)], "id int, price double")

    def run() -> None:
        assert match(events, str(folder / "subscriptions"), event_id="id").count() > 0

    run()
    return {"Spark match, driver": walk(run)}


def main(words: list[str]) -> None:
    for name, found in {**matcher_walks(), **service_walks()}.items():
        if not words or any(word in name for word in words):
            print(f"{name}: {len(found.frames)} frames in {len(found.files)} files\n    {', '.join(found.files)}")


if __name__ == "__main__":
    main(sys.argv[1:])
