"""How what Dibs runs in Spark's Python workers gets there: one function that Spark pickles, and what is too large for
it."""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary


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


def is_connect(session: Any) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")
