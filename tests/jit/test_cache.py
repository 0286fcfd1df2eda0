"""The cache of compiled kernels: what makes them stale, what does not, and where they lie."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dibs
from dibs.jit import place

PACKAGE = Path(dibs.__file__).parent

# Cuts two texts by the kernel `cut`, compiled with a function of another file, and tells how it came by it.
READ = """
import json
import numpy as np
from dibs.language.piece_kernels import cut
texts = [np.frombuffer(text.encode("utf-32-le"), np.uint32) for text in ("price <= 580", "price ~ <= 580")]
pieces = [len(cut(text)) for text in texts]
how = {"loaded": sum(cut.stats.cache_hits.values()), "compiled": sum(cut.stats.cache_misses.values())}
print(json.dumps({"pieces": pieces, **how}))
"""


def run(package: Path, cache: Path, script: str = READ, **environment: str) -> dict[str, object]:
    """What a script prints in a process of its own, with a package and a cache of its own."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "DIBS_"))}
    own |= {"PYTHONPATH": str(package.parent), "DIBS_CACHE": str(cache), **environment}
    done = subprocess.run([sys.executable, "-c", script], env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def copy_of_the_package(folder: Path) -> Path:
    shutil.copytree(PACKAGE, folder / "dibs", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "dibs"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.slow
def test_what_calls_an_edited_kernel_of_another_file_is_compiled_again(tmp_path: Path) -> None:
    package, cache = copy_of_the_package(tmp_path / "here"), tmp_path / "cache"
    compiled = {"pieces": [4, 5], "loaded": 0, "compiled": 1}
    loaded = compiled | {"loaded": 1, "compiled": 0}
    assert run(package, cache) == compiled
    assert run(package, cache) == loaded

    # Another path and other file times, as on another machine.
    elsewhere = copy_of_the_package(tmp_path / "elsewhere")
    for file in elsewhere.rglob("*.py"):
        os.utime(file, (1, 1))
    moved = shutil.copytree(cache, tmp_path / "moved")
    assert run(elsewhere, moved) == loaded

    # What a function of a module without kernels does is no part of any kernel.
    edit(package / "language" / "table.py", "    return prefix[:-1]", "    prefix = prefix[:]\n    return prefix[:-1]")
    assert run(package, cache) == loaded

    edit(package / "language" / "pieces.py", "elif CLASSES[c] == _BLANK:", "elif CLASSES[c] == _BLANK or c == 126:")
    assert run(package, cache) == {"pieces": [4, 4], "loaded": 0, "compiled": 1}


def test_an_edited_constant_of_a_module_without_kernels_counts(tmp_path: Path) -> None:
    package = copy_of_the_package(tmp_path)
    script = "import json; from dibs.jit.stamps import stamp_of; print(json.dumps({m: stamp_of(m) for m in %r}))"
    script %= ["dibs.coding.domain", "dibs.storage.checksum"]
    before = run(package, tmp_path, script)
    with (package / "language" / "table.py").open("a") as table:
        table.write("\nNEW = 1\n")
    after = run(package, tmp_path, script)
    assert after["dibs.coding.domain"] != before["dibs.coding.domain"]  # which imports it
    assert after["dibs.storage.checksum"] == before["dibs.storage.checksum"]


def test_an_edited_number_makes_nothing_stale(tmp_path: Path) -> None:
    package = copy_of_the_package(tmp_path)
    script = "from dibs.jit.stamps import kernel_modules as modules, stamp_of_all as of; print(f'\"{of(modules())}\"')"
    before = run(package, tmp_path, script)
    for file in ("coding/arrange.py", "index/auto/records.py", "index/auto/shares.py"):  # two of them have kernels
        source = (package / file).read_text()
        edited = re.sub(r"( = tuned\(\s*\"\w+\"), ", r"\1, 1 + ", source)
        assert edited != source
        (package / file).write_text(edited)
    assert run(package, tmp_path, script) == before


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBA_CACHE_DIR", "DIBS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/do/not/count")
    assert place.cache_folder() == tmp_path / "home" / ".cache" / "dibs"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert place.cache_folder() == tmp_path / "xdg" / "dibs"
    monkeypatch.setenv("DIBS_CACHE", str(tmp_path / "own"))
    assert place.cache_folder() == tmp_path / "own"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert place.cache_folder() == tmp_path / "numba"


def test_a_place_that_cannot_be_written_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("no folder can be made below this")
    for name in ("NUMBA_CACHE_DIR", "DIBS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(file / name))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = place.cache_folder()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)  # others may write there: what is loaded from it would be run
    place._folder.cache_clear()
    assert place.cache_folder() != folder


def test_folders_of_other_stamps_go_when_nobody_has_used_them_for_long(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in ("index.scan-old", "index.scan-new", "index.kernels-old"))
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "code.nbc").write_bytes(b"")
    long_ago = time.time() - place.UNUSED - 1
    os.utime(old, (long_ago, long_ago))
    os.utime(other, (long_ago, long_ago))
    used = place.module_folder(tmp_path, "dibs.index.scan", "a stamp")
    assert sorted(tmp_path.iterdir()) == sorted([new, other, used])


def test_a_parcel_of_kernels_spares_another_machine_the_compiling(tmp_path: Path) -> None:
    pack = """
import json, pickle
import numpy as np
from dibs.jit import parcel, ready
from dibs.segments import ids
assert parcel.pack() is None  # not all is compiled
ids._mix(np.zeros(1, np.uint64))
ready.note().write_text("{}")
print(json.dumps({"packed": pickle.dumps(tuple(parcel.pack())).hex()}))
"""
    unpack = """
import json, pickle
import numpy as np
from dibs.jit import parcel, ready
from dibs.segments import ids
sent = parcel.Parcel(*pickle.loads(bytes.fromhex("%s")))
other = parcel.unpack(sent._replace(processor="another one"))
opened = parcel.unpack(sent)
ids._mix(np.zeros(1, np.uint64))
stats = ids._mix.stats
loaded, compiled = (sum(x.values()) for x in (stats.cache_hits, stats.cache_misses))
print(json.dumps([other, opened, ready.is_ready(), loaded, compiled]))
"""
    sent = run(PACKAGE, tmp_path / "driver", pack)["packed"]
    assert run(PACKAGE, tmp_path / "worker", unpack % sent) == [False, True, True, 1, 0]
    assert run(PACKAGE, tmp_path / "worker", unpack % sent) == [False, False, True, 1, 0]  # it is there


def test_processes_that_compile_at_once_keep_all_they_compiled(tmp_path: Path) -> None:
    script = """
import json, sys
import numpy as np
from dibs.segments import ids
for dtype in json.loads(sys.argv[1]) if len(sys.argv) > 1 else ["u8", "i8", "u4", "i4"]:
    ids._hash_strings(np.array([0, 1], dtype), np.zeros(1, np.uint8))
stats = ids._hash_strings.stats
print(json.dumps({"loaded": sum(stats.cache_hits.values())}))
"""
    own = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "DIBS_CACHE": str(tmp_path)}
    own.pop("NUMBA_CACHE_DIR", None)
    orders = (["u8", "i8"], ["u4", "i4"])
    both = [subprocess.Popen([sys.executable, "-c", script, json.dumps(x)], env=own, stdout=-1) for x in orders]
    for process in both:
        process.communicate()
        assert process.returncode == 0
    assert run(PACKAGE, tmp_path, script) == {"loaded": 4}


COMPILE_ONE = """
import json
import numpy as np
from dibs.segments import ids
ids._hash_strings(np.array([0, 1]), np.zeros(1, np.uint8))
stats = ids._hash_strings.stats
loaded, compiled = (sum(x.values()) for x in (stats.cache_hits, stats.cache_misses))
print(json.dumps({"loaded": loaded, "compiled": compiled}))
"""


def test_what_is_damaged_is_compiled_again(tmp_path: Path) -> None:
    compiled, loaded = {"loaded": 0, "compiled": 1}, {"loaded": 1, "compiled": 0}
    assert run(PACKAGE, tmp_path, COMPILE_ONE) == compiled
    for kind, kept in ((".nbi", 0), (".nbi", 40), (".nbc", -1)):
        for file in tmp_path.rglob(f"ids._hash_strings*{kind}"):
            file.write_bytes(file.read_bytes()[:kept])
        assert run(PACKAGE, tmp_path, COMPILE_ONE) == compiled
    assert run(PACKAGE, tmp_path, COMPILE_ONE) == loaded


def test_what_cannot_be_kept_is_compiled_all_the_same(tmp_path: Path) -> None:
    """A file stands where the kernels of a module should lie: nobody can write there, not even root."""
    script = """
from dibs.jit import place
from dibs.jit.stamps import stamp_of
folder = place.cache_folder() / place.folder_name("dibs.segments.ids", stamp_of("dibs.segments.ids"))
folder.write_text("")
"""
    assert run(PACKAGE, tmp_path, script + COMPILE_ONE) == {"loaded": 0, "compiled": 1}


def test_processes_that_are_killed_and_others_beside_them(tmp_path: Path) -> None:
    """Many begin at once over an empty cache, and half of them are killed somewhere in the middle."""
    own = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "DIBS_CACHE": str(tmp_path)}
    own.pop("NUMBA_CACHE_DIR", None)
    begun = [subprocess.Popen([sys.executable, "-c", COMPILE_ONE], env=own, stdout=-1, stderr=-1) for _ in range(6)]
    index = "ids._hash_strings-*.nbi"
    while not list(tmp_path.rglob(index)) and any(process.poll() is None for process in begun):
        time.sleep(0.01)
    for process in begun[::2]:
        process.kill()
    for process in begun:
        _, story = process.communicate()
        assert process.returncode in (0, -9), story
        assert process.returncode == 0 or process in begun[::2]
    run(PACKAGE, tmp_path, COMPILE_ONE)
    assert run(PACKAGE, tmp_path, COMPILE_ONE) == {"loaded": 1, "compiled": 0}
