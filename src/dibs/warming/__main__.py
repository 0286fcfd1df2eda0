"""python -m dibs.warming: everything, niced and in silence, for whoever started it; with the name of a part, that part,
with a line on standard output for each kernel that was compiled."""

from __future__ import annotations

import os
import sys
from typing import Any


def main(parts: list[str]) -> None:
    if not parts:
        from dibs.warming.processes import warm

        os.nice(10)
        warm()
        return
    from numba.core import event

    class Tell(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            pass

        def on_end(self, event: Any) -> None:
            if event.data["dispatcher"].py_func.__module__.startswith("dibs."):
                os.write(1, b"compiled\n")

    event.register("numba:compile", Tell())
    from dibs import engine
    from dibs.warming.workload import run

    engine.load()
    for part in parts:
        run(part)


if __name__ == "__main__":
    main(sys.argv[1:])
