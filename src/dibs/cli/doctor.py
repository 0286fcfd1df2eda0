"""dibs doctor: what is there, and what to do about what is not."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from dibs.cli.outcome import NO, outcome, results

HELP = """
Say what Dibs finds on this machine: versions, Java, the processor, compiled kernels, free disk; and what to do.

\b
    dibs doctor           exit code 1 when something should be done
    dibs doctor --json    the same as JSON
"""

PACKAGES = ("dibs", "numba", "llvmlite", "numpy", "pyarrow", "google-re2", "orjson", "pyspark")
OPTIONAL = {"pyspark": "needed on Spark only: pip install 'dibs[spark]'"}
LITTLE_DISK = 200 * 2**20  # bytes


class Finding(NamedTuple):
    name: str
    found: str
    advice: str = ""  # what to do; empty: nothing
    needed: bool = True  # whether something is wrong when there is advice


def findings() -> Iterator[Finding]:
    from dibs.java import find_java
    from dibs.jit.place import cache_folder
    from dibs.jit.ready import is_ready
    from dibs.warming.processes import size_of

    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    for name in PACKAGES:
        try:
            yield Finding(name, version(name))
        except PackageNotFoundError:
            yield Finding(name, "not installed", OPTIONAL.get(name, "install dibs again"), name not in OPTIONAL)
    java = find_java()
    yield Finding("java", str(java or "none"), "" if java else "needed on Spark only: install Java 17 or newer", False)
    yield Finding("processor", f"{_processor()}, {os.cpu_count()} cores")
    folder = cache_folder()
    state = "warm" if is_ready() else "cold"
    advice = "" if is_ready() else "run `dibs warm`, or the first large matcher waits for a minute"
    yield Finding("kernels", f"{state}: {size_of(folder) / 2**20:.1f} MB in {folder}", advice)
    if _is_temporary(folder):
        yield Finding("cache", str(folder), "no folder of yours can be written: set DIBS_CACHE to one that can")
    free = shutil.disk_usage(folder).free
    little = f"make room, or set DIBS_CACHE to a folder on another disk: {LITTLE_DISK >> 20} MB are enough"
    yield Finding("free disk", f"{free / 2**30:.1f} GB", little if free < LITTLE_DISK else "")


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else platform.machine()
    except OSError:
        return platform.processor() or platform.machine()


def _is_temporary(folder: Path) -> bool:
    import tempfile

    chosen = [os.environ.get(name) for name in ("NUMBA_CACHE_DIR", "DIBS_CACHE", "XDG_CACHE_HOME")]
    return folder.parent == Path(tempfile.gettempdir()) and str(folder) not in chosen


def doctor(as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False) -> None:
    with outcome():
        found = list(findings())
        if as_json:
            import orjson

            results().write(orjson.dumps([finding._asdict() for finding in found]) + b"\n")
        else:
            width = max(len(finding.name) for finding in found)
            for finding in found:
                mark = "✓" if not finding.advice else "✗" if finding.needed else "–"
                results().write(f"{mark} {finding.name:<{width}}  {finding.found}\n".encode())
                if finding.advice:
                    results().write(f"  {'':<{width}}  {finding.advice}\n".encode())
        results().flush()
        if any(finding.advice and finding.needed for finding in found):
            raise typer.Exit(NO)
