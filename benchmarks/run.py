"""Measures everything and writes docs/benchmarks.

    python benchmarks/run.py                    everything, 1,000,000 subscriptions: about 15 minutes
    python benchmarks/run.py --quick            everything, 100,000 subscriptions, fewer repeats: about 8 minutes
    python benchmarks/run.py --only sparse ads  some sections
    python benchmarks/run.py --only structures --structures pbtree --workloads dense
                                                every index structure, or some, on every workload, or some

Each section runs in a process of its own, so that none finds the memory or the caches of another. A run of everything
writes benchmarks/results, the plots, the pages, docs/benchmarks and README's figures; others go to
results/partial.json or --out.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import host

HERE = Path(__file__).parent
FULL, QUICK = 1_000_000, 100_000  # subscriptions
STRUCTURES, QUICK_STRUCTURES = 50_000, 20_000
SCALE, QUICK_SCALE = 0.01, 0.002  # of the papers' sizes: a sample (make papers measures all)
STRUCTURE_SHAPES = ("sparse", "dense")
EVENTS = 1_000
SHAPES = ("sparse", "dense", "zipf", "ads", "retail")

# name -> module of sections/, and what its run() gets first
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "first-use": ("first_use", ()),
    "parsing": ("parsing", ()),
    "bulk": ("bulk", ()),
    "json": ("events_json", ()),
    **{shape: ("matching", (shape,)) for shape in SHAPES},
    "growth-sparse": ("growth", ("sparse",)),
    "growth-dense": ("growth", ("dense",)),
    "single": ("single", ()),
    "live": ("live", ()),
    "durable": ("durable", ()),
    "pages": ("pages", ()),
    "cliffs": ("cliffs", ()),
    "structures": ("structures", ()),
    "outside": ("outside", ()),
    "papers": ("papers", ()),
}


def main() -> int:
    options = _options()
    console = Console(stderr=True)
    names = options.only or list(SECTIONS)
    some = options.only or options.structures or options.workloads
    full = not (some or options.subscriptions or options.events != EVENTS)
    subscriptions = options.subscriptions or (QUICK if options.quick else FULL)
    size = {
        "subscriptions": subscriptions,
        "repeats": options.repeats or (5 if options.quick else 7),
        "events": options.events,
        "texts": min(5_000 if options.quick else 10_000, subscriptions),
        "structure_subscriptions": options.subscriptions or (QUICK_STRUCTURES if options.quick else STRUCTURES),
        "structures": tuple(options.structures or ()),
        "workloads": tuple(options.workloads or STRUCTURE_SHAPES),
        "scale": options.scale or (QUICK_SCALE if options.quick else SCALE),
    }
    if not some:
        _compile()
    measured = host.sources()
    results: dict[str, Any] = {"host": host.facts(), "size": size, "full": full, "sections": {}, "seconds": {}}
    start = time.monotonic()
    try:
        with _progress(console) as progress:
            task = progress.add_task("", total=len(names), doing="")
            for name in names:
                progress.update(task, description=name, doing="")
                run = _run_here if options.together else _run_in_own_process
                began = time.monotonic()
                results["sections"][name] = run(name, size, lambda text: _show(progress, task, text))
                results["seconds"][name] = round(time.monotonic() - began, 1)
                progress.advance(task)
    except SectionFailed as e:
        console.print(f"[bold red]{e.section} failed[/]: nothing is written.", highlight=False)
        console.print(e.reason, markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped: nothing is written.")
        return 130
    if host.sources() != measured:
        console.print("[bold red]The sources were changed while they were measured[/]: docs/benchmarks stays as it is.")
        full = results["full"] = False
    results["minutes"] = (time.monotonic() - start) / 60
    results["load average afterwards"] = host.load_average()
    out = options.out or HERE / "results" / ("full.json" if full else "partial.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    report = import_module("report")
    report.show(results, Console())
    console.print(f"Wrote {out}", highlight=False)
    if full and options.out is None:
        for path in report.write(results):
            console.print(f"Wrote {path}", highlight=False)
    return 0


def _compile() -> None:
    """Kernels on all cores, before the sections would compile them one after the other. If that fails, it says why, and
    they do."""
    subprocess.run([sys.executable, "-m", "dibs.cli", "warm", "--all"], check=False)


def _show(progress: Progress, task: Any, text: str) -> None:
    """What is going on; a text that ends its line stays."""
    if text.endswith("\n"):
        progress.console.print(text.rstrip(), highlight=False, markup=False)
    else:
        progress.update(task, doing=text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} subscriptions, fewer repeats")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SECTIONS, help=", ".join(SECTIONS))
    parser.add_argument("--structures", nargs="+", metavar="NAME", help="of the section structures; all by default")
    parser.add_argument("--workloads", nargs="+", metavar="NAME", choices=SHAPES, help="of the section structures")
    parser.add_argument("--subscriptions", type=_positive, metavar="N", help=f"{FULL:,} by default")
    parser.add_argument("--events", type=_positive, metavar="N", default=EVENTS, help=f"{EVENTS:,} by default")
    parser.add_argument(
        "--scale", type=float, metavar="SHARE", help="the share of the papers' sizes that their figures are sampled at"
    )
    parser.add_argument("--repeats", type=_positive, metavar="N", help="timed calls of each rival; the best counts")
    parser.add_argument("--together", action="store_true", help="one process for all sections: starts faster")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the results go, as JSON")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text.replace("_", "").replace(",", ""))
    if number < 1:
        raise ValueError
    return number


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("[bold]{task.description:<14}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}"),
        console=console,
    )


class SectionFailed(Exception):
    def __init__(self, section: str, reason: str):
        super().__init__(section)
        self.section, self.reason = section, reason


def _run_here(name: str, size: dict[str, Any], say: Any) -> Any:
    """The section's results, with how long it took and how busy the machine was."""
    from measure import Size, peak_bytes

    before, start = host.load_average(), time.monotonic()
    module, arguments = SECTIONS[name]
    try:
        section = import_module(f"sections.{module}")
        gc.collect()
        gc.freeze()  # sections look for garbage before they measure: what was imported is none
        result = section.run(*arguments, Size(**size), say)
    except SystemExit as e:
        raise SectionFailed(name, str(e)) from None
    except Exception:
        raise SectionFailed(name, traceback.format_exc()) from None
    seconds = time.monotonic() - start
    return {**result, "run": {"seconds": seconds, "load average before": before, "peak bytes": peak_bytes()}}


def _run_in_own_process(name: str, size: dict[str, Any], say: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(name, size, theirs))
    process.start()
    theirs.close()
    try:
        while True:
            kind, content = ours.recv()
            if kind == "doing":
                say(content)
            elif kind == "done":
                return content
            else:
                raise SectionFailed(name, content)
    except EOFError:
        process.join()
        reason = f"its process ended with {process.exitcode} (-9: the machine had no memory left)"
        raise SectionFailed(name, reason) from None
    finally:
        process.join()


def _answer(name: str, size: dict[str, Any], to: Connection) -> None:
    """Runs in the section's process."""
    with suppress(BrokenPipeError, KeyboardInterrupt):  # nobody waits for the answer any more
        try:
            to.send(("done", _run_here(name, size, lambda text: to.send(("doing", text)))))
        except SectionFailed as e:
            to.send(("failed", e.reason))


if __name__ == "__main__":
    sys.exit(main())
