"""How much memory and processor time a point of a figure may take, and a process of its own in which it is held to it.

A structure at a point is built and matched in a fork of the process that has coded the data: what it takes is given
back when it ends, and one that takes too much takes nothing else down.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from dibs.errors import DibsError

GIGABYTE = 1 << 30
IDLE = 300


class Limits(NamedTuple):
    """Of one structure at one point, the data included."""

    gigabytes: float = 12
    minutes: float = 10  # of processor time
    from_subscriptions: int = 20_000  # with fewer, nothing here can reach a limit: they are measured without a fork


class BeyondLimit(DibsError):
    """A point took more than it may."""


def run_within(limits: Limits, work: Callable[[], Any]) -> Any:
    """What the work returns, done in a fork. Raises BeyondLimit, and whatever the work raises."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(there, limits, work))
    child.start()
    there.close()
    try:
        _wait(here, child.pid, limits)
        kind, found = here.recv()
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGXCPU:
            raise BeyondLimit(f"more than {limits.minutes:g} minutes") from None
        raise BeyondLimit(f"the process ended with {child.exitcode}, near {limits.gigabytes:g} GB") from None
    finally:
        here.close()
        child.kill()  # it has said what there is to say, or never will
        child.join()
    if kind == "memory":
        raise BeyondLimit(f"more than {limits.gigabytes:g} GB")
    if kind == "error":
        raise found
    return found


def _wait(here: Connection, process: int | None, limits: Limits) -> None:
    """Until there is something to read. A thread that memory fails in may leave others waiting for it: a process that
    takes no processor time for IDLE seconds is given up."""
    used, since = -1, 0.0
    while not here.poll(1):
        try:
            now = sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            return
        since = since + 1 if now == used else 0.0
        used = now
        if since > IDLE:
            raise BeyondLimit(f"no more memory of its {limits.gigabytes:g} GB, and stuck")


def _work(there: Connection, limits: Limits, work: Callable[[], Any]) -> None:
    seconds = max(int(60 * limits.minutes), 1)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    _limit_memory(limits)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    try:
        there.send(("done", work()))
    except MemoryError:
        there.send(("memory", None))
    except Exception as error:
        there.send(("error", error))


def _limit_memory(limits: Limits) -> None:
    """What the process may have written to: memory that is only reserved does not count (RLIMIT_DATA)."""
    most = int(limits.gigabytes * GIGABYTE)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
