"""Progress bars, for people only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


def load_engine() -> None:
    """The compiled engine, with a bar while its kernels are compiled."""
    from dibs import engine

    if engine.has_kernels():
        engine.load()
        return
    from dibs.warming.processes import guess_kernels

    with bar(engine.WAITING, guess_kernels()) as progress:
        engine.require(lambda done, _: progress(done))


@contextlib.contextmanager
def bar(title: str, total: int | None, beside_results: bool = False) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with how much is done. The bar is on standard error and vanishes at the end; there is
    none when nobody sees it, or when the results go to the same terminal (beside_results)."""
    if not sys.stderr.isatty() or (beside_results and sys.stdout.isatty()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns: list[Any] = [TextColumn(title), BarColumn(), TimeElapsedColumn()]
    if total:
        columns += [TextColumn("{task.percentage:3.0f} %, left:"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)
