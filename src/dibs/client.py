"""dibs.Client: a service (dibs serve) with the methods of a Matcher.

    client = dibs.Client("http://127.0.0.1:8080", token="dibs_...")
    client.add("alice", "price <= 580")
    client.match({"price": 550})        # ["alice"]
    client.publish({"price": 550})      # matched, counted and delivered

Events are dicts of what JSON can say, or JSON texts. What the service refuses is raised as the Matcher would raise it;
what only a service can refuse (tokens, limits) is a ServiceError. Needs: pip install 'dibs[client]'.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlsplit

import numpy as np
import orjson

from dibs.arguments import (
    DEFAULT_WEIGHT,
    Id,
    OnError,
    check_flag,
    check_number,
    check_on_error,
    check_several,
    check_text,
    is_integer,
)
from dibs.client_texts import batches_of, check_header, event_of, integer_of, json_of, lines_of, path_of
from dibs.coding.values import EventProblem
from dibs.errors import (
    ArgumentError,
    DibsError,
    DuplicateId,
    EventError,
    ExpressionError,
    Problem,
    Rejected,
    SubscriptionErrors,
    UnknownId,
    show,
)
from dibs.explain import Explanation, explain, explain_as_told
from dibs.items import check_id, check_item, check_weight, sought_id
from dibs.language.joins import joins_in
from dibs.language.present import Now, datetime_at, read_now
from dibs.language.sql import Validation, parse
from dibs.language.types import Types, check_types
from dibs.segments.state import Subscription

if TYPE_CHECKING:
    import httpx
    import pyarrow as pa

TOKEN = "DIBS_TOKEN"  # the environment variable for a token that is not given
JSON, LINES = "application/json", "application/jsonl"
AT_ONCE = 20_000  # subscriptions of one request
LONGEST = 1_000_000  # seconds to wait for an answer


class ServiceError(DibsError):
    """A service has refused a request, or cannot be reached. `status` is that of HTTP, 0 if there was no answer;
    `document` is its problem document."""

    def __init__(self, message: str, status: int = 0, document: Mapping[str, Any] | None = None):
        self.status, self.document = status, dict(document or {})
        super().__init__(message)


class ServedMatches:
    """Which subscriptions each event of a batch satisfies, as dibs.Matches: `len` is the number of events, `count` the
    number of pairs; iterating gives each event's ids, sorted (with `top`, the heaviest first)."""

    def __init__(self, found: list[list[Id]], problems: list[EventProblem]):
        self._found, self.problems = found, problems

    def __len__(self) -> int:
        return len(self._found)

    @property
    def count(self) -> int:
        return sum(map(len, self._found))

    def __iter__(self) -> Iterator[list[Id]]:
        return iter(self._found)

    def top(self, k: int) -> list[list[Id]]:
        """Of matches that were asked for with top=: the k heaviest of each event."""
        k = check_number("k", k)
        return [ids[:k] for ids in self._found]

    def pairs(self) -> pa.Table:
        """The columns event (row number in the batch) and subscription (id)."""
        import pyarrow as pa

        pairs = [(event, id) for event, ids in enumerate(self._found) for id in ids]
        plain = all(isinstance(id, int) for _, id in pairs)
        ids = pa.array([id if plain else str(id) for _, id in pairs], pa.int64() if plain and pairs else pa.string())
        return pa.table({"event": pa.array([event for event, _ in pairs], pa.int64()), "subscription": ids})

    def __repr__(self) -> str:
        return f"<ServedMatches: {len(self):,} events, {self.count:,} pairs>"


class Client:
    """A service, with the methods of a Matcher. token: by default what the environment variable DIBS_TOKEN says.
    tenant: which one is meant, for a token of all tenants. Close it, or use it in a with block."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        tenant: str | None = None,
        timeout: float = 60.0,
        verify: Any = True,
    ):
        try:
            import httpx
        except ImportError:
            raise DibsError("dibs.Client needs another package: pip install 'dibs[client]'") from None
        _check_url(url)
        check_text("tenant", tenant)
        if (not is_integer(timeout) and not isinstance(timeout, (float, np.floating))) or not 0 < timeout <= LONGEST:
            raise ArgumentError(f"timeout must be a number of seconds, not {show(timeout)}")
        if not isinstance(verify, (bool, ssl.SSLContext)):
            raise ArgumentError(f"verify must be True, False or an ssl.SSLContext, not {show(verify)}")
        secret = _check_token(os.environ.get(TOKEN, "") if token is None else token)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._params = {} if tenant is None else {"tenant": tenant}
        verify = verify if url.startswith("https://") else False
        try:
            http = httpx.Client(base_url=url, headers=headers, timeout=float(timeout), verify=verify)
        except (httpx.InvalidURL, ValueError) as error:
            raise ArgumentError(f"url must be the address of a service, not {show(url)}: {error}") from None
        self._http: httpx.Client = http
        self._declared: Types | None = None
        self.url = url

    # ---- subscriptions ----

    def add(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT, **more: Any) -> None:
        """Adds a subscription; more: owner, labels, destination, mode, paused. Raises ExpressionError, DuplicateId."""
        id, weight = check_id(id), check_weight(weight)
        try:
            self._put(id, {"expression": expression, "weight": weight, **more}, {"If-None-Match": "*"})
        except ServiceError as error:
            if error.status == 412:
                raise DuplicateId(id) from None
            raise

    def put(self, id: Id, expression: str, weight: float = DEFAULT_WEIGHT, **more: Any) -> None:
        """Adds a subscription, or replaces all of it; more: as add()."""
        id, weight = check_id(id), check_weight(weight)
        self._put(id, {"expression": expression, "weight": weight, **more}, {})

    def put_destination(self, name: str, kind: str, **more: Any) -> dict[str, Any]:
        """Adds a destination, or changes it: kind is webhook, stream or kafka; more: target, secret, limit, when_full,
        paused. A new one comes with its secret."""
        if not isinstance(name, str):
            raise ArgumentError(f"name must be a string, not {show(name)}")
        check_text("name", name)
        path = f"/v1/destinations/{quote(name, safe='')}"
        found: dict[str, Any] = orjson.loads(self._ask("PUT", path, json_of({"kind": kind, **more}), JSON).content)
        return found

    def add_many(self, items: Iterable[tuple[Any, ...]], on_error: OnError = "raise") -> list[Rejected]:
        """Adds (id, expression) or (id, expression, weight) items. Those of one request, some 20,000, are added all or
        none (SubscriptionErrors); on_error="skip" adds the good ones and returns the others."""
        check_on_error(on_error)
        given = iter(check_several(items, "(id, expression) items", "use add for one subscription"))
        rejected: list[Rejected] = []
        done = 0
        while some := list(islice(given, AT_ONCE)):
            rejected += self._add(some, on_error, done)
            done += len(some)
        return rejected

    def _add(self, items: list[Any], on_error: OnError, first: int) -> list[Rejected]:
        """Those of one request. What is no subscription at all is not even sent."""
        rows: list[dict[str, Any]] = []
        places: list[int] = []  # of those rows
        bad: list[Rejected] = []
        for place, item in enumerate(items, first):
            try:
                rows.append(dict(zip(("id", "expression", "weight"), check_item(item))))
                places.append(place)
            except DibsError as error:
                shown = (*item, None, None) if isinstance(item, (tuple, list)) else (None, None)
                bad.append(Rejected(place, shown[0], shown[1], error))
        if bad and on_error == "raise":
            raise SubscriptionErrors(bad)
        params = {"mode": "add", "on_error": on_error}
        answer = self._ask("POST", "/v1/subscriptions", lines_of(rows), LINES, params, first=first)
        for each in orjson.loads(answer.content)["rejected"]:
            bad.append(_read_rejected({**each, "position": places[each["position"]]}, 0))
        return sorted(bad, key=lambda rejected: rejected.position)

    def add_table(self, table: Any, on_error: OnError = "raise") -> list[Rejected]:
        """Adds the rows of an Arrow table with the columns id, expression and, if there is one, weight."""
        from dibs.intake import as_table

        rows = as_table(table)
        for name in ("id", "expression", "weight"):
            number = rows.column_names.count(name)
            if number > 1 or (number == 0 and name != "weight"):
                raise ArgumentError(f"the table must have one column {name!r}; its columns are {rows.column_names}")
        names = [name for name in ("id", "expression", "weight") if name in rows.column_names]
        try:
            columns = [rows[name].to_pylist() for name in names]
        except ValueError as error:  # a text that is not UTF-8
            raise ArgumentError(f"the table cannot be read: {error}") from None
        return self.add_many(zip(*columns), on_error)

    def replace(self, id: Id, expression: str, weight: float | None = None) -> None:
        """Changes a subscription's expression (and its weight, if given); the rest of it stays. Raises UnknownId,
        ExpressionError."""
        while True:
            old = self._get(id)
            kept = {name: old[name] for name in ("owner", "labels", "destination", "mode", "paused")}
            body = {**kept, "expression": expression, "weight": old["weight"] if weight is None else weight}
            try:
                self._put(id, body, {"If-Match": f'"{old["version"]}"'})
                return
            except ServiceError as error:
                if error.status != 412:  # it has changed meanwhile: look again
                    raise

    def _put(self, id: Id, body: dict[str, Any], headers: dict[str, str]) -> None:
        self._ask("PUT", path_of(id), json_of(body), JSON, integer_of(id), headers)

    def remove(self, id: Id) -> None:
        """Removes a subscription. Raises UnknownId."""
        self._ask("DELETE", path_of(id), params=integer_of(id))

    def remove_many(self, ids: Iterable[Id]) -> None:
        """Removes subscriptions: all of them or, when one is not there, none. Raises UnknownId."""
        sought = [(id, sought_id(id)) for id in check_several(ids, "several ids", "use remove for one")]
        for given, id in sought:
            if id is None:
                raise UnknownId(given)
        try:
            self._ask("POST", "/v1/subscriptions", lines_of([{"id": id, "remove": True} for _, id in sought]), LINES)
        except SubscriptionErrors as error:
            raise UnknownId(error.rejected[0].id) from None

    def pause(self, id: Id) -> None:
        """Keeps a subscription, which matches nothing until resume(). Raises UnknownId."""
        self._ask("POST", path_of(id) + "/pause", params=integer_of(id))

    def resume(self, id: Id) -> None:
        """Lets a paused subscription match again. Raises UnknownId."""
        self._ask("POST", path_of(id) + "/resume", params=integer_of(id))

    def _get(self, id: Id) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self._ask("GET", path_of(id), params=integer_of(id)).content)
        return found

    def get(self, id: Id) -> Subscription:
        """What is known of a subscription. Raises UnknownId."""
        return _subscription(self._get(id))

    def pages(self, limit: int = 1_000, paused: bool | None = None) -> Iterator[list[Subscription]]:
        """All subscriptions in the order of their ids, some at a time; paused: only those that are, or are not."""
        limit = check_number("limit", limit)
        if paused is not None:
            check_flag("paused", paused)
        params = {"limit": str(limit)} | ({} if paused is None else {"paused": str(paused).lower()})
        while True:
            found = orjson.loads(self._ask("GET", "/v1/subscriptions", params=params).content)
            yield [_subscription(each) for each in found["subscriptions"]]
            if found["next"] is None:
                return
            params["after"] = found["next"]

    def expression(self, id: Id) -> str:
        """The text of a subscription."""
        return self.get(id).expression

    def weight(self, id: Id) -> float:
        """The weight of a subscription."""
        return self.get(id).weight

    def __contains__(self, id: object) -> bool:
        sought = sought_id(id)
        if sought is None:
            return False
        try:
            self._get(sought)
        except UnknownId:
            return False
        return True

    def __len__(self) -> int:
        return int(orjson.loads(self._ask("GET", "/v1/subscriptions", params={"limit": "1"}).content)["total"])

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that subscriptions mention, as far as a thousand of them."""
        params = {"limit": "1000", "values": "0"}
        found = orjson.loads(self._ask("GET", "/v1/attributes", params=params).content)["attributes"]
        return frozenset(each["name"] for each in found if each["subscriptions"])

    # ---- matching ----

    def match(self, event: Any, top: int | None = None, now: Now = None) -> list[Id]:
        """The ids of the subscriptions that the event satisfies, sorted; with `top`, those of the highest weight first,
        at most so many. now: what now() is, as in Matcher. Raises EventError."""
        params = ({} if top is None else {"top": str(check_number("top", top))}) | _present(now)
        answer = self._ask("POST", "/v1/match", event_of(event), JSON, params)
        found: list[Id] = orjson.loads(answer.content)["subscriptions"]
        return found

    def match_batch(
        self, events: Any, on_error: OnError = "raise", top: int | None = None, now: Now = None
    ) -> ServedMatches:
        """Matches a batch: a list of dicts or JSON texts, or JSON lines as bytes. on_error="skip": what cannot be read
        is listed in .problems. now: what now() is, as in Matcher."""
        check_on_error(on_error)
        params = {"on_error": on_error} | ({} if top is None else {"top": str(check_number("top", top))})
        params |= _present(now)
        found: list[list[Id]] = []
        problems: list[EventProblem] = []
        for body in batches_of(events):
            first = len(found)
            answer = self._ask("POST", "/v1/match", body, LINES, params, first=first)
            for place, line in enumerate(answer.content.splitlines(), first):
                row = orjson.loads(line)
                found.append(row["subscriptions"])
                told = row.get("problems", ())
                problems += [EventProblem(place, each["attribute"], each["detail"]) for each in told]
        return ServedMatches(found, problems)

    def publish(self, event: Any, key: str | None = None) -> dict[str, Any]:
        """Matches an event, counts and delivers it: {"event": its id, "count", "deliveries", ...}. key: the same one
        again, within a day, publishes nothing."""
        check_header("key", key)
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self._ask("POST", "/v1/publish", event_of(event), JSON, headers=headers)
        found: dict[str, Any] = orjson.loads(answer.content)
        return found

    def explain(self, id: Id, event: Mapping[str, Any], now: Now = None) -> Explanation:
        """Why the subscription matches the event, or why not, predicate by predicate. now: as in match."""
        present = read_now(now)
        if not isinstance(event, Mapping):
            raise EventError(f"an event is a dict of attributes, not {type(event).__name__}")
        text = self.expression(id)
        types = self._types()
        expression = parse(text, types)
        if next(joins_in(expression), None) is None:
            return explain(expression, event, id, now=present, types=types)
        body = json_of({"event": dict(event), "expression": text} | _present(now))
        told = orjson.loads(self._ask("POST", "/v1/explain", body, JSON).content)
        return explain_as_told(expression, event, id, told)

    def _types(self) -> Types:
        """The declared types of the tenant, which never change."""
        if self._declared is None:
            self._declared = check_types(orjson.loads(self._ask("GET", "/v1/whoami").content).get("types"))
        return self._declared

    def validate(self, expression: str) -> Validation:
        """What is wrong with an expression, as dibs.validate says it; the service may bound its size."""
        answer = self._ask("POST", "/v1/validate", json_of({"expression": expression}), JSON)
        found = orjson.loads(answer.content)
        told = [[Problem(**each) for each in found.get(key, ())] for key in ("problems", "warnings")]
        return Validation(*told)

    def backtest(self, expression: str, examples: int = 5) -> dict[str, Any]:
        """What the expression would have matched of the service's recent events."""
        body = json_of({"expression": expression, "examples": examples})
        found: dict[str, Any] = orjson.loads(self._ask("POST", "/v1/backtest", body, JSON).content)
        return found

    def stats(self) -> dict[str, Any]:
        """What the service says of itself."""
        found: dict[str, Any] = orjson.loads(self._ask("GET", "/v1/stats").content)
        return found

    # ---- asking ----

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        media: str = "",
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        first: int = 0,
    ) -> httpx.Response:
        import httpx

        sent = {**(headers or {}), **({"Content-Type": media} if media else {})}
        try:
            answer = self._http.request(
                method, path, content=body, params={**self._params, **(params or {})}, headers=sent
            )
        except httpx.HTTPError as error:
            raise ServiceError(f"{self.url} does not answer ({error or type(error).__name__}): does it run?") from None
        if not answer.is_success:
            _raise(answer, first)
        return answer

    def close(self) -> None:
        """Lets go of the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client: {self.url}>"


def _check_url(url: Any) -> None:
    """A token in the wrong place, or a password, is not repeated: what an error says ends up in logs."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        given = "a token" if isinstance(url, str) and url.strip().startswith("dibs_") else show(url)
        raise ArgumentError(f"url must be the address of a service, like http://127.0.0.1:8080, not {given}")
    try:
        place = urlsplit(url).netloc
    except ValueError as error:
        raise ArgumentError(f"url must be the address of a service, like http://127.0.0.1:8080: {error}") from error
    if "@" in place:
        raise ArgumentError("url has a user or a password, which a service does not ask for: give a token instead")


def _check_token(token: Any) -> str:
    """Without the line break that files and variables end with. The token itself is not repeated."""
    if not isinstance(token, str):
        raise ArgumentError(f"a token is a string, not {type(token).__name__}")
    found = token.strip()
    if not (found.isascii() and found.isprintable()) or " " in found:
        raise ArgumentError(f"the token has a character that no token has: look at what {TOKEN} or token= was given")
    return found


def _present(now: Now) -> dict[str, str]:
    """The parameter that says what now() is."""
    found = read_now(now)
    if found is None:
        return {}
    return {"now": found if isinstance(found, str) else datetime_at(found).isoformat()}


def _subscription(found: dict[str, Any]) -> Subscription:
    from datetime import datetime

    moment = datetime.fromisoformat(found["time"].replace("Z", "+00:00"))
    time = round(moment.timestamp() * 1e6)
    return Subscription(found["id"], found["expression"], found["weight"], found["version"], time)


def _problems(given: list[dict[str, Any]]) -> ExpressionError:
    return ExpressionError([Problem(**each) for each in given])


def _read_rejected(given: dict[str, Any], first: int) -> Rejected:
    error = _problems(given["problems"]) if "problems" in given else DibsError(given["detail"])
    return Rejected(first + given["position"], given["id"], None, error)


def _raise(answer: httpx.Response, first: int) -> NoReturn:
    """What the library would have raised."""
    try:
        document = orjson.loads(answer.content)
        kind, detail = document["type"].removeprefix("/problems/"), document["detail"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ServiceError(f"the service answered {answer.status_code}", answer.status_code) from None
    if kind == "expression":
        raise _problems(document["problems"])
    if kind == "subscriptions":
        raise SubscriptionErrors([_read_rejected(each, first) for each in document["rejected"]])
    if kind == "unknown-id":
        raise UnknownId(document["id"])
    if kind == "duplicate-id":
        raise DuplicateId(document["id"])
    if kind == "event":
        error = EventError(detail)
        error.event = None if document["event"] is None else first + document["event"]
        error.attribute = document["attribute"]
        raise error
    raise ServiceError(detail, answer.status_code, document)
