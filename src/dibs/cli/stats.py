"""dibs stats: what is stored, and what matching has cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dibs.cli.outcome import outcome, results
from dibs.cli.served import Address, ask, read_place

HELP = """
Show the numbers of a folder, a compiled index or a running service, as JSON.

\b
    dibs stats ./searches
    dibs stats http://127.0.0.1:8080

A service is asked with the token that DIBS_TOKEN holds, and tells its load and latencies too.
"""


def stats(
    place: Annotated[Any, typer.Argument(metavar="PATH", parser=read_place, help="A folder, or a service's address.")],
) -> None:
    with outcome():
        import orjson

        if isinstance(place, Address):
            with ask(place) as client:
                found = client.stats()
        else:
            from dibs import engine
            from dibs.matcher import Matcher

            engine.load()
            with Matcher.load(place) as matcher:
                found = {"subscriptions": len(matcher)} | matcher.stats() | {"plan": matcher.explain_plan()}
        options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        results().write(orjson.dumps(found, default=str, option=options))
