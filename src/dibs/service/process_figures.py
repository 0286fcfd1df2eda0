"""What a process uses: its start, processor time, memory and open files, under the names that Prometheus has for them.
From /proc, on Linux; elsewhere of this process only, and as far as Python knows."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

_BEGUN = time.time()  # about the start of this process, where nobody knows better


def figures_of_process(process: int | None = None) -> dict[str, float]:
    """process: its id; this one by default. Nothing of one that is gone."""
    place = Path(f"/proc/{process if process is not None else 'self'}")
    try:
        return _from_proc(place)
    except (OSError, ValueError, IndexError):
        return _from_python() if process is None else {}


def _from_proc(place: Path) -> dict[str, float]:
    # After the name in brackets, which may itself hold brackets and spaces; the field "state" is the first.
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    user, system, started, resident = (int(fields[i]) for i in (11, 12, 19, 21))
    ticks = os.sysconf("SC_CLK_TCK")
    found = {
        "process_start_time_seconds": _boot_time() + started / ticks,
        "process_cpu_seconds_total": (user + system) / ticks,
        "process_resident_memory_bytes": float(resident * os.sysconf("SC_PAGE_SIZE")),
    }
    with suppress(OSError):  # of another user's process
        found["process_open_fds"] = float(len(os.listdir(place / "fd")))
    for line in (place / "limits").read_text().splitlines():
        if line.startswith("Max open files"):
            with suppress(ValueError):  # unlimited
                found["process_max_fds"] = float(line.split()[3])
    return found


def _boot_time() -> float:
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    raise ValueError("no boot time")


def _from_python() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "process_start_time_seconds": _BEGUN,
        "process_cpu_seconds_total": used.ru_utime + used.ru_stime,
        "process_max_fds": float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    }
