"""dibs serve: subscriptions, matching and delivery over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli.csv_tables import declared_types
from dibs.cli.outcome import BadInput, outcome

if TYPE_CHECKING:
    from dibs.service.settings import Settings

HELP = """
Serve a folder of subscriptions over HTTP: save queries, publish events, be told.

\b
    dibs serve ./searches
    dibs serve ./searches --port 9000 --workers 4
    dibs serve ./searches --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    dibs serve ./demo --demo

The folder is a durable matcher (Matcher.open, dibs catalog); it is made if it is not there. Without a token nobody gets
in: the first start makes one for an admin and shows it once, `dibs token` makes others. --open asks for none, on
loopback.

GET /docs shows the API, docs/service.md how to run it. Needs: pip install 'dibs[serve]'.
"""


SERVED_TYPES_HELP = "Types of attributes, for tenants that are new: text, number, boolean, date, timestamp, ..."
HISTORY_HELP = """Published events of each tenant that EXISTS, FORALL and (SELECT ...) FROM history look at; 0: none. By
default what the folder was last opened with, or 100000."""


def serve(
    folder: Annotated[Path, typer.Argument(help="Where everything is kept.")],
    host: Annotated[
        str, typer.Option(help="The address to listen at; others than loopback are asked for.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0: any that is free.", min=0, max=65_535)] = 8080,
    workers: Annotated[
        int, typer.Option(help="Matching processes; with 1 the writer matches too.", min=1, max=256)
    ] = 1,
    open: Annotated[bool, typer.Option("--open", help="Ask for no token; loopback only.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of the certificate, with its chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    max_subscriptions: Annotated[int, typer.Option(help="Of each tenant; 0: any number.", min=0)] = 10_000_000,
    rate: Annotated[int, typer.Option(help="Requests per second of each tenant; 0: any number.", min=0)] = 0,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.", min=1_000)] = 32 << 20,
    max_document: Annotated[int, typer.Option(help="Bytes of one JSON document, or line.", min=1_000)] = 1 << 20,
    max_expression: Annotated[int, typer.Option(help="Characters of an expression.", min=1)] = 100_000,
    max_seconds: Annotated[int, typer.Option(help="For a body to come, and for an answer.", min=1)] = 30,
    max_requests: Annotated[int, typer.Option(help="Under way at once, of each token; 0: any.", min=0)] = 256,
    max_connections: Annotated[int, typer.Option(help="Of each process; 0: any number.", min=0)] = 2_000,
    max_streams: Annotated[int, typer.Option(help="Open at once, of all tenants; 0: any.", min=0)] = 1_000,
    max_bytes: Annotated[int, typer.Option(help="Of bodies and answers under way in a process; 0: any.", min=0)] = 512
    << 20,
    recent: Annotated[int, typer.Option(help="Events of each tenant that are kept to look at.", min=0)] = 10_000,
    history: Annotated[int | None, typer.Option(help=HISTORY_HELP, min=0)] = None,
    types: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE,...", help=SERVED_TYPES_HELP)] = None,
    threads: Annotated[int | None, typer.Option(help="Cores that one batch may use; by default all.", min=1)] = None,
    private_targets: Annotated[
        bool, typer.Option("--private-targets", help="Webhooks may go to private networks and this machine.")
    ] = False,
    secrets_key: Annotated[
        Path | None, typer.Option(help="File with the key that webhooks' secrets are encrypted with, at rest.")
    ] = None,
    broker: Annotated[list[str] | None, typer.Option(help="host:port of Kafka, for topics; may be repeated.")] = None,
    log: Annotated[str, typer.Option(help="How it says something: text, or json for a line of JSON each.")] = "text",
    log_level: Annotated[
        str, typer.Option(help="What it says: error, warning, info (each request, too) or debug.")
    ] = "warning",
    demo: Annotated[bool, typer.Option("--demo", help="Fill it with a shop, and let events flow.")] = False,
) -> None:
    with outcome():
        try:
            from dibs.service.server import run
            from dibs.service.settings import Limits, Settings
        except ImportError as error:
            raise BadInput(f"the service needs more packages ({error.name}): pip install 'dibs[serve]'") from None
        limits = Limits(
            max_subscriptions,
            rate,
            max_body,
            max_expression,
            max_seconds,
            document=max_document,
            requests=max_requests,
        )
        settings = Settings(
            folder=folder,
            host=host,
            port=port,
            workers=workers,
            open=open,
            tls_certificate=tls_cert,
            tls_key=tls_key,
            limits=limits,
            recent_events=recent,
            history=history,
            types=declared_types(types) or None,
            private_targets=private_targets,
            brokers=tuple(broker or ()),
            secrets_key=secrets_key,
            threads=threads,
            max_connections=max_connections,
            max_bytes=max_bytes,
            max_streams=max_streams,
            log=log,  # type: ignore[arg-type]
            log_level=log_level,  # type: ignore[arg-type]
        )
        if demo:
            _run_demo(settings)
        else:
            run(settings, _tell)


def _run_demo(settings: Settings) -> None:
    import threading

    from dibs.service.demo import fill_demo, publish_for_ever
    from dibs.service.logs import announce, configure_logs
    from dibs.service.private_files import keep_private
    from dibs.service.server import run

    keep_private()

    configure_logs(settings.log, settings.log_level)
    announce(f"filling {settings.folder} with a shop ...", settings.log)
    shop = fill_demo(settings.folder)
    stopping = threading.Event()
    publishers: list[threading.Thread] = []

    def told(listening: Settings) -> None:
        _tell(listening)
        token = "" if listening.open else _token_of_demo(listening)
        publisher = threading.Thread(target=publish_for_ever, args=(shop, listening.url, token, stopping), daemon=True)
        publisher.start()
        publishers.append(publisher)

    try:
        run(settings, told)
    finally:
        stopping.set()
        for publisher in publishers:
            publisher.join(5)


def _token_of_demo(settings: Settings) -> str:
    from dibs.service.database import Database
    from dibs.service.settings import DATABASE
    from dibs.service.tokens import create_token

    database = Database(settings.folder / DATABASE)
    try:
        return create_token(database, roles=("write", "publish"), about="publishes the demo's events", days=1)[1]
    finally:
        database.close()


def _tell(settings: Settings) -> None:
    from dibs.service.database import Database
    from dibs.service.logs import announce
    from dibs.service.settings import ALL, DATABASE
    from dibs.service.tokens import Tokens, create_token

    announce(f"serving {settings.folder} at {settings.url} (API: {settings.url}/docs)", settings.log)
    if settings.open:
        announce("everybody on this machine may do everything (--open)", settings.log)
        return
    database = Database(settings.folder / DATABASE)
    try:
        if not Tokens(database):
            _, secret = create_token(database, ALL, ("admin",), "made by the first start")
            announce(f"the token of the admin, shown this once: {secret}", settings.log)
    finally:
        database.close()
