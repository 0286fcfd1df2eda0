"""The table of routes as an OpenAPI document, and as a page."""

from __future__ import annotations

import html
import re
from typing import Any

from dibs import __version__
from dibs.service import schemas
from dibs.service.problems import TITLES
from dibs.service.routes import INTEGER, JSON, LINES, PROBLEM, Parameter, Route

TYPES = {"string": "string", "integer": "integer", "boolean": "boolean"}
ALWAYS = ("argument", "unauthorized", "forbidden", "method", "quota", "unavailable")
OF_BODIES = ("body", "timeout", "too-large", "media-type", "event")
OF_PATHS = ("unknown-id",)
OF_CHANGES = ("idempotency", "changed")
HEADERS = {
    "Idempotency-Key": "A repeat within a day gives the first answer again.",
    "If-Match": 'The version that it must have, as its ETag: "7".',
    "If-None-Match": "*: only if it is not there.",
}


def document(routes: list[Route]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        if route.method != "WEBSOCKET" and not route.path.startswith("/internal/"):
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    about = "Standing queries over HTTP: save them, publish events, be told. Errors are problem documents (RFC 9457)."
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dibs", "version": __version__, "description": about},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": schemas.PROBLEM},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    parameters = [
        {"name": n, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 1_000}}
        for n in names
    ]
    parameters += [_parameter(p) for p in route.parameters]
    headers = ["Idempotency-Key"] if route.changes else []
    if route.changes and INTEGER in route.parameters:
        headers += ["If-Match", *(["If-None-Match"] if route.method == "PUT" else [])]
    parameters += [
        {"name": h, "in": "header", "description": HEADERS[h], "schema": {"type": "string"}} for h in headers
    ]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.handler.split(".")[-1].replace(":", "_"),
        "description": f"Role: {route.role}.",
        "parameters": parameters,
        "responses": _answers(route),
    }
    if route.role != "nobody":
        operation["security"] = [{"token": []}]
    if route.body is not None or route.lines:
        content: dict[str, Any] = {} if route.body is None else {JSON: {"schema": route.body}}
        if route.lines:
            content[LINES] = {"schema": {"type": "string", "description": "One JSON object per line."}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": TYPES[parameter.type]}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.least is not None:
        schema["minimum"] = parameter.least
    if parameter.most is not None:
        schema["maximum"] = parameter.most
    if parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.repeated:
        schema = {"type": "array", "items": schema, "maxItems": 1_000}
    return {"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema}


def _answers(route: Route) -> dict[str, Any]:
    schema = {key: value for key, value in route.answer.items() if key != "x-media"}
    content = {route.answer.get("x-media", JSON): {"schema": schema}}
    if route.lines and route.answer is not schemas.CHANGED:
        content[LINES] = {"schema": {"type": "string"}}
    answers: dict[str, Any] = {str(route.status): {"description": "Done.", "content": content}}
    if route.method == "PUT":
        answers["201"] = answers[str(route.status)] | {"description": "It is new."}
    kinds: tuple[str, ...] = ALWAYS if route.role != "nobody" else ("argument", "forbidden", "method")
    kinds += OF_BODIES if route.method in ("POST", "PUT") else ()
    kinds += OF_PATHS if "{" in route.path or route.role != "nobody" else ()
    kinds += OF_CHANGES if route.changes else ()
    for kind in kinds:
        status, title = TITLES[kind]
        problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
        answers.setdefault(str(status), {"description": title, "content": {PROBLEM: problem}})
    if route.path == "/ready":
        answers["503"] = {"description": "Not ready.", "content": content}
    return answers


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font: 600 1rem ui-monospace, monospace; margin: 2rem 0 .25rem; border-top: 1px solid #8884; padding-top: 1rem; }
h2 span { display: inline-block; min-width: 4.5rem; color: #0a7d5a; }
table { border-collapse: collapse; font-size: .9rem; } td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
code, pre { font: .85rem ui-monospace, monospace; } pre { overflow-x: auto; }
"""


def page(routes: list[Route]) -> str:
    """Read by a browser without any other host, or script."""
    from dibs.service import routes as contract

    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
             f"<title>Dibs: the HTTP API</title><style>{STYLE}</style><h1>Dibs {__version__}: the HTTP API</h1>"
             "<p>The same as a document for programs: <a href=/openapi.json>/openapi.json</a>."]  # fmt: skip
    for route in routes:
        if route.path.startswith("/internal/"):
            continue
        parts.append(f"<h2><span>{route.method}</span> {html.escape(route.path)}</h2>")
        parts.append(f"<p>{html.escape(route.summary)}. Role: {route.role}.</p>")
        rows = "".join(
            f"<tr><td><code>{p.name}</code><td>{p.type}<td>{html.escape(p.about)}"
            f"{f' Default: {html.escape(str(p.default))}.' if p.default is not None else ''}"
            for p in route.parameters
        )
        parts.append(f"<table>{rows}</table>" if rows else "")
    parts.append(f"<h2>All of it</h2><pre>{html.escape(contract.__doc__ or '')}</pre></html>")
    return "".join(parts)
