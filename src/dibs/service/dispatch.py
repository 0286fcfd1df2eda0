"""From a path and a method to the route that answers, with all that each of its requests would otherwise look up."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from dibs.service.call import Call
from dibs.service.checking import check_parameters
from dibs.service.problems import Refusal
from dibs.service.routes import EXTENSIONS, ROUTES, Route

Handler = Callable[
    [Call], Any
]  # awaits an Answer or an Application; one that changes something may be a plain function


class ReadyRoute:
    def __init__(self, route: Route):
        self.route = route
        self.name = f"{route.method} {route.path}"
        self.has_body = route.method in ("POST", "PUT")
        self.defaults = check_parameters({}, route.parameters)  # of the parameters

    @cached_property
    def handler(self) -> Handler:
        """Imported when it is first asked for."""
        module, _, name = self.route.handler.partition(":")
        found: Handler = getattr(importlib.import_module(module), name)
        return found

    @cached_property
    def is_awaited(self) -> bool:
        """Else it is a plain function, for a thread."""
        return inspect.iscoroutinefunction(self.handler)


def all_routes() -> list[Route]:
    """The table, with those of delivery and console where they are there."""
    found = list(ROUTES)
    for place in EXTENSIONS:
        module, _, name = place.partition(":")
        if importlib.util.find_spec(module) is not None:
            found += getattr(importlib.import_module(module), name, ())
    return found


class Dispatch:
    """From a path to what can be done there: methods to routes."""

    def __init__(self, routes: list[Route]):
        self.plain: dict[str, dict[str, ReadyRoute]] = {}
        self.templates: dict[int, list[tuple[list[str], dict[str, ReadyRoute]]]] = {}
        for route in routes:
            if "{" not in route.path:
                self.plain.setdefault(route.path, {})[route.method] = ReadyRoute(route)
                continue
            parts = route.path.split("/")
            same = self.templates.setdefault(len(parts), [])
            methods = next((methods for known, methods in same if known == parts), None)
            if methods is None:
                methods = {}
                same.append((parts, methods))
            methods[route.method] = ReadyRoute(route)

    def find(self, raw_path: str) -> tuple[dict[str, ReadyRoute], dict[str, str]]:
        """raw_path: as it was sent, so that an id may hold a slash (%2F)."""
        methods = self.plain.get(raw_path)
        if methods is not None:
            return methods, {}
        given = raw_path.split("/")
        for parts, methods in self.templates.get(len(given), ()):
            if all(part == each or part.startswith("{") for part, each in zip(parts, given)):
                pairs = [(part[1:-1], each) for part, each in zip(parts, given) if part.startswith("{")]
                return methods, {name: _decode(each) for name, each in pairs}
        raise Refusal("not-found", "there is nothing at this path; GET /docs shows what there is")


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Refusal("argument", "the path is not UTF-8, percent-encoded") from None
