"""What the processes of a service say, on standard error: a line each, with time and level, or (--log json) as JSON:

    2026-11-18T03:12:45.123Z WARNING dibs.service: a process ended (-9); it is started again
    {"time": "2026-11-18T03:12:45.123Z", "level": "WARNING", "logger": "dibs.service", "message": "...", ...}

From the level info on there is a line for each request: route, status, seconds, tenant, and its id. That is what the
client has sent as X-Request-Id, or one of ours; the answer has it too, as has every answer that the service is to blame
for (5xx). Tokens, bodies and queries are in no line.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import sys
from collections.abc import MutableMapping
from datetime import datetime, timezone
from typing import Any, Literal, get_args

import orjson

from dibs.errors import ArgumentError, show

Form = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}\Z")
OF_UVICORN = {
    "Application startup failed. Exiting.",  # why is said by us, once
    "ASGI callable returned without completing response.",  # of answers that are broken off: so is this
    "ASGI callable returned without completing handshake.",  # of each WebSocket that is refused, as requests are
}
requests = logging.getLogger("dibs.service.requests")


def configure_logs(form: Form = "text", level: Level = "warning") -> None:
    """For this process, and again in each that it starts."""
    if form not in get_args(Form):
        raise ArgumentError(f"the form of the log is one of {', '.join(get_args(Form))}, not {show(form)}")
    if level not in get_args(Level):
        raise ArgumentError(f"the level of the log is one of {', '.join(get_args(Level))}, not {show(level)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(is_told)
    for name in ("dibs", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("dibs").setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


def is_told(record: logging.LogRecord) -> bool:
    """Requests that a stop has broken off are counted by uvicorn, in one line; each would have a traceback too."""
    is_stop = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return record.msg not in OF_UVICORN and not is_stop


def announce(text: str, form: Form) -> None:
    """What is said at every level: where the service listens, the first token."""
    if form == "json":
        logger = logging.getLogger("dibs.service")
        logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None))
    else:
        print(f"dibs: {text}", file=sys.stderr, flush=True)  # noqa: T201


# ---- requests ----


def request_id(scope: MutableMapping[str, Any]) -> str:
    """Of a request; the same one as often as it is asked for."""
    found = scope.get("dibs.request")
    if found is None:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        found = given.decode() if REQUEST_ID.match(given) else secrets.token_hex(8)
        scope["dibs.request"] = found
    return str(found)


def log_request(scope: MutableMapping[str, Any], route: str, status: int, seconds: float) -> None:
    about = {"request": request_id(scope), "route": route, "status": status, "seconds": round(seconds, 6)}
    if scope.get("dibs.tenant") is not None:
        about["tenant"] = scope["dibs.tenant"]
    requests.info("%s %d in %.1f ms", route, status, seconds * 1_000, extra={"about": about})


# ---- forms ----


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        about = getattr(record, "about", {})
        said = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        said += f" [{about['request']}]" if "request" in about else ""
        return said if record.exc_info is None else f"{said}\n{self.formatException(record.exc_info)}"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname, "logger": record.name}
        line |= {"message": record.getMessage(), "process": record.process} | getattr(record, "about", {})
        if record.exc_info is not None:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()
