"""A service (dibs serve) in the place of a folder or file: its address, its subscriptions, and what commands ask it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from dibs.arguments import Id
    from dibs.client import Client
    from dibs.storage.catalog_rows import Entry

SERVER_HELP = "The address of a service (dibs serve) to ask, with the token that DIBS_TOKEN holds."


class Address(str):
    """Of a service."""


Place = Union[Path, Address]


def read_place(text: str) -> Place:
    """A folder, or the address of a service."""
    return Address(text) if text.startswith(("http://", "https://")) else Path(text)


@contextlib.contextmanager
def ask(server: str) -> Iterator[Client]:
    from dibs.client import Client

    with Client(server) as client:
        yield client


class ServedCatalog:
    """The subscriptions of a service, as a catalog has them. Paused ones are in no catalog."""

    def __init__(self, client: Client):
        self._client = client

    def __len__(self) -> int:
        return len(self._client)

    def entries(self) -> Iterator[list[Entry]]:
        """In the order of ids, page by page: what changes meanwhile may be in it or not."""
        for page in self._client.pages(paused=False):
            yield [_entry(found) for found in page]

    def get_many(self, ids: Iterable[Id]) -> Iterator[Entry | None]:
        for id in ids:
            yield _entry(self._client.get(id)) if id in self._client else None


def _entry(found: Any) -> Entry:
    from dibs.storage.catalog_rows import Entry

    return Entry(found.id, found.expression, found.weight, found.version, found.time)


def show_backtest(found: dict[str, Any]) -> str:
    """What an expression would have matched of a service's recent events."""
    import orjson

    events, count = found["events"], found["count"]
    if not events:
        return "the service has no recent events"
    per_hour = f", {found['per_hour']:,.1f} per hour" if count else ""
    lines = [f"{count:,} of the {events:,} recent events match ({found['rate']:.2%}){per_hour}"]
    lines += [f"  {line}" for line in (found.get("why") or {}).get("lines", ())]
    lines += [f"    {each['time'][:19]}  {orjson.dumps(each['event']).decode()}" for each in found["examples"]]
    return "\n".join(lines)
