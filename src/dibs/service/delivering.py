"""The process that delivers, beside the writer: started with it, started again if it ends, stopped with it."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

from dibs.service.delivery import DeliverySettings
from dibs.service.settings import Settings

AGAIN = 0.5  # seconds before a process that ended is started again; twice as long each time that it ends at once...
LONGEST = 30.0  # ...up to so many
LIVES = 60.0  # seconds after which a process has lived: it did not end at once
STOPPING = 15.0  # seconds that attempts under way may take
DIE_WITH_PARENT = 1  # prctl: PR_SET_PDEATHSIG
log = logging.getLogger("dibs.service")


def die_with_parent(parent: int) -> None:
    """In a child, on Linux: it is told to stop when its parent is gone, however that ended. parent: its process id."""
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it was gone before anything could be told
        os.kill(os.getpid(), signal.SIGTERM)


class Restarts:
    """When a process that ends may be started again."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._pause = AGAIN

    def started(self) -> None:
        self._begun = time.monotonic()

    def pause(self) -> float:
        """Seconds, now that it has ended."""
        lived = time.monotonic() - self._begun > LIVES
        found = AGAIN if lived else self._pause
        self._pause = min(LONGEST, 2 * found)
        return found


class DelivererProcess:
    def __init__(self, settings: Settings, delivery: DeliverySettings):
        reach = delivery.reach
        flags = ["--allow-loopback"] * reach.loopback + ["--allow-private"] * reach.private
        flags += [word for broker in delivery.brokers for word in ("--broker", broker)]
        flags += ["--secrets-key", str(delivery.secrets_key)] if delivery.secrets_key is not None else []
        flags += ["--log", settings.log, "--log-level", settings.log_level]
        self._command = [sys.executable, "-m", "dibs.service.delivery", str(settings.folder), *flags]
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = threading.Thread(target=self._watch, name="dibs-deliverer", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        """PR_SET_PDEATHSIG speaks of the thread that made the child: this one lives as long as the service."""
        restarts = Restarts()
        while not self._stopping.is_set():
            process = self._process = subprocess.Popen(self._command, preexec_fn=partial(die_with_parent, os.getpid()))
            restarts.started()
            if self._stopping.is_set():
                process.terminate()
            code = process.wait()
            pause = restarts.pause()
            if not self._stopping.is_set():
                log.warning("the deliverer ended (%s); it is started again in %g s", code, pause)
            self._stopping.wait(pause)

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def stop(self) -> None:
        self._stopping.set()
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOPPING)
            except subprocess.TimeoutExpired:
                process.kill()
        self._watcher.join(STOPPING)
