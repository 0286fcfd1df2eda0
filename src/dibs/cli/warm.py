"""dibs warm: compiles the kernels before anybody waits for them."""

from __future__ import annotations

from typing import Annotated

import typer

from dibs.cli.outcome import outcome, say
from dibs.cli.progress import bar

HELP = """
Compile what matching needs, once on a machine, over all cores: a minute or so.

\b
    dibs warm
    dibs warm --all       the structures of the literature too (Matcher(index=...)): several minutes

What is compiled already is kept, so calling it again costs nothing. The cache may be copied to machines with the same
kind of processor, or made part of an image: in a Dockerfile, `RUN dibs warm` after dibs is installed.
"""


def warm(
    everything: Annotated[bool, typer.Option("--all", help="Also the structures of the literature.")] = False,
    processes: Annotated[
        int | None, typer.Option(help="How many to compile at once; by default as many as there are cores.", min=1)
    ] = None,
) -> None:
    from dibs.warming.processes import guess_kernels
    from dibs.warming.processes import warm as warm_up

    with outcome():
        with bar("compiling", guess_kernels(everything)) as progress:
            done = warm_up(everything, processes, progress)
        if done.compiled:
            say(f"{done.compiled:,} kernels compiled in {done.seconds:.0f} seconds")
        else:
            say("everything was compiled already")
        say(f"{done.bytes / 2**20:.1f} MB in {done.folder}")
