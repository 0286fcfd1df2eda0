"""Which Python runs Spark's workers on this machine: told before a job fails, if it is one without Dibs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from typing import Any

from pyspark.sql import SparkSession

from dibs.errors import DibsError
from dibs.spark.frames import is_local

NEEDED = ("pyarrow", "dibs")
A_START = 60  # seconds


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
