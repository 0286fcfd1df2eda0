"""dibs generate: workloads to try and to measure with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli.formats import Format
from dibs.cli.outcome import outcome, say
from dibs.cli.progress import bar

if TYPE_CHECKING:
    import pyarrow as pa


class Workload(str, Enum):
    shop = "shop"
    sparse = "sparse"
    dense = "dense"
    dense_many = "dense-many"
    zipf = "zipf"
    ads = "ads"
    retail = "retail"
    begen = "begen"
    independent = "independent"
    normal_forms = "normal-forms"
    keywords = "keywords"
    products = "products"
    qgrams = "qgrams"
    targeting = "targeting"
    prefixes = "prefixes"
    profiles = "profiles"
    intervals = "intervals"


HELP = """
Write a workload: OUT/subscriptions.* and OUT/events.*, the same for the same seed.

\b
    shop        an online shop: some 2,000 attributes, saved searches against products
    sparse      integers over 30,000 attributes
    dense       integers over 100 attributes, few matches
    dense-many  integers over 100 attributes, many matches
    zipf        integers over 1,000 attributes of very different popularity
    ads         advertisement targeting: 122 attributes, mostly equality
    retail      integers over 20,000 attributes, short subscriptions

\b
and those of the papers, with their parameters as they are by default (other ones: dibs.papers.workloads in Python)
    begen         BE-Tree's and PS-Tree's: 400 attributes, an event matches 1 % of all subscriptions
    independent   OpIndex's: 20,000 attributes, subscriptions and events drawn independently
    normal-forms  the same parts as CNF of up to five clauses
    keywords      keyword queries against documents of tweet length
    products      products with skewed attributes, as on a market place
    qgrams        names as 3-grams
    targeting     advertisements: 122 attributes, 1 to 56 predicates
    prefixes      STARTSWITH on 100 attributes, = on 10,000
    profiles      intervals over two attributes
    intervals     intervals over one, and points

\b
    dibs generate shop --out data
    dibs match -s data/subscriptions.parquet -e data/events.parquet --attributes attributes -o pairs.parquet
    dibs generate sparse --out big --subscriptions 1000000 --events 1000 --format jsonl
"""


def generate(
    workload: Annotated[Workload, typer.Argument(help="Which one.")],
    out: Annotated[Path, typer.Option(help="The folder to write to; made if it is not there.")],
    subscriptions: Annotated[int, typer.Option(min=0, help="How many subscriptions.")] = 100_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Another number, another workload.")] = 1,
    weights: Annotated[bool, typer.Option("--weights", help="Give subscriptions a weight (shop only).")] = False,
    malformed: Annotated[
        float, typer.Option(min=0, max=1, help="Share of events that are broken off (shop only).")
    ] = 0.0,
    format: Annotated[Format, typer.Option(help="Format of the two files.")] = Format.parquet,
) -> None:
    with outcome():
        from dibs.workloads import shop

        if workload is not Workload.shop and (weights or malformed):
            raise typer.BadParameter("--weights and --malformed are for the shop only")
        out.mkdir(parents=True, exist_ok=True)
        files = [out / f"{name}.{format.value}" for name in ("subscriptions", "events")]
        with bar("subscriptions", subscriptions) as advance:
            if workload is Workload.shop:
                made = shop.generate(
                    subscriptions,
                    events,
                    seed=seed,
                    weights=weights,
                    malformed=malformed,
                    progress=lambda n, _: advance(n),
                )
                _write(files[0], format, made.subscriptions.schema, made.subscriptions.to_batches())
                event_batches = made.events.to_batches()
            else:
                generators = import_module("dibs.papers.workloads.generators")
                papers = generators.make_named(workload.value, subscriptions, events, seed)
                _write(files[0], format, papers.subscription_schema, papers.subscription_batches(), advance)
                event_batches = list(papers.event_batches())
        _write_events(files[1], format, event_batches)
        option = "" if format is Format.jsonl else " --attributes attributes"
        say(f"{subscriptions:,} subscriptions and {events:,} events; now try")
        say(f"    dibs match --subscriptions {files[0]} --events {files[1]}{option} --output pairs.parquet")


def _write(
    path: Path,
    format: Format,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    advance: Callable[[int], None] = lambda done: None,
) -> None:
    import orjson
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    done = 0
    with path.open("wb") as file:
        if format is Format.jsonl:
            for batch in batches:
                file.write(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in batch.to_pylist()))
                done += len(batch)
                advance(done)
            return
        if format is Format.csv:
            writer = pa.csv.CSVWriter(file, schema)
        elif format is Format.parquet:
            writer = pa.parquet.ParquetWriter(file, schema)
        else:
            writer = pa.ipc.new_file(file, schema)
        with writer:
            for batch in batches:
                writer.write_batch(batch)
                done += len(batch)
                advance(done)


def _write_events(path: Path, format: Format, batches: list[pa.RecordBatch]) -> None:
    """Tables have a column `attributes`; in JSON lines the attributes stand beside the id, as an application has them.
    CSV has no maps, so there the attributes are JSON text."""
    import orjson
    import pyarrow as pa

    if format is Format.jsonl:
        with path.open("wb") as file:
            for batch in batches:
                for id, attributes in zip(
                    batch.column("id").to_pylist(), batch.column("attributes").to_pylist(), strict=True
                ):
                    text = attributes if isinstance(attributes, str) else orjson.dumps(dict(attributes)).decode()
                    file.write(f'{{"id":{id},{text[1:]}\n'.encode())
        return
    if format is Format.csv and pa.types.is_map(batches[0].schema.field("attributes").type):
        texts = [
            [orjson.dumps(dict(row)).decode() for row in batch.column("attributes").to_pylist()] for batch in batches
        ]
        batches = [
            pa.record_batch({"id": batch.column("id"), "attributes": pa.array(text)})
            for batch, text in zip(batches, texts, strict=True)
        ]
    _write(path, format, batches[0].schema, batches)
