"""What a figure depends on besides the code: the machine, the versions and how busy it was."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("dibs", "numpy", "numba", "llvmlite", "pyarrow", "sqlglot", "sqlglotc")


def facts() -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "caches": _caches(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "commit": _commit(),
        "packages": {name: _version(name) for name in PACKAGES},
        "load average": load_average(),
    }


def load_average() -> list[float]:
    """Of the last 1, 5 and 15 minutes: a quiet machine has one core busy when the run ends, none when it starts."""
    return [round(x, 2) for x in os.getloadavg()]


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _caches() -> dict[str, str]:
    """Sizes as the first core sees them, such as {"L1 Data": "48K", ...}."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        found[f"L{level} {kind}".removesuffix(" Unified")] = size
    return found


def _commit() -> str | None:
    """The version of the sources; "-dirty": with changes that are not committed."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def sources() -> str:
    """A fingerprint of the code that is measured."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parent.parent / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
