"""`dibs serve --demo`: the shop's saved searches, and products that come one after the other, published by a client of
this process as anybody would publish them."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

from dibs import engine
from dibs.client import Client, ServiceError
from dibs.errors import DibsError
from dibs.matcher import Matcher
from dibs.workloads.shop import Shop, generate

SUBSCRIPTIONS, EVENTS = 20_000, 5_000
PER_SECOND = 20.0
STREAM = "demo"  # a destination that some of the searches have
DELIVERED = 50  # searches that have it
PATIENCE = 600  # tries to reach the service, a tenth of a second each


def fill_demo(folder: Path) -> Shop:
    """The shop; its searches are put into the folder, unless something is there already."""
    engine.load()
    shop = generate(SUBSCRIPTIONS, EVENTS, weights=True)
    with Matcher.open(folder) as matcher:
        if not len(matcher):
            matcher.add_table(shop.subscriptions)
    return shop


def publish_for_ever(shop: Shop, url: str, token: str, stopping: threading.Event) -> None:
    """In a thread, until it is told to stop."""
    texts = shop.events["attributes"].to_pylist()
    rows = shop.subscriptions.slice(0, DELIVERED).to_pylist()
    with Client(url, token) as client:
        for _ in range(PATIENCE):
            try:
                client.put_destination(STREAM, "stream")
                break
            except ServiceError:
                if stopping.wait(0.1):
                    return
        for row in rows:
            client.put(row["id"], row["expression"], row["weight"], owner="demo", destination=STREAM)
        for text in itertools.cycle(texts):
            if stopping.wait(1 / PER_SECOND):
                return
            try:
                client.publish(text)
            except DibsError:  # a limit, or the service is stopping: the next one may pass
                continue
