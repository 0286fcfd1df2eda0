"""python -m dibs.warming.shipping FOLDER: the kernels that a wheel ships, compiled for a level of processors.

`make wheel` calls it. What each machine would compile for itself is compiled here once, into an empty cache, and what
`auto` needs of it is put into the folder (see jit.shipped).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from dibs.errors import DibsError
from dibs.jit.place import folder_name
from dibs.jit.ready import WORKLOAD, own_modules
from dibs.jit.shipped import NATIVE, Level, level_of_this_machine, write_about
from dibs.jit.stamps import stamp_of, stamp_of_all
from dibs.warming.processes import warm


def compile_for_shipping(folder: Path) -> Level:
    """Fills the folder, which is made anew; for a process of its own. Raises DibsError where this machine cannot."""
    level = level_of_this_machine()
    if level is None:
        raise DibsError("kernels for a wheel are compiled on Linux, on a processor of the level x86-64-v3 or above")
    with tempfile.TemporaryDirectory() as cache:
        settings = {"NUMBA_CPU_NAME": level.name, "NUMBA_CPU_FEATURES": "", "DIBS_CACHE": cache, "DIBS_KERNELS": NATIVE}
        os.environ.pop("NUMBA_CACHE_DIR", None)
        os.environ.update(settings)  # of the processes that compile
        warm()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for module in own_modules():
            place = Path(cache, folder_name(module, stamp_of(module)))
            for file in sorted(place.glob("*.nb[ci]")):
                (folder / place.name).mkdir(exist_ok=True)
                shutil.copyfile(file, folder / place.name / file.name)
    write_about(folder, level, stamp_of_all(own_modules()), WORKLOAD.read_bytes())
    return level


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m dibs.warming.shipping FOLDER\n")
        return 2
    folder = Path(arguments[0])
    sys.stderr.write("Compiling the kernels of a wheel: two minutes or so ...\n")
    try:
        level = compile_for_shipping(folder)
    except (DibsError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    sys.stderr.write(f"{size / 2**20:.1f} MB of kernels for {level.name} in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
