"""The console's files over HTTP. They are read once; a path is a key to them, never a file's name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import orjson

from dibs.language.functions import FUNCTIONS, describe_call
from dibs.language.sql import KEYWORDS
from dibs.service.call import Answer, Call
from dibs.service.problems import Refusal

FOLDER = Path(__file__).parent / "static"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FUNCTIONS_FILE = "functions.json"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


@lru_cache(1)
def files() -> dict[str, tuple[bytes, str]]:
    """Each file by its name: its bytes and its type."""
    found = {path.name: (path.read_bytes(), MEDIA[path.suffix]) for path in FOLDER.iterdir()}
    return found | {FUNCTIONS_FILE: (orjson.dumps(functions()), "application/json")}


def functions() -> list[dict[str, str]]:
    """For completion: the name of each function, how it is called, and what it gives."""
    names = sorted(name for name in FUNCTIONS if name.isidentifier() and name not in KEYWORDS)
    calls = {"CAST": "CAST(value AS type)", "EXTRACT": "EXTRACT(part FROM time)"}
    return [
        {"name": name, "call": calls.get(name) or describe_call(found._replace(name=name)), "about": found.about}
        for name in names
        if (found := FUNCTIONS[name])
    ]


async def start(call: Call) -> Answer:
    return Answer(status=303, media=MEDIA[".html"], headers={"Location": "/console"})


async def page(call: Call) -> Answer:
    return _answer("index.html")


async def file(call: Call) -> Answer:
    return _answer(call.path["file"])


def _answer(name: str) -> Answer:
    known = files().get(name)
    if known is None:
        raise Refusal("not-found", "the console has no such file")
    content, media = known
    return Answer(content, media=media, headers={"Content-Security-Policy": POLICY})
