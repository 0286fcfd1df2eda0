"""Compiled kernels as a parcel, for a machine that has none: what `auto` needs, for the sources of this process. (Those
of other structures are compiled there when they are used: with them a parcel would be twice as large.)

It is of use where the processor is the same; elsewhere it is left unopened. (What is run comes from whoever sent the
program itself.)
"""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from dibs.jit.place import cache_folder, folder_name
from dibs.jit.ready import is_ready, note, own_modules, processor
from dibs.jit.stamps import stamp_of

ORDER = (".nbc", ".nbi", ".json")  # code, then what leads to it, then the note that all is there


class Parcel(NamedTuple):
    processor: str
    content: bytes  # a zip file


def pack() -> Parcel | None:
    """The kernels that are compiled here; None if some that `auto` needs are not, or if they came with the package:
    then each machine has them from there."""
    return _pack(str(cache_folder()), note().name) if note().is_file() else None


@lru_cache(maxsize=1)
def _pack(root: str, ready: str) -> Parcel:
    folder = Path(root)
    files = [folder / ready]
    for module in own_modules():
        files += (folder / folder_name(module, stamp_of(module))).glob("*.nb[ci]")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as parcel:
        for file in sorted(files, key=lambda file: (ORDER.index(file.suffix), file)):
            parcel.write(file, file.relative_to(folder).as_posix())
    return Parcel(processor(), content.getvalue())


@lru_cache(maxsize=4)
def unpack(parcel: Parcel) -> bool:
    """Puts the kernels into the cache of this machine, unless they are of no use here, or not needed: whether that was
    done. Several processes may do so at once; what is there already stays."""
    if parcel.processor != processor() or is_ready():
        return False
    root = cache_folder()
    with zipfile.ZipFile(io.BytesIO(parcel.content)) as content:
        for name in content.namelist():
            target = root / name
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                handle, partial = tempfile.mkstemp(dir=target.parent)
                with os.fdopen(handle, "wb") as file:
                    file.write(content.read(name))
                os.replace(partial, target)
    return True
