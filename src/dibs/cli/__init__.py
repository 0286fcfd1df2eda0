"""The command `dibs`. What it does is in commands.py; here is how it starts and ends: without a traceback, also when it
is interrupted while it is still importing, or when nobody reads what it prints."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # see dibs/__init__.py
if TYPE_CHECKING:
    from typing import Any

INTERRUPTED = 130  # 128 and the number of the signal, as shells count


def main() -> None:
    try:
        from dibs.cli.importing import import_undisturbed

        import_undisturbed()
        from dibs.cli.commands import app

        code = app()
    except SystemExit as end:
        code = 0 if isinstance(end.__context__, BrokenPipeError) else end.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = 0
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what comes now is only tidying up
    sys.exit(_flush(code))


def _flush(code: Any) -> Any:
    """The code, when everything has been written that somebody still reads."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:  # Python flushes once more at exit: into nothing
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = 0 if stream is sys.stdout else code
    return code


def __getattr__(name: str) -> Any:
    if name == "app":
        from dibs.cli.commands import app

        return app
    raise AttributeError(f"module 'dibs.cli' has no attribute {name!r}")
