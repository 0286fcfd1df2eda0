"""dibs token: who may use a service."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli.outcome import outcome, say
from dibs.errors import ArgumentError, FormatError

if TYPE_CHECKING:
    from dibs.service.database import Database

HELP = """
Make and revoke the tokens of a service (dibs serve), also while it runs.

\b
    dibs token create ./searches --role write
    dibs token create ./searches --tenant shop --role publish --about "the till"
    dibs token create ./searches --all-tenants
    dibs token list ./searches
    dibs token revoke ./searches 3f9a01bc
    dibs token limits ./searches shop --subscriptions 100000 --rate 50

Roles: read (look, match, explain), publish (publish events), write (read, and change subscriptions), admin (all).
The secret is printed once and kept as a hash. A revoked token is refused within a second.
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
Served = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that is served.")]


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[Database]:
    from dibs.service.database import Database
    from dibs.service.settings import DATABASE
    from dibs.storage.store import is_durable

    if not is_durable(folder):
        raise FormatError(f"{folder} holds no subscriptions: dibs serve, or dibs catalog, makes such a folder")
    database = Database(folder / DATABASE)
    try:
        yield database
    finally:
        database.close()


@app.command("create")
def create(
    folder: Served,
    tenant: Annotated[str, typer.Option(help="Whose; a new name is a new tenant.")] = "main",
    role: Annotated[list[str] | None, typer.Option(help="read, publish, write or admin; may be repeated.")] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="An admin's, for every tenant.")] = False,
    about: Annotated[str, typer.Option(help="Whom it was given to, for the list.")] = "",
    days: Annotated[float | None, typer.Option(help="For how long it holds.", min=0)] = None,
) -> None:
    """Make a token; prints its secret, once."""
    with outcome(), _database(folder) as database:
        from dibs.service.settings import ALL
        from dibs.service.tokens import create_token

        roles = role or (["admin"] if all_tenants else ["read"])
        try:
            name, secret = create_token(database, ALL if all_tenants else tenant, roles, about, days)
        except ArgumentError as error:
            raise typer.BadParameter(str(error)) from None
        typer.echo(secret)
        whose = "all tenants" if all_tenants else tenant
        say(f"token {name} of {whose}, {', '.join(roles)}: the secret is not shown again")


@app.command("list")
def list_(folder: Served, json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False) -> None:
    """List the tokens, without their secrets."""
    with outcome(), _database(folder) as database:
        import orjson

        from dibs.service.tokens import list_tokens

        found = list_tokens(database)
        for token in found:
            if json:
                about = {**vars(token), "state": token.state}
                sys.stdout.buffer.write(orjson.dumps(about, option=orjson.OPT_APPEND_NEWLINE))
                continue
            made = datetime.fromtimestamp(token.created).strftime("%Y-%m-%d")
            typer.echo(
                f"{token.name}  {token.state:<8} {token.tenant:<20} {token.roles:<20} {made}  {token.about}".rstrip()
            )
        say(f"{len(found):,} token{'s' * (len(found) != 1)}")


@app.command("revoke")
def revoke(folder: Served, name: Annotated[str, typer.Argument(help="The token's name, as in the list.")]) -> None:
    """Refuse a token from now on."""
    with outcome(), _database(folder) as database:
        from dibs.service.tokens import revoke_token

        revoke_token(database, name)
        say(f"revoked {name}")


@app.command("limits")
def limits(
    folder: Served,
    tenant: Annotated[str, typer.Argument(help="Whose.")],
    subscriptions: Annotated[int | None, typer.Option(min=0)] = None,
    rate: Annotated[int | None, typer.Option(min=0, help="Requests per second.")] = None,
    body: Annotated[int | None, typer.Option(min=0, help="Bytes of a request.")] = None,
    expression: Annotated[int | None, typer.Option(min=0, help="Characters.")] = None,
    seconds: Annotated[int | None, typer.Option(min=0, help="For a body to come, and for an answer.")] = None,
    streams: Annotated[int | None, typer.Option(min=0, help="That are open at once.")] = None,
    document: Annotated[int | None, typer.Option(min=0, help="Bytes of one JSON document, or line.")] = None,
    requests: Annotated[int | None, typer.Option(min=0, help="Under way at once, of each token.")] = None,
    bytes: Annotated[int | None, typer.Option(min=0, help="Of bodies and answers under way, of each token.")] = None,
) -> None:
    """Give a tenant limits of its own (0: none), from its next opening on; those not named are the service's."""
    with outcome(), _database(folder) as database:
        import orjson

        from dibs.service.settings import check_tenant

        given = {"subscriptions": subscriptions, "rate": rate, "body": body, "expression": expression}
        given |= {"seconds": seconds, "streams": streams, "document": document, "requests": requests, "bytes": bytes}
        chosen = {name: value for name, value in given.items() if value is not None}
        if not chosen:
            raise ArgumentError(f"name a limit: {', '.join(f'--{name}' for name in given)}")
        row = (check_tenant(tenant), orjson.dumps(chosen).decode())
        database.write(lambda c: c.execute("INSERT OR REPLACE INTO tenants VALUES (?, ?)", row))
        say(f"{tenant}: {', '.join(f'{name} {value:,}' for name, value in chosen.items())}")
