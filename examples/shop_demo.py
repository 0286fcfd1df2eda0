"""The main job of Dibs as an online shop sees it: who is to be told about which new product, and why?

Customers have saved searches (subscriptions), products arrive (events), and Spark matches every product against all
searches. Everything is made up by rule and lands below out/shop-demo; run it again as often as you like.

    make demo
    python examples/shop_demo.py --subscriptions 200000 --events 50000 --seed 7
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import dibs
from dibs.workloads import shop

JOB = Path(__file__).with_name("shop.toml")
MALFORMED = 0.0005  # some products arrive broken off, as they do
NOTIFICATIONS = 5
WAYS = (" = ", " IN ", " LIKE ", " <= ", " >= ", " BETWEEN ", " OR ", "NOT ", "CONTAINS")  # of asking
CONSOLE = Console(highlight=False)


@dataclass(frozen=True)
class Result:
    """What the run found; the tables are in `out`."""

    out: Path
    subscriptions: int
    events: int
    matches: int
    malformed: int
    match_seconds: float


@contextmanager
def step(title: str) -> Iterator[None]:
    """A spinner while it runs, then a line with its time."""
    started = time.perf_counter()
    with CONSOLE.status(title):
        yield
    CONSOLE.print(f"[green]✓[/] {title} [dim]{time.perf_counter() - started:.1f} s[/]")


def run(
    subscriptions: int = 100_000,
    events: int = 20_000,
    out: Path = Path("out/shop-demo"),
    seed: int = 1,
    master: str | None = None,
    state: Path | None = None,
) -> Result:
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    catalogue = write_shop(subscriptions, events, out, seed)
    CONSOLE.print(
        f"  {subscriptions:,} saved searches and {events:,} new products over {len(catalogue.frequency):,} attributes"
    )
    found = match_on_spark(out, master, state)
    show_counts(found, catalogue)
    show_notifications(out, catalogue)
    files = "subscriptions.parquet, events.parquet, matches.parquet"
    CONSOLE.print(f"Everything is in [bold]{escape(str(out))}[/]: {files}", soft_wrap=True)
    CONSOLE.print(f"[dim]{time.perf_counter() - began:.0f} s in all[/]")
    return found


def write_shop(subscriptions: int, events: int, out: Path, seed: int) -> shop.Shop:
    """Makes the shop and writes it as Parquet."""
    columns = (TextColumn("Making saved searches"), BarColumn(), MofNCompleteColumn())
    started = time.perf_counter()
    with Progress(*columns, console=CONSOLE, transient=True, disable=not CONSOLE.is_terminal) as progress:
        task = progress.add_task("", total=subscriptions)
        made = shop.generate(
            subscriptions,
            events,
            seed=seed,
            malformed=MALFORMED,
            progress=lambda done, _: progress.update(task, completed=done),
        )
    pq.write_table(made.subscriptions, out / "subscriptions.parquet")
    pq.write_table(made.events, out / "events.parquet")
    CONSOLE.print(f"[green]✓[/] Shop made and written as Parquet [dim]{time.perf_counter() - started:.1f} s[/]")
    return made


def match_on_spark(out: Path, master: str | None = None, state: Path | None = None) -> Result:
    """The job itself, as `dibs pipeline run examples/shop.toml` runs it: the file is all that one has to write."""
    from dibs.spark import BatchMetrics
    from dibs.spark.pipeline import read_job, run_job
    from dibs.spark.pipeline.run import start_session

    for old in ("checkpoint", "matches.parquet"):  # else the job would go on where it ended
        shutil.rmtree(out / old, ignore_errors=True)
    settings = {
        "source.path": str(out / "events.parquet"),
        "subscriptions.path": str(out / "subscriptions.parquet"),
        "sink.path": str(out / "matches.parquet"),
        "job.checkpoint": str(out / "checkpoint"),
    }
    if state is not None:
        settings["job.state"] = str(state)
    job = read_job(JOB, settings | ({} if master is None else {"spark.master": master}))
    with step("Spark started"):
        spark = start_session(job)
        spark.range(1).count()
    job = read_job(JOB, settings | {"job.partitions": str(max(2, spark.sparkContext.defaultParallelism))})
    batches: list[BatchMetrics] = []
    with step("Saved searches compiled, products matched on Spark, matches written as Parquet"):
        run_job(job, on_batch=batches.append, spark=spark)
    [batch] = batches
    return Result(
        out=out,
        subscriptions=batch.subscriptions,
        events=batch.events,
        matches=batch.matches,
        malformed=batch.malformed_events,
        match_seconds=batch.seconds,
    )


def show_counts(found: Result, catalogue: shop.Shop) -> None:
    matches = ds.dataset(found.out / "matches.parquet", format="parquet").to_table()
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_row("products", f"{found.events:,}")
    table.add_row("saved searches", f"{found.subscriptions:,}")
    table.add_row("matches", f"{found.matches:,}")
    table.add_row("matches per product", f"{found.matches / max(found.events, 1):.1f}")
    table.add_row(
        "products a second", f"{found.events / found.match_seconds:,.0f}  [dim](with the start of the workers)[/]"
    )
    table.add_row("malformed products", f"{found.malformed:,}  [dim](counted, never fatal)[/]")
    CONSOLE.print()
    CONSOLE.print(table)

    per_product = pc.value_counts(matches["event_id"].combine_chunks()).field("counts").to_numpy()
    bounds = [1, 3, 10, 30, 100, 300, 1_000, 10**9]
    bars = [("none", found.events - len(per_product))]
    for low, high in pairwise(bounds):
        label = f"{low} to {high - 1}" if high < 10**9 else f"{low:,} or more"
        bars.append((label, int(((per_product >= low) & (per_product < high)).sum())))
    while bars[-1][1] == 0 and len(bars) > 1:
        bars.pop()
    CONSOLE.print("\nCustomers to tell about a product")
    widest = max(count for _, count in bars)
    for label, count in bars:
        CONSOLE.print(f"  {label:>12}  [cyan]{'█' * round(40 * count / max(widest, 1))}[/] {count:,}")

    busiest = pc.value_counts(matches["subscription_id"].combine_chunks()).to_pylist()
    busiest = sorted(busiest, key=lambda row: (-row["counts"], row["values"]))[:3]
    texts = expressions(catalogue, [row["values"] for row in busiest])
    CONSOLE.print("\nMost active searches")
    for row in busiest:
        CONSOLE.print(
            f"  {row['counts']:>6,} products  [bold]{row['values']}[/]  {escape(texts[row['values']])}", soft_wrap=True
        )


def show_notifications(out: Path, catalogue: shop.Shop) -> None:
    """Some matches in words. The reasons come from explain, which reads the expression, not the index."""
    CONSOLE.print("\nNotifications, some of them\n")
    for subscription, expression, product in chosen_matches(out, catalogue):
        matcher = dibs.Matcher()
        matcher.add(subscription, expression)
        explanation = matcher.explain(subscription, product)
        assert explanation.matched, f"Spark and explain disagree about {subscription}"
        who = subscription.split("-")[0].capitalize()
        title = f"[bold]{escape(str(product['title']))}[/] for {product['price']} €"
        CONSOLE.print(f"  [bold]{who}[/], there is something for you: {title}")
        CONSOLE.print(f"    [dim]you asked for[/]  {escape(expression)}", soft_wrap=True)
        for part in explanation.deciding:
            CONSOLE.print(f"    [dim]because[/]        [green]✓[/] {escape(part.reason)}", soft_wrap=True)
        CONSOLE.print()


def chosen_matches(out: Path, catalogue: shop.Shop) -> list[tuple[str, str, dict[str, object]]]:
    """A few (subscription, expression, product), all different, of the matches whose searches ask in the most ways."""
    matches = ds.dataset(out / "matches.parquet", format="parquet").to_table()
    some = matches.take(np.linspace(0, len(matches) - 1, min(len(matches), 2_000)).astype(np.int64))
    texts = expressions(catalogue, some["subscription_id"].to_pylist())
    ways = {id: ("category = " in text, sum(way in text for way in WAYS)) for id, text in texts.items()}
    rows = sorted(some.to_pylist(), key=lambda row: ways[row["subscription_id"]], reverse=True)
    chosen: dict[int, str] = {}
    for row in rows:
        if row["subscription_id"] not in chosen.values():
            chosen.setdefault(row["event_id"], row["subscription_id"])
        if len(chosen) == NOTIFICATIONS:
            break
    products = catalogue.events.filter(pc.is_in(catalogue.events["id"], pa.array(list(chosen), pa.int64())))
    attributes = {row["id"]: orjson.loads(row["attributes"]) for row in products.to_pylist()}
    return [(subscription, texts[subscription], attributes[product]) for product, subscription in chosen.items()]


def expressions(catalogue: shop.Shop, ids: list[str]) -> dict[str, str]:
    wanted = pc.is_in(catalogue.subscriptions["id"], pa.array(ids, pa.string()))
    return {row["id"]: row["expression"] for row in catalogue.subscriptions.filter(wanted).to_pylist()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Match an online shop's new products against its saved searches, on Spark."
    )
    parser.add_argument("--subscriptions", type=int, default=100_000, help="saved searches (100,000)")
    parser.add_argument("--events", type=int, default=20_000, help="new products (20,000)")
    parser.add_argument("--out", type=Path, default=Path("out/shop-demo"), help="folder of the results (out/shop-demo)")
    parser.add_argument("--seed", type=int, default=1, help="another number, another shop")
    parser.add_argument("--master", help="where Spark runs it (local[*]), as spark://127.0.0.1:7077")
    parser.add_argument("--state", type=Path, help="folder of the driver alone, if workers see none of its folders")
    arguments = parser.parse_args()
    if arguments.subscriptions < 1 or arguments.events < 1:
        parser.error("--subscriptions and --events must be at least 1")
    try:
        run(**vars(arguments))
    except KeyboardInterrupt:
        sys.exit(130)
    except (dibs.DibsError, ImportError) as error:
        sys.exit(f"shop_demo: {error}")


if __name__ == "__main__":
    main()
