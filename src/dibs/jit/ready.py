"""Whether the kernels that `auto` needs are compiled: they came with the package (jit.shipped), or a note in the cache
says so, written when they were (dibs.warming).

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
from dibs.jit.shipped import has_shipped
from dibs.jit.stamps import APART as NO_PART
from dibs.jit.stamps import is_named_only, kernel_modules, stamp_of_all

WORKLOAD = (
    Path(__file__).parents[1] / "warming" / "workload.py"
)  # by which kernels were compiled: another may reach more


def is_ready() -> bool:
    """Whether everything that `auto` needs is compiled for this processor, this Python and these sources; or nothing
    is going to be (jit.plain)."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" or came_with_the_package() or note().is_file()


@cache
def came_with_the_package() -> bool:
    return has_shipped(stamp_of_all(own_modules()), WORKLOAD.read_bytes())


def note() -> Path:
    """The note that says so."""
    return cache_folder() / f"ready-{_key()}.json"


@cache
def _key() -> str:
    words = f"{stamp_of_all(own_modules())} {sys.implementation.cache_tag} {processor()}"
    return hashlib.sha256(words.encode() + WORKLOAD.read_bytes()).hexdigest()[:16]


def own_modules() -> list[str]:
    """The modules with kernels that `auto` needs."""
    return [name for name in kernel_modules() if not is_named_only(name) and name not in NO_PART]


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
