"""What a service keeps is its user's alone: subscriptions, events, secrets. Folders have the mode 0700, files 0600."""

from __future__ import annotations

import logging
import os
from pathlib import Path

OTHERS = 0o077  # what group and others may do
log = logging.getLogger("dibs.service")


def keep_private() -> None:
    """What this process, and those that it starts, will make can be read by this user alone."""
    os.umask(OTHERS)


def make_private(folder: Path) -> int:
    """Takes all rights to a folder, and to everything in it, from other users; how many files and folders had some.
    What cannot be changed is told in the log, and left: somebody else owns it, and decides."""
    mended = 0
    failures: list[OSError] = []
    for path in (str(folder), *_everything_in(folder)):
        try:
            mode = os.lstat(path).st_mode
            if mode & OTHERS:
                os.chmod(path, mode & 0o700)
                mended += 1
        except FileNotFoundError:
            pass  # a log or a segment that is no longer needed
        except OSError as e:
            failures.append(e)
    if mended:
        log.warning("other users of this machine could read %s: %d files and folders are closed now", folder, mended)
    if failures:
        log.warning("%d files cannot be closed to other users: %s", len(failures), failures[0])
    return mended


def _everything_in(folder: Path) -> list[str]:
    """Without what links lead to."""
    found = []
    for place, folders, files in os.walk(folder):
        found += [path for path in (os.path.join(place, name) for name in folders + files) if not os.path.islink(path)]
    return found
