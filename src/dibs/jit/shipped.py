"""Kernels that come with the package: compiled when the wheel was built, so that nobody waits for a compiler.

They are a cache (jit.cache) like that of a machine, in a folder of the package, but compiled for a level of processors
instead of for one: x86-64-v3, which is what AMD and Intel have made for ten years. They are used where this processor
has all of the level's features, and where Python, Numba and the sources are those that they were compiled with (the
stamps see to that). Everything else is compiled as if they were not there.

DIBS_KERNELS=native: they are left alone, and `dibs warm` compiles for this very processor.

The folder is made by `make wheel`, and is in no checkout. Nothing here imports Numba.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "compiled"
ABOUT = "about.json"
NATIVE = "native"


class Level(NamedTuple):
    """A level of processors, by the words of LLVM and of the Linux kernel."""

    machine: str
    name: str
    features: frozenset[str]  # without which its code does not run


LEVELS = (
    Level(
        "x86_64",
        "x86-64-v3",
        frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe sse4_1 sse4_2 ssse3 popcnt cx16 lahf_lm xsave".split()),
    ),
)


def level_of_this_machine() -> Level | None:
    """The level whose code runs here; None if there is none, or nobody can tell."""
    features = processor_features()
    for level in LEVELS:
        if level.machine == platform.machine() and level.features <= features:
            return level
    return None


@cache
def processor_features() -> frozenset[str]:
    """What the first core can do, by the words of the Linux kernel; nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "flags":
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()


@cache
def shipped_level() -> Level | None:
    """The level of the kernels that came with the package, if they are of use here and wanted."""
    if os.environ.get("DIBS_KERNELS") == NATIVE:
        return None
    level = level_of_this_machine()
    try:
        about = json.loads((FOLDER / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    fits = level is not None and about.get("level") == level.name and about.get("python") == _python()
    return level if fits else None


def has_shipped(stamp: str, workload: bytes) -> bool:
    """Whether all kernels came that such a workload reaches, for sources of that stamp."""
    if shipped_level() is None:
        return False
    about = json.loads((FOLDER / ABOUT).read_text(encoding="utf-8"))
    return about.get("content") == content_of(stamp, workload)


def write_about(folder: Path, level: Level, stamp: str, workload: bytes) -> None:
    """Says what lies in a folder of kernels that is to be shipped."""
    about = {"level": level.name, "python": _python(), "content": content_of(stamp, workload)}
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def content_of(stamp: str, workload: bytes) -> str:
    return hashlib.sha256(stamp.encode() + b"\0" + workload).hexdigest()[:16]


def _python() -> str:
    return str(sys.implementation.cache_tag)
