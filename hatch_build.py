"""Wheels with compiled kernels: DIBS_COMPILED names the folder that `python -m dibs.warming.shipping` filled.

Such a wheel is for one Python and one kind of machine. Without the variable the wheel is for all, and each machine
compiles for itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ABOUT = "about.json"


class CompiledKernels(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("DIBS_COMPILED")
        if not folder or version == "editable":
            return
        if not Path(folder, ABOUT).is_file():
            raise FileNotFoundError(f"DIBS_COMPILED: no kernels in {folder}; `make wheel` compiles them")
        build_data["force_include"][str(Path(folder).resolve())] = "dibs/compiled"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
