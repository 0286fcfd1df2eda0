"""Errors as problem documents (RFC 9457), in the words of the library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dibs.errors import (
    DibsError,
    DuplicateId,
    EventError,
    ExpressionError,
    LineTooLong,
    Problem,
    Rejected,
    StorageError,
    SubscriptionErrors,
    UnknownId,
)
from dibs.service.delivery import OutboxFull

TITLES = {
    "argument": (400, "A parameter is wrong"),
    "body": (400, "The body cannot be read"),
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The token may not do this"),
    "unknown-id": (404, "There is no such subscription"),
    "not-found": (404, "There is nothing here"),
    "method": (405, "This cannot be done here"),
    "timeout": (408, "It took too long"),
    "duplicate-id": (409, "The id is taken"),
    "idempotency": (409, "The key was used for something else"),
    "in-use": (409, "It is in use"),
    "changed": (412, "It is not as the condition wants"),
    "too-large": (413, "The body is too large"),
    "media-type": (415, "Another kind of body is expected"),
    "expression": (422, "The expression cannot be accepted"),
    "subscriptions": (422, "Some subscriptions cannot be accepted"),
    "event": (422, "The event cannot be read"),
    "destination": (422, "The destination cannot be used"),
    "quota": (429, "A limit is reached"),
    "internal": (500, "The service has failed"),
    "unavailable": (503, "Not now"),
}
FAILED = "the service has failed at this request; its log says more"
SHOWN = 1_000  # rejected subscriptions, or problems, of one answer


@dataclass
class Refusal(Exception):
    """An answer that is a problem document."""

    type: str
    detail: str
    more: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return TITLES[self.type][0]

    def document(self) -> dict[str, Any]:
        status, title = TITLES[self.type]
        about = {"type": f"/problems/{self.type}", "title": title, "status": status, "detail": self.detail}
        return about | self.more


def problem_of(problem: Problem) -> dict[str, Any]:
    """A mistake in an expression. (text: the part around the place, where the expression is long.)"""
    names = ("message", "advice", "start", "end", "line", "column", "text")
    return {name: getattr(problem, name) for name in names}


def list_rejected(rejected: Rejected) -> dict[str, Any]:
    found: dict[str, Any] = {"position": rejected.position, "id": rejected.id, "detail": str(rejected.error)}
    if isinstance(rejected.error, ExpressionError):
        found["problems"] = [problem_of(p) for p in rejected.error.problems]
    return found


def refusal_of(error: Exception) -> Refusal:
    """What the library has raised, as an answer."""
    text = str(error)
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ExpressionError):
        return Refusal("expression", text, {"problems": [problem_of(p) for p in error.problems]})
    if isinstance(error, SubscriptionErrors):
        listed = [list_rejected(r) for r in error.rejected[:SHOWN]]
        return Refusal("subscriptions", text, {"rejected": listed, "count": len(error.rejected)})
    if isinstance(error, DuplicateId):
        return Refusal("duplicate-id", text, {"id": error.id})
    if isinstance(error, UnknownId):
        return Refusal("unknown-id", text, {"id": error.id})
    if isinstance(error, EventError):
        return Refusal("event", text, {"event": error.event, "attribute": error.attribute})
    if isinstance(error, LineTooLong):
        return Refusal("body", text)
    if isinstance(error, StorageError):  # its text names files of the server: that is for the log
        return Refusal(
            "unavailable", "the service cannot write its files now; ask its operator", {}, {"Retry-After": "5"}
        )
    if isinstance(error, OutboxFull):
        more = {"destinations": error.destinations}
        return Refusal("quota", text, more, {"Retry-After": "5"})
    if isinstance(error, KeyError):  # a destination, a delivery: of this tenant
        return Refusal("not-found", text) if isinstance(error, DibsError) else Refusal("internal", FAILED)
    if isinstance(error, DibsError) and text.endswith("is closed"):  # the types of a tenant change just now
        return Refusal("unavailable", "the tenant is being opened anew", {}, {"Retry-After": "1"})
    if isinstance(error, DibsError):
        return Refusal("argument", text)
    return Refusal("internal", FAILED)
