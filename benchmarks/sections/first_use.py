"""What does a person meet first: README's first example, from the start of a process to the answer (first_use.py)."""

from __future__ import annotations

from typing import Any

import first_use
from dibs.jit.place import cache_folder
from measure import Say, Size


def run(size: Size, say: Say) -> dict[str, Any]:
    say("README's first example in new processes")
    took = first_use.first_example(cache_folder(), min(size.repeats, first_use.RUNS))
    return {kind: best._asdict() for kind, best in took.items()}
