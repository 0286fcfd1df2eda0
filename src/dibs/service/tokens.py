"""Tokens: who somebody is, and what they may do. A secret is shown once, when it is made; its hash is kept."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from dibs.errors import ArgumentError, DibsError, show
from dibs.service.database import Database
from dibs.service.routes import Role
from dibs.service.settings import ALL, MAIN, check_tenant

PREFIX = "dibs_"
ROLES = tuple(role for role in get_args(Role) if role not in ("any", "nobody"))
IMPLIED = {"write": {"read", "write"}, "admin": set(ROLES)}
FRESH = 1.0  # seconds


@dataclass(frozen=True)
class Identity:
    """Who asks."""

    token: str  # its name
    tenant: str  # "*": all
    roles: frozenset[str]
    expires: float | None = None

    def may(self, role: Role) -> bool:
        return role in ("any", "nobody") or role in self.roles


EVERYBODY = Identity("open", MAIN, frozenset(ROLES))  # where no tokens are asked for


@dataclass(frozen=True)
class ListedToken:
    name: str
    tenant: str
    roles: str
    about: str
    created: float
    expires: float | None
    revoked: float | None

    @property
    def state(self) -> str:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires < time.time() else "in use"


class UnknownToken(DibsError, KeyError):
    """No token has this name."""

    def __str__(self) -> str:
        return str(self.args[0])


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def create_token(
    database: Database, tenant: str = MAIN, roles: Iterable[str] = ("read",), about: str = "", days: float | None = None
) -> tuple[str, str]:
    """The token's name and its secret, which nobody can look up again."""
    tenant = ALL if tenant == ALL else check_tenant(tenant)
    wanted = list(dict.fromkeys(roles))
    for role in wanted:
        if role not in ROLES:
            raise ArgumentError(f"a role is one of {', '.join(ROLES)}, not {show(role)}")
    if not wanted:
        raise ArgumentError(f"a token needs a role: {', '.join(ROLES)}")
    if tenant == ALL and wanted != ["admin"]:
        raise ArgumentError("a token of all tenants is an admin's: give the role admin, or a tenant")
    name, secret = secrets.token_hex(4), PREFIX + secrets.token_urlsafe(32)
    now = time.time()
    row = (name, hash_of(secret), tenant, ",".join(wanted), about, now, None if days is None else now + days * 86_400)
    database.write(lambda c: c.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", row))
    return name, secret


def revoke_token(database: Database, name: str) -> None:
    def work(connection: sqlite3.Connection) -> int:
        query = "UPDATE tokens SET revoked = ? WHERE name = ? AND revoked IS NULL"
        return connection.execute(query, (time.time(), name)).rowcount

    if not database.write(work):
        raise UnknownToken(f"no token that is in use has the name {name!r}; dibs token list shows them")


def list_tokens(database: Database) -> list[ListedToken]:
    rows = database.read("SELECT name, tenant, roles, about, created, expires, revoked FROM tokens ORDER BY created")
    return [ListedToken(*row) for row in rows]


class Tokens:
    """The tokens that are in use, in memory; looked at again when the database has changed, each second."""

    def __init__(self, database: Database):
        self._database = database
        self._stamp: tuple[int, ...] = ()
        self._looked = 0.0
        self.fresh = FRESH  # a revoked token is refused within this time
        self._known: dict[bytes, Identity] = {}
        self._names: set[str] = set()

    def identity(self, secret: str) -> Identity | None:
        """Who that is; None: nobody."""
        now = time.monotonic()
        if now - self._looked > self.fresh:
            self._look(now)
        found = self._known.get(hash_of(secret))
        return None if found is None or (found.expires is not None and found.expires < time.time()) else found

    def is_in_use(self, identity: Identity) -> bool:
        """Whether it still is, as of the last look."""
        return identity.token in self._names and (identity.expires is None or identity.expires >= time.time())

    def look(self) -> None:
        self._look(time.monotonic())

    def _look(self, now: float) -> None:
        stamp = self._database.stamp()
        if stamp != self._stamp or not self._database.read_only:
            query = "SELECT hash, name, tenant, roles, expires FROM tokens WHERE revoked IS NULL"
            self._known = {row[0]: _identity(*row[1:]) for row in self._database.read(query)}
            self._names = {identity.token for identity in self._known.values()}
            self._stamp = stamp
        self._looked = now

    def __bool__(self) -> bool:
        self._look(time.monotonic())
        return bool(self._known)


def _identity(name: str, tenant: str, roles: str, expires: float | None) -> Identity:
    given = roles.split(",")
    return Identity(name, tenant, frozenset().union(*(IMPLIED.get(role, {role}) for role in given)), expires)
