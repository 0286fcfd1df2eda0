"""The console's files over HTTP. They are read once; a path is a key to them, never a file's name."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from dibs.service.call import Answer, Call
from dibs.service.problems import Refusal

FOLDER = Path(__file__).parent / "static"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)


@lru_cache(1)
def files() -> dict[str, tuple[bytes, str, str]]:
    """Each file by its name: its bytes, its type, its tag."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        content = path.read_bytes()
        found[path.name] = (content, MEDIA[path.suffix], f'"{blake2b(content, digest_size=8).hexdigest()}"')
    return found


async def start(call: Call) -> Answer:
    return Answer(status=303, media=MEDIA[".html"], headers={"Location": "/console"})


async def page(call: Call) -> Answer:
    return _answer(call, "index.html")


async def file(call: Call) -> Answer:
    return _answer(call, call.path["file"])


def _answer(call: Call, name: str) -> Answer:
    known = files().get(name)
    if known is None:
        raise Refusal("not-found", "the console has no such file")
    content, media, tag = known
    headers = {"Content-Security-Policy": POLICY, "ETag": tag, "Cache-Control": "no-cache"}
    if call.headers.get(b"if-none-match", b"").decode("latin-1") == tag:
        return Answer(status=304, media=media, headers=headers)
    return Answer(content, media=media, headers=headers)
