"""Kernels that come with the package: used where they fit, and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dibs.jit import shipped
from dibs.jit.shipped import ABOUT, LEVELS, Level, level_of_this_machine, write_about

ROOT = Path(__file__).parents[2]
KERNEL = """
from dibs.jit.kernel import kernel

@kernel
def double(x):
    return 2 * x
"""
# Calls the kernel and tells how it came by it. argv: the folder of what is shipped.
CALL = """
import json, sys
from pathlib import Path
from dibs.jit import shipped
shipped.FOLDER = Path(sys.argv[1])
from kernel_of_a_test import double
assert double(21) == 42
stats = double.stats
print(json.dumps({"loaded": sum(stats.cache_hits.values()), "compiled": sum(stats.cache_misses.values())}))
"""
LOADED, COMPILED = {"loaded": 1, "compiled": 0}, {"loaded": 0, "compiled": 1}

pytestmark = pytest.mark.skipif(level_of_this_machine() is None, reason="no level of processors is known to fit here")


def call(folder: Path, cache: str, **environment: str) -> Any:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "DIBS_"))}
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    own |= {"PYTHONPATH": path, "DIBS_CACHE": str(folder / cache), **environment}
    command = [sys.executable, "-c", CALL, str(folder / "compiled")]
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_was_shipped_is_used_where_it_fits(tmp_path: Path) -> None:
    (tmp_path / "kernel_of_a_test.py").write_text(KERNEL)
    level = level_of_this_machine()
    assert level is not None
    assert call(tmp_path, "build", NUMBA_CPU_NAME=level.name, NUMBA_CPU_FEATURES="") == COMPILED
    compiled = shutil.copytree(tmp_path / "build", tmp_path / "compiled")
    assert call(tmp_path, "none") == COMPILED, "nothing says for which processors it is"

    write_about(compiled, level, "", b"")
    assert call(tmp_path, "empty") == LOADED
    assert not list((tmp_path / "empty").rglob("*.nbc")), "it stays where it came"
    assert call(tmp_path, "native", DIBS_KERNELS="native") == COMPILED

    write_about(compiled, Level("z80", "z80-v9", frozenset()), "", b"")
    assert call(tmp_path, "other level") == COMPILED
    write_about(compiled, level, "", b"")
    for file in compiled.rglob("*.nbc"):
        file.write_bytes(file.read_bytes()[:99])
    assert call(tmp_path, "damaged") == COMPILED


def test_a_level_needs_all_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    (level,) = (level for level in LEVELS if level == level_of_this_machine())
    for feature in level.features:
        monkeypatch.setattr(shipped, "processor_features", lambda lost=feature: level.features - {lost})
        assert level_of_this_machine() is None


def test_a_wheel_with_kernels_is_for_one_python_and_machine(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "one.nbc").write_bytes(b"code")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    own = {**os.environ, "DIBS_COMPILED": str(kernels)}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)
    assert done.returncode != 0 and f"no kernels in {kernels}" in done.stderr
    (kernels / ABOUT).write_text("{}")
    subprocess.run(command, cwd=ROOT, env=own, capture_output=True, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert "none-any" not in wheel.name and f"cp{sys.version_info.major}{sys.version_info.minor}" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert {"dibs/compiled/one.nbc", f"dibs/compiled/{ABOUT}"} <= set(archive.namelist())
