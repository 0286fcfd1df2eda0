"""dibs explain: why does an event satisfy a subscription, or why not?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli.csv_tables import declared_types
from dibs.cli.events import NOW_HELP, TYPES_HELP
from dibs.cli.formats import STANDARD, open_input, show_name
from dibs.cli.outcome import NO, BadInput, outcome, results
from dibs.cli.served import SERVER_HELP
from dibs.cli.subscriptions import HISTORY_HELP, read_subscriptions

if TYPE_CHECKING:
    from dibs.explain import Explanation

HELP = """
Tell why an event satisfies a subscription, or why not, predicate by predicate.

\b
    dibs explain --subscriptions subs.jsonl --id alice --event '{"model": "iphone5s", "price": 600}'
    dibs explain --expression "price <= 580" --event '{"price": 550}'
    head -1 events.jsonl | dibs explain -s subs.jsonl --id alice
    dibs explain -x "EXISTS d (price < d.price)" --event '{"price": 20}' --history books.jsonl
    dibs explain -s alerts --id alice --event '{"price": 600}'          # a folder of Matcher.open, with its history
    dibs explain --server http://127.0.0.1:8080 --id alice --event '{"price": 600}'

Exit code 0: it matches; 1: it does not.
"""


def explain(
    subscriptions: Annotated[
        str | None, typer.Option("--subscriptions", "-s", help="File with id, expression[, weight].")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Which of its subscriptions.")] = None,
    server: Annotated[str | None, typer.Option("--server", help=SERVER_HELP)] = None,
    expression: Annotated[
        str | None, typer.Option("--expression", "-x", help="An expression, in place of a file.")
    ] = None,
    event: Annotated[
        str, typer.Option("--event", "-e", help="The event, a JSON object; - reads standard input.")
    ] = STANDARD,
    json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
    history: Annotated[str | None, typer.Option(help=HISTORY_HELP)] = None,
    now: Annotated[str | None, typer.Option(metavar="TIME", help=NOW_HELP)] = None,
    types: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE,...", help=TYPES_HELP)] = None,
) -> None:
    with outcome():
        if sum(given is not None for given in (expression, subscriptions, server)) != 1:
            raise typer.BadParameter("give either --expression, or --subscriptions or --server with --id")
        if (expression is not None) != (id is None):
            raise typer.BadParameter("--subscriptions and --id go together: a file, and which one of it")
        if server is not None and history is not None:
            raise typer.BadParameter("the history of a service is its own", param_hint="--history")
        if subscriptions == event == STANDARD:
            raise typer.BadParameter("only one of --subscriptions and --event can be standard input")
        import orjson

        from dibs.matcher import Matcher

        if types and expression is None and (server is not None or _is_durable(Path(str(subscriptions)))):
            raise typer.BadParameter("a service, or a durable folder, has its own types", param_hint="--types")
        if server is not None:
            explanation = _explain_served(server, str(id), _read_event(event), now)
        elif subscriptions is not None and _is_durable(Path(subscriptions)):
            if history is not None:
                raise typer.BadParameter("a durable matcher has its own history", param_hint="--history")
            explanation = _explain_stored(subscriptions, str(id), _read_event(event), now)
        else:
            found: Any = "expression"
            if expression is None:
                found, expression = _find(str(subscriptions), str(id))
            matcher = Matcher(types=declared_types(types) or None)
            matcher.add(found, expression)
            if history is not None:
                matcher.history.load(history)
            explanation = matcher.explain(found, _read_event(event), now)
        if json:
            results().write(orjson.dumps(explanation.to_dict(), option=orjson.OPT_APPEND_NEWLINE))
        else:
            typer.echo(str(explanation))
        if not explanation.matched:
            raise typer.Exit(NO)


def _find(name: str, wanted: str) -> tuple[Any, str]:
    """The subscription of this id: the text itself, or the integer that it shows."""
    read = read_subscriptions(name)
    for id, expression in read:
        if str(id) == wanted:
            return id, expression
    bad = f", and {len(read.problems):,} lines of it are no subscriptions (see dibs validate)" if read.problems else ""
    raise BadInput(f"{show_name(name)}: none of its {len(read):,} subscriptions has the id {wanted!r}{bad}")


def _is_durable(path: Path) -> bool:
    if not path.is_dir():
        return False
    from dibs.storage.store import is_durable  # which imports much

    return is_durable(path)


def _explain_stored(folder: str, wanted: str, event: dict[str, Any], now: str | None) -> Explanation:
    """By a durable matcher, with the documents that it has."""
    from dibs import engine
    from dibs.cli.catalog import meanings
    from dibs.matcher import Matcher

    engine.load()
    with Matcher.open(folder, read_only=True) as matcher:
        for id in meanings(wanted, False):
            if id in matcher:
                return matcher.explain(id, event, now)
    raise BadInput(f"{show_name(folder)}: no subscription has the id {wanted!r}")


def _explain_served(server: str, wanted: str, event: dict[str, Any], now: str | None) -> Explanation:
    from dibs.cli.catalog import meanings
    from dibs.client import Client

    with Client(server) as client:
        for id in meanings(wanted, False):
            if id in client:
                return client.explain(id, event, now)
    raise BadInput(f"{server}: no subscription has the id {wanted!r}")


def _read_event(text: str) -> dict[str, Any]:
    import orjson

    content = open_input(text).read() if text == STANDARD else text.encode("utf-8", "surrogateescape")
    try:
        event = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the event is not JSON ({error}); expected one object, like '{{\"price\": 550}}'") from None
    if not isinstance(event, dict):
        raise BadInput("the event is not a JSON object; expected one, like '{\"price\": 550}'")
    return event
