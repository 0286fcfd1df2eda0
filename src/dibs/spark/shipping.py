"""How what Dibs runs in Spark's Python workers gets there: one function that Spark pickles, and what is too large for
it. And which Python they are, told before a job fails, if it is one without Dibs."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from dibs.errors import DibsError
from dibs.spark.frames import is_connect, is_local

NEEDED = ("pyarrow", "dibs")
A_START = 60  # seconds


def in_worker(target: str, *given: Any, called: str = "dibs", **live: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function of batches that calls `module:function` with them and what is given.

    It is pickled by value and unpickles what is given when it runs, where a message can say that Dibs is missing.
    called: its name, which Spark shows in plans. live: what Spark itself must see when it pickles (broadcasts,
    accumulators).
    """
    content = pickle.dumps(given)

    def dibs(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib
        import importlib.util
        import pickle
        import sys

        if importlib.util.find_spec("dibs") is None:
            raise RuntimeError(
                f"Dibs is not installed in the Python of Spark's workers, {sys.executable}: install it there"
            )
        module, name = target.split(":")
        return getattr(importlib.import_module(module), name)(batches, *pickle.loads(content), **live)

    dibs.__name__ = called
    return dibs


# ---- Spark Connect ----


@dataclass(frozen=True)
class Artifact:
    """A value that a server of Spark Connect was sent, once for a session: a job only names it. (A classic session
    broadcasts large functions by itself.)"""

    name: str

    def open(self) -> Any:
        from pyspark import SparkFiles

        return _read(SparkFiles.get(self.name))


@lru_cache(maxsize=8)
def _read(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())


_sent: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def send(session: Any, value: Any) -> Any:
    """The value, or in a session of Spark Connect an Artifact of it."""
    if value is None or not is_connect(session):
        return value
    content = pickle.dumps(value)
    name = f"dibs-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    sent = _sent.setdefault(session, set())
    if name not in sent:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_bytes(content)
            session.addArtifacts(str(Path(folder) / name), file=True)
        sent.add(name)
    return Artifact(name)


def receive(value: Any) -> Any:
    """In a worker: what was sent."""
    return value.open() if isinstance(value, Artifact) else value


# ---- the interpreter ----


def check_workers(session: SparkSession) -> None:
    """Raises DibsError when the workers of a local session run a Python that lacks what they need: as when a virtual
    environment is not activated, and `python3` is the system's."""
    if not is_local(session):
        return
    context: Any = session.sparkContext
    used = str(context.pythonExec)
    found = shutil.which(used)
    if found is not None and os.path.abspath(found) == os.path.abspath(sys.executable):
        return
    lacks = "it is not there" if found is None else _find_lack(found)
    if lacks:
        raise DibsError(
            f"Spark runs its workers with {used!r}{'' if found in (None, used) else f', which is {found}'}: {lacks}. "
            f"Set PYSPARK_PYTHON={sys.executable} before the session is started (or activate the virtual environment), "
            "or start it with dibs.spark.session(), which does that"
        )


@lru_cache(maxsize=8)
def _find_lack(python: str) -> str:
    """What the interpreter lacks, in words; nothing: "". It is asked once."""
    program = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n) is None])"
    try:
        done = subprocess.run(
            [python, "-c", program, *NEEDED], capture_output=True, text=True, timeout=A_START, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be run ({error})"
    if done.returncode != 0:
        return f"it cannot be run ({(done.stderr.strip().splitlines() or ['no reason given'])[-1]})"
    lacking = [name for name in NEEDED if repr(name) in done.stdout]
    return f"it has no {' and no '.join(lacking)}" if lacking else ""
