"""What does the first match of a process cost: Numba compiles each kernel once and keeps it on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from measure import Say, Size

SCRIPT = """
import time
start = time.perf_counter()
import dibs
imported = time.perf_counter()
import dibs.matcher  # else a small matcher answers without kernels: see benchmarks/first_use.py
m = dibs.Matcher()
m.add("alice", "model = 'iphone5s' AND price <= 580")
m.add("bob", "brand LIKE 'App%' OR price BETWEEN 10 AND 20")
assert m.match({"model": "iphone5s", "price": 550, "brand": "Apple"}) == ["alice", "bob"]
print(imported - start, time.perf_counter() - imported)
"""


def run(size: Size, say: Say) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        say("with an empty cache: compiling everything")
        compiled = _process(cache)
        say("with the cache that this filled")
        loaded = min((_process(cache) for _ in range(3)), key=sum)
    names = ("import dibs", "add two subscriptions and match")
    return {"nothing compiled yet": dict(zip(names, compiled)), "kernels in the cache": dict(zip(names, loaded))}


def _process(cache: str) -> tuple[float, float]:
    """Seconds of the import and of the first match in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"NUMBA_CACHE_DIR": cache, "DIBS_WARM": "never"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    imported, matched = map(float, done.stdout.split())
    return imported, matched
