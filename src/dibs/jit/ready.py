"""Whether the kernels that `auto` needs are compiled: a note in the cache, written when they were (dibs.warming).

It is only a hint, by which nobody's answer changes: a kernel that is missing in spite of it is compiled when it is
called, and what is there without it is loaded. Nothing here imports Numba.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from functools import cache
from pathlib import Path

from dibs.jit.place import cache_folder
from dibs.jit.stamps import kernel_modules, stamp_of_all

APART = "dibs.index.papers"  # structures that `auto` does without
WORKLOAD = (
    Path(__file__).parents[1] / "warming" / "workload.py"
)  # by which kernels were compiled: another may reach more


def is_ready() -> bool:
    """Whether everything that `auto` needs is compiled for this processor, this Python and these sources."""
    return note().is_file()


def note() -> Path:
    """The note that says so."""
    return cache_folder() / f"ready-{_key()}.json"


@cache
def _key() -> str:
    words = f"{stamp_of_all(own_modules())} {sys.implementation.cache_tag} {processor()}"
    return hashlib.sha256(words.encode() + WORKLOAD.read_bytes()).hexdigest()[:16]


def own_modules() -> list[str]:
    """The modules with kernels that `auto` needs."""
    return [name for name in kernel_modules() if not name.startswith(f"{APART}.")]


@cache
def processor() -> str:
    """What Numba would compile for, as far as that is known without it: the model, and what it can do."""
    found = {platform.machine()}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "flags", "Features", "CPU part"):
                    found.add(" ".join(sorted(value.split())))
                elif not line.strip():
                    break  # the first core is enough
    except OSError:
        found.add(platform.processor())
    chosen = [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]
    return " ".join([*sorted(found), *chosen])
