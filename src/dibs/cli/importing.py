"""Imports of a command, where no interrupt can be lost.

Commands import what they need when they run. What Ctrl-C raises in the middle of an import may be dropped there: by a
callback of the interpreter's own, or by an extension module that takes any exception for a missing option. The command
would go on as if nobody had asked it to end. So while the main thread imports, another one does the work (see
jit.undisturbed), and the interrupt ends the waiting.

The process is the command's own, so all its import statements may be led this way.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from dibs.jit.undisturbed import undisturbed


def import_undisturbed() -> None:
    """From now on, for all import statements of this process."""
    plain = builtins.__import__

    def import_where_safe(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if (level == 0 and _is_there(name, fromlist or ())) or _is_importing():
            return plain(name, globals, locals, fromlist or (), level)
        return undisturbed(lambda: plain(name, globals, locals, fromlist or (), level))

    builtins.__import__ = import_where_safe


def _is_there(name: str, wanted: Sequence[str]) -> bool:
    """Whether nothing has to be loaded."""
    found = sys.modules.get(name)
    if found is None or getattr(getattr(found, "__spec__", None), "_initializing", False):
        return False
    return all(one in found.__dict__ for one in wanted)


def _is_importing() -> bool:
    """Whether this thread is in the middle of an import that did not come this way, as those of extension modules do:
    another thread that imports a part of it would wait for this one, and this one for the other."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
