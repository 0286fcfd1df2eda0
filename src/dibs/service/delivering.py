"""The process that delivers, beside the writer: started with it, started again if it ends, stopped with it."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from dibs.service.delivery import DeliverySettings

AGAIN = 1.0  # seconds before it is started again
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


class DelivererProcess:
    def __init__(self, folder: Path, settings: DeliverySettings):
        reach = settings.reach
        flags = ["--allow-loopback"] * reach.loopback + ["--allow-private"] * reach.private
        flags += [word for broker in settings.brokers for word in ("--broker", broker)]
        self._command = [sys.executable, "-m", "dibs.service.delivery", str(folder), *flags]
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = threading.Thread(target=self._watch, name="dibs-deliverer", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        """PR_SET_PDEATHSIG speaks of the thread that made the child: this one lives as long as the service."""
        while not self._stopping.is_set():
            process = self._process = subprocess.Popen(self._command, preexec_fn=partial(die_with_parent, os.getpid()))
            if self._stopping.is_set():
                process.terminate()
            code = process.wait()
            if not self._stopping.wait(AGAIN):
                log.warning("the deliverer ended (%s); it is started again", code)

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
